"""Papers as data: tables of rows with settings, data sets, a protocol, and the numbers exactly as printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Settings = Mapping[str, Any]
Numbers = tuple[float | None, ...]
Derive = Callable[[Any, Settings], Settings]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model with its settings.

    Attributes
    ----------
    name : the name in the paper
    model : the name in this library; None where the library has no such model (`note` says so)
    settings : by data set; missing where no settings are published
    printed : by data set, one number for each metric of the table; None where the paper has none or it is unreadable
    spread : the ± that the paper prints, in the form of `printed`
    note : how an unreadable name or number was read, or why a difference is expected
    derive : computes the parameters from the train part and `settings`; None: the parameters are `settings`
    seeds : number of fits, with the seeds 0, 1, …; ours is then their mean, with their standard deviation
    """

    name: str
    model: str | None = None
    settings: Mapping[str, Settings] = field(default_factory=dict)
    printed: Mapping[str, Numbers] = field(default_factory=dict)
    spread: Mapping[str, Numbers] = field(default_factory=dict)
    note: str = ""
    derive: Derive | None = None
    seeds: int = 1


@dataclass(frozen=True)
class Choice:
    """The settings of a row on a data set: those of the paper, or those that a search found.

    Attributes
    ----------
    settings : of the paper, or the best ones on the validation part
    tried : the number of settings that the search compared; None without a search
    validation : how the validation part was cut, and why, as a phrase
    """

    settings: Settings
    tried: int | None = None
    validation: str = ""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table or a figure; a figure is a table whose rows have a position on an axis.

    Attributes
    ----------
    name, title : such as "table 2", and what it shows
    metrics : the columns: metrics of `monogram.evaluate`, and "rank" and "seconds" of the fit
    data : names of data sets (see `monogram.data.public`)
    rows : in the order of the paper
    part : the part the paper measured on, "test" or "validation"
    axis : the parameter on the x axis of a figure, or the two parameters of a heat map; empty for a table
    drawn_against : what the picture of a figure has on its x axis instead of `axis`: "seconds", or "" for `axis`
    marks : rows of another table whose printed numbers are drawn as lines in the figure
    similar : of a table of cosines: the model whose largest weights define which items are similar
    note : a note on the whole table
    """

    name: str
    title: str
    metrics: tuple[str, ...]
    data: tuple[str, ...]
    rows: tuple[Row, ...]
    part: str = "test"
    axis: tuple[str, ...] = ()
    drawn_against: str = ""
    marks: tuple[str, ...] = ()
    similar: Row | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper, with its tables that are reproduced.

    Attributes
    ----------
    name : the name for the command line
    title, source : of the publication
    protocol : the name of the split
    tables : in the order of the paper
    question : the question of a reader that the report answers first
    main : the table whose models the picture at the top compares; its last metric is shown
    stand_ins : by the name of a data set that is not public, the data set used in its place; rows of a stand-in get no
        verdict, only their order and gaps are compared
    """

    name: str
    title: str
    source: str
    protocol: str
    tables: tuple[PaperTable, ...]
    question: str = ""
    main: str = ""
    stand_ins: Mapping[str, str] = field(default_factory=dict)


def swept(row: Row, parameter: str, values: Iterable[float], data: Iterable[str]) -> tuple[Row, ...]:
    """A row for each value of a parameter, on these data sets; nothing is printed for them."""
    names = tuple(data)
    return tuple(
        replace(row, printed={}, settings={name: {**row.settings[name], parameter: value} for name in names})
        for value in values
    )


def printed(data: Iterable[str], numbers: Iterable[float | None]) -> dict[str, Numbers]:
    """The numbers of a line of a table, in equal parts: one part for each data set."""
    names, line = tuple(data), tuple(numbers)
    width, remainder = divmod(len(line), len(names))
    if remainder:
        raise ValueError(f"{len(line)} numbers for {len(names)} data sets; expected as many for each data set")
    return {name: line[at * width : (at + 1) * width] for at, name in enumerate(names)}


def line(
    data: Iterable[str],
    name: str,
    *numbers: float | None,
    model: str | None = None,
    note: str = "",
    **settings: Settings,
) -> Row:
    """A row from its numbers in the order of the data sets; settings by data set, with `_` for `-` in the name."""
    by_data = {name_of_data.replace("_", "-"): values for name_of_data, values in settings.items()}
    return Row(name=name, model=model, settings=by_data, printed=printed(data, numbers), note=note)
