"""The verdicts on our numbers beside the paper's."""

from __future__ import annotations

import pytest

from monogram.reproduce.cells import Cell, agreement, gaps, judge


@pytest.mark.parametrize(
    ("printed", "value", "low", "high", "verdict"),
    [
        (0.10, 0.13, 0.09, 0.17, "reproduced"),
        (0.10, 0.101, None, None, "reproduced"),
        (0.10, 0.099, 0.0985, 0.0995, "reproduced"),
        (0.10, 0.12, 0.11, 0.13, "better"),
        (0.10, 0.08, 0.07, 0.09, "short"),
        (None, 0.08, 0.07, 0.09, "not printed"),
    ],
)
def test_verdicts(printed, value, low, high, verdict):
    assert judge(printed, value, low, high, metric="ndcg@10", stand_in=False) == verdict
    assert judge(printed, value, low, high, metric="ndcg@10", stand_in=True) == "stand-in"
    assert judge(printed, value, low, high, metric="seconds", stand_in=False) == "another machine"


def cell(row, printed, value, verdict="stand-in"):
    return Cell(table="t", data="d", row=row, metric="m", printed=printed, value=value, verdict=verdict)


def test_order_and_gaps():
    cells = [cell("a", 0.1, 0.5), cell("b", 0.2, 0.6), cell("c", 0.3, 0.55), cell("d", None, 1.0), cell("e", 0.4, None)]
    assert [(gap.row, round(gap.printed, 6), round(gap.value, 6)) for gap in gaps(cells)] == [
        ("b", 0.1, 0.1),
        ("c", 0.2, 0.05),
    ]
    assert agreement(cells) == (2, 3)
    assert agreement([cell("a", 0.1, 0.5), cell("b", 0.1001, 0.4)]) == (0, 0), "the printed numbers count as equal"
    assert gaps(cells[:1]) == []


def test_a_difference_is_given_only_where_it_means_something():
    assert cell("a", 0.1, 0.3, "better").difference == pytest.approx(0.2)
    assert cell("a", 0.1, 0.3).difference is None
    assert cell("a", None, 0.3, "not printed").difference is None
    assert cell("a", 0.1, 0.3, "better").document()["difference"] == pytest.approx(0.2)


def test_another_rank_is_neither_better_nor_short():
    for value, verdict in ((467, "reproduced"), (480, "different"), (450, "different")):
        assert judge(467, value, None, None, metric="rank", stand_in=False) == verdict


def test_a_tie_of_ours_is_no_agreement():
    def cells(values):
        return [Cell(table="t", data="d", row=str(p), metric="m", printed=p, value=v) for p, v in values]

    assert agreement(cells([(0.1, 0.5), (0.2, 0.5)])) == agreement(cells([(0.2, 0.5), (0.1, 0.5)])) == (0, 1)
