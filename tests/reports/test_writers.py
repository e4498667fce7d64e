"""Reports are written as Markdown with pictures, and as one HTML page."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

from monogram.errors import ParameterError, StorageError
from monogram.reports import writers
from monogram.reports.blocks import Contents, Fold, Grid, GridCell, Heading, Items, Picture, Pictures, Text, in_words

BLOCKS = [
    Heading(1, "A <b> & c"),
    Text("monogram --help", code=True),
    Grid("t", ["row", "n"], [["a|b", "1"]], frozenset({1})),
    Picture("l2 and b", "a line", b"<svg/>"),
]


@pytest.mark.parametrize("name", ["report.md", "my report.md", "été (2).md"])
def test_a_picture_is_found_whatever_the_name(tmp_path, name):
    picture, page = writers.write(BLOCKS, tmp_path / name)
    (link,) = re.findall(r"!\[a line\]\(([^ ()]+)\)", page.read_text(encoding="utf-8"))
    assert tmp_path / unquote(link) == picture
    assert picture.read_bytes() == b"<svg/>"


def test_what_would_be_read_as_markup_is_not(tmp_path):
    writers.write(BLOCKS, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "A &lt;b&gt; &amp; c" in text
    assert "| a\\|b | 1 |" in writers.markdown(BLOCKS, "x")


def test_what_is_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"\.md or \.html"):
        writers.check("report.pdf")
    with pytest.raises(StorageError, match="no folder"):
        writers.write(BLOCKS, tmp_path / "no" / "r.html")


def test_settings_in_words():
    assert (
        in_words({"l2": 100.0, "dropout": 0.3, "rank": 8, "solver": "svd"}) == "l2 100, dropout 0.3, rank 8, solver svd"
    )


def test_contents_link_to_headings_once_each():
    blocks = [Contents(), Heading(2, "Table 1: A & b"), Heading(3, "x"), Heading(2, "Table 1: A & b")]
    assert writers.markdown(blocks, "r").startswith(
        "- [Table 1: A & b](#table-1-a--b)\n- [Table 1: A & b](#table-1-a--b-1)\n"
    )
    page = writers.page(blocks)
    for name in ("table-1-a--b", "table-1-a--b-1"):
        assert page.count(f'href="#{name}"') == page.count(f'<h2 id="{name}"') == 1


def test_details_and_tones_of_a_cell():
    grid = Grid("t", ["row", "n"], [[GridCell("EASE", "l2 <1>"), GridCell("✓ 0.1", "[0, 1]", "good")]], frozenset({1}))
    assert "| EASE, l2 <1> | ✓ 0.1 [0, 1] |" in writers.markdown([grid], "r")
    page = writers.page([grid])
    assert '<th scope="row">EASE<small>l2 &lt;1&gt;</small></th>' in page
    assert '<td class="number"><span class="tag good">✓ 0.1</span><small>[0, 1]</small></td>' in page


def test_pictures_inside_other_blocks_are_written(tmp_path):
    pictures = [Picture(name, name, b"<svg/>") for name in "abc"]
    blocks = [pictures[0], Fold("more", [Pictures(pictures[1:], "both"), Items(["i"])])]
    written = writers.write(blocks, tmp_path / "r.md")
    assert [path.name for path in written] == ["r-a.svg", "r-b.svg", "r-c.svg", "r.md"]
    text = written[-1].read_text(encoding="utf-8")
    assert "**more**\n\n![b](r-b.svg)\n\n![c](r-c.svg)\n\n*both*\n\n- i" in text
    page = writers.page(blocks)
    assert page.count("<img ") == 3
    assert "<details>\n<summary>more</summary>" in page
    assert "<figcaption>both</figcaption>" in page
