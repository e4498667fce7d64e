"""A cell: the paper's number beside ours, and what that means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

REPRODUCED, BETTER, SHORT, DIFFERENT = "reproduced", "better", "short", "different"
STAND_IN, NOT_PRINTED, OTHER_MACHINE = "stand-in", "not printed", "another machine"
NO_MODEL, NO_DATA, NO_SETTINGS, FAILED = "no model", "no data", "no settings", "failed"
TOLERANCE = 0.001
GAP = 0.0005  # below, two printed numbers are as good as equal


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a paper, and ours.

    Attributes
    ----------
    table, data, row, metric : where it stands in the paper
    printed, spread : the paper's number and its own ±; None where there is none
    used : the data set ours was measured on: `data`, or its stand-in; None where it was not measured
    settings : of the model
    value, low, high : ours, with its 95% interval over users (None for rank and seconds)
    seconds, bytes : of the fit, and its peak of memory
    verdict, reason : what the comparison says
    """

    table: str
    data: str
    row: str
    metric: str
    printed: float | None = None
    spread: float | None = None
    used: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    value: float | None = None
    low: float | None = None
    high: float | None = None
    users: int | None = None
    seconds: float | None = None
    bytes: int | None = None
    verdict: str = NO_DATA
    reason: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less the paper's; None where one of them is missing, or where they are not comparable."""
        if self.value is None or self.printed is None or self.verdict in (STAND_IN, OTHER_MACHINE):
            return None
        return self.value - self.printed

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"settings": dict(self.settings), "difference": self.difference}


def judge(
    printed: float | None, value: float, low: float | None, high: float | None, *, metric: str, stand_in: bool
) -> str:
    """The verdict on a number: within its interval or ±.001 of the paper's it is reproduced."""
    if stand_in:
        return STAND_IN
    if metric == "seconds":
        return OTHER_MACHINE
    if printed is None:
        return NOT_PRINTED
    inside = low is not None and high is not None and low <= printed <= high
    if inside or abs(value - printed) <= TOLERANCE + 1e-12:
        return REPRODUCED
    if metric == "rank":
        return DIFFERENT  # more is not better
    return BETTER if value > printed else SHORT


@dataclass(frozen=True)
class Gap:
    """How far a row is from the first one, in the paper and here."""

    row: str
    printed: float
    value: float


def gaps(cells: Iterable[Cell]) -> list[Gap]:
    """Differences to the first row that has both numbers: cells of one metric, measured on a stand-in."""
    both = [cell for cell in cells if cell.value is not None and cell.printed is not None]
    if len(both) < 2:
        return []
    first = both[0]
    assert first.printed is not None
    assert first.value is not None
    return [Gap(one.row, (one.printed or 0) - first.printed, (one.value or 0) - first.value) for one in both[1:]]


def agreement(cells: Sequence[Cell]) -> tuple[int, int]:
    """Of the pairs of rows that the paper tells apart, how many are in its order here; and how many there are."""
    both = [(cell.printed, cell.value) for cell in cells if cell.value is not None and cell.printed is not None]
    agreed = told = 0
    for at, (printed, value) in enumerate(both):
        for other, ours in both[at + 1 :]:
            if abs(printed - other) > GAP:
                told += 1
                agreed += value != ours and (printed > other) == (value > ours)
    return agreed, told
