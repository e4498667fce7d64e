"""The report of a search has its results and pictures."""

from __future__ import annotations

import pytest

import monogram as mg
from monogram import plots
from monogram.errors import MissingExtraError
from monogram.reports import writers
from monogram.reports.blocks import Grid, Picture
from monogram.tuning.report import along, report


@pytest.fixture(scope="module")
def found(log):
    space = {"low_rank_dlae": {"l2": 10, "dropout": 0.5}}
    return mg.tune(log, ["deql", "low_rank_dlae"], space=space, metric="ndcg@5", budget="520 settings")


def test_tables(found):
    test, best = (block for block in report(found, "monogram tune x") if isinstance(block, Grid))
    assert [row[0] for row in test.rows] == [found.best["model"], "ease", "popularity"]
    assert test.rows[0][1] == f"{found.test.value(found.best['model'], 'ndcg@5'):.4f}"
    assert f"{found.differences['ease'].value:+.4f}" in test.rows[1][3]
    values = [float(row[2]) for row in best.rows]
    assert values == sorted(values, reverse=True)
    assert values[0] == round(found.best["value"], 4)


def test_pictures_of_what_was_searched(found, tmp_path):
    pytest.importorskip("matplotlib")
    names = [block.name for block in report(found) if isinstance(block, Picture)]
    assert names[0] == "validation"
    assert {"deql-l2-dropout", "deql-b", "low_rank_dlae-rank", "ease-l2"} <= set(names)
    assert "low_rank_dlae-l2-dropout" not in names, "it was held fixed"
    written = found.report(tmp_path / "r.md", command="monogram tune log.csv")
    assert len(written) == len(names) + 1
    assert "monogram tune log.csv" in (tmp_path / "r.md").read_text(encoding="utf-8")


def test_a_line_goes_through_the_best(found):
    rows = [one | one["parameters"] for one in found.rows() if one["model"] == "deql"]
    best = max(rows, key=lambda row: row["value"])
    line = along(rows, best, "b")
    assert best in line
    assert len(line) >= 32
    assert {(row["l2"], row["dropout"]) for row in line} == {(best["l2"], best["dropout"])}


def test_without_matplotlib_it_says_so(found, monkeypatch):
    def absent(*_):
        raise MissingExtraError("pictures need matplotlib: pip install 'monogram[plot]'")

    monkeypatch.setattr(plots, "_module", absent)
    assert "monogram[plot]" in writers.markdown(report(found), "x")


def test_rows_of_a_search_can_be_drawn(found):
    pytest.importorskip("matplotlib")
    rows = [row for row in found.rows() if row["model"] == "deql"]
    figure = plots.heat_map(rows, "value")
    shown = max(float(text.get_text()) for text in figure.axes[0].texts)
    assert shown == round(max(row["value"] for row in rows), 4), "of several b in a cell the best"
