"""`monogram reproduce`: the tables of a paper, published numbers beside measured ones."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monogram.cli.output import check_output, print_json, print_stderr, print_table
from monogram.cli.shared_options import Json, Memory, Threads
from monogram.errors import ParameterError

if TYPE_CHECKING:
    from monogram.reproduce.cells import Cell

LIST = "list"
SEARCH = "20m"  # budget of a search


def complete_paper(incomplete: str) -> list[str]:
    """Shell completion of a paper."""
    from monogram.reproduce.papers import PAPERS

    return [name for name in (LIST, *PAPERS) if name.startswith(incomplete)]


def _several(flag: str, text: str) -> Any:
    return typer.Option(flag, metavar="NAME", help=f"{text}; may be repeated.")


def command(
    paper: Annotated[
        str,
        typer.Argument(metavar="PAPER", help="Name of a paper; `list` shows the names.", autocompletion=complete_paper),
    ],
    data: Annotated[
        str | None, typer.Option("--data", metavar="FOLDER", help="Folder of the data sets; by default MONOGRAM_DATA.")
    ] = None,
    dataset: Annotated[list[str] | None, _several("--dataset", "Only this data set, such as gowalla")] = None,
    row: Annotated[list[str] | None, _several("--row", "Only this row, such as EASE")] = None,
    table: Annotated[list[str] | None, _several("--table", "Only this table or figure, such as 'table 1'")] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Tune settings on a validation split of train, instead of using known ones.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="Time for all gradient-trained rows of a data set, such as 20m; by default 1h. With --tune the budget "
            "of each search instead: a time, by default 20m, or '200 settings'.",
        ),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="Also measure other libraries (not available yet).")] = False,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Report to write: .md, .html, or .json (the cells); may be repeated."
        ),
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option("--cells", metavar="FILE", help="Write the report from the cells of a .json report; fit nothing."),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            "--cache", metavar="FOLDER", help="Folder of cached results; by default the cache folder of the system."
        ),
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Reproduce the tables of papers: published numbers beside measured ones.

    Results are cached: a second run is instant, and an interrupted run resumes. Cells that cannot be measured, because
    a data set or a model is missing, are in the report with the reason.
    """
    from monogram.reports import writers
    from monogram.reproduce import cells_file, papers
    from monogram.reproduce.cache import Cache
    from monogram.reproduce.report import report, summary
    from monogram.reproduce.runner import Runner, Selection
    from monogram.reproduce.training_time import DEFAULT as TRAINING
    from monogram.reproduce.tuned import Tuned

    if paper == LIST:
        _list(as_json)
        return
    chosen = papers.get(paper)
    if peers:
        raise ParameterError("--peers is not available yet; leave it out")
    for path in output or ():
        if not _is_json(path):
            writers.check(path)
        check_output(path)
    if cells is not None:
        if tune or budget is not None or dataset or row or table:
            raise ParameterError(
                "--cells takes all cells of its file; leave out --tune, --budget, --dataset, --row and --table"
            )
        stored = cells_file.load(cells, chosen.name)
        measured, made_with = stored.cells, stored.command
    else:
        folder = _folder(data)
        fit = {"memory": memory, "threads": threads}
        results = Cache(cache)
        choose = Tuned(results.folder, SEARCH if budget is None else budget, fit, print_stderr) if tune else None
        training = TRAINING if tune or budget is None else _seconds(budget)
        runner = Runner(folder, results, fit=fit, progress=print_stderr, choose=choose, training=training)
        measured = runner.run(chosen, Selection(dataset or (), row or (), table or ()))
        flags = {"--dataset": dataset, "--row": row, "--table": table}
        made_with = _command(paper, flags, tune, budget)
    for path in output or ():
        if _is_json(path):
            written = [cells_file.save(path, chosen.name, measured, made_with)]
        else:
            written = writers.write(report(chosen, measured, made_with), path)
        print_stderr("wrote " + ", ".join(map(str, written)))
    _show(measured, as_json, bool(output))
    print_stderr(summary(measured))


def _is_json(path: str) -> bool:
    return Path(path).suffix.lower() == ".json"


def _folder(data: str | None) -> Path | None:
    if data is not None and not Path(data).is_dir():
        raise ParameterError(f"--data {data}: there is no such folder; expected the folder of the data sets")
    return None if data is None else Path(data)


def _seconds(budget: str) -> float:
    """A budget of time for the gradient-trained rows."""
    from monogram.tuning.budget import parse

    seconds = parse(budget).seconds
    if math.isinf(seconds):
        raise ParameterError(
            f"--budget {budget!r} is a number of settings, which needs --tune; expected a time, such as 1h"
        )
    return seconds


def _command(paper: str, flags: dict[str, list[str] | None], tune: bool, budget: str | None) -> str:
    """The command that makes the same report, with a placeholder for the folder of the data sets."""
    words = ["monogram", "reproduce", paper, "--data", "DIR"]
    for flag, names in flags.items():
        for name in names or ():
            words += [flag, name]
    words += ["--tune"] if tune else []
    budget = SEARCH if tune and budget is None else budget
    return shlex.join([*words, *([] if budget is None else ["--budget", budget])])


def _list(as_json: bool) -> None:
    from monogram.reproduce.papers import PAPERS

    rows = [
        {
            "name": paper.name,
            "paper": paper.title,
            "protocol": paper.protocol,
            "tables": ", ".join(table.name for table in paper.tables),
            "data sets": ", ".join(dict.fromkeys(name for table in paper.tables for name in table.data)),
        }
        for paper in PAPERS.values()
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(rows)


def _show(cells: Sequence[Cell], as_json: bool, written: bool) -> None:
    """Print the cells; where a report was written, only as JSON and only with --json."""
    if as_json:
        print_json([cell.document() for cell in cells])
    elif not written:
        print_table([_line(cell) for cell in cells])


def _line(cell: Cell) -> dict[str, str]:
    from monogram.reports.blocks import in_words

    numbers = {"paper": cell.printed, "ours": cell.value, "low": cell.low, "high": cell.high}
    shown = {name: "" if value is None else f"{value:.4f}" for name, value in numbers.items()}
    where = {"table": cell.table, "data": cell.used or cell.data, "row": cell.row, "settings": in_words(cell.settings)}
    return {**where, "metric": cell.metric, **shown, "verdict": cell.verdict}
