"""Every row gives cells, and cached results are not computed again."""

from __future__ import annotations

from dataclasses import replace

import pytest

import monogram as mg
from monogram.errors import DataError, NumericalError, ParameterError
from monogram.reproduce import cells_file, sets
from monogram.reproduce import runner as runner_
from monogram.reproduce.cache import Cache
from monogram.reproduce.paper import Choice, PaperTable, Row
from monogram.reproduce.runner import Runner, Selection

EASE = {"gowalla": {"l2": 10.0}}


def test_every_row_has_its_cells(paper, folder, tmp_path):
    cells = Runner(folder, Cache(tmp_path / "cache")).run(paper)
    table = [cell for cell in cells if cell.table == "table 1"]
    found = {(cell.data, cell.row, cell.metric): cell for cell in table}
    assert len(table) == len(found) == 4 * 2 + 2 * 2
    ease = found["gowalla", "EASE", "recall@5"]
    split = mg.splits.lightgcn(folder / "gowalla.npz")
    expected = mg.evaluate(mg.EASE(l2=10), split, ["recall@5"]).rows()[0]
    found_here = (ease.value, ease.low, ease.high, ease.users)
    assert found_here == pytest.approx(tuple(expected[name] for name in ("value", "low", "high", "users")))
    assert ease.verdict == "short"
    assert ease.seconds > 0
    assert ease.used == "gowalla"
    assert ease.size == {"users": 40, "items": 25, "events": split.train.n_events}
    assert ease.closed_form
    assert found["gowalla", "EASE", "ndcg@5"].verdict == "better"
    assert found["gowalla", "DEQL", "ndcg@5"].verdict == "not printed"
    assert found["gowalla", "Deep", "ndcg@5"].verdict == "no model"
    assert found["gowalla", "DLAE", "ndcg@5"].verdict == "no settings"
    missing = found["yelp2018", "DLAE", "recall@5"]
    assert missing.verdict == "no data"
    assert "yelp2018/train.txt" in missing.reason
    assert missing.settings == {"l2": 1.0}
    figure = [cell for cell in cells if cell.table == "figure b"]
    assert [cell.settings["b"] for cell in figure] == [0.0, 0.5, 1.0]
    assert all(cell.value is not None for cell in figure)


def test_a_second_run_computes_nothing(paper, folder, tmp_path, monkeypatch):
    cache, said = Cache(tmp_path / "cache"), []
    first = Runner(folder, cache, progress=said.append).run(paper)
    assert any("EASE(l2=10.0)" in text for text in said)
    monkeypatch.setattr(runner_.shared_fits, "measure_models", None)
    assert Runner(folder, cache).run(paper) == first


def test_an_interrupted_run_goes_on(paper, folder, tmp_path, monkeypatch):
    cache, real, done = Cache(tmp_path / "cache"), runner_.shared_fits.measure_models, []

    def counted(*arguments):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(runner_.shared_fits, "measure_models", counted)
    with pytest.raises(KeyboardInterrupt):
        Runner(folder, cache).run(paper)
    monkeypatch.setattr(
        runner_.shared_fits, "measure_models", lambda *arguments: done.append(arguments) or real(*arguments)
    )
    Runner(folder, cache).run(paper)
    assert [len(models) for models, *_ in done] == [1, 3], "EASE, then three b, of which the table has one"


def test_a_fit_that_is_refused_is_a_cell_with_the_reason(paper, folder, tmp_path):
    cells = Runner(folder, Cache(tmp_path), fit={"memory": 10}).run(paper, Selection(rows=["EASE"]))
    assert {cell.verdict for cell in cells if cell.data == "gowalla"} == {"failed"}
    assert all("nothing was allocated" in cell.reason or "not in the data folder" in cell.reason for cell in cells)
    assert not any('"values"' in file.read_text() for file in tmp_path.glob("*.json")), "a failure is not kept"


def test_a_stand_in_gets_no_verdict(paper, folder, tmp_path):
    row = Row(name="EASE", model="ease", settings={"gowalla": {"l2": 1.0}}, printed={"amazon-book": (0.5,)})
    own = Row(name="EDLAE", model="edlae", settings={"amazon-book": {"l2": 1.0}}, printed={"amazon-book": (0.4,)})
    table = PaperTable(name="t", title="t", metrics=("ndcg@5",), data=("amazon-book",), rows=(row, own))
    stood = replace(paper, tables=(table,), stand_ins={"amazon-book": "gowalla"})
    first, second = Runner(folder, Cache(tmp_path / "c")).run(stood, Selection(data=["gowalla"]))
    assert (first.verdict, first.used, first.data, first.difference) == ("stand-in", "gowalla", "amazon-book", None)
    assert second.verdict == "no data"
    assert sets.find("amazon-book", folder, "lightgcn") is None


def test_rank_and_seconds_are_of_the_fit(paper, folder, tmp_path):
    settings = {"gowalla": {"rank": 3}}
    row = Row(name="LRR", model="lrr", settings=settings, printed={"gowalla": (3.0, 10.0)})
    table = PaperTable(name="t", title="t", metrics=("rank", "seconds"), data=("gowalla",), rows=(row,))
    rank, seconds = Runner(folder, Cache(tmp_path / "c")).run(replace(paper, tables=(table,)))
    assert (rank.value, rank.verdict) == (3.0, "reproduced")
    assert seconds.verdict == "another machine"
    assert seconds.value == seconds.seconds


def test_settings_may_be_searched(paper, folder, tmp_path):
    runner = Runner(folder, Cache(tmp_path / "c"), choose=lambda row, place, table: Choice({"l2": 7.0}, 9, "a cut"))
    cells = runner.run(paper, Selection(data=["gowalla"], tables=["table 1"]))
    assert {cell.settings["l2"] for cell in cells if cell.row != "Deep"} == {7.0}
    assert {(cell.tried, cell.validation) for cell in cells if cell.row != "Deep"} == {(9, "a cut")}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (Selection(rows=["EASY"]), "has no row 'EASY'; expected one of Deep, EASE"),
        (Selection(data=["ml-1m"]), "has no data set"),
        (Selection(tables=["table 9"]), "has no table"),
    ],
)
def test_a_name_that_is_not_there(paper, folder, tmp_path, asked, text):
    with pytest.raises(ParameterError, match=text):
        Runner(folder, Cache(tmp_path)).run(paper, asked)


def test_a_figure_of_a_stand_in_that_is_not_there_keeps_its_rows(paper, folder, tmp_path):
    row = Row(name="LRR", model="lrr", settings={"ml-1m": {"rank": 3}})
    figure = PaperTable(
        name="figure 9", title="t", metrics=("ndcg@5",), data=("ml-20m",), rows=(row, row), axis=("rank",)
    )
    stood = replace(paper, tables=(figure,), stand_ins={"ml-20m": "ml-1m"})
    (cell,) = Runner(folder, Cache(tmp_path / "c")).run(stood)
    assert (cell.row, cell.verdict) == ("LRR", "no data")
    assert "ml-20m" in cell.reason
    here = replace(figure, data=("gowalla",))
    (cell,) = Runner(folder, Cache(tmp_path / "c")).run(replace(paper, tables=(here,)))
    assert cell.verdict == "no settings"


def test_a_search_that_fails_is_a_row_that_failed(paper, folder, tmp_path):
    def choose(*_):
        raise NumericalError("too small")

    cells = Runner(folder, Cache(tmp_path / "c"), choose=choose).run(
        paper, Selection(data=["gowalla"], tables=["table 1"])
    )
    assert {(cell.verdict, cell.reason) for cell in cells if cell.row == "EASE"} == {("failed", "too small")}
    assert any(cell.verdict == "no model" for cell in cells)


def test_derived_settings_depend_on_the_data(paper, folder, tmp_path, monkeypatch):
    def derive(log, settings):
        calls.append(log.n_users)
        return {"rank": settings["rank"], "l2": float(log.n_users)}

    calls = []
    row = Row(name="LRR", model="lrr", settings={"gowalla": {"rank": 3, "scale": 1.0}}, derive=derive)
    derived = replace(
        paper, tables=(PaperTable(name="t", title="t", metrics=("ndcg@5",), data=("gowalla",), rows=(row,)),)
    )
    (cell,) = Runner(folder, Cache(tmp_path / "c"), choose=lambda *_: 1 / 0).run(derived)
    split = mg.splits.lightgcn(folder / "gowalla.npz")
    assert cell.value == pytest.approx(mg.evaluate(mg.LRR(rank=3, l2=40.0), split, ["ndcg@5"]).rows()[0]["value"])
    assert cell.settings == {"rank": 3, "scale": 1.0}, "settings that the model does not have"
    assert Runner(folder, Cache(tmp_path / "c")).run(derived) == [cell]
    assert calls == [40], "a cached result needs no data"


def test_cosines_are_cells_with_histograms(paper, folder, tmp_path):
    settings = {"gowalla": {"rank": 4, "l2": 5.0, "dropout": 0.3}}
    rows = (Row(name="EDLAE", model="low_rank_edlae", settings=settings), Row(name="EASE", model="ease", settings=EASE))
    table = PaperTable(name="t", title="t", metrics=runner_.OF_FACTORS, data=("gowalla",), rows=rows,
                       similar=Row(name="full", model="ease", settings=EASE))  # fmt: skip
    cosines = replace(paper, tables=(table,))
    cells = Runner(folder, Cache(tmp_path / "c")).run(cosines)
    encoder, decoder, *failed = cells
    assert (encoder.metric, decoder.metric) == runner_.OF_FACTORS
    assert all(-1 <= cell.value <= 1 and sum(cell.histogram) == 25 for cell in (encoder, decoder))
    assert {(cell.verdict, "no factors" in cell.reason) for cell in failed} == {("failed", True)}
    assert Runner(folder, Cache(tmp_path / "c")).run(cosines) == cells


def test_cells_in_a_file_are_the_same_cells(paper, folder, tmp_path):
    cells = Runner(folder, Cache(tmp_path / "c")).run(paper)
    path = cells_file.save(tmp_path / "cells.json", "tiny", cells, "monogram reproduce tiny")
    stored = cells_file.load(path, "tiny")
    assert stored.cells == cells
    assert stored.command == "monogram reproduce tiny"
    with pytest.raises(DataError, match=r"expected \(1, 'other'\)"):
        cells_file.load(path, "other")
    for text in ("", "[]", "{}", '{"format": 1, "paper": "tiny", "command": "", "cells": [{"x": 1}]}'):
        path.write_text(text)
        with pytest.raises(DataError, match="has no cells"):
            cells_file.load(path, "tiny")
    with pytest.raises(DataError, match="cannot be read"):
        cells_file.load(tmp_path / "absent.json", "tiny")
