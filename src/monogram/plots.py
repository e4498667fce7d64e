"""Pictures of a search or of a paper's figure, as PNG or SVG. Needs the extra `plot`.

A row is a dictionary, such as `{"model": "EDLAE", "l2": 100, "dropout": 0.3, "ndcg@20": 0.15}`. The entries of a
dictionary under "parameters" count as entries of the row, so that the rows of `Tuning` can be drawn. Lines differ in
colour (the palette of Okabe and Ito, safe for colour-blind readers), marker and dash, so that they differ in print too.
"""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monogram.errors import MissingExtraError, ParameterError
from monogram.safe import whole_file

Rows = Sequence[Mapping[str, Any]]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 3)), (0, (1, 1)))
SUFFIXES = (".png", ".svg")
MOST_MARKERS = 40  # of a line
CLOSEST = 0.06  # of the width of an axis: labels nearer than that would overlap
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "monogram"}
LABELS = {
    "b": "b, weight of the error on kept entries",
    "rank": "rank",
    "epochs": "epoch",
    "l2": "l2, penalty on the squared weights",
    "dropout": "dropout",
    "user_power": "user_power, how much less long histories count",
    "item_power": "item_power, power of popularity",
    "keep": "keep, probability with which a factor is kept",
    "tried": "settings tried",
}


def heat_map(rows: Rows, metric: str, *, x: str = "l2", y: str = "dropout", title: str = "") -> Any:
    """A heat map of a metric against two parameters; each cell shows its value, and the best cell is framed.

    Of several rows in one cell the best is shown.

    Parameters
    ----------
    rows : each with the keys `x`, `y` and `metric`
    metric : what is shown; higher is better

    Returns
    -------
    matplotlib.figure.Figure
        For `save`.
    """
    rows = _flat(rows, (x, y, metric))
    across, up = (sorted({row[key] for row in rows}) for key in (x, y))
    values = [[math.nan] * len(across) for _ in up]
    for row in sorted(rows, key=lambda row: float(row[metric])):
        values[up.index(row[y])][across.index(row[x])] = float(row[metric])
    figure, axes = _figure(1.6 + 0.75 * len(across), 1.5 + 0.42 * len(up))
    drawn = axes.imshow(values, origin="lower", aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(across)), [f"{value:g}" for value in across])
    axes.set_yticks(range(len(up)), [f"{value:g}" for value in up])
    _write_cells(axes, values)
    _name(axes, x, y, title)
    figure.colorbar(drawn, ax=axes, label=metric)
    return figure


def _write_cells(axes: Any, values: list[list[float]]) -> None:
    known = [(value, up, across) for up, line in enumerate(values) for across, value in enumerate(line)
             if not math.isnan(value)]  # fmt: skip
    low, high = min(known)[0], max(known)[0]
    for value, up, across in known:
        dark = value - low < 0.6 * (high - low)
        axes.text(across, up, f"{value:.4f}", ha="center", va="center", size=7, color="white" if dark else "black")
    _, up, across = max(known)
    patches = _module("matplotlib.patches")
    axes.add_patch(patches.Rectangle((across - 0.5, up - 0.5), 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=2.5))


def against(
    rows: Rows,
    metric: str,
    *,
    x: str,
    lines: str = "model",
    marks: Mapping[str, float] | None = None,
    logarithmic: bool = False,
    title: str = "",
) -> Any:
    """A metric against one parameter, a line for each model.

    Parameters
    ----------
    rows : each with the keys `x`, `lines` and `metric`
        With `low` and `high` too, the intervals of one or two lines are drawn.
    lines : the key whose values are the lines
    marks : values to show as labelled horizontal lines, such as {"the paper's EDLAE": 0.1539}
    logarithmic : whether x has a logarithmic scale; ignored where a value is not above 0

    Returns
    -------
    matplotlib.figure.Figure
        For `save`.
    """
    rows = _flat(rows, (x, lines, metric))
    figure, axes = _figure(5.6, 4.0)
    names = list(dict.fromkeys(str(row[lines]) for row in rows))
    for number, name in enumerate(names):
        line = sorted((row for row in rows if str(row[lines]) == name), key=lambda row: float(row[x]))
        positions = [float(row[x]) for row in line]
        style = {"color": COLOURS[number % 7], "marker": MARKERS[number % 7], "linestyle": DASHES[number % 7]}
        style["markevery"] = -(-len(positions) // MOST_MARKERS)
        axes.plot(positions, [float(row[metric]) for row in line], label=name, markersize=5, linewidth=1.6, **style)
        if len(names) <= 2 and all(row.get("low") is not None and row.get("high") is not None for row in line):
            bounds = ([float(row[bound]) for row in line] for bound in ("low", "high"))
            axes.fill_between(positions, *bounds, color=style["color"], alpha=0.12, linewidth=0)
    for number, (label, value) in enumerate((marks or {}).items()):
        axes.axhline(
            value, color="#555555", linewidth=1, linestyle=DASHES[(number + 1) % 7], label=f"{label} {value:.4f}"
        )
    if logarithmic and all(float(row[x]) > 0 for row in rows):
        _logarithmic(axes, sorted({float(row[x]) for row in rows}))
    _name(axes, x, metric, title)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)  # outside: it covers no line
    return figure


def against_b(rows: Rows, metric: str, **more: Any) -> Any:
    """A metric against b (P0's figure); see `against`."""
    return against(rows, metric, x="b", **more)


def against_rank(rows: Rows, metric: str, **more: Any) -> Any:
    """A metric against the rank (P1's and P2's figure); see `against`."""
    return against(rows, metric, x="rank", logarithmic=True, **more)


def convergence(rows: Rows, metric: str, **more: Any) -> Any:
    """A metric by epoch (P3's figure); see `against`."""
    return against(rows, metric, x="epochs", logarithmic=True, **more)


def save(figure: Any, path: str | Path) -> None:
    """Write a picture in the format of the suffix of its path, .png or .svg."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ParameterError(f"{path} cannot be a picture; expected a name ending in {' or '.join(SUFFIXES)}")
    content = picture(figure, suffix)
    with whole_file(path) as file:
        file.write(content)


def picture(figure: Any, suffix: str = ".svg") -> bytes:
    """The bytes of a picture; equal rows give equal bytes."""
    matplotlib, buffer = _module("matplotlib"), io.BytesIO()
    without = {"Date": None} if suffix == ".svg" else {"Software": None}  # metadata that would differ between runs
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=suffix.removeprefix("."), dpi=160, metadata=without)
    return buffer.getvalue()


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'monogram[plot]'") from error


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """An empty figure; made without pyplot, which would keep a reference to it and need a display."""
    matplotlib, module = _module("matplotlib"), _module("matplotlib.figure")
    with matplotlib.rc_context(STYLE):
        figure = module.Figure(figsize=(width, height), layout="constrained", facecolor="white")
        return figure, figure.add_subplot()


def _name(axes: Any, x: str, y: str, title: str) -> None:
    axes.set_xlabel(LABELS.get(x, x))
    axes.set_ylabel(LABELS.get(y, y))
    axes.set_title(title, fontsize=9.5, loc="left")


def _logarithmic(axes: Any, values: list[float]) -> None:
    """A logarithmic x axis with the values as labels, as many as do not overlap."""
    axes.set_xscale("log")
    distance, shown = CLOSEST * math.log(values[-1] / values[0]), [values[0]]
    for value in values[1:]:
        if math.log(value / shown[-1]) >= distance:
            shown.append(value)
    axes.set_xticks(shown, [f"{value:g}" for value in shown])
    axes.minorticks_off()


def _flat(rows: Rows, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows with the entries of their "parameters"; a row without one of the keys is a ParameterError."""
    if not rows:
        raise ParameterError("there are no rows to draw; expected at least one")
    flat = [{**row.get("parameters", {}), **row} for row in rows]
    for key in keys:
        if any(row.get(key) is None for row in flat):
            raise ParameterError(f"a row has no {key!r}; expected {', '.join(keys)} in each")
    return flat
