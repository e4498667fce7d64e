"""The report on a paper: tables, notes, the order of the rows and their gaps, pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from monogram import plots
from monogram._version import __version__
from monogram.engine.runtime.memory import show
from monogram.errors import MissingExtraError
from monogram.reports.blocks import Block, Grid, Heading, Items, Picture, Text, in_words
from monogram.reproduce.cells import STAND_IN, Cell, agreement, gaps
from monogram.reproduce.paper import Paper, PaperTable

VERDICTS = (
    "reproduced: the paper's number lies in our 95% interval or within .001 of ours; better: ours is above; short: "
    "ours is below. A stand-in is another data set than the paper's: its numbers get no verdict, only the order of the "
    "rows and the gaps between them are compared. Seconds and memory are of the fit on the machine that made this "
    "report; rows that share an inverse each show the seconds of that one inverse."
)


def report(paper: Paper, cells: Sequence[Cell], command: str = "") -> list[Block]:
    """The blocks of a report."""
    blocks: list[Block] = [Heading(1, paper.title), Text(f"{paper.source}. Protocol: {paper.protocol}.")]
    source = f"Made by Monogram {__version__}" + (" with this command:" if command else ".")
    blocks += [Text(source), *([Text(command, code=True)] if command else []), Text(VERDICTS), Text(summary(cells))]
    for table in paper.tables:
        table_cells = [cell for cell in cells if cell.table == table.name]
        if table_cells:
            blocks += _section(paper, table, table_cells)
            if table.axis and "--tune" in command:
                blocks.append(Text("A figure keeps its settings: --tune chooses those of tables alone."))
    return blocks


def summary(cells: Iterable[Cell]) -> str:
    """How many cells have which verdict."""
    counts: dict[str, int] = {}
    for cell in cells:
        counts[cell.verdict] = counts.get(cell.verdict, 0) + 1
    return "Cells: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items()) + "."


def _section(paper: Paper, table: PaperTable, cells: Sequence[Cell]) -> Iterator[Block]:
    yield Heading(2, f"{table.name.capitalize()}: {table.title}")
    if table.note:
        yield Text(table.note)
    for data in table.data:
        data_cells = [cell for cell in cells if cell.data == data]
        if not data_cells:
            continue
        measured_on = next((cell.used for cell in data_cells if cell.used), None)
        place = data if measured_on in (None, data) else f"{measured_on}, standing in for {data}"
        yield Heading(3, place)
        yield _grid(table, data_cells, f"{table.name.capitalize()}, {place}, {table.part} part")
        notes = _notes(data_cells)
        if notes:
            yield Items(notes)
        if measured_on not in (None, data) and not table.axis:
            yield from _order(table, data_cells)
        if table.axis and measured_on:
            yield from _pictures(paper, table, data_cells, place)


def _notes(cells: Sequence[Cell]) -> list[str]:
    """The notes on the rows; rows with the same note share a line."""
    rows_by_note: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.reason:
            rows_by_note.setdefault(cell.reason, {})[cell.row] = None
    return [f"{', '.join(rows)}: {reason}" for reason, rows in rows_by_note.items()]


def _grid(table: PaperTable, cells: Sequence[Cell], caption: str) -> Grid:
    width = len(table.metrics)
    rows = [_line(cells[at : at + width]) for at in range(0, len(cells), width)]
    headers, numbers = ["row", "verdict", "settings"], set()
    for metric in table.metrics:
        at = len(headers)
        numbers |= {at, at + 1, at + 2}
        ours = "ours [95%]" if any(row[at] for row in rows) else f"{metric}: ours [95%]"
        headers += [f"{metric}: paper", ours, "difference"]
    headers += ["seconds", "memory"]
    numbers |= {len(headers) - 2, len(headers) - 1}
    shown = [at for at in range(len(headers)) if at == 0 or any(row[at] for row in rows)]  # without empty columns
    return Grid(
        caption,
        [headers[at] for at in shown],
        [[row[at] for at in shown] for row in rows],
        frozenset(column for column, at in enumerate(shown) if at in numbers),
    )


def _line(cells: Sequence[Cell]) -> list[str]:
    """A row of a table: the cells of its metrics side by side."""
    first = cells[0]
    verdicts = [cell.verdict for cell in cells]
    same = len(set(verdicts)) == 1
    verdict = verdicts[0] if same else "; ".join(f"{cell.metric} {cell.verdict}" for cell in cells)
    line = [first.row, verdict, in_words(first.settings)]
    for cell in cells:
        interval = "" if cell.low is None else f" [{_number(cell.low)}, {_number(cell.high)}]"
        spread = "" if cell.spread is None else f" ± {_number(cell.spread)}"
        difference = cell.difference
        line += [_number(cell.printed, cell.metric) + spread, _number(cell.value, cell.metric) + interval]
        digits = "+.0f" if cell.metric == "rank" else "+.4f"
        line += ["" if difference is None else format(difference, digits)]
    line.append("" if first.seconds is None else f"{first.seconds:.1f}")
    line.append("" if first.bytes is None else show(first.bytes))
    return line


def _number(value: float | None, metric: str = "") -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if metric == "rank" else f"{value:,.1f}" if metric == "seconds" else f"{value:.4f}"


def _order(table: PaperTable, cells: Sequence[Cell]) -> Iterator[Block]:
    """For a stand-in: whether the rows have the order of the paper, and their gaps."""
    for metric in table.metrics:
        metric_cells = [cell for cell in cells if cell.metric == metric and cell.verdict == STAND_IN]
        differences = gaps(metric_cells)
        if not differences:
            continue
        first = next(cell.row for cell in metric_cells if cell.printed is not None and cell.value is not None)
        yield Text(f"{metric}: {_in_order(*agreement(metric_cells))}.")
        rows = [[gap.row, f"{gap.printed:+.4f}", f"{gap.value:+.4f}"] for gap in differences]
        headers = ["row", f"paper: minus {first}", f"ours: minus {first}"]
        yield Grid(f"Gaps in {metric} to {first}", headers, rows, frozenset({1, 2}))


def _in_order(agreed: int, pairs: int) -> str:
    if pairs == 0:
        return "the paper prints equal numbers for all rows"
    if pairs == 1:
        return f"the one pair of rows with different printed numbers is {'' if agreed else 'not '}in the paper's order"
    return f"of the {pairs} pairs of rows with different printed numbers, {agreed} are in the paper's order"


def _pictures(paper: Paper, table: PaperTable, cells: Sequence[Cell], place: str) -> Iterator[Block]:
    """A figure for each metric; without matplotlib, a text with the command that installs it."""
    for metric in table.metrics:
        rows = [
            {"model": cell.row, metric: cell.value, "low": cell.low, "high": cell.high, **cell.settings}
            for cell in cells
            if cell.metric == metric and cell.value is not None
        ]
        title = f"{table.name.capitalize()}, {place}"
        try:
            svg = plots.picture(_draw(paper, table, cells, rows, metric, title))
        except MissingExtraError as error:
            yield Text(f"The picture is missing: {error}.")
            return
        name = f"{table.name}-{cells[0].data}-{metric}".replace(" ", "-").replace("@", "-")
        yield Picture(name, f"{metric} against {' and '.join(table.axis)}, {place}", svg)


def _draw(
    paper: Paper, table: PaperTable, cells: Sequence[Cell], rows: list[dict[str, Any]], metric: str, title: str
) -> Any:
    if len(table.axis) == 2:
        return plots.heat_map(rows, metric, x=table.axis[0], y=table.axis[1], title=title)
    logarithmic = table.axis[0] in ("rank", "epochs")
    marks = _marks(paper, table, cells, metric)
    return plots.against(rows, metric, x=table.axis[0], marks=marks, logarithmic=logarithmic, title=title)


def _marks(paper: Paper, table: PaperTable, cells: Sequence[Cell], metric: str) -> dict[str, float]:
    """The paper's numbers for the lines of a figure, where another table of the paper prints them for this data set."""
    data, numbers = cells[0].data, {}
    if cells[0].used == data:
        for other in paper.tables:
            for row in other.rows:
                if row.name in table.marks and data in row.printed and metric in other.metrics:
                    number = row.printed[data][other.metrics.index(metric)]
                    if number is not None:
                        numbers[f"the paper's {row.name}"] = number
    return numbers
