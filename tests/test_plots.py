"""Pictures: both formats, every value visible, equal bytes for equal rows."""

from __future__ import annotations

import itertools
import re
import sys
import xml.etree.ElementTree as ET

import pytest

from monogram import plots
from monogram.errors import MissingExtraError, ParameterError

GRID = [{"l2": l2, "dropout": p, "ndcg@20": 0.1 + l2 / 1000 - p * p} for l2 in (10, 50, 100) for p in (0.1, 0.3)]
LINES = [
    {"model": name, "b": b, "rank": int(1 + 10 * b), "epochs": int(1 + 4 * b), "ndcg@20": 0.1 + b / (50 + place)}
    for place, name in enumerate(("DEQL", "EDLAE"))
    for b in (0, 0.5, 1, 2)
]
KINDS = list(plots.KINDS)
TIMED = [
    {"model": "EASE", "ndcg@20": 0.2, "seconds": 2.0, "kind": KINDS[0], "low": 0.19, "high": 0.21},
    {"model": "SLIM", "ndcg@20": 0.1995, "seconds": 90.0, "kind": KINDS[1]},
    {"model": "Deep", "ndcg@20": 0.1, "kind": KINDS[2]},
]


@pytest.fixture(autouse=True)
def _matplotlib():
    pytest.importorskip("matplotlib")


def drawings():
    return {
        "heat": plots.heat_map(GRID, "ndcg@20", title="t"),
        "b": plots.against_b([row | {"low": 0.09, "high": 0.2} for row in LINES], "ndcg@20", marks={"paper": 0.12}),
        "rank": plots.against_rank(LINES, "ndcg@20"),
        "epochs": plots.convergence(LINES, "ndcg@20"),
        "seconds": plots.accuracy_and_seconds(TIMED, "ndcg@20", title="t"),
        "cosines": plots.histograms({"encoder": [1, 2, 1, 0], "decoder": [0, 1, 2, 1]}, x="cosine"),
    }


def test_png_and_svg(tmp_path):
    for name, figure in drawings().items():
        plots.save(figure, tmp_path / f"{name}.png")
        plots.save(figure, tmp_path / f"{name}.svg")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ET.fromstring((tmp_path / f"{name}.svg").read_bytes()).tag.endswith("svg")


def test_the_same_rows_give_the_same_bytes():
    first, second = ({name: plots.picture(one) for name, one in drawings().items()} for _ in range(2))
    assert first == second


def test_axes_lines_and_marks_are_named():
    axes = {name: figure.axes[0] for name, figure in drawings().items()}
    assert "l2" in axes["heat"].get_xlabel()
    assert axes["heat"].get_ylabel() == "dropout"
    assert axes["b"].get_ylabel() == "ndcg@20"
    named = [text.get_text() for text in axes["b"].figure.legends[0].get_texts()]
    assert named == ["DEQL", "EDLAE", "paper 0.1200"]
    assert axes["epochs"].get_xscale() == "log"


@pytest.mark.parametrize(("lines", "drawn"), [(1, 1), (2, 2), (3, 0)])
def test_intervals_of_at_most_two_lines(lines, drawn):
    rows = [{"model": n, "b": b, "x": b, "low": b - 1, "high": b + 1} for n in range(lines) for b in (0, 1)]
    assert len(plots.against_b(rows, "x").axes[0].collections) == drawn


def test_lines_differ_in_more_than_colour():
    figure = plots.against_b([{"model": n, "b": b, "x": b} for n in range(7) for b in (0, 1)], "x")
    looks = [(line.get_color(), line.get_marker(), str(line._dash_pattern)) for line in figure.axes[0].lines]
    for part in zip(*looks, strict=True):
        assert len(set(part)) == 7


@pytest.mark.parametrize(
    ("rows", "text"), [([], "no rows"), ([{"l2": 1, "dropout": 0}], "has no 'ndcg@20'"), ([{"l2": 1}], "'dropout'")]
)
def test_rows_that_cannot_be_drawn(rows, text):
    with pytest.raises(ParameterError, match=text):
        plots.heat_map(rows, "ndcg@20")


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"\.png or \.svg"):
        plots.save(plots.heat_map(GRID, "ndcg@20"), tmp_path / "x.pdf")


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'monogram\[plot\]'"):
        plots.heat_map(GRID, "ndcg@20")


def test_a_logarithmic_axis_needs_numbers_above_0():
    rows = [{"model": "DEQL", "b": b, "x": b} for b in (0, 0.5, 2)]
    assert plots.against(rows, "x", x="b", logarithmic=True).axes[0].get_xscale() == "linear"
    assert plots.against(rows[1:], "x", x="b", logarithmic=True).axes[0].get_xscale() == "log"


def test_models_are_named_beside_the_axes_without_overlap():
    figure = plots.accuracy_and_seconds(TIMED, "ndcg@20")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.texts] == ["Deep  0.1000", "SLIM  0.1995", "EASE  0.2000"]
    heights = [label.xyann[1] for label in axes.texts]
    assert min(above - below for below, above in itertools.pairwise(heights)) > 0.1
    points = {tuple(line.get_xdata()): line.get_marker() for line in axes.lines if line.get_marker() != "None"}
    assert points == {(2.0,): "o", (90.0,): "s", (axes.get_xlim()[1],): "D"}
    assert [label.get_text() for label in figure.legends[0].get_texts()] == KINDS


def test_labels_move_apart_and_stay_inside():
    placed = plots._apart([0.0, 0.5, 0.51, 0.99, 1.0], 0.1)
    assert placed == pytest.approx([0.0, 0.5, 0.6, 0.9, 1.0])


@pytest.mark.parametrize("seconds", [[0.0], [3.0], [0.2, 0.21], [1, 5000]])
def test_an_axis_of_seconds_has_known_ticks(seconds):
    rows = [{"model": "m", "seconds": value, "x": 1.0} for value in seconds]
    axes = plots.against(rows, "x", x="seconds").axes[0]
    low, high = axes.get_xlim()
    assert low <= max(*seconds, 0.001) <= high
    assert low <= max(min(seconds), 0.001)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert len(labels) >= 2
    assert set(labels) <= set(plots.TIMES.values())


def test_an_svg_has_a_rule_for_dark_screens_and_text_as_text():
    svg = plots.picture(drawings()["seconds"]).decode()
    root = ET.fromstring(svg)
    names = "{http://www.w3.org/2000/svg}"
    (style,) = (one for one in root if one.tag == f"{names}style")
    assert "prefers-color-scheme: dark" in style.text
    assert "EASE  0.2000" in "".join(root.itertext())
    colours = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", re.sub(r"<style>@media.*?</style>", "", svg)))
    assert colours <= {*plots.DARK}, "every colour has a dark one"


def test_no_histogram_is_an_error():
    with pytest.raises(ParameterError, match="no histograms"):
        plots.histograms({}, x="cosine")
