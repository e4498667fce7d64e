"""Rows that cannot be used: by default the error names row and column; with `on_error="skip"` they are counted."""

from __future__ import annotations

import json
import uuid
from datetime import date, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monogram.data import files
from monogram.data.interactions import Interactions
from monogram.data.readers import read
from monogram.errors import DataError


def as_dicts(log: Interactions) -> dict:
    return {user: log.history(user) for user in log.users}


def save(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


GOOD = ("u", "i", 1.0, 5)


def rows_with(place: int, value: object) -> dict[str, list]:
    rows = [list(GOOD) for _ in range(4)]
    rows[2][place] = value
    return {name: [row[k] for row in rows] for k, name in enumerate(("user", "item", "weight", "time"))}


BAD_OBJECTS = [
    (0, None, "the id is missing"),
    (0, "", "the id is missing"),
    (1, " \t", "the id is missing"),
    (1, float("nan"), "the id is missing"),
    (0, 1.5, "not an integer"),
    (0, float("inf"), "not an integer"),
    (0, True, "type bool are not supported"),
    (1, [1], "type list are not supported"),
    (1, {"a": 1}, "type dict are not supported"),
    (0, date(2020, 1, 1), "type date are not supported"),
    (0, b"x", "type bytes are not supported"),
    (0, 7, "the id is integer where the ids before are string"),
    (1, uuid.UUID(int=1), "the id is uuid where the ids before are string"),
    (0, "\ud800", "not UTF-8"),
    (2, None, "the weight is missing"),
    (2, float("nan"), "the weight is missing|not a number"),
    (2, float("inf"), "infinite"),
    (2, 1e300, "infinite"),
    (2, -1, "negative"),
    (2, "much", "not a number"),
    (2, "1_000", "not a number"),
    (2, True, "not a number"),
    (3, None, "the time is missing"),
    (3, "soon", "the time cannot be read"),
    (3, "2020-01-01", "the time is a date where the times before are numbers"),
    (3, float("inf"), "the time cannot be read"),
    (3, [1], "the time cannot be read"),
]


@pytest.mark.parametrize(("place", "value", "words"), BAD_OBJECTS)
def test_bad_rows_of_objects(place, value, words):
    columns = rows_with(place, value)
    name = list(columns)[place]
    frame = pd.DataFrame({key: pd.Series(values, dtype=object) for key, values in columns.items()})
    arguments = {"user": "user", "item": "item", "weight": "weight", "time": "time"}
    with pytest.raises(DataError, match=f'row 3, column "{name}": .*({words})'):
        read(frame, **arguments)
    log = read(frame, **arguments, on_error="skip")
    assert log.skipped == 1
    assert as_dicts(log) == {"u": {"i": 3.0}}
    assert any(f'1 row skipped: 1 × column "{name}"' in note for note in log.notes)
    if place < 3:
        with pytest.raises(DataError, match=f'row 3, column "{name}": .*({words})'):
            read(zip(*list(columns.values())[:3], strict=True))


BAD_TEXT = [
    (0, "", "the id is missing"),
    (1, "   ", "the id is missing"),
    (0, "\udcff", "not UTF-8"),
    (2, "", "the weight is missing"),
    (2, "nan", "not a number"),
    (2, "inf", "infinite"),
    (2, "-2", "negative"),
    (2, "two", "not a number"),
    (2, "\udcff", "not a number"),
    (3, "", "the time is missing"),
    (3, "later", "the time cannot be read"),
    (3, "\udcff", "the time cannot be read"),
]


@pytest.mark.parametrize(("place", "value", "words"), BAD_TEXT)
def test_bad_rows_of_csv(tmp_path, place, value, words):
    columns = rows_with(place, value)
    name = list(columns)[place]
    text = "user,item,weight,time\n" + "".join(
        ",".join(map(str, row)) + "\n" for row in zip(*columns.values(), strict=True)
    )
    path = save(tmp_path, "a.csv", text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=f'a.csv, row 3, column "{name}": {words}|row 3, column "{name}": .*{words}'):
        read(path, "user", "item", "weight", "time")
    log = read(path, "user", "item", "weight", "time", on_error="skip")
    assert (log.skipped, as_dicts(log)) == (1, {"u": {"i": 3.0}})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True]),
        (pa.date32(), [date(2020, 1, 1)]),
        (pa.timestamp("ns"), [datetime(2020, 1, 1)]),
        (pa.list_(pa.int64()), [[1]]),
        (pa.struct([("a", pa.int64())]), [{"a": 1}]),
        (pa.binary(), [b"x"]),
        (pa.float64(), [1.5]),
        (pa.float64(), [1e300]),
        (pa.null(), [None]),
    ],
)
def test_unsupported_arrow_types(kind, values, tmp_path):
    table = pa.table({"user": pa.array(values, kind), "item": ["x"]})
    pq.write_table(table, tmp_path / "a.parquet")
    for source in (table, tmp_path / "a.parquet"):
        with pytest.raises(DataError, match=r'row 1, column "user": .*got '):
            read(source, quiet=True)
        with pytest.raises(DataError, match="none of the 1 rows can be used: 1 skipped"):
            read(source, quiet=True, on_error="skip")


def test_bad_utf8_in_parquet(tmp_path):
    raw = pa.array([b"ok", b"\xff\xfe"], pa.binary())
    text = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    pq.write_table(pa.table({"user": text, "item": ["x", "y"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r'row 2, column "user": the id is not UTF-8 text, got b.\\xff'):
        read(tmp_path / "a.parquet", quiet=True)
    assert list(read(tmp_path / "a.parquet", quiet=True, on_error="skip").users) == ["ok"]


def test_long_values_are_shortened():
    with pytest.raises(DataError) as caught:
        read([("a", "b", "x" * 5000)])
    assert len(str(caught.value)) < 300


def test_broken_csv_lines(tmp_path):
    path = save(tmp_path, "a.csv", "user,item\na,x\nb\n\nc,y,z\nd,w\n")
    with pytest.raises(DataError, match="row 2: the line has 1 columns where 2 are expected, got 'b'"):
        read(path, quiet=True)
    log = read(path, quiet=True, on_error="skip")
    assert log.skipped == 2
    assert list(log.users) == ["a", "d"]
    log = read(save(tmp_path, "q.csv", 'user,item\na,x\n"b,y\nc,z\n'), quiet=True, on_error="skip")
    assert any("is a quote never closed?" in note for note in log.notes)
    path = save(tmp_path, "b.csv", "user,item\nb\n")
    with pytest.raises(DataError, match="row 1: the line has 1"):
        read(path, quiet=True)
    with pytest.raises(DataError, match="none of the 1 rows can be used"):
        read(path, quiet=True, on_error="skip")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"user": "b", ', "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b'{"user": "\xff", "item": "x"}', "not UTF-8"),
        (b"7", "not a JSON object"),
    ],
)
def test_broken_json_lines(tmp_path, line, words):
    good = b'{"user": "a", "item": "x"}'
    path = save(tmp_path, "a.jsonl", b"\n".join([good, b"", line, good]))
    with pytest.raises(DataError, match=f"row 2: the line is {words}"):
        read(path, quiet=True)
    log = read(path, quiet=True, on_error="skip")
    assert (log.skipped, log.n_events) == (1, 1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"item": "x"}', 'column "user": the id is missing'),
        ('{"user": null, "item": "x"}', 'column "user": the id is missing'),
        ('{"user": 7, "item": "x"}', 'column "user": the id is integer where'),
        ('{"user": {"id": 1}, "item": "x"}', "type dict"),
        ('{"user": true, "item": "x"}', "type bool"),
        ('{"user": "b", "item": "x", "w": "z"}', 'column "w": the weight is not a number'),
        ('{"user": "b", "item": "x", "w": -Infinity}', 'column "w": the weight is infinite'),
    ],
)
def test_bad_json_values(tmp_path, line, words):
    path = save(tmp_path, "a.jsonl", '{"user": "a", "item": "x", "w": 1}\n' + line + "\n")
    with pytest.raises(DataError, match=f"row 2, .*{words}"):
        read(path, weight="w", quiet=True)
    log = read(path, weight="w", quiet=True, on_error="skip")
    assert (log.skipped, list(log.users)) == (1, ["a"])


def test_json_keys_that_come_late(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "JSON_BLOCK", 4096)
    rows = [{"user": n % 40, "item": f"i{n % 9}"} for n in range(1500)]
    rows[1100:] = [{**row, "w": 2, "é": 5} for row in rows[1100:]]
    path = save(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for role, name, words in (("weight", "w", "weight"), ("time", "é", "time"), ("user", "w", "id")):
        with pytest.raises(DataError, match=f'row 1, column "{name}": the {words} is missing'):
            read(path, **{role: name}, quiet=True)
        assert read(path, **{role: name}, quiet=True, on_error="skip").skipped == 1100
    with pytest.raises(DataError, match="there is no column 'x' for weight"):
        read(path, weight="x", quiet=True)
    with pytest.raises(DataError, match="there is no column 'x' for time"):
        read(path, weight="w", time="x", quiet=True)


def test_row_numbers_across_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CSV_BLOCK", 512)
    monkeypatch.setattr(files, "JSON_BLOCK", 512)
    rows = [(f"u{n}", "i") for n in range(500)]
    rows[321] = ("", "i")
    path = save(tmp_path, "a.csv", "user,item\n" + "".join(f"{u},{i}\n" for u, i in rows))
    with pytest.raises(DataError, match=r"row 322, column .user."):
        read(path, quiet=True)
    assert read(path, quiet=True, on_error="skip").n_users == 499
    lines = "".join(json.dumps({"user": u, "item": i}) + "\n" for u, i in rows)
    with pytest.raises(DataError, match=r"row 322, column .user."):
        read(save(tmp_path, "a.jsonl", lines), quiet=True)
    table = pa.table({"user": [u for u, _ in rows] * 400, "item": ["i"] * 200_000})
    pq.write_table(table.slice(400), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"row 422, column .user."):
        read(tmp_path / "a.parquet", quiet=True)
    spoiled = [("a", "b")] * 150_000 + [("a", None)]
    with pytest.raises(DataError, match=r"row 150,001, column .item."):
        read(spoiled)


def test_zero_weights_are_no_interactions():
    log = read([("a", "x", 1), ("b", "y", 0), ("a", "z", 0.0), ("c", "x", 1e-60)])
    assert as_dicts(log) == {"a": {"x": 1.0}}
    assert list(log.items) == ["x"]
    assert "3 rows with weight 0 left out" in log.notes
    assert log.skipped == 0


def test_sum_that_overflows():
    with pytest.raises(DataError, match="user 'a' and item 'x' is inf"):
        read([("a", "x", 3e38), ("a", "x", 3e38)])


def test_interrupt_passes():
    def rows():
        yield "a", "b"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(rows())
