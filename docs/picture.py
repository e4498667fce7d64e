"""Draw `pipeline.svg`: the stages from a log to metrics. Run it after a change: `python docs/picture.py`.

The picture has its own background, so that it is readable on any page, and follows the light or dark mode.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH = 960
BOX_WIDTH, BOX_HEIGHT = 196, 172
GAP = (WIDTH - 4 * BOX_WIDTH) / 5  # between boxes, and at both margins
BETWEEN = 40  # distance of the two rows
ROWS = (GAP, GAP + BOX_HEIGHT + BETWEEN)
HEIGHT = ROWS[1] + BOX_HEIGHT + GAP
CELL = 11

LIGHT = {
    "page": "#ffffff", "box": "#f5f7fa", "edge": "#c9d2dc", "text": "#1b2733", "soft": "#55657a",
    "mark": "#1f6feb", "pale": "#a9c8f7", "line": "#7d8da1",
}  # fmt: skip
DARK = {
    "page": "#0f1620", "box": "#192431", "edge": "#3a4c63", "text": "#e8eef5", "soft": "#a3b3c6",
    "mark": "#5aa2ff", "pale": "#2c5690", "line": "#8296ae",
}  # fmt: skip
FONTS = 'system-ui, "Segoe UI", Helvetica, Arial, sans-serif'


def colours(palette: dict[str, str]) -> str:
    """The CSS rules of one mode, without CSS variables, which not every SVG renderer supports."""
    return (
        ".page {{ fill: {page}; stroke: {edge}; }} .box {{ fill: {box}; stroke: {edge}; }}\n"
        ".name {{ fill: {text}; }} .note {{ fill: {soft}; }}\n"
        ".mark {{ fill: {mark}; }} .pale {{ fill: {pale}; }} .none {{ fill: {edge}; }}\n"
        ".way {{ stroke: {line}; }} .tip {{ fill: {line}; }}\n"
    ).format(**palette)


def style() -> str:
    """Fonts and lines, then the colours of light mode, then those of dark mode."""
    return (
        f"\n.name {{ font: 600 17px {FONTS}; }} .note {{ font: 13.5px {FONTS}; }}\n"
        ".way { stroke-width: 2; fill: none; }\n"
        f"{colours(LIGHT)}@media (prefers-color-scheme: dark) {{\n{colours(DARK)}}}\n"
    )


def rect(x: float, y: float, width: float, height: float, kind: str, radius: float = 2) -> str:
    """A rectangle."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'


def grid(x: float, y: float, cells: list[str]) -> str:
    """A matrix: `#` strong, `+` pale, anything else empty."""
    kinds = {"#": "mark", "+": "pale"}
    left = x - len(cells[0]) * CELL / 2
    top = y - len(cells) * CELL / 2
    return "".join(
        rect(left + CELL * column, top + CELL * row, CELL - 2, CELL - 2, kinds.get(cell, "none"))
        for row, line in enumerate(cells)
        for column, cell in enumerate(line)
    )


def bars(x: float, y: float, lengths: list[int], marked: int) -> str:
    """Bars below each other, the first of them marked."""
    top = y - len(lengths) * CELL / 2
    return "".join(
        rect(x - 44, top + CELL * row, length, CELL - 3, "mark" if row < marked else "pale")
        for row, length in enumerate(lengths)
    )


def log(x: float, y: float) -> str:
    """Lines of a file: a user, an item."""
    top = y - 2.5 * (CELL + 1)
    lines = [(22, 40), (30, 34), (22, 48), (34, 28), (26, 40)]
    return "".join(
        rect(x - 44, top + (CELL + 1) * row, user, CELL - 3, "pale")
        + rect(x - 4, top + (CELL + 1) * row, item, CELL - 3, "mark")
        for row, (user, item) in enumerate(lines)
    )


def listed(x: float, y: float) -> str:
    """Three ranked items, each with its explanation."""
    top = y - 28
    return "".join(
        rect(x - 46, top + 20 * row, 14, 14, "mark", 7)
        + rect(x - 25, top + 20 * row + 1, width, 5, "mark")
        + rect(x - 25, top + 20 * row + 9, width * 0.6, 4, "pale")
        for row, width in enumerate((70, 56, 62))
    )


def measured(x: float, y: float) -> str:
    """Three means with their intervals."""
    parts = []
    for row, (low, mean, high) in enumerate(((-46, -32, -18), (-12, 2, 16), (8, 24, 40))):
        middle = y - 20 + 20 * row
        kind = "none" if row == 0 else "pale"
        parts.append(rect(x + low, middle - 2, high - low, 4, kind))
        parts.append(rect(x + mean - 5, middle - 5, 10, 10, "mark" if row else "none", 5))
    return "".join(parts)


SPARSE = ["#..#..#.", "..#..#..", ".#..#..#", "#....#..", "...#..#."]
PAIRS = ["#+.+.", "+#+..", ".+#.+", "+..#+", "..++#"]
FULL = ["#++++", "+#+++", "++#++", "+++#+", "++++#"]
HOLLOW = [".#+#+", "+.##+", "#+.+#", "+#+.+", "#+#+."]

STEPS: list[tuple[str, str, str, Callable[[float, float], str]]] = [
    ("log", "users, items, times", "file, frame, pairs", log),
    ("Interactions", "X: users × items", "sparse, your ids", lambda x, y: grid(x, y, SPARSE)),
    ("Gram", "S = XᵀX", "counts of pairs", lambda x, y: grid(x, y, PAIRS)),
    ("inverse", "C = (S + Λ)⁻¹", "one factorisation", lambda x, y: grid(x, y, FULL)),
    ("model", "W = B·θ + δ", "EASE … DEQL", lambda x, y: grid(x, y, HOLLOW)),
    ("ranking", "hW, best first", "seen, allow, deny", lambda x, y: bars(x, y, [88, 74, 62, 44, 30], 3)),
    ("recommendations", "items, explanations", "table, JSON, CSV", listed),
    ("metrics", "recall, ndcg, …", "95% intervals", measured),
]


def place(step: int) -> tuple[float, float]:
    """The upper left corner of a step's box."""
    return GAP + (step % 4) * (BOX_WIDTH + GAP), ROWS[step // 4]


def box(step: int) -> str:
    """One step: picture, name, two notes."""
    (x, y), (name, first, second, draw) = place(step), STEPS[step]
    middle = x + BOX_WIDTH / 2
    words = [("name", name, 106), ("note", first, 130), ("note", second, 151)]
    text = "".join(
        f'<text class="{kind}" x="{middle:g}" y="{y + down:g}" text-anchor="middle">{escape(line)}</text>'
        for kind, line, down in words
    )
    return rect(x, y, BOX_WIDTH, BOX_HEIGHT, "box", 10) + draw(middle, y + 48) + text


def tip(x: float, y: float) -> str:
    """The head of an arrow to the right."""
    return f'<path class="tip" d="M{x - 8:g} {y - 5.5:g} L{x:g} {y:g} L{x - 8:g} {y + 5.5:g} Z"/>'


def way(step: int) -> str:
    """The arrow from a step to the next; from the end of a row it leads to the start of the next row."""
    (x, y), (next_x, next_y) = place(step), place(step + 1)
    start, height = x + BOX_WIDTH + 4, y + BOX_HEIGHT / 2
    end, next_height = next_x - 4, next_y + BOX_HEIGHT / 2
    if next_y == y:
        return f'<path class="way" d="M{start:g} {height:g} H{end - 6:g}"/>' + tip(end, height)
    right, left, between = x + BOX_WIDTH + GAP / 2, next_x - GAP / 2, (y + BOX_HEIGHT + next_y) / 2
    path = f"M{start:g} {height:g} H{right:g} V{between:g} H{left:g} V{next_height:g} H{end - 6:g}"
    return f'<path class="way" stroke-linejoin="round" d="{path}"/>' + tip(end, next_height)


def picture() -> str:
    """The whole SVG."""
    label = "A log becomes interactions, a Gram matrix, its inverse, a model, a ranking, recommendations and metrics."
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "page", 14)]
    parts += [way(step) for step in range(len(STEPS) - 1)]
    parts += [box(step) for step in range(len(STEPS))]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">'
    )
    return "\n".join([head, f"<title>{label}</title>", f"<style>{style()}</style>", *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "pipeline.svg").write_text(picture(), encoding="utf-8")
