"""The report on a paper: tables, notes, the order of the rows and their gaps, pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from monogram import plots
from monogram._version import __version__
from monogram.engine.runtime.memory import show
from monogram.errors import MissingExtraError
from monogram.reports.blocks import (
    Block,
    Contents,
    Fold,
    Grid,
    GridCell,
    Heading,
    Items,
    Picture,
    Pictures,
    Text,
    Tone,
    in_words,
)
from monogram.reproduce import cells as cells_
from monogram.reproduce.answer import answer
from monogram.reproduce.cells import STAND_IN, Cell, Gap, agreement, gaps
from monogram.reproduce.paper import Paper, PaperTable

MEANING = {
    cells_.REPRODUCED: "the paper's number lies in our 95% interval, or within .001 of ours",
    cells_.BETTER: "ours is higher",
    cells_.SHORT: "ours is lower",
    cells_.DIFFERENT: "the rank differs; a higher rank is not better",
    cells_.STAND_IN: "measured on another data set than the paper's: only the order of the rows and the gaps compare",
    cells_.NOT_PRINTED: "the paper has no readable number",
    cells_.OTHER_MACHINE: "seconds, which are not compared between machines",
    cells_.NO_MODEL: "the model is not in this library yet",
    cells_.NO_DATA: "the data set is not on this machine",
    cells_.NO_SETTINGS: "the settings are not published",
    cells_.FAILED: "the fit failed; the note of the row has the reason",
}
SYMBOLS = {
    cells_.REPRODUCED: "✓", cells_.BETTER: "▲", cells_.SHORT: "▼", cells_.DIFFERENT: "≠", cells_.STAND_IN: "◇",
    cells_.NOT_PRINTED: "○", cells_.OTHER_MACHINE: "◷", cells_.NO_MODEL: "–", cells_.NO_DATA: "–",
    cells_.NO_SETTINGS: "–", cells_.FAILED: "✗",
}  # fmt: skip
TONES: dict[str, Tone] = {
    cells_.REPRODUCED: "good", cells_.BETTER: "good", cells_.SHORT: "bad", cells_.DIFFERENT: "bad",
    cells_.FAILED: "bad", cells_.STAND_IN: "neutral", cells_.NOT_PRINTED: "neutral", cells_.OTHER_MACHINE: "neutral",
}  # fmt: skip
SECONDS = (
    "Seconds and memory are of the fit on the machine that made this report; rows that share an inverse each show the "
    "seconds of that one inverse. Settings are those of the paper or of its code where they are published; the notes "
    "of the rows say where they are not. Gradient-trained rows share a budget of time for each data set; a row that it "
    "stopped says so, and would be better or worse after more epochs."
)
LONG = 20  # rows; a longer table of a figure is folded, below its pictures


def report(paper: Paper, cells: Sequence[Cell], command: str = "") -> list[Block]:
    """The blocks of a report: the answer first, then the tables, then how it was made."""
    blocks: list[Block] = [Heading(1, paper.title), Text(f"{paper.source}. Protocol: {paper.protocol}.")]
    blocks += [*answer(paper, cells), Contents()]
    for table in paper.tables:
        table_cells = [cell for cell in cells if cell.table == table.name]
        if table_cells:
            blocks += _section(paper, table, table_cells)
            if table.axis and "--tune" in command:
                blocks.append(Text("A figure keeps its settings: --tune chooses those of tables alone."))
    source = f"Made by Monogram {__version__}" + (" with this command:" if command else ".")
    blocks += [Heading(2, "How to read this report"), _legend(cells), Text(SECONDS)]
    return [*blocks, Text(source), *([Text(command, code=True)] if command else [])]


def verdict(name: str, metric: str = "") -> GridCell:
    """A verdict with its symbol and its colour."""
    return GridCell(f"{SYMBOLS[name]} {metric} {name}".replace("  ", " "), tone=TONES.get(name, "absent"))


def _legend(cells: Sequence[Cell]) -> Grid:
    counts = {name: sum(cell.verdict == name for cell in cells) for name in MEANING}
    rows: list[list[str | GridCell]] = [
        [verdict(name), meaning, f"{counts[name]:,}"] for name, meaning in MEANING.items() if counts[name]
    ]
    return Grid("Verdicts", ["verdict", "meaning", "cells"], rows, frozenset({2}))


def summary(cells: Iterable[Cell]) -> str:
    """How many cells have which verdict."""
    counts: dict[str, int] = {}
    for cell in cells:
        counts[cell.verdict] = counts.get(cell.verdict, 0) + 1
    return "Cells: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items()) + "."


def _section(paper: Paper, table: PaperTable, cells: Sequence[Cell]) -> Iterator[Block]:
    """A table or a figure; data sets with results come first, the others are folded."""
    yield Heading(2, f"{table.name.capitalize()}: {table.title}")
    if table.note:
        yield Text(table.note)
    by_data = {data: [cell for cell in cells if cell.data == data] for data in table.data}
    used = {data: next((cell.used for cell in data_cells if cell.used), None) for data, data_cells in by_data.items()}
    for data in sorted((data for data in used if used[data]), key=lambda data: used[data] != data):  # stand-ins last
        yield from _measured(paper, table, data, by_data[data])
    for data, data_cells in by_data.items():
        if data_cells and not used[data]:
            yield _unmeasured(table, data, data_cells)


def _measured(paper: Paper, table: PaperTable, data: str, cells: Sequence[Cell]) -> Iterator[Block]:
    used = next(cell.used for cell in cells if cell.used)
    place = data if used == data else f"{used}, standing in for {data}"
    yield Heading(3, place)
    yield Text(_about(cells))
    if table.axis:
        yield from _pictures(paper, table, cells, place)
    if any(cell.histogram for cell in cells):
        yield from _histograms(table, cells)
    caption = f"{table.name.capitalize()}, {place}, {table.part} part"
    grid, notes = _grid(table, cells, caption), _notes(cells)
    under: list[Block] = [grid, *([Items(notes)] if notes else [])]
    if table.axis and len(grid.rows) > LONG:
        yield Fold(f"All {len(grid.rows)} rows", under)
    else:
        yield from under
    if used != data and not table.axis:
        yield from _order(table, cells)


def _unmeasured(table: PaperTable, data: str, cells: Sequence[Cell]) -> Fold:
    """The paper's numbers for a data set that was not measured."""
    grid, notes = _grid(table, cells, f"{table.name.capitalize()}, {data}, {table.part} part"), _notes(cells)
    verdicts = ", ".join(dict.fromkeys(cell.verdict for cell in cells))
    rows = "1 row" if len(grid.rows) == 1 else f"{len(grid.rows)} rows"
    return Fold(f"{data}: not measured here ({rows}: {verdicts})", [grid, *([Items(notes)] if notes else [])])


def _about(cells: Sequence[Cell]) -> str:
    """The size of the data, and how settings were chosen."""
    first = next(cell for cell in cells if cell.used)
    parts = []
    if first.size:
        size = first.size
        parts.append(f"Train: {size['users']:,} users, {size['items']:,} items, {size['events']:,} events.")
    if first.users is not None:
        parts.append(f"Measured on {first.users:,} users.")
    searched = [cell for cell in cells if cell.tried is not None]
    for validation in dict.fromkeys(cell.validation for cell in searched):
        numbers = {cell.row: cell.tried or 0 for cell in searched if cell.validation == validation}
        parts.append(
            f"Settings were chosen on {validation}: {sum(numbers.values()):,} tried for {len(numbers)} rows, "
            "then each best one was refitted on all of train."
        )
    if not searched:
        count = len({(cell.row, in_words(cell.settings)) for cell in cells if cell.used})
        parts.append(f"{count} settings, as given in the table; none was searched for this report.")
    return " ".join(parts)


def _notes(cells: Sequence[Cell]) -> list[str]:
    """The notes on the rows; rows with the same note share a line, and notes that differ in numbers are one."""
    rows_by_note: dict[str, dict[str, None]] = {}
    alike: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.reason:
            texts = alike.setdefault((cell.row, re.sub(r"\d[\d.,e+-]*", "#", cell.reason)), [])
            if cell.reason not in texts:
                texts.append(cell.reason)
    for (row, _), texts in alike.items():
        more = f" ({len(texts)} such notes; this is the last)" if len(texts) > 1 else ""
        rows_by_note.setdefault(texts[-1] + more, {})[row] = None
    return [f"{', '.join(rows)}: {reason}" for reason, rows in rows_by_note.items()]


def _grid(table: PaperTable, cells: Sequence[Cell], caption: str) -> Grid:
    """The rows side by side with the paper's numbers; rows with results first."""
    width = len(table.metrics)
    groups = [cells[at : at + width] for at in range(0, len(cells), width)]
    groups.sort(key=lambda group: all(cell.value is None for cell in group))  # stable: else the order of the paper
    rows = [_line(group) for group in groups]
    headers, numbers = ["row", "verdict"], set()
    for metric in table.metrics:
        at = len(headers)
        numbers |= {at, at + 1, at + 2}
        ours = "ours [95%]" if any(str(row[at]) for row in rows) else f"{metric}: ours [95%]"
        headers += [f"{metric}: paper", ours, "difference"]
    headers += ["tried", "epochs", "seconds", "memory"]
    numbers |= set(range(len(headers) - 4, len(headers)))
    shown = [at for at in range(len(headers)) if at == 0 or any(str(row[at]) for row in rows)]  # without empty columns
    return Grid(
        caption,
        [headers[at] for at in shown],
        [[row[at] for at in shown] for row in rows],
        frozenset(column for column, at in enumerate(shown) if at in numbers),
    )


def _line(cells: Sequence[Cell]) -> list[str | GridCell]:
    """A row of a table: the cells of its metrics side by side."""
    first = cells[0]
    same = len({cell.verdict for cell in cells}) == 1
    line: list[str | GridCell] = [
        GridCell(first.row, in_words(first.settings)),
        verdict(first.verdict) if same else "by metric",
    ]
    for cell in cells:
        interval = "" if cell.low is None else f"[{_number(cell.low)}, {_number(cell.high)}]"
        interval = interval if cell.deviation is None else f"± {_number(cell.deviation)} over {cell.seeds} seeds"
        spread = "" if cell.spread is None else f"± {_number(cell.spread)}"
        digits = "+.0f" if cell.metric == "rank" else "+.4f"
        difference = "" if cell.difference is None else format(cell.difference, digits)
        sign = GridCell(f"{difference} {verdict(cell.verdict).text}".strip(), tone=TONES.get(cell.verdict, "absent"))
        line += [
            GridCell(_number(cell.printed, cell.metric), spread),
            GridCell(_number(cell.value, cell.metric), interval),
        ]
        line.append(difference if same else sign)
    line.append("" if first.tried is None else f"{first.tried:,}")
    line.append("" if first.epochs is None else GridCell(f"{first.epochs:,}", "stopped by budget" * first.stopped))
    line.append("" if first.seconds is None else f"{first.seconds:,.1f}")
    line.append("" if first.bytes is None else show(first.bytes))
    return line


def _number(value: float | None, metric: str = "") -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if metric == "rank" else f"{value:,.1f}" if metric == "seconds" else f"{value:.4f}"


def _order(table: PaperTable, cells: Sequence[Cell]) -> Iterator[Block]:
    """For a stand-in: whether the rows have the order of the paper, and their gaps."""
    sentences, columns = [], {}
    for metric in table.metrics:
        metric_cells = [cell for cell in cells if cell.metric == metric and cell.verdict == STAND_IN]
        differences = gaps(metric_cells)
        if not differences:
            continue
        first = next(cell.row for cell in metric_cells if cell.printed is not None and cell.value is not None)
        sentences.append(f"{metric}: {_in_order(*agreement(metric_cells))}.")
        columns[f"{metric} minus {first}"] = {gap.row: gap for gap in differences}
    if not columns:
        return
    yield Items(sentences)
    names = dict.fromkeys(row for by_row in columns.values() for row in by_row)
    headers = ["row", *(text for column in columns for text in (f"{column}: paper", "ours"))]
    rows = [[name, *(text for by_row in columns.values() for text in _gap(by_row.get(name)))] for name in names]
    grid = Grid("Gaps to the first row", headers, rows, frozenset(range(1, len(headers))))
    yield Fold("Gaps to the first row, in the paper and here", [grid])


def _gap(gap: Gap | None) -> tuple[str, str]:
    return ("", "") if gap is None else (f"{gap.printed:+.4f}", f"{gap.value:+.4f}")


def _in_order(agreed: int, pairs: int) -> str:
    if pairs == 0:
        return "the paper prints equal numbers for all rows"
    if pairs == 1:
        return f"the one pair of rows with different printed numbers is {'' if agreed else 'not '}in the paper's order"
    return f"of the {pairs} pairs of rows with different printed numbers, {agreed} are in the paper's order"


def _pictures(paper: Paper, table: PaperTable, cells: Sequence[Cell], place: str) -> Iterator[Block]:
    """A picture for each metric; without matplotlib, a text with the command that installs it."""
    pictures = []
    for metric in table.metrics:
        rows = [
            {"model": cell.row, "seconds": cell.seconds, metric: cell.value, "low": cell.low, "high": cell.high,
             **cell.settings}
            for cell in cells
            if cell.metric == metric and cell.value is not None
        ]  # fmt: skip
        try:
            svg = plots.picture(_draw(paper, table, cells, rows, metric, place))
        except MissingExtraError as error:
            yield Text(f"The picture is missing: {error}.")
            return
        axis = table.drawn_against or " and ".join(table.axis)
        pictures.append(Picture(_file_name(table, cells, metric), f"{metric} against {axis}, {place}", svg))
    yield Pictures(pictures)


def _histograms(table: PaperTable, cells: Sequence[Cell]) -> Iterator[Block]:
    """A picture for each row: the distributions of its metrics."""
    pictures = []
    for row in dict.fromkeys(cell.row for cell in cells if cell.histogram):
        lines = {cell.metric.partition(" ")[0]: cell.histogram for cell in cells if cell.row == row}
        try:
            svg = plots.picture(plots.histograms(lines, x="median cosine of similar items", title=row))
        except MissingExtraError as error:
            yield Text(f"The picture is missing: {error}.")
            return
        alt = f"{row}: distribution of {' and '.join(table.metrics)} over items"
        pictures.append(Picture(_file_name(table, cells, row), alt, svg))
    yield Pictures(pictures)


def _file_name(table: PaperTable, cells: Sequence[Cell], end: str) -> str:
    return re.sub(r"[ @]", "-", f"{table.name}-{cells[0].data}-{end}".replace(",", ""))


def _draw(
    paper: Paper, table: PaperTable, cells: Sequence[Cell], rows: list[dict[str, Any]], metric: str, title: str
) -> Any:
    if len(table.axis) == 2:
        return plots.heat_map(rows, metric, x=table.axis[0], y=table.axis[1], title=title)
    if table.drawn_against:
        return plots.against(rows, metric, x=table.drawn_against, title=title)
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
