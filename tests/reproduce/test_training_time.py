"""Gradient-trained rows: their budget of time, means over seeds, and learning curves from one fit."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

import monogram as mg
from monogram.errors import NumericalError
from monogram.evaluation.metrics import parse
from monogram.reproduce import runner as runner_
from monogram.reproduce import training_time
from monogram.reproduce.cache import Cache
from monogram.reproduce.paper import PaperTable, Row
from monogram.reproduce.runner import Runner

pytest.importorskip("torch")
SETTINGS = {"rank": 4, "batch": 16, "learning_rate": 0.05, "epochs": 3}
METRIC = parse("ndcg@5")


def table(*rows, **more):
    return PaperTable(name="t", title="t", metrics=("ndcg@5",), data=("gowalla",), rows=rows, **more)


def row(name="BPR", seeds=1, **changed):
    return Row(name=name, model="factorization", settings={"gowalla": SETTINGS | changed}, seeds=seeds,
               printed={"gowalla": (0.1,)})  # fmt: skip


def value_of(model, split):
    return mg.evaluate(model.fit(split.train), split, ["ndcg@5"]).rows()[0]["value"]


@pytest.fixture
def split(folder):
    return mg.splits.lightgcn(folder / "gowalla.npz")


def test_the_time_is_shared_by_the_fits_that_are_left():
    left = training_time.TrainingTime(total=100.0, fits=4)
    assert left.share() == 25
    left.spend(10.0)
    assert left.share() == 30
    for _ in range(3):
        left.spend(40.0)
    assert left.share() == 1, "a fit that comes when the time is over still has a second"


def test_a_row_has_its_epochs_and_the_value_of_its_fit(paper, folder, split, tmp_path):
    (cell,) = Runner(folder, Cache(tmp_path / "c")).run(replace(paper, tables=(table(row()),)))
    assert (cell.epochs, cell.stopped, cell.closed_form, cell.reason) == (3, False, False, "")
    assert cell.value == pytest.approx(value_of(mg.Factorization(**SETTINGS), split))


def test_a_row_that_the_budget_stops_says_so_and_is_fitted_again_with_a_larger_one(
    paper, folder, tmp_path, monkeypatch
):
    endless, cache = replace(paper, tables=(table(row(epochs=1_000_000), row("short", l2=0.5)),)), Cache(tmp_path / "c")
    Runner(folder, cache).run(replace(paper, tables=(table(row("short", l2=0.5)),)))
    stopped, short = Runner(folder, cache, training=1.0).run(endless)
    assert stopped.stopped
    assert 1 <= stopped.epochs < 1_000_000
    assert stopped.reason == f"stopped by the budget after {stopped.epochs} epochs"
    assert not short.stopped
    fits, real = [], training_time.measure_curve
    monkeypatch.setattr(
        runner_.training_time, "measure_curve", lambda models, *more: fits.append(models) or real(models, *more)
    )
    assert Runner(folder, cache, training=1.0).run(endless) == [stopped, short]
    assert not fits, "the same budget changes nothing"
    longer, _ = Runner(folder, cache, training=3.0).run(endless)
    assert [(model.epochs, model.seconds) for (model,) in fits] == [(1_000_000, 3.0)], "not the row that was whole"
    assert longer.stopped
    alone = replace(paper, tables=(table(row(epochs=1_000_000)),))
    assert Runner(folder, cache, training=1.4).run(alone) == [longer], "a lower share keeps the better result"
    Runner(folder, cache, training=1.6).run(alone)
    assert fits[1][0].seconds == 1.6, "a larger share than one of two in three seconds"


def test_a_mean_over_seeds_has_a_deviation(paper, folder, split, tmp_path):
    tables = replace(paper, tables=(table(row(seeds=3), row("one", seed=1)),))
    mean, one = Runner(folder, Cache(tmp_path / "c")).run(tables)
    values = [value_of(mg.Factorization(**SETTINGS, seed=seed), split) for seed in range(3)]
    assert mean.value == pytest.approx(np.mean(values))
    assert mean.deviation == pytest.approx(np.std(values, ddof=1))
    assert (mean.seeds, mean.low, one.seeds, one.deviation) == (3, None, 1, None)
    assert one.value == pytest.approx(values[1])
    assert mean.settings == SETTINGS


def test_a_learning_curve_has_the_values_of_its_fits(paper, folder, split, tmp_path):
    points = tuple(row(epochs=epochs) for epochs in (1, 4, 2))
    cells = Runner(folder, Cache(tmp_path / "c")).run(replace(paper, tables=(table(*points, axis=("epochs",)),)))
    assert [cell.epochs for cell in cells] == [1, 4, 2]
    expected = [value_of(mg.Factorization(**SETTINGS | {"epochs": epochs}), split) for epochs in (1, 4, 2)]
    assert [cell.value for cell in cells] == pytest.approx(expected)
    assert cells[0].seconds < cells[2].seconds < cells[1].seconds
    assert len(set(expected)) > 1


def test_points_beyond_the_end_of_a_stopped_fit_are_its_end(split, monkeypatch):
    report = replace(mg.Factorization(**SETTINGS).fit(split.train).report_, epoch_seconds=(1.0, 2.0, 4.0), stopped=True)
    monkeypatch.setattr(training_time.shared_fits, "measure_fit", lambda *_: (report, "last"))
    models = [mg.Factorization(**SETTINGS | {"epochs": epochs}) for epochs in (2, 3, 9)]
    curve = training_time.measure_curve(models, split, (METRIC,), {})
    found = [(len(each.epoch_seconds), each.seconds["epochs"], each.stopped) for each, _ in curve]
    assert found == [(2, 3.0, False), (3, 7.0, True), (3, 7.0, True)]
    assert curve[-1][1] == "last"


def test_a_training_that_is_cut_inside_its_last_epoch_is_stopped(split):
    short = mg.Factorization(**SETTINGS | {"epochs": 1, "batch": 1, "seconds": 0.001}).fit(split.train)
    assert short.report_.stopped
    assert "stopped by the budget" in short.report_.note


def test_time_between_epochs_is_not_training_time(split):
    models = [mg.Factorization(**SETTINGS | {"epochs": epochs, "seconds": 60.0}) for epochs in (1, 2)]
    real, slept = training_time.measure_weights, []

    def slow(*arguments):
        slept.append(time.sleep(1.5))
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_time, "measure_weights", slow)
        (_, _), (report, _) = training_time.measure_curve(models, split, (METRIC,), {})
    assert slept
    assert report.seconds["epochs"] < 1.5


def test_a_seed_that_fails_is_named(paper, folder, tmp_path, monkeypatch):
    real = training_time.measure_curve

    def fail(models, *more):
        if models[0].seed == 1:
            raise NumericalError("not finite")
        return real(models, *more)

    monkeypatch.setattr(runner_.training_time, "measure_curve", fail)
    (cell,) = Runner(folder, Cache(tmp_path / "c")).run(replace(paper, tables=(table(row(seeds=3)),)))
    assert (cell.verdict, cell.reason) == ("failed", "seed 1: not finite")
