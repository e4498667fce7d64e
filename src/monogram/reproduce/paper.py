"""What a paper's table is: rows, settings, data sets, a protocol, and the numbers exactly as printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Settings = Mapping[str, Any]
Numbers = tuple[float | None, ...]

LATER = "not in this library yet"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model with its settings.

    Attributes
    ----------
    name : as the paper calls it
    model : its name here; None where there is none, and then `note` says so
    settings : by data set; a data set that is missing has no published settings that we know
    printed : by data set, one number for each metric of the table; None where the paper has none or it is unreadable
    spread : the paper's own ± where it prints one, as `printed`
    note : what to know about the row: how a garbled name or number was read, why a difference is expected
    """

    name: str
    model: str | None = None
    settings: Mapping[str, Settings] = field(default_factory=dict)
    printed: Mapping[str, Numbers] = field(default_factory=dict)
    spread: Mapping[str, Numbers] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table, or a figure: a figure is a table whose rows have a place on an axis.

    Attributes
    ----------
    name, title : such as "table 2", and what it shows
    metrics : the columns; beside those of `monogram.evaluate`, "rank" and "seconds" of the fit
    data : names of data sets (see `monogram.data.public`)
    rows : in the order of the paper
    part : "test" or "validation", whichever the paper measured on
    axis : the parameter on the x axis of a figure, or the two of a heat map; empty for a plain table
    marks : rows of another table whose printed numbers are drawn as lines into the figure
    note : what to know about the whole table
    """

    name: str
    title: str
    metrics: tuple[str, ...]
    data: tuple[str, ...]
    rows: tuple[Row, ...]
    part: str = "test"
    axis: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper and those of its tables that are reproduced.

    Attributes
    ----------
    name : of the command
    protocol : name of the split
    stand_ins : the data set to use, by the name of one that is not there: no verdict, only order and gaps
    """

    name: str
    title: str
    source: str
    protocol: str
    tables: tuple[PaperTable, ...]
    stand_ins: Mapping[str, str] = field(default_factory=dict)


def swept(row: Row, parameter: str, values: Iterable[float], data: Iterable[str]) -> tuple[Row, ...]:
    """A row for each value of a parameter, on these data sets; nothing is printed for them."""
    names = tuple(data)
    return tuple(
        replace(row, printed={}, settings={one: {**row.settings[one], parameter: value} for one in names})
        for value in values
    )


def printed(data: Iterable[str], numbers: Iterable[float | None]) -> dict[str, Numbers]:
    """The numbers of a line of a table, cut into equal parts: one for each data set."""
    names, line = tuple(data), tuple(numbers)
    width, rest = divmod(len(line), len(names))
    if rest:
        raise ValueError(f"{len(line)} numbers cannot be shared by {len(names)} data sets")
    return {name: line[at * width : (at + 1) * width] for at, name in enumerate(names)}


def line(
    data: Iterable[str],
    name: str,
    *numbers: float | None,
    model: str | None = None,
    note: str = "",
    **settings: Settings,
) -> Row:
    """A line of a table: its numbers in the order of the data sets; settings by data set, `_` for `-` in its name."""
    places = {place.replace("_", "-"): given for place, given in settings.items()}
    note = note or ("" if model else LATER)
    return Row(name=name, model=model, settings=places, printed=printed(data, numbers), note=note)
