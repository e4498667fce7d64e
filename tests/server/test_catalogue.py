"""The item catalogue from files of several formats."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet
import pytest

import monogram as mg
from monogram.errors import DataError
from monogram.server.queries import catalogue
from monogram.server.queries.catalogue import Catalogue


@pytest.fixture(scope="module")
def log():
    return mg.Interactions.from_csr([[1, 1, 0], [0, 1, 1]], items=["tea, green", "café", "42"])


@pytest.mark.parametrize(
    "text",
    [
        'item,title,n\n"tea, green",Tea,1\ncafé,"A, b",2\n',
        'title;Item;n\nTea;"tea, green";1\n"A, b";café;2\n',
        "id\ttitle\tn\ntea, green\tTea\t1\ncafé\tA, b\t2\n",
        '\ufeffitem,title,n\n"tea, green",Tea,1\ncafé,"A, b",2\nunknown,C,3\n',
    ],
)
def test_separators_of_columns(log, text, tmp_path):
    path = tmp_path / "items.csv"
    path.write_text(text, encoding="utf-8")
    found = Catalogue(log, catalogue.read(str(path)))
    assert found.matched == 2
    assert bytes(found.columns(1)) == b'{"title":"A, b","n":2}'
    assert [one.item for one in found.search("m", "CAFE", 0, 5).items] == ["café"]
    assert [one.item for one in found.search("m", "a, b", 0, 5).items] == ["café"]


def test_parquet(log, tmp_path):
    pa.parquet.write_table(pa.table({"item": ["42", "42"], "n": [None, 5]}), tmp_path / "items.parquet")
    found = Catalogue(log, catalogue.read(str(tmp_path / "items.parquet")))
    assert bytes(found.columns(2)) == b'{"n":5}', "the last of an id counts"


@pytest.mark.parametrize("content", [b"", b"item,title,title\na,b,c\n", b"item,title\na\n", b"\xff\xfe,\x00"])
def test_files_that_cannot_be_read(content, tmp_path):
    path = tmp_path / "items.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"items\.csv"):
        catalogue.read(str(path))


def test_a_file_without_matching_items_is_a_warning(start, shop, tmp_path):
    (tmp_path / "items.csv").write_text("item,title\nnothing,Known\n")
    server = start(shop / "shop.mono", "--items", tmp_path / "items.csv")
    said = server.said("items")
    assert (said["level"], said["rows"], said["matched"]) == ("warning", 1, 0)
