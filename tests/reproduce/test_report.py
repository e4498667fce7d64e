"""The report as Markdown and as one page."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from monogram import plots
from monogram.errors import MissingExtraError
from monogram.reports import writers
from monogram.reports.blocks import Picture
from monogram.reproduce import cells as cells_
from monogram.reproduce import report as report_
from monogram.reproduce.answer import answer
from monogram.reproduce.cache import Cache
from monogram.reproduce.cells import Cell
from monogram.reproduce.paper import PaperTable
from monogram.reproduce.report import report
from monogram.reproduce.runner import OF_FACTORS, Runner


@pytest.fixture
def cells(paper, folder, tmp_path):
    return Runner(folder, Cache(tmp_path / "cache")).run(paper)


def test_markdown_has_every_row(paper, cells, tmp_path):
    pytest.importorskip("matplotlib")
    written = writers.write(report(paper, cells, "monogram reproduce tiny"), tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    for word in ("# Tiny & made up", "monogram reproduce tiny", "| Deep |", "not in this library yet", "no data",
                 "yelp2018/train.txt", "| EASE, l2 10 | by metric |", "▼ short",
                 "▲ better", "25 items", "○ not printed"):  # fmt: skip
        assert word in text
    pictures = [path for path in written if path.suffix == ".svg"]
    assert [picture.name for picture in pictures] == [
        "report-answer-gowalla-ndcg-5.svg", "report-figure-b-gowalla-recall-5.svg"
    ]  # fmt: skip
    for picture in pictures:
        assert f"]({picture.name})" in text
        assert picture.read_bytes().startswith(b"<?xml")
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) == 4
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
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", text), "nothing is asked of the network"
    assert "Tiny &amp; made up" in text
    heads = [attributes for tag, attributes in page.tags if tag == "th"]
    assert {one["scope"] for one in heads} == {"col", "row"}
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert len(links) == 3
    assert {link.removeprefix("#") for link in links} <= ids, "each entry of the contents has its heading"
    assert text.index("Is it good?") < text.index("<figure>") < text.index("<nav") < text.index("<h2")
    assert sum(tag == "caption" for tag, _ in page.tags) == sum(tag == "table" for tag, _ in page.tags) > 0
    assert all(attributes["alt"] for tag, attributes in page.tags if tag == "img")
    assert "color-scheme: light dark" in text


def test_the_answer_is_three_sentences_and_one_picture(paper):
    pytest.importorskip("matplotlib")

    def cell(row, printed, value, seconds, closed_form, verdict):
        return Cell(
            table="table 1", data="gowalla", used="gowalla" if value else None, row=row, metric="ndcg@5",
            printed=printed, value=value, seconds=seconds, closed_form=closed_form, verdict=verdict,
        )  # fmt: skip

    cells = [
        cell("EASE", 0.3, 0.300, 2.0, True, "reproduced"),
        cell("EDLAE", 0.2, 0.302, 200.0, True, "better"),
        cell("SLIM", 0.4, 0.250, 0.5, False, "short"),
        cell("Deep", 0.9, None, None, None, "no model"),
    ]
    question, sentences, pictures = answer(paper, cells)
    assert question.text == paper.question
    assert list(sentences.items) == [
        "1 of the 3 numbers of table 1 measured on gowalla are reproduced, 1 of ours are higher and 1 lower.",
        "By ndcg@5, on gowalla the best closed form is EDLAE with 0.3020 after 200 s, the best iterative model is SLIM "
        "with 0.2500 after 0.50 s, the best model that was not fitted here has 0.9000 in the paper (Deep).",
        "The fastest fit within 1% of the best: EASE on gowalla (2.0 s, 200 s for the best).",
    ]
    (picture,) = pictures.pictures
    for label in ("EASE  0.3000", "EDLAE  0.3020", "SLIM  0.2500", "Deep  0.9000", "closed form (ours)"):
        assert label in picture.svg.decode()
    assert "Diamonds" in pictures.caption


def test_without_results_the_answer_is_the_reason(paper):
    cells = [Cell(table="table 1", data="gowalla", row="EASE", metric="ndcg@5", printed=0.3, reason="no file")]
    question, text = answer(paper, cells)
    assert question.text == paper.question
    assert text.text == "None of the models of table 1 was measured: no file."


def test_rows_and_data_sets_with_results_come_first(paper, cells):
    table_cells = [cell for cell in cells if cell.table == "table 1"]
    last_first = [cell for at in range(len(table_cells) - 2, -1, -2) for cell in table_cells[at : at + 2]]
    text = writers.markdown(report(paper, last_first), "x")
    table = text[text.index("## Table 1") :]
    assert table.index("| EASE") < table.index("| Deep")
    assert table.index("### gowalla") < table.index("yelp2018: not measured here (2 rows: ")


def test_the_validation_cut_and_the_settings_tried_are_shown(paper):
    cells = [
        Cell(table="table 1", data="gowalla", used="gowalla", row=row, metric=metric, value=0.2, tried=7, seconds=1.0,
             validation="the latest part, because", verdict="not printed", closed_form=True)
        for row in ("EASE", "DEQL") for metric in ("recall@5", "ndcg@5")
    ]  # fmt: skip
    text = writers.markdown(report(paper, cells), "x")
    assert "Settings were chosen on the latest part, because: 14 tried for 2 rows" in text
    assert "| tried |" in text


def test_each_verdict_has_a_symbol_a_tone_and_a_meaning():
    names = {value for name, value in vars(cells_).items() if name.isupper() and isinstance(value, str)}
    assert names == set(report_.MEANING) == set(report_.SYMBOLS)
    assert set(report_.TONES) <= names
    seen = {(report_.SYMBOLS[name], report_.TONES.get(name)) for name in names}
    assert len({symbol for symbol, tone in seen if tone in ("good", "bad")}) == 5, "colour is never the only sign"


def test_notes_that_differ_in_numbers_are_one(paper):
    cells = [
        Cell(table="figure b", data="gowalla", used="gowalla", row="DEQL", metric="recall@5", value=0.2,
             settings={"b": b}, reason=f"stopped after {epochs} epochs", seconds=1.0, verdict="not printed",
             closed_form=True)
        for b, epochs in ((0.0, 1), (1.0, 32))
    ]  # fmt: skip
    text = writers.markdown(report(paper, cells), "x")
    assert "DEQL: stopped after 32 epochs (2 such notes; this is the last)" in text
    assert "after 1 epochs" not in text


def test_a_table_of_cosines_has_a_picture_for_each_row(paper):
    pytest.importorskip("matplotlib")
    cells = [
        Cell(table="figure c", data="gowalla", used="gowalla", row=row, metric=metric, value=0.1, verdict="not printed",
             seconds=1.0, closed_form=True, histogram=[1] * 40)
        for row in ("EDLAE", "DLAE") for metric in OF_FACTORS
    ]  # fmt: skip
    table = PaperTable(name="figure c", title="c", metrics=OF_FACTORS, data=("gowalla",), rows=())
    pictures = [*writers.pictures_of(report(replace(paper, tables=(table,)), cells))]
    assert [picture.name for picture in pictures] == ["figure-c-gowalla-EDLAE", "figure-c-gowalla-DLAE"]


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
