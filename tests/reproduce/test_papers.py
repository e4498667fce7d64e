"""The papers as data: every row makes a model, and every printed number belongs to a metric."""

from __future__ import annotations

import pytest

from monogram.data import public
from monogram.data.splits import PROTOCOLS
from monogram.errors import ParameterError
from monogram.evaluation.metrics import parse
from monogram.models.registry import model_class
from monogram.reproduce import papers, sets
from monogram.reproduce.paper import printed
from monogram.reproduce.runner import OF_FACTORS, OF_FIT

TABLES = [(paper, table) for paper in papers.PAPERS.values() for table in paper.tables]
NAMES = [f"{paper.name}, {table.name}" for paper, table in TABLES]
WANTED = {
    "deql": {"table 1", "figure b"},
    "landscape": {*(f"table {number}" for number in (2, 3, *range(5, 11))), "figure 1"},
    "closed_form_edlae": {"table 1", "figure 1"},
    "rg2": {"table 2", "table 4", "table 5", "figure 1", "figure 2"},
    "edlae": {"table 1", "figure 1", "figure 1, cosines"},
}


def test_every_table_that_was_asked_for_is_there():
    assert {name: {table.name for table in paper.tables} for name, paper in papers.PAPERS.items()} == WANTED
    assert len(papers.get("deql").tables[0].rows) == 14
    with pytest.raises(ParameterError, match="did you mean deql"):
        papers.get("deqll")


@pytest.mark.parametrize(("paper", "table"), TABLES, ids=NAMES)
def test_a_table_is_whole(paper, table):
    assert paper.protocol in PROTOCOLS
    assert set(table.data) <= set(public.DATA_SETS)
    for metric in table.metrics:
        assert metric in (*OF_FIT, *OF_FACTORS) or str(parse(metric)) == metric
    for row in table.rows:
        assert set(row.printed) <= set(table.data)
        assert row.settings or row.note or not row.printed
        for numbers in (*row.printed.values(), *row.spread.values()):
            assert len(numbers) == len(table.metrics)
            for metric, number in zip(table.metrics, numbers, strict=True):
                assert number is None or metric in OF_FIT or 0 < number < 1
        assert row.model is not None, "a row without a model"


@pytest.mark.parametrize(("paper", "table"), TABLES, ids=NAMES)
def test_every_row_with_a_model_can_be_made(paper, table):
    known = {*table.data, *(paper.stand_ins.get(name, name) for name in table.data)}
    for row in (*table.rows, *([table.similar] if table.similar else [])):
        assert set(row.settings) <= known | set(paper.stand_ins.values())
        for settings in row.settings.values():
            assert set(table.axis) <= set(settings)
            if row.derive is None:
                model_class(row.model)(**settings)


def test_what_is_drawn_into_a_figure_is_printed_somewhere():
    for paper, table in TABLES:
        printed_rows = {row.name for other in paper.tables for row in other.rows if row.printed}
        assert set(table.marks) <= printed_rows


def test_every_paper_has_a_question_and_the_table_that_answers_it():
    for paper in papers.PAPERS.values():
        (table,) = (table for table in paper.tables if table.name == paper.main)
        assert paper.question.endswith("?")
        assert not set(table.metrics) & {*OF_FIT, *OF_FACTORS}


def test_prepared_sets_are_known():
    for protocol, name in sets.PREPARATIONS:
        assert protocol in PROTOCOLS
        assert name in public.DATA_SETS


def test_a_line_of_numbers_is_shared_evenly():
    assert printed(("x", "y"), (1.0, None, 2.0, 3.0)) == {"x": (1.0, None), "y": (2.0, 3.0)}
    with pytest.raises(ValueError, match="3 numbers"):
        printed(("x", "y"), (1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("name", "settings", "closed"),
    [
        ("ease", {}, True),
        ("lrr", {}, True),
        ("rg2", {}, True),
        ("rg2", {"solver": "als"}, False),
        ("low_rank_edlae", {}, True),
        ("low_rank_edlae", {"solver": "alternating"}, False),
        ("wrmf", {}, False),
        ("slim", {}, False),
    ],
)
def test_which_fits_are_marked_as_closed_forms(name, settings, closed):
    assert model_class(name)(**settings).closed_form is closed
