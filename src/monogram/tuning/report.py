"""The report of a search: the best settings, what they are worth on the test part, and pictures of the way there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from monogram import plots
from monogram._version import __version__
from monogram.errors import MissingExtraError
from monogram.reports.blocks import Block, Grid, Heading, Picture, Text, in_words

if TYPE_CHECKING:
    from monogram.tuning.result import Tuning

SHOWN = 20  # settings in the table
LINES = ("b", "rank", "l2", "dropout", "user_power", "item_power")  # parameters drawn as lines where they were searched
BY_FACTORS = ("b", "rank", "l2")
Row = dict[str, Any]


def report(found: Tuning, command: str = "") -> list[Block]:
    """The blocks of a report on what `tune` gave."""
    rows = [{"model": one["model"], **one["parameters"], **one, found.metric: one["value"]} for one in found.rows()]
    valid = [one for one in rows if one["value"] is not None]
    best, seconds = found.best, sum(one["seconds"] for one in rows)
    blocks: list[Block] = [
        Heading(1, "The best setting for a log"),
        Text(f"Made by Monogram {__version__}" + (" with this command:" if command else ".")),
        *([Text(command, code=True)] if command else []),
        Text(
            f"{len(rows):,} settings in {seconds:,.1f} s, compared by {found.metric} on the validation part, which was "
            f"cut from train. The best: {found.model!r} with {best['value']:.4f}."
        ),
        Heading(2, "On the test part"),
        Text("The best setting was fitted on all of train, and the test part was read once."),
        _test(found),
        Heading(2, "The best settings on validation"),
        _settings(valid, found.metric),
        Heading(2, "Pictures"),
        *_pictures(found, valid),
    ]
    return blocks


def _test(found: Tuning) -> Grid:
    rows = []
    for row in found.test.rows():
        apart = found.differences.get(row["model"])
        between = "" if row["low"] is None else f"[{row['low']:.4f}, {row['high']:.4f}]"
        far = "" if apart is None else f"{apart.value:+.4f} [{apart.low:+.4f}, {apart.high:+.4f}], p = {apart.p:.3g}"
        rows.append([row["model"], f"{row['value']:.4f}", between, far])
    headers = ["model", found.metric, "95% interval", "the best less this, paired"]
    return Grid(f"{found.metric} on the test part", headers, rows, frozenset({1}))


def _settings(rows: Sequence[Row], metric: str) -> Grid:
    best = sorted(rows, key=lambda row: -row["value"])[:SHOWN]
    lines = [[row["model"], in_words(row["parameters"]), f"{row['value']:.4f}"] for row in best]
    return Grid(f"The best {len(lines)} of {len(rows):,}", ["model", "setting", metric], lines, frozenset({2}))


def _pictures(found: Tuning, rows: Sequence[Row]) -> Iterator[Block]:
    """What was searched, drawn; without matplotlib, how to get it."""
    drawn: list[tuple[str, str, Callable[[], Any]]] = [("validation", "the best value so far", lambda: _curve(found))]
    for model in dict.fromkeys(row["model"] for row in rows):
        drawn += _of_model(model, [row for row in rows if row["model"] == model], found.metric)
    objectives = found.model.report_.objectives
    if len(objectives) > 1:
        drawn.append(("convergence", "the objective by epoch", lambda: _epochs(found, objectives)))
    for name, alt, draw in drawn:
        try:
            picture = plots.picture(draw())
        except MissingExtraError as error:
            yield Text(f"The pictures are missing: {error}.")
            return
        yield Picture(name, alt, picture)


def _curve(found: Tuning) -> Any:
    rows = [{"model": "best so far", **one} for one in found.curve() if one["best"] is not None]
    shown = [row | {found.metric: row["best"]} for row in rows]
    return plots.against(shown, found.metric, x="tried", title=f"{found.metric} on validation")


def _of_model(model: str, rows: Sequence[Row], metric: str) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """A map of l2 and dropout, and a line for each parameter through the model's best setting."""
    best = max(rows, key=lambda row: row["value"])
    plane = [row for row in rows if _numbers(row, ("l2", "dropout"))]
    if all(len({row[one] for row in plane}) > 1 for one in ("l2", "dropout")):
        title = f"{model}: {metric} on validation"
        yield (
            f"{model}-l2-dropout",
            f"{model}: {metric} against l2 and dropout",
            lambda: plots.heat_map(plane, metric, title=title),
        )
    for one in LINES:
        line = along(rows, best, one)
        if len(line) > 2:
            yield f"{model}-{one}", f"{model}: {metric} against {one}", _line(model, line, one, metric, best)


def _line(model: str, line: list[Row], one: str, metric: str, best: Row) -> Callable[[], Any]:
    others = [name for name in best["parameters"] if name in LINES and name != one and _numbers(best, (name,))]
    rest = in_words({name: best[name] for name in others})
    title, wide = f"{model}, {rest}" if rest else model, one in BY_FACTORS and all(row[one] > 0 for row in line)
    return lambda: plots.against(line, metric, x=one, logarithmic=wide, title=title)


def along(rows: Sequence[Row], best: Row, parameter: str) -> list[Row]:
    """The rows that differ from the best in one parameter alone, and the best."""
    rest = {name: value for name, value in best["parameters"].items() if name != parameter}
    return [
        row
        for row in rows
        if _numbers(row, (parameter,)) and all(row["parameters"].get(name) == value for name, value in rest.items())
    ]


def _numbers(row: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    given = [row["parameters"].get(name) for name in names]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in given)


def _epochs(found: Tuning, objectives: Sequence[float]) -> Any:
    rows = [{"model": found.model.name, "epochs": at, "objective": value} for at, value in enumerate(objectives, 1)]
    return plots.convergence(rows, "objective", title=f"{found.model!r}, refitted on train")
