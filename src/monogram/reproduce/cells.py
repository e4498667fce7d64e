"""A cell: one number of a paper beside ours, with a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

REPRODUCED, BETTER, SHORT, DIFFERENT = "reproduced", "better", "short", "different"
STAND_IN, NOT_PRINTED, OTHER_MACHINE = "stand-in", "not printed", "another machine"
NO_MODEL, NO_DATA, NO_SETTINGS, FAILED = "no model", "no data", "no settings", "failed"
TOLERANCE = 0.001
GAP = 0.0005  # printed numbers that differ by less count as equal


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a paper, and ours.

    Attributes
    ----------
    table, data, row, metric : its place in the paper
    printed, spread : the paper's number and the ± it prints; None where there is none
    used : the data set on which ours was measured: `data`, or its stand-in; None where it was not measured
    settings : the parameters of the model
    value, low, high : our number, with its 95% interval over users (None for rank, seconds, and means over seeds)
    seeds, deviation : of a mean over seeds: their number, and the standard deviation over them
    users : the number of test users
    seconds, bytes : the time and the peak memory of the fit
    closed_form : whether our fit has no epochs; None where it was not measured
    epochs, stopped : of a gradient-trained fit: its epochs, and whether the budget of time ended it
    size : users, items and events of the train part
    tried : number of settings that a search compared on the validation part; None where nothing was searched
    validation : how that validation part was cut, and why
    histogram : of a metric with one number for each item: their histogram, in equal bins from -1 to 1
    verdict, reason : the result of the comparison, and notes on it
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
    seeds: int = 1
    deviation: float | None = None
    users: int | None = None
    seconds: float | None = None
    bytes: int | None = None
    closed_form: bool | None = None
    epochs: int | None = None
    stopped: bool = False
    size: Mapping[str, int] = field(default_factory=dict)
    tried: int | None = None
    validation: str = ""
    histogram: Sequence[int] = ()
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
        return asdict(self) | {"difference": self.difference}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Cell:
        """The cell of a `document`."""
        values = {name: value for name, value in document.items() if name != "difference"}
        return cls(**{**values, "histogram": tuple(document["histogram"])})


def judge(
    printed: float | None, value: float, low: float | None, high: float | None, *, metric: str, stand_in: bool
) -> str:
    """The verdict: "reproduced" where the printed number is in our interval or within .001 of our number."""
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
        return DIFFERENT  # a higher rank is not better
    return BETTER if value > printed else SHORT


@dataclass(frozen=True)
class Gap:
    """The difference of a row to the first row, in the paper and in our results."""

    row: str
    printed: float
    value: float


def gaps(cells: Iterable[Cell]) -> list[Gap]:
    """The differences to the first row that has both numbers, for cells of one metric on a stand-in."""
    complete = [cell for cell in cells if cell.value is not None and cell.printed is not None]
    if len(complete) < 2:
        return []
    first = complete[0]
    assert first.printed is not None
    assert first.value is not None
    return [
        Gap(cell.row, (cell.printed or 0) - first.printed, (cell.value or 0) - first.value) for cell in complete[1:]
    ]


def agreement(cells: Sequence[Cell]) -> tuple[int, int]:
    """Of the pairs of rows with different printed numbers: how many have the paper's order here, and how many exist."""
    numbers = [(cell.printed, cell.value) for cell in cells if cell.value is not None and cell.printed is not None]
    agreed = pairs = 0
    for at, (printed, value) in enumerate(numbers):
        for other_printed, other_value in numbers[at + 1 :]:
            if abs(printed - other_printed) > GAP:
                pairs += 1
                agreed += value != other_value and (printed > other_printed) == (value > other_value)
    return agreed, pairs
