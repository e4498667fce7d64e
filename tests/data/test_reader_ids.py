"""Ids in every form that a source may hold them: text, integers of any width, floats, UUIDs."""

from __future__ import annotations

import uuid
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monogram.data.interactions import Interactions
from monogram.data.readers import read
from monogram.errors import DataError


def as_dicts(log: Interactions) -> dict:
    return {user: log.history(user) for user in log.users}


def save(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("texts", "ids"),
    [
        (["007", "7"], ["007", "7"]),
        (["7", "10"], [7, 10]),
        (["-3", "0"], [-3, 0]),
        (["-0", "1"], ["-0", "1"]),
        (["+1", "2"], ["+1", "2"]),
        (["1", "x"], ["1", "x"]),
        (["1.0", "2"], ["1.0", "2"]),
        ([str(2**63 - 1), "1"], [1, 2**63 - 1]),
        ([str(2**63), "1"], ["1", str(2**63)]),
        ([" a", "a", "a "], [" a", "a", "a "]),
        (["Été", "été", "e\u0301te"], ["Été", "été", "e\u0301te"]),
        (["2020-01-01", "NA", "null", "true"], ["2020-01-01", "NA", "null", "true"]),
        ([str(uuid.UUID(int=1)), "b"], [str(uuid.UUID(int=1)), "b"]),
    ],
)
def test_csv_ids_stay_as_written(tmp_path, texts, ids):
    path = save(tmp_path, "a.csv", "user,item\n" + "".join(f"{text},x\n" for text in texts))
    assert list(read(path, quiet=True).users) == sorted(ids, key=lambda x: x.encode() if isinstance(x, str) else x)


def test_csv_quotes(tmp_path):
    path = save(tmp_path, "a.csv", 'user,item\n"a,b","line\nbreak"\n"say ""hi""",x\n')
    log = read(path, quiet=True)
    assert as_dicts(log) == {"a,b": {"line\nbreak": 1}, 'say "hi"': {"x": 1}}
    assert "1 id contains a line break: was a quote left open?" in log.notes
    log = read(save(tmp_path, "b.csv", 'user,item\na,"big\nb,y\nc,7" one\n"d\re",x\n'), quiet=True)
    assert "2 ids contain a line break: was a quote left open?" in log.notes
    assert not any("line break" in note for note in read(save(tmp_path, "c.csv", "user,item\na,x\n"), quiet=True).notes)


def test_tsv_quotes_are_characters(tmp_path):
    path = save(tmp_path, "a.tsv", 'user\titem\na\t"big\nb\ty\nc\t7" single\nd\t"x"\n')
    expected = {"a": {'"big': 1}, "b": {"y": 1}, "c": {'7" single': 1}, "d": {'"x"': 1}}
    assert as_dicts(read(path, quiet=True)) == expected
    path = save(tmp_path, "b.tsv", 'user\t"item\na\tx\nb\ty\n')
    assert read(path, "user", '"item').n_events == 2


UUIDS = [uuid.UUID(int=9), uuid.UUID(int=2**100)]


@pytest.mark.parametrize(
    "frame",
    [
        pa.table({"user": pa.array(UUIDS, pa.uuid()), "item": ["a", "b"]}),
        pd.DataFrame({"user": UUIDS, "item": ["a", "b"]}),
        pl.DataFrame({"user": pl.Series(UUIDS, dtype=pl.Object), "item": ["a", "b"]}),
        list(zip(UUIDS, "ab", strict=True)),
    ],
)
def test_uuids(frame, tmp_path):
    log = read(frame, quiet=True)
    assert log.users.kind == "uuid"
    assert list(log.users) == UUIDS
    assert log.history(UUIDS[1]) == {"b": 1.0}
    if isinstance(frame, pa.Table):
        pq.write_table(frame, tmp_path / "u.parquet")
        assert list(read(tmp_path / "u.parquet", quiet=True).users) == UUIDS


@pytest.mark.parametrize("width", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integers_of_any_width(width):
    log = read(pa.table({"user": pa.array([3, 1], width), "item": [1, 2]}), quiet=True)
    assert list(log.users) == [1, 3]
    assert log.users.take([0]).type == pa.int64()


def test_big_integers(tmp_path):
    big = 2**64 - 1
    assert list(read([(big, 1), (5, 2)]).users) == [5, big]
    assert list(read([(5, 1)] * 70_000 + [(big, 2)]).users) == [5, big]
    assert list(read(save(tmp_path, "a.jsonl", f'{{"user": 5, "item": 1}}\n{{"user": {big}, "item": 1}}\n')).users) == [
        5,
        big,
    ]
    with pytest.raises(DataError, match="64-bit"):
        read([(-5, 1)] * 70_000 + [(big, 2)])
    with pytest.raises(DataError, match="64-bit"):
        read([(-5, 1), (big, 2)])
    with pytest.raises(DataError, match='row 2, column "user": the id does not fit 64 bits'):
        read([(-5, 1), (2**65, 2)])


def test_json_text_that_looks_like_a_date_stays_text(tmp_path):
    path = save(tmp_path, "a.jsonl", '{"user": "2020-01-01", "item": "2020-01-01T00:00:00Z"}\n')
    assert as_dicts(read(path, quiet=True)) == {"2020-01-01": {"2020-01-01T00:00:00Z": 1}}


def test_integral_floats_become_integers():
    frame = pd.DataFrame({"user": [1.0, None, 3.0], "item": ["a", "b", "c"]})
    with pytest.raises(DataError, match='row 2, column "user": the id is missing'):
        read(frame, quiet=True)
    log = read(frame, on_error="skip", quiet=True)
    assert list(log.users) == [1, 3]
    assert any("were floats" in note for note in log.notes)
    assert list(read([(1.0, "a"), (2, "b")]).users) == [1, 2]


def test_decimals_without_fraction():
    relation = duckdb.connect().sql("select 3::hugeint as user, 'x' as item")
    assert list(read(relation, quiet=True).users) == [3]


def test_non_string_column_names():
    assert read(pd.DataFrame({0: ["a"], 1: ["b"]}), user=0, item=1).n_events == 1
