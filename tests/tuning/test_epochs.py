"""Early stopping and Optuna's journal: neither changes the result of a search, or loses trials."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys

import numpy as np
import pytest

import monogram as mg
from monogram.errors import DataError, StorageError
from monogram.evaluation.metrics import parse
from monogram.tuning import journal as journal_
from monogram.tuning import tpe
from monogram.tuning.epochs import EpochObserver, StoppedEarly
from monogram.tuning.group_runner import GroupRunner, Task
from monogram.tuning.journal import OptunaJournal
from monogram.tuning.settings import Setting
from monogram.tuning.study import Study

optuna = pytest.importorskip("optuna", reason="the extra tune is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore:RG2 has not converged"),
]

SPACE = {"wrmf": {"epochs": 6, "rank": 4}}
HOW = {"space": SPACE, "metric": "ndcg@5", "budget": "40 settings", "threads": 1}


def tried(found, name="wrmf"):
    return [row for row in found.rows() if row["model"] == name]


def plain(rows):
    return [(row["parameters"], row["value"], row["note"]) for row in rows]


def lines(path, name="wrmf"):
    return [row for row in map(json.loads, path.read_text().splitlines()[1:]) if row["model"] == name]


def journal(path):
    return path.with_name(path.name + ".optuna")


def kept(path):
    """Optuna's trials by study, as anyone reads them."""
    backend = optuna.storages.journal.JournalFileBackend(str(journal(path)))
    storage = optuna.storages.JournalStorage(backend)
    return {
        one.study_name: optuna.load_study(study_name=one.study_name, storage=storage).trials
        for one in storage.get_all_studies()
    }


def finished(trials):
    return [
        (one.params["l2"], one.state.name, one.value, one.intermediate_values)
        for one in trials
        if one.state.name in ("COMPLETE", "PRUNED")
    ]


@pytest.fixture(scope="module")
def whole(log, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "shop.jsonl"
    return mg.tune(log, "wrmf", study=path, **HOW), path


def test_a_stopped_setting_has_no_value_and_its_note_says_where(whole):
    found, path = whole
    stopped = [row for row in lines(path) if row.get("stopped")]
    assert 0 < len(stopped) < len(lines(path))
    for row in stopped:
        done, value = row["epochs"][-1]
        assert row["value"] is None
        assert row["note"] == f"stopped after {done} of 6 epochs at {value:.4f}"
    assert [row["note"] for row in tried(found) if row["value"] is None] == [row["note"] for row in stopped]


def test_a_stopped_setting_is_never_the_best(log, monkeypatch):
    monkeypatch.setattr(tpe, "FINISHED", 0)
    monkeypatch.setattr(optuna.trial.Trial, "should_prune", lambda self: self.number % 2 == 1)
    monkeypatch.setattr(
        GroupRunner, "_weights_value", lambda self, weights, recency: 0.99
    )  # in the middle better than any at its end
    found = mg.tune(log, "wrmf", **HOW)
    rows = tried(found)
    assert any("at 0.9900" in row["note"] for row in rows)
    assert found.best["value"] == max(row["value"] for row in rows if row["value"] is not None) < 0.99
    assert len(found.model.report_.objectives) == 6, "the refit is not stopped"
    assert [one["best"] for one in found.curve()][-1] < 0.99


def test_the_rule_is_the_median_of_the_finished(whole):
    before = []
    for row in lines(whole[1]):
        seen = dict(row["epochs"])
        for done in [one for one in seen if one >= tpe.FIRST and one < 6]:
            others = [one[done] for one in before if done in one]
            behind = len(before) >= tpe.FINISHED and max(v for d, v in seen.items() if d <= done) < np.median(others)
            assert behind == (row["stopped"] and done == max(seen)), row
        if not row["stopped"]:
            assert list(seen) == [1, 2, 4, 6]
            assert seen[6] == row["value"]
            before.append(seen)


def test_an_observed_setting_that_is_not_stopped_has_the_value_of_an_unobserved_one(whole, log):
    split = mg.splits.holdout(mg.splits.holdout(log, seed=0).train, share=0.1, seed=0)
    runner = GroupRunner(Task(split, parse("ndcg@5"), threads=1))
    for row in [one for one in tried(whole[0]) if one["value"] is not None][:4]:
        assert runner.run([Setting.of("wrmf", row["parameters"])])[0].value == row["value"]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("rg2", {"solver": ["als", "newton_cg"], "epochs": 5, "tolerance": 0, "rank": 8}),
        ("low_rank_edlae", {"solver": ["alternating", "admm", "closed_form"], "epochs": 5, "rank": 8}),
    ],
)
def test_other_models_in_epochs_are_observed(log, tmp_path, name, given, monkeypatch):
    monkeypatch.setattr(tpe, "FINISHED", 1)
    path = tmp_path / "shop.jsonl"
    mg.tune(log, name, study=path, **HOW | {"space": {name: given}, "budget": "30 settings"})
    rows = lines(path, name)
    assert any(row.get("stopped") for row in rows)
    assert any(row["value"] is not None for row in rows)
    for row in rows:
        assert ("epochs" in row) == (row["parameters"]["solver"] != "closed_form")


GRADIENT = {
    "factorization": {"batch": 512},
    "light_gcn": {"batch": 512, "layers": 1},
    "elsa": {"batch": 50},
    "mult_vae": {"batch": 50, "hidden": 8},
}


@pytest.mark.parametrize("name", GRADIENT)
def test_gradient_trained_models_are_stopped_by_their_epochs(log, tmp_path, name, monkeypatch):
    """A setting whose training is stopped ran so many epochs, and not one more."""
    pytest.importorskip("torch", reason="the extra torch is not installed")
    from monogram.gradient.trainer import Trainer

    monkeypatch.setattr(tpe, "FINISHED", 1)
    trained, epoch = [], Trainer._epoch
    monkeypatch.setattr(Trainer, "_epoch", lambda self, *args: (trained.append(self), epoch(self, *args)))
    path, space = tmp_path / "shop.jsonl", {name: GRADIENT[name] | {"epochs": 6, "rank": 4}}
    found = mg.tune(log, name, study=path, **HOW | {"space": space, "budget": "12 settings"})
    rows = lines(path, name)
    stopped = [row for row in rows if row["stopped"]]
    assert 0 < len(stopped) < len(rows)
    assert all(row["note"].startswith("stopped after 4 of 6 epochs at ") for row in stopped)
    assert all([done for done, _ in row["epochs"]] == [1, 2, 4] for row in stopped)
    refit = 6 * (found.model.name == name)
    assert len(trained) == 4 * len(stopped) + 6 * (len(rows) - len(stopped)) + refit
    (trials,) = kept(path).values()
    states = [trial.state.name for trial in trials if trial.state.name != "FAIL"]  # failed: proposed, but not tried
    assert states == ["PRUNED" if row["stopped"] else "COMPLETE" for row in rows]


def test_an_observer_measures_after_powers_of_two_only():
    made, observer = [], EpochObserver(lambda done, value: done == 8)
    look = observer.between(float)
    for done in range(1, 8):
        look(done, lambda done=done: made.append(done) or done / 10)
    with pytest.raises(StoppedEarly):
        look(8, lambda: made.append(8) or 0.8)
    assert made == [1, 2, 4, 8]
    assert observer.values == [(1, 0.1), (2, 0.2), (4, 0.4), (8, 0.8)]
    assert observer.note(16) == "stopped after 8 of 16 epochs at 0.8000"


def test_a_value_that_is_no_number_stops_nothing():
    observer = EpochObserver(lambda done, value: True)
    observer.between(lambda weights: float("nan"))(1, lambda: None)
    assert not observer.stopped
    assert observer.note(16) == ""


def test_optunas_journal_has_what_the_study_file_has(whole):
    ((title, trials),) = kept(whole[1]).items()
    assert title.startswith("wrmf, ndcg@5, ")
    rows = lines(whole[1])
    assert len(finished(trials)) == len(rows)
    for row, (l2, state, value, seen) in zip(rows, finished(trials), strict=True):
        assert row["parameters"]["l2"] == l2
        assert state == ("PRUNED" if row["stopped"] else "COMPLETE")
        assert value == (row["epochs"][-1][1] if row["stopped"] else row["value"])
        assert seen == dict(row["epochs"])
    assert not [one for one in trials if not one.state.is_finished()]


def test_without_a_study_nothing_is_written(whole, log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert plain(tried(mg.tune(log, "wrmf", **HOW))) == plain(tried(whole[0]))
    assert not list(tmp_path.iterdir())


def test_optuna_is_imported_only_where_it_is_needed(log, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)  # importing it would fail
    mg.tune(log, "ease", study=tmp_path / "shop.jsonl", metric="ndcg@5", budget="3 settings")
    assert not journal(tmp_path / "shop.jsonl").exists()


@pytest.mark.parametrize("write", [2, 9, *range(71, 170, 19)])
def test_a_search_killed_after_any_write_resumes(whole, log, tmp_path, monkeypatch, write):
    path, real, count = tmp_path / "shop.jsonl", os.fsync, []

    def killed(file):
        real(file)
        count.append(file)
        if len(count) == write:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        mg.tune(log, "wrmf", study=path, **HOW)
    resumed = mg.tune(log, "wrmf", study=path, **HOW)
    assert plain(resumed.rows()) == plain(whole[0].rows())
    (trials,) = kept(path).values()
    (expected,) = kept(whole[1]).values()
    assert finished(trials) == finished(expected)
    assert all(one.state.is_finished() for one in trials), "what was running has failed"


def cut_lines(path, rest):
    text = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(text[: len(text) * rest // 10]))


HALF = HOW | {"budget": "25 settings"}


@pytest.fixture(scope="module")
def half(log, tmp_path_factory):
    """The files of a study that ended early, and of one with another metric."""
    folder = tmp_path_factory.mktemp("half")
    mg.tune(log, "wrmf", study=folder / "shop.jsonl", **HALF)
    mg.tune(log, "wrmf", study=folder / "other.jsonl", **HALF | {"metric": "recall@5"})
    return folder


@pytest.mark.parametrize("harm", ["deleted", "behind", "half a line", "of another study", "ahead"])
def test_the_journal_is_made_whole_from_the_study_file(whole, half, log, tmp_path, harm):
    shutil.copytree(half, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "shop.jsonl"
    if harm == "deleted":
        journal(path).unlink()
    elif harm == "behind":
        cut_lines(journal(path), 6)
    elif harm == "half a line":
        journal(path).write_bytes(journal(path).read_bytes()[:-9])
    elif harm == "of another study":
        journal(tmp_path / "other.jsonl").replace(journal(path))
    else:
        cut_lines(path, 6)
    before = list(kept(path)) if journal(path).exists() else []
    resumed = mg.tune(log, "wrmf", study=path, **HOW)
    assert plain(resumed.rows()) == plain(whole[0].rows())
    (expected,) = kept(whole[1]).values()
    assert finished(list(kept(path).values())[-1]) == finished(expected)
    assert set(before) <= set(kept(path)), "what the journal held is not thrown away"


@pytest.mark.parametrize("text", ["no journal\n", '{"a": 1}\n', "[]\n", '{"op_code": 0}\n', '{"op_\n{}\n'])
def test_what_is_no_journal_is_left_alone(log, tmp_path, text):
    path = tmp_path / "shop.jsonl"
    mg.tune(log, "wrmf", study=path, **HOW | {"budget": "8 settings"})
    before = path.read_bytes()
    journal(path).write_text(text)
    with pytest.raises(DataError, match=r"not a journal of Optuna.*move it away"):
        mg.tune(log, "wrmf", study=path, **HOW)
    assert (path.read_bytes(), journal(path).read_text()) == (before, text)


def test_a_lock_that_a_kill_left_is_taken_over(log, tmp_path, monkeypatch):
    monkeypatch.setattr(journal_, "GRACE", 3)
    path = tmp_path / "shop.jsonl"
    (tmp_path / "shop.jsonl.optuna.lock").touch()
    mg.tune(log, "wrmf", study=path, **HOW | {"budget": "8 settings"})
    assert kept(path)
    assert not (tmp_path / "shop.jsonl.optuna.lock").exists()


def test_a_journal_that_cannot_be_opened(tmp_path):
    journal(tmp_path / "shop.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"shop\.jsonl\.optuna cannot be read or written.*all trials are in"):
        OptunaJournal(tmp_path / "shop.jsonl")


def test_a_full_disk_loses_nothing(whole, log, tmp_path, monkeypatch):
    path, real, count = tmp_path / "shop.jsonl", optuna.storages.journal.JournalFileBackend.append_logs, []

    def full(self, logs):
        count.append(logs)
        if len(count) == 90:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, logs)

    monkeypatch.setattr(optuna.storages.journal.JournalFileBackend, "append_logs", full)
    with pytest.raises(StorageError, match="No space left"):
        mg.tune(log, "wrmf", study=path, **HOW)
    assert plain(lines(path)) == plain(tried(whole[0])[: len(lines(path))])
    assert len(lines(path)) > 3
    assert plain(tried(mg.tune(log, "wrmf", study=path, **HOW))) == plain(tried(whole[0]))


def test_numbers_of_numpy_are_values_like_any(log, tmp_path):
    space = {"wrmf": {"epochs": np.array([3, 5]), "rank": range(3, 5)}}
    path = tmp_path / "shop.jsonl"
    found = mg.tune(log, "wrmf", study=path, **HOW | {"space": space, "budget": "20 settings"})
    assert {row["parameters"]["epochs"] for row in tried(found)} <= {3, 5}
    assert kept(path)


def test_optuna_does_not_receive_a_setting_of_another_space(log, tmp_path):
    path = tmp_path / "shop.jsonl"
    mg.tune(log, "wrmf", study=path, **HOW | {"budget": "12 settings"})
    held = Study(json.loads(path.read_text().splitlines()[0]), path)
    other = {"epochs": tpe.Axis((3,), "given"), "l2": tpe.Axis((1e-4, 1e-1))}
    assert not tpe.proposals({"wrmf": other}, held, 0)["wrmf"]._study.trials
