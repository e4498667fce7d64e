"""The top of a report: the question of a reader, its answer in three sentences, and one picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from monogram import plots
from monogram.errors import MissingExtraError
from monogram.reports.blocks import Block, Items, Picture, Pictures, Text, in_words
from monogram.reproduce.cells import BETTER, REPRODUCED, SHORT, STAND_IN, Cell, agreement
from monogram.reproduce.paper import Paper, PaperTable

NEAR = 0.01  # a model whose metric is lower by at most this share of the best counts as near it
CLOSED_FORM, ITERATIVE, NOT_TIMED = plots.KINDS


def answer(paper: Paper, cells: Sequence[Cell]) -> Iterator[Block]:
    """The question, three sentences and a picture; nothing for a paper without a question or without its main table.

    Stand-ins are in the second and third sentence and in the picture only where no data set of the paper was measured.
    """
    table = next((table for table in paper.tables if table.name == paper.main), None)
    of_table = [cell for cell in cells if table is not None and cell.table == table.name]
    if table is None or not paper.question or not of_table:
        return
    metric = table.metrics[-1]
    shown = [cell for cell in of_table if cell.metric == metric]
    with_value = [cell for cell in shown if cell.value is not None]
    measured = _by_data([cell for cell in with_value if cell.used == cell.data] or with_value)
    yield Text(paper.question, lead=True)
    if not measured:
        yield Text(f"None of the models of {table.name} was measured: {shown[0].reason or shown[0].verdict}.")
        return
    yield Items([_agreement(table, of_table), _best(table, shown, measured), _fastest(table, measured)])
    try:
        pictures = [_picture(table, shown, group) for group in measured.values()]
    except MissingExtraError as error:
        yield Text(f"The picture is missing: {error}.")
        return
    yield Pictures(pictures, _caption(table, metric, shown))


def place_of(cell: Cell) -> str:
    """The data set of a measured cell, in words."""
    return cell.data if cell.used in (None, cell.data) else f"{cell.used} (in place of {cell.data})"


def _by_data(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.data, []).append(cell)
    return groups


def _agreement(table: PaperTable, cells: Sequence[Cell]) -> str:
    """The first sentence: how our numbers compare with those of the paper."""
    counts = {verdict: sum(cell.verdict == verdict for cell in cells) for verdict in (REPRODUCED, BETTER, SHORT)}
    total = sum(counts.values())
    where = " and ".join(dict.fromkeys(cell.data for cell in cells if cell.verdict in counts))
    parts = [f"{counts[REPRODUCED]} of the {total} numbers of {table.name} measured on {where} are reproduced, "
             f"{counts[BETTER]} of ours are higher and {counts[SHORT]} lower"] if total else []  # fmt: skip
    metric = table.metrics[-1]
    for data, group in _by_data([cell for cell in cells if cell.metric == metric and cell.verdict == STAND_IN]).items():
        agreed, pairs = agreement(group)
        if pairs:
            parts.append(
                f"on {group[0].used}, which stands in for {data}, {_of_pairs(agreed, pairs)} the paper's order by "
                f"{metric}"
            )
    if parts:
        sentence = "; ".join(parts)
        return f"{sentence[0].upper()}{sentence[1:]}."
    used = ", ".join(dict.fromkeys(str(cell.used) for cell in cells if cell.used))
    return f"The paper's numbers for {table.name} cannot be compared with those on {used}, which are ours alone."


def _of_pairs(agreed: int, pairs: int) -> str:
    return f"{agreed} of {pairs} pairs of models have" if pairs > 1 else f"{agreed} of 1 pair of models has"


def _best(table: PaperTable, shown: Sequence[Cell], measured: dict[str, list[Cell]]) -> str:
    """The second sentence: the best closed form, and the best other model."""
    metric, parts = table.metrics[-1], []
    for data, group in measured.items():
        closed = [cell for cell in group if cell.closed_form]
        others = [cell for cell in group if not cell.closed_form]
        phrases = [f"the best {kind} is {_said(table, max(cells, key=_value))}"
                   for kind, cells in (("closed form", closed), ("iterative model", others)) if cells]  # fmt: skip
        absent = [cell for cell in shown if cell.data == data and cell.value is None and cell.printed is not None]
        if absent and group[0].used == data:
            top = max(absent, key=lambda cell: cell.printed or 0)
            phrases.append(f"the best model that was not fitted here has {top.printed:.4f} in the paper ({top.row})")
        parts.append(f"on {place_of(group[0])} {', '.join(phrases)}")
    return f"By {metric}, {'; '.join(parts)}."


def _fastest(table: PaperTable, measured: dict[str, list[Cell]]) -> str:
    """The third sentence: the fastest model near the best one."""
    parts = []
    for group in measured.values():
        best = max(group, key=_value)
        near = [cell for cell in group if _value(cell) >= (1 - NEAR) * _value(best) and cell.seconds is not None]
        if not near:
            continue
        first = min(near, key=lambda cell: (cell.seconds or 0, -_value(cell)))
        of_best = f", {_time(best)} for the best" if first is not best else ", which is the best"
        parts.append(f"{named(table, first)} on {place_of(group[0])} ({_time(first)}{of_best})")
    return f"The fastest fit within {NEAR:.0%} of the best: {'; '.join(parts)}." if parts else ""


def _value(cell: Cell) -> float:
    return cell.value or 0.0


def _time(cell: Cell) -> str:
    seconds = cell.seconds or 0.0
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.1f} s"


def named(table: PaperTable, cell: Cell) -> str:
    """The row of a cell; in a figure with its place on the axis."""
    axis = {name: cell.settings[name] for name in table.axis if name in cell.settings}
    return f"{cell.row}, {in_words(axis)}" if axis else cell.row


def _said(table: PaperTable, cell: Cell) -> str:
    interval = "" if cell.low is None or cell.high is None else f" [{cell.low:.4f}, {cell.high:.4f}]"
    return f"{named(table, cell)} with {_value(cell):.4f}{interval} after {_time(cell)}"


def _caption(table: PaperTable, metric: str, shown: Sequence[Cell]) -> str:
    """What is in the picture, and what is not."""
    stood_in = not any(cell.used == cell.data for cell in shown)
    printed = any(_is_printed(cell, shown) for cell in shown)
    what = "each closed form is marked as ours" if table.axis else "bars are 95% intervals over users"
    part = f"{metric} on the {table.part} part against the seconds of the fit"
    sentences = [f"{part}, every model of {table.name} that was measured; {what}."]
    if printed:
        sentences.append("Diamonds are numbers of the paper for models that were not fitted here.")
    if stood_in:
        sentences.append("The paper's numbers cannot be drawn beside those of a stand-in.")
    return " ".join(sentences)


def _is_printed(cell: Cell, shown: Sequence[Cell]) -> bool:
    """Whether a cell has only the paper's number, for a data set that was measured itself."""
    own = any(other.used == cell.data for other in shown if other.data == cell.data)
    return own and cell.value is None and cell.printed is not None


def _picture(table: PaperTable, shown: Sequence[Cell], group: Sequence[Cell]) -> Picture:
    metric, data = table.metrics[-1], group[0].data
    rows: list[dict[str, Any]] = [
        {"model": cell.row, metric: cell.value, "low": cell.low, "high": cell.high, "seconds": cell.seconds,
         "kind": CLOSED_FORM if cell.closed_form else ITERATIVE}
        for cell in group
    ]  # fmt: skip
    title = place_of(group[0])
    if table.axis:
        marked = [row | {"model": f"{row['model']}{' (ours)' * (row['kind'] == CLOSED_FORM)}"} for row in rows]
        figure = plots.against(marked, metric, x="seconds", title=title)
    else:
        rows += [
            {"model": cell.row, metric: cell.printed, "kind": NOT_TIMED}
            for cell in shown if cell.data == data and _is_printed(cell, shown)
        ]  # fmt: skip
        figure = plots.accuracy_and_seconds(rows, metric, title=title)
    name = f"answer-{data}-{metric}".replace("@", "-")
    return Picture(name, f"{metric} against seconds of the fit, {title}", plots.picture(figure))
