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
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "monogram",
         "svg.fonttype": "none"}  # text as text: small files that a reader can search  # fmt: skip
FONT = "system-ui, 'DejaVu Sans', sans-serif"
PAPER, BLACK = "#ffffff", "#000000"
# Colours of an SVG where the reader's screen is dark; in a program that does not know the rule the picture stays light.
DARK = {
    PAPER: "#0d1117", BLACK: "#e6edf3", "#555555": "#a8b1bb", "#b0b0b0": "#6e7681", "#0072b2": "#58a6ff",
    "#d55e00": "#ff9a57", "#009e73": "#3fc79a", "#cc79a7": "#e8a9cb", "#56b4e9": "#a5dbff",
}  # fmt: skip
ON_CELLS = "#000001"  # black that stays black on a dark screen
KINDS = {  # how the models of `accuracy_and_seconds` are drawn: colour, marker, face
    "closed form (ours)": (COLOURS[0], "o", COLOURS[0]),
    "iterative": (COLOURS[1], "s", "white"),
    "paper, not timed here": ("#555555", "D", "white"),
}
TIMES = {  # ticks of an axis of seconds
    0.001: "1 ms", 0.003: "3 ms", 0.01: "10 ms", 0.03: "30 ms", 0.1: "0.1 s", 0.3: "0.3 s", 1: "1 s", 3: "3 s",
    10: "10 s", 30: "30 s", 60: "1 min", 180: "3 min", 600: "10 min", 1800: "30 min", 3600: "1 h", 10800: "3 h",
    36000: "10 h", 108000: "30 h",
}  # fmt: skip
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
    "seconds": "seconds of the fit",
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
        axes.text(across, up, f"{value:.4f}", ha="center", va="center", size=7, color="white" if dark else ON_CELLS)
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
    rows : each with the keys `x`, `lines` and `metric`; with x "seconds" a line joins its rows in their order
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
        line = [row for row in rows if str(row[lines]) == name]
        if x != "seconds":  # times do not rise with the number of epochs without exception
            line.sort(key=lambda row: float(row[x]))
        positions = [_place(row[x], x) for row in line]
        style = {"color": COLOURS[number % 7], "marker": MARKERS[number % 7], "linestyle": DASHES[number % 7]}
        style["markevery"] = -(-len(positions) // MOST_MARKERS)
        size = 5 if len(line) > 1 else 9
        axes.plot(positions, [float(row[metric]) for row in line], label=name, markersize=size, linewidth=1.6, **style)
        if len(names) <= 2 and all(row.get("low") is not None and row.get("high") is not None for row in line):
            bounds = ([float(row[bound]) for row in line] for bound in ("low", "high"))
            axes.fill_between(positions, *bounds, color=style["color"], alpha=0.12, linewidth=0)
    for number, (label, value) in enumerate((marks or {}).items()):
        axes.axhline(
            value, color="#555555", linewidth=1, linestyle=DASHES[(number + 1) % 7], label=f"{label} {value:.4f}"
        )
    if x == "seconds":
        _time_axis(axes, [float(row[x]) for row in rows])
    elif logarithmic and all(float(row[x]) > 0 for row in rows):
        _logarithmic(axes, sorted({float(row[x]) for row in rows}))
    _name(axes, x, metric, title)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)  # outside: it covers no line
    return figure


def accuracy_and_seconds(rows: Rows, metric: str, *, title: str = "") -> Any:
    """A metric against the seconds of the fit, a point with its name for each model.

    Parameters
    ----------
    rows : each with the keys `model`, `kind` (a key of `KINDS`), `metric`, and `seconds` where the fit was timed
        Models without seconds are drawn at the right edge. With `low` and `high` the interval is drawn.

    Returns
    -------
    matplotlib.figure.Figure
        For `save`.
    """
    rows = sorted(_flat(rows, ("model", "kind", metric)), key=lambda row: float(row[metric]))
    figure, axes = _figure(5.3, max(3.6, 1.6 + 0.23 * len(rows)))
    timed = [float(row["seconds"]) for row in rows if row.get("seconds") is not None]
    _time_axis(axes, timed or [1.0])
    edge = axes.get_xlim()[1]
    places = [_place(row["seconds"], "seconds") if row.get("seconds") is not None else edge for row in rows]
    values = [float(row[metric]) for row in rows]
    for row, x, value in zip(rows, places, values, strict=True):
        colour, marker, face = KINDS[row["kind"]]
        if row.get("low") is not None and row.get("high") is not None:
            axes.plot([x, x], [float(row["low"]), float(row["high"])], color=colour, linewidth=1, alpha=0.35)
        axes.plot([x], [value], marker=marker, color=colour, markerfacecolor=face, markersize=7, clip_on=False,
                  linestyle="none", zorder=3)  # fmt: skip
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    heights = _apart([(value - low) / (high - low) for value in values], 0.95 / max(len(rows), 8))
    for row, x, value, height in zip(rows, places, values, heights, strict=True):
        weight = "bold" if row["kind"] == next(iter(KINDS)) else "normal"
        axes.annotate(
            f"{row['model']}  {value:.4f}", (x, value), (1.06, height), textcoords="axes fraction", va="center", size=9,
            weight=weight, arrowprops={"arrowstyle": "-", "color": "#b0b0b0", "linewidth": 0.7, "shrinkB": 4,
                        "relpos": (0, 0.5)},
            annotation_clip=False,
        )  # fmt: skip
    _name(axes, "seconds", metric, title)
    axes.grid(alpha=0.25)
    lines = _module("matplotlib.lines")
    shown = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    handles = [
        lines.Line2D([], [], color=KINDS[kind][0], marker=KINDS[kind][1], markerfacecolor=KINDS[kind][2], label=kind,
                     linestyle="none")
        for kind in shown
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _apart(heights: Sequence[float], distance: float) -> list[float]:
    """Rising heights moved apart to at least a distance, near where they were, between 0 and 1 where they fit."""
    placed = list(heights)
    for at in range(1, len(placed)):
        placed[at] = max(placed[at], placed[at - 1] + distance)
    top = 1.0
    for at in reversed(range(len(placed))):
        placed[at] = min(placed[at], top)
        top = placed[at] - distance
    return placed


def histograms(lines: Mapping[str, Sequence[int]], *, x: str, title: str = "") -> Any:
    """Histograms as lines, from counts in equal bins from -1 to 1, as shares of their sums.

    Parameters
    ----------
    lines : counts by name
    x : what was counted

    Returns
    -------
    matplotlib.figure.Figure
        For `save`.
    """
    if not lines:
        raise ParameterError("there are no histograms to draw; expected at least one")
    figure, axes = _figure(5.2, 3.8)
    for number, (name, counts) in enumerate(lines.items()):
        total, width = sum(counts) or 1, 2 / len(counts)
        edges = [-1 + width * at for at in range(len(counts) + 1)]
        axes.stairs([count / total for count in counts], edges, label=name, color=COLOURS[number % 7], linewidth=1.8,
                    linestyle=DASHES[number % 7])  # fmt: skip
    _name(axes, x, "share of items", title)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
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
    return _for_dark_screens(buffer.getvalue()) if suffix == ".svg" else buffer.getvalue()


def _for_dark_screens(svg: bytes) -> bytes:
    """An SVG with a rule for dark screens, and with a font that every browser has."""
    rules = [
        f":is(path, use, g)[style*='{part}: {light}'] {{ {part}: {dark} !important }}"
        for light, dark in DARK.items()
        for part in ("fill", "stroke")
    ]
    rules += [f"text[style*='fill: {light}'] {{ fill: {dark} !important }}" for light, dark in DARK.items()
              if light != PAPER]  # fmt: skip
    rules.append(f"text:not([style*='fill: ']) {{ fill: {DARK[BLACK]} }}")
    style = "<style>@media (prefers-color-scheme: dark) { " + " ".join(rules) + " }</style>"
    text = svg.decode().replace("'DejaVu Sans'", FONT)
    return text.replace("</metadata>", f"</metadata>\n {style}", 1).encode()


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
    axes.set_title(title, fontsize=10.5, loc="left")


def _place(value: Any, x: str) -> float:
    """A value on the x axis; seconds are drawn at the first tick at least, because their axis is logarithmic."""
    return max(float(value), min(TIMES)) if x == "seconds" else float(value)


def _time_axis(axes: Any, seconds: Sequence[float]) -> None:
    """A logarithmic axis of seconds around these, with ticks that a reader knows."""
    least = min(TIMES)
    low, high = max(min(seconds), least) / 1.6, max(*seconds, least) * 1.6
    ticks = [tick for tick in TIMES if low <= tick <= high]
    if len(ticks) < 2:
        low = max([tick for tick in TIMES if tick <= low], default=least)
        high = min([tick for tick in TIMES if tick >= high], default=high)
        ticks = [tick for tick in TIMES if low <= tick <= high]
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [TIMES[tick] for tick in ticks])
    axes.minorticks_off()


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
