"""Reports are written as Markdown with pictures, and as one HTML page."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

from monogram.errors import ParameterError, StorageError
from monogram.reports import writers
from monogram.reports.blocks import Grid, Heading, Picture, Text, in_words

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
