"""The report as Markdown and as one page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from monogram import plots
from monogram.errors import MissingExtraError
from monogram.reports import writers
from monogram.reports.blocks import Picture
from monogram.reproduce.cache import Cache
from monogram.reproduce.cells import Cell
from monogram.reproduce.report import report
from monogram.reproduce.runner import Runner


@pytest.fixture
def cells(paper, folder, tmp_path):
    return Runner(folder, Cache(tmp_path / "cache")).run(paper)


def test_markdown_has_every_row(paper, cells, tmp_path):
    pytest.importorskip("matplotlib")
    written = writers.write(report(paper, cells, "monogram reproduce tiny"), tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for word in ("# Tiny & made up", "monogram reproduce tiny", "| Deep |", "not in this library yet", "no data",
                 "yelp2018/train.txt", "| l2 10 |", "short", "better", "not printed"):  # fmt: skip
        assert word in text
    (picture,) = (path for path in written if path.suffix == ".svg")
    assert f"]({picture.name})" in text
    assert picture.read_bytes().startswith(b"<?xml")
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) == 3
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "difference" in tables[0]
    assert "ours" not in tables[1], "a data set that is not there has no empty columns"


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_one_file_for_everyone(paper, cells, tmp_path):
    pytest.importorskip("matplotlib")
    assert writers.write(report(paper, cells), tmp_path / "report.html") == [tmp_path / "report.html"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Reader()
    page.feed(text)
    assert page.open == []
    assert not re.search(r"""(src|href)=["'](?!data:)""", text), "nothing is asked of the network"
    assert "Tiny &amp; made up" in text
    heads = [attributes for tag, attributes in page.tags if tag == "th"]
    assert {one["scope"] for one in heads} == {"col", "row"}
    assert sum(tag == "caption" for tag, _ in page.tags) == sum(tag == "table" for tag, _ in page.tags) > 0
    assert all(attributes["alt"] for tag, attributes in page.tags if tag == "img")
    assert "color-scheme: light dark" in text


def test_a_stand_in_is_compared_by_order_and_gaps(paper):
    def cell(row, printed, value):
        return Cell(table="table 1", data="gowalla", used="ml-1m", row=row, metric="recall@5", printed=printed,
                    value=value, verdict="stand-in")  # fmt: skip

    def empty(row):
        return Cell(table="table 1", data="gowalla", used="ml-1m", row=row, metric="ndcg@5", verdict="stand-in")

    cells = [one for row, p, v in (("EASE", 0.1, 0.3), ("DEQL", 0.2, 0.5)) for one in (cell(row, p, v), empty(row))]
    text = writers.markdown(report(paper, cells), "x")
    assert "ml-1m, standing in for gowalla" in text
    assert "the one pair of rows with different printed numbers is in the paper's order" in text
    assert "| DEQL | +0.1000 | +0.2000 |" in text


def test_without_matplotlib_the_report_says_so(paper, cells, monkeypatch):
    def absent(*_):
        raise MissingExtraError("pictures need matplotlib: pip install 'monogram[plot]'")

    monkeypatch.setattr(plots, "_module", absent)
    blocks = report(paper, cells)
    assert not any(isinstance(block, Picture) for block in blocks)
    assert "monogram[plot]" in writers.markdown(blocks, "x")


def test_figures_say_that_they_are_not_tuned(paper, cells):
    sentence = "--tune chooses those of tables alone"
    assert sentence in writers.markdown(report(paper, cells, "monogram reproduce tiny --tune"), "x")
    assert sentence not in writers.markdown(report(paper, cells, "monogram reproduce tiny"), "x")
