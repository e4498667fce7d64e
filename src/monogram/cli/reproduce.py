"""`monogram reproduce`: a paper's tables, its numbers beside ours."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monogram.cli.common import Json, Memory, Threads, answer, draw, not_over, talk
from monogram.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from monogram.reproduce.cells import Cell
    from monogram.reproduce.runner import Choose

LIST = "list"
FIXED = ("rank", "solver", "epochs", "tolerance", "zero_diagonal")


def names_of_papers(incomplete: str) -> list[str]:
    """What a shell offers for a paper."""
    from monogram.reproduce.papers import PAPERS

    return [name for name in (LIST, *PAPERS) if name.startswith(incomplete)]


def _several(flag: str, text: str) -> Any:
    return typer.Option(flag, metavar="NAME", help=f"{text}; may be repeated.")


def command(
    paper: Annotated[
        str,
        typer.Argument(metavar="PAPER", help="Name of a paper; list shows them.", autocompletion=names_of_papers),
    ],
    data: Annotated[
        str | None, typer.Option("--data", metavar="FOLDER", help="Where the data sets are; else MONOGRAM_DATA.")
    ] = None,
    dataset: Annotated[list[str] | None, _several("--dataset", "Only this data set, such as gowalla")] = None,
    row: Annotated[list[str] | None, _several("--row", "Only this row, such as EASE")] = None,
    table: Annotated[list[str] | None, _several("--table", "Only this table or figure, such as 'table 1'")] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose settings on a validation cut of train, instead of known ones.")
    ] = False,
    peers: Annotated[bool, typer.Option("--peers", help="Also measure other libraries (comes later).")] = False,
    output: Annotated[
        list[str] | None,
        typer.Option("-o", "--output", metavar="FILE", help="Report to write: .md or .html; may be repeated."),
    ] = None,
    cache: Annotated[
        str | None, typer.Option("--cache", metavar="FOLDER", help="Where results are kept; else the system's place.")
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """The papers' tables: their numbers beside ours.

    Results are kept: a second run is instant, and one that was interrupted goes on where it stopped. What cannot be
    measured, for lack of a data set or a model, is in the report with the reason.
    """
    from monogram.reports import writers
    from monogram.reproduce import papers
    from monogram.reproduce.cache import Cache
    from monogram.reproduce.report import report, summary
    from monogram.reproduce.runner import Asked, Runner

    if paper == LIST:
        _list(as_json)
        return
    chosen = papers.get(paper)
    if peers:
        raise ParameterError("--peers is not there yet: other libraries beside ours come in a later version")
    for one in output or ():
        writers.check(one)
        not_over(one)
    folder = _folder(data)
    fit = {"memory": memory, "threads": threads}
    choose = _search(**fit) if tune else None
    runner = Runner(folder, Cache(cache), fit=fit, tell=talk, choose=choose)
    cells = runner.run(chosen, Asked(dataset or (), row or (), table or ()))
    flags = {"--dataset": dataset, "--row": row, "--table": table}
    for one in output or ():
        written = writers.write(report(chosen, cells, _command(paper, flags, tune)), one)
        talk("written: " + ", ".join(map(str, written)))
    _show(cells, as_json, bool(output))
    talk(summary(cells))


def _folder(data: str | None) -> Path | None:
    if data is not None and not Path(data).is_dir():
        raise ParameterError(f"--data {data}: there is no such folder; expected the one that holds the data sets")
    return None if data is None else Path(data)


def _command(paper: str, flags: dict[str, list[str] | None], tune: bool) -> str:
    """How to get the same report; the folders are the reader's own."""
    words = ["monogram", "reproduce", paper, "--data", "DIR"]
    for flag, names in flags.items():
        for name in names or ():
            words += [flag, name]
    return shlex.join([*words, *(["--tune"] if tune else [])])


def _list(as_json: bool) -> None:
    from monogram.reproduce.papers import PAPERS

    rows = [
        {
            "name": one.name,
            "paper": one.title,
            "protocol": one.protocol,
            "tables": ", ".join(table.name for table in one.tables),
            "data sets": ", ".join(dict.fromkeys(name for table in one.tables for name in table.data)),
        }
        for one in PAPERS.values()
    ]
    if as_json:
        answer(rows)
    else:
        draw(rows)


def _show(cells: Sequence[Cell], as_json: bool, written: bool) -> None:
    """The cells on stdout; where a report was written, only when JSON was asked for."""
    if as_json:
        answer([cell.document() for cell in cells])
    elif not written:
        draw([_line(cell) for cell in cells])


def _line(cell: Cell) -> dict[str, str]:
    from monogram.reproduce.report import settings

    numbers = {"paper": cell.printed, "ours": cell.value, "low": cell.low, "high": cell.high}
    shown = {name: "" if value is None else f"{value:.4f}" for name, value in numbers.items()}
    where = {"table": cell.table, "data": cell.used or cell.data, "row": cell.row, "settings": settings(cell.settings)}
    return {**where, "metric": cell.metric, **shown, "verdict": cell.verdict}


def _search(**how: Any) -> Choose:
    """What finds the settings of a row on a validation cut, in the room `tuning`."""
    try:
        tuning = importlib.import_module("monogram.tuning")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "--tune needs the room monogram.tuning, which this version does not have; leave --tune out to use the "
            "known settings"
        ) from error

    def choose(row: Any, place: Any, table: Any) -> Any:
        talk(f"{place.name}: looking for the settings of {row.name}")
        space = {row.model: _fixed(row.settings.get(place.name, {}))}
        split = place.split(table.part)
        found = tuning.tune(None, row.model, protocol=split, metric=table.metrics[-1], space=space, **how)
        return found.model.params()

    return choose


def _fixed(settings: Any) -> dict[str, Any]:
    """What makes a row the one it is, and is not searched: its rank, its solver, and what it leaves out (0)."""
    return {name: value for name, value in settings.items() if name in FIXED or value == 0}
