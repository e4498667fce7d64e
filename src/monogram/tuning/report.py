"""The report of a search: the best settings, the metric on the test part, and pictures of the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from monogram import plots
from monogram._version import __version__
from monogram.errors import MissingExtraError
from monogram.reports.blocks import Block, Grid, Heading, Picture, Text, in_words

if TYPE_CHECKING:
    from monogram.evaluation.statistics import Difference
    from monogram.tuning.result import Tuning

SHOWN = 20  # settings in the table
LINES = ("b", "rank", "l2", "dropout", "user_power", "item_power")  # searched parameters that are drawn as lines
BY_FACTORS = ("b", "rank", "l2")  # of these, those with a logarithmic axis
Row = dict[str, Any]


def report(tuning: Tuning, command: str = "") -> list[Block]:
    """The blocks of a report on a search."""
    rows = [{**trial["parameters"], **trial, tuning.metric: trial["value"]} for trial in tuning.rows()]
    valid = [row for row in rows if row["value"] is not None]
    best, seconds = tuning.best, sum(row["seconds"] for row in rows)
    blocks: list[Block] = [
        Heading(1, "The best setting for a log"),
        Text(f"Made by Monogram {__version__}" + (" with this command:" if command else ".")),
        *([Text(command, code=True)] if command else []),
        Text(
            f"{len(rows):,} settings in {seconds:,.1f} s, compared by {tuning.metric} on the validation part "
            f"({tuning.validation or 'a part of train'}). The best: {tuning.model!r} with {best['value']:.4f}."
        ),
        Heading(2, "On the test part"),
        Text("The best setting was refitted on all of train. The test part was read once, after the search."),
        _test(tuning),
        Heading(2, "The best settings on validation"),
        _settings(valid, tuning.metric),
        Heading(2, "Pictures"),
        *_pictures(tuning, valid),
    ]
    return blocks


def _test(tuning: Tuning) -> Grid:
    rows = []
    for row in tuning.test.rows():
        interval = "" if row["low"] is None else f"[{row['low']:.4f}, {row['high']:.4f}]"
        rows.append([row["model"], f"{row['value']:.4f}", interval, _difference(tuning.differences.get(row["model"]))])
    headers = ["model", tuning.metric, "95% interval", "best minus this model, paired"]
    return Grid(f"{tuning.metric} on the test part", headers, rows, frozenset({1}))


def _difference(difference: Difference | None) -> str:
    if difference is None:
        return ""
    interval = f"[{difference.low:+.4f}, {difference.high:+.4f}]"
    return f"{difference.value:+.4f} {interval}, p = {difference.p:.3g}"


def _settings(rows: Sequence[Row], metric: str) -> Grid:
    best = sorted(rows, key=lambda row: -row["value"])[:SHOWN]
    lines = [[row["model"], in_words(row["parameters"]), f"{row['value']:.4f}"] for row in best]
    return Grid(f"The best {len(lines)} of {len(rows):,}", ["model", "setting", metric], lines, frozenset({2}))


def _pictures(tuning: Tuning, rows: Sequence[Row]) -> Iterator[Block]:
    """Pictures of the search; without matplotlib, a text with the command that installs it."""
    drawn: list[tuple[str, str, Callable[[], Any]]] = [("validation", "the best value so far", lambda: _curve(tuning))]
    for model in dict.fromkeys(row["model"] for row in rows):
        drawn += _of_model(model, [row for row in rows if row["model"] == model], tuning.metric)
    objectives = tuning.model.report_.objectives
    if len(objectives) > 1:
        drawn.append(("convergence", "the objective by epoch", lambda: _epochs(tuning, objectives)))
    for name, alt, draw in drawn:
        try:
            picture = plots.picture(draw())
        except MissingExtraError as error:
            yield Text(f"The pictures are missing: {error}.")
            return
        yield Picture(name, alt, picture)


def _curve(tuning: Tuning) -> Any:
    rows = [{"model": "best so far", **point} for point in tuning.curve() if point["best"] is not None]
    shown = [row | {tuning.metric: row["best"]} for row in rows]
    return plots.against(shown, tuning.metric, x="tried", title=f"{tuning.metric} on validation")


def _of_model(model: str, rows: Sequence[Row], metric: str) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """A heat map over l2 and dropout, and a line for each parameter through the model's best setting."""
    best = max(rows, key=lambda row: row["value"])
    plane = [row for row in rows if _numbers(row, ("l2", "dropout"))]
    if all(len({row[parameter] for row in plane}) > 1 for parameter in ("l2", "dropout")):
        title = f"{model}: {metric} on validation"
        yield (
            f"{model}-l2-dropout",
            f"{model}: {metric} against l2 and dropout",
            lambda: plots.heat_map(plane, metric, title=title),
        )
    for parameter in LINES:
        line = along(rows, best, parameter)
        if len(line) > 2:
            draw = _line(model, line, parameter, metric, best)
            yield f"{model}-{parameter}", f"{model}: {metric} against {parameter}", draw


def _line(model: str, line: list[Row], x: str, metric: str, best: Row) -> Callable[[], Any]:
    others = [name for name in best["parameters"] if name in LINES and name != x and _numbers(best, (name,))]
    fixed = in_words({name: best[name] for name in others})
    title = f"{model}, {fixed}" if fixed else model
    logarithmic = x in BY_FACTORS and all(row[x] > 0 for row in line)
    return lambda: plots.against(line, metric, x=x, logarithmic=logarithmic, title=title)


def along(rows: Sequence[Row], best: Row, parameter: str) -> list[Row]:
    """The best row, and the rows that differ from it in one parameter only."""
    others = {name: value for name, value in best["parameters"].items() if name != parameter}
    return [
        row
        for row in rows
        if _numbers(row, (parameter,)) and all(row["parameters"].get(name) == value for name, value in others.items())
    ]


def _numbers(row: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    values = [row["parameters"].get(name) for name in names]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _epochs(tuning: Tuning, objectives: Sequence[float]) -> Any:
    rows = [{"model": tuning.model.name, "epochs": at, "objective": value} for at, value in enumerate(objectives, 1)]
    return plots.convergence(rows, "objective", title=f"{tuning.model!r}, refitted on train")
