"""`monogram reproduce`: a paper's tables, its numbers beside ours."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monogram.cli.common import Json, Memory, Threads, answer, draw, not_over, talk
from monogram.errors import ParameterError

if TYPE_CHECKING:
    from monogram.reproduce.cells import Cell

LIST = "list"


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
    budget: Annotated[
        str, typer.Option("--budget", help="Of each search of --tune: 20m, 1h, or '200 settings'.")
    ] = "20m",
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
    from monogram.reproduce.runner import Runner, Selection
    from monogram.reproduce.tuned import Tuned

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
    kept = Cache(cache)
    choose = Tuned(kept.folder, budget, fit, talk) if tune else None
    runner = Runner(folder, kept, fit=fit, progress=talk, choose=choose)
    cells = runner.run(chosen, Selection(dataset or (), row or (), table or ()))
    flags = {"--dataset": dataset, "--row": row, "--table": table}
    for one in output or ():
        written = writers.write(report(chosen, cells, _command(paper, flags, budget if tune else None)), one)
        talk("written: " + ", ".join(map(str, written)))
    _show(cells, as_json, bool(output))
    talk(summary(cells))


def _folder(data: str | None) -> Path | None:
    if data is not None and not Path(data).is_dir():
        raise ParameterError(f"--data {data}: there is no such folder; expected the one that holds the data sets")
    return None if data is None else Path(data)


def _command(paper: str, flags: dict[str, list[str] | None], budget: str | None) -> str:
    """How to get the same report; the folders are the reader's own."""
    words = ["monogram", "reproduce", paper, "--data", "DIR"]
    for flag, names in flags.items():
        for name in names or ():
            words += [flag, name]
    return shlex.join([*words, *(["--tune", "--budget", budget] if budget else [])])


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
    from monogram.reports.blocks import in_words

    numbers = {"paper": cell.printed, "ours": cell.value, "low": cell.low, "high": cell.high}
    shown = {name: "" if value is None else f"{value:.4f}" for name, value in numbers.items()}
    where = {"table": cell.table, "data": cell.used or cell.data, "row": cell.row, "settings": in_words(cell.settings)}
    return {**where, "metric": cell.metric, **shown, "verdict": cell.verdict}
