"""Every kind of source, every way a row can be wrong, and the laws that reading obeys."""

from __future__ import annotations

import gzip
import io
import json
import os
import uuid
from datetime import date, datetime
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monogram.data import encode, files, frames, merge, parquet, progress
from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions, read
from monogram.errors import DataError, ParameterError

ROWS = [("ann", "tea", 2.0), ("bob", "tea", 1.0), ("ann", "jam", 0.5), ("ann", "tea", 3.0)]
TABLE = {"user": [r[0] for r in ROWS], "item": [r[1] for r in ROWS], "w": [r[2] for r in ROWS]}
SUMS = {"ann": {"tea": 5.0, "jam": 0.5}, "bob": {"tea": 1.0}}


def as_dicts(log: Interactions) -> dict:
    return {user: log.history(user) for user in log.users}


def csv_text(sep: str = ",") -> str:
    return "".join(sep.join(map(str, row)) + "\n" for row in [("user", "item", "w"), *ROWS])


def save(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def written(folder: Path, kind: str) -> object:
    """The same log in every form it may come in."""
    lines = "".join(json.dumps({"user": u, "item": i, "w": w, "more": [1]}) + "\n" for u, i, w in ROWS)
    if kind == "parquet":
        pq.write_table(pa.table(TABLE), folder / "log.parquet")
        return folder / "log.parquet"
    if kind == "folder":
        (folder / "parts").mkdir()
        pq.write_table(pa.table(TABLE).slice(0, 2), folder / "parts" / "0.parquet")
        pq.write_table(pa.table(TABLE).slice(2), folder / "parts" / "1.parquet")
        return folder / "parts"
    if kind == "duckdb":
        table = pa.table(TABLE)
        return duckdb.connect().from_arrow(table)
    forms = {
        "csv": lambda: save(folder, "log.csv", csv_text()),
        "CSV as str": lambda: str(save(folder, "LOG.CSV", csv_text())),
        "semicolon": lambda: save(folder, "log.csv", csv_text(";")),
        "bar": lambda: save(folder, "log.csv", csv_text("|")),
        "tsv": lambda: save(folder, "log.tsv", csv_text("\t")),
        "bom": lambda: save(folder, "log.csv", b"\xef\xbb\xbf" + csv_text().encode()),
        "crlf": lambda: save(folder, "log.csv", csv_text().replace("\n", "\r\n")),
        "csv.gz": lambda: save(folder, "log.csv.gz", gzip.compress(csv_text().encode(), mtime=0)),
        "csv.zst": lambda: save(folder, "log.csv.zst", pa.compress(csv_text().encode(), "zstd", asbytes=True)),
        "jsonl": lambda: save(folder, "log.jsonl", lines),
        "ndjson": lambda: save(folder, "log.ndjson", lines.strip()),
        "json": lambda: save(folder, "log.json", lines.replace("\n", "\n\n")),
        "jsonl.gz": lambda: save(folder, "log.jsonl.gz", gzip.compress(lines.encode(), mtime=0)),
        "pandas": lambda: pd.DataFrame(TABLE),
        "pandas category": lambda: pd.DataFrame(TABLE).astype({"user": "category", "item": "category"}),
        "pandas object": lambda: pd.DataFrame(TABLE).astype({"user": object}),
        "polars": lambda: pl.DataFrame(TABLE),
        "polars category": lambda: pl.DataFrame(TABLE).with_columns(pl.col("user").cast(pl.Categorical)),
        "polars lazy": lambda: pl.LazyFrame(TABLE),
        "arrow": lambda: pa.table(TABLE),
        "arrow batch": lambda: pa.record_batch(TABLE),
        "arrow stream": lambda: pa.RecordBatchReader.from_batches(
            pa.table(TABLE).schema, pa.table(TABLE).to_batches(3)
        ),
        "arrow large": lambda: pa.table({**TABLE, "user": pa.array(TABLE["user"], pa.large_string())}),
        "arrow view": lambda: pa.table({**TABLE, "user": pa.array(TABLE["user"], pa.string_view())}),
    }
    return forms[kind]()


SOURCES = [
    "csv", "CSV as str", "semicolon", "bar", "tsv", "bom", "crlf", "csv.gz", "csv.zst", "jsonl", "ndjson", "json",
    "jsonl.gz", "parquet", "folder", "pandas", "pandas category", "pandas object", "polars", "polars category",
    "polars lazy", "arrow", "arrow batch", "arrow stream", "arrow large", "arrow view", "duckdb",
]  # fmt: skip


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source(tmp_path, kind):
    log = read(written(tmp_path, kind), "user", "item", weight="w")
    assert as_dicts(log) == SUMS
    assert list(log.users) == ["ann", "bob"]
    assert list(log.items) == ["jam", "tea"]
    assert log.merge == "sum"
    assert "1 repeated row merged (weights added)" in log.notes
    assert log.matrix.has_canonical_format
    assert not log.matrix.data.flags.writeable


@pytest.mark.parametrize("kind", SOURCES)
def test_without_weight_every_pair_counts_one(tmp_path, kind):
    log = read(written(tmp_path, kind), "user", "item")
    assert as_dicts(log) == {"ann": {"tea": 1, "jam": 1}, "bob": {"tea": 1}}
    assert log.merge == "binary"


def test_merge_is_a_choice():
    frame = pa.table(TABLE)
    assert read(frame, "user", "item", merge="sum").history("ann") == {"tea": 2, "jam": 1}
    assert read(frame, "user", "item", "w", merge="binary").history("ann") == {"tea": 1, "jam": 1}
    with pytest.raises(ParameterError, match="merge"):
        read(frame, "user", "item", merge="max")
    with pytest.raises(ParameterError, match="on_error"):
        read(frame, "user", "item", on_error="ignore")
    with pytest.raises(ParameterError, match="part"):
        read(frame, "user", "item", part="valid")
    with pytest.raises(ParameterError, match="npz"):
        read(frame, "user", "item", part="test")


def test_pairs():
    assert as_dicts(read(ROWS)) == SUMS
    assert as_dicts(read(row for row in ROWS)) == SUMS
    assert read(iter([("a", 1), ["b", 2]])).n_events == 2
    assert read(map(np.array, [[1, 2], [3, 4]])).history(3) == {4: 1.0}
    with pytest.raises(ParameterError, match="named columns"):
        read(ROWS, user="user")
    assert read([("a", "x"), ("a",), "ab", ("b", "y")], on_error="skip").skipped == 2
    for rows in ([("a", "x"), ("b",)], [("a", "x"), "ab"], [("a", "x"), {"user": 1, "item": 2}]):
        with pytest.raises(DataError, match=r"row 2: the row is not a .user, item. pair"):
            read(rows)
    for rows in ([("a",)], ["ab"], [5], [("a", "b", 1, 2)]):
        with pytest.raises(DataError, match="row 1"):
            read(rows)


def test_as_interactions():
    log = read(ROWS)
    assert as_interactions(log) is log
    assert as_interactions(sp.csr_array(np.eye(2))).n_events == 2
    assert as_interactions(np.eye(3)).n_users == 3
    assert as_dicts(as_interactions(ROWS)) == SUMS
    assert as_interactions(np.array([[1, 0], [1, 1]])).n_events == 3
    assert as_interactions(np.array([[2.0, 3.0], [0.0, 1.0]])).n_events == 3
    assert as_interactions(np.array([[2, 3, 4, 5]])).n_items == 4


@pytest.mark.parametrize("rows", [[[1, 2], [1, 3]], [[7, 8, 1], [7, 9, 1]]])
def test_arrays_that_may_be_pairs_or_a_matrix(rows):
    array = np.array(rows)
    with pytest.raises(DataError, match=rf"2 × {array.shape[1]} integers is ambiguous.*list.*sparse.*from_csr"):
        as_interactions(array)
    with pytest.raises(DataError, match=r"from_csr.*tolist"):
        read(array)
    assert as_interactions(array.tolist()).n_users == 1
    assert as_interactions(sp.csr_array(array)).n_users == 2


def test_arrow_streams(monkeypatch):
    monkeypatch.setattr(frames, "BATCH_ROWS", 3)
    rows = pa.record_batch({"user": ["a", "b", "c", "d", None], "item": list("vwxyz")})
    stream = pa.RecordBatchReader.from_batches(rows.schema, [rows.slice(0, 2), rows.slice(1)])
    with pytest.raises(DataError, match=r"the pyarrow stream, row 6, column .user.: the id is missing"):
        read(stream, quiet=True)
    stream = pa.RecordBatchReader.from_batches(rows.schema, [rows.slice(0, 2), rows.slice(1)])
    log = read(stream, quiet=True, on_error="skip")
    assert (log.n_events, log.skipped) == (4, 1)
    with pytest.raises(DataError, match="no rows"):
        read(stream, quiet=True)

    def broken():
        yield rows.slice(0, 2)
        raise pa.ArrowInvalid("cut off")

    with pytest.raises(DataError, match="stream could not be read: cut off"):
        read(pa.RecordBatchReader.from_batches(rows.schema, broken()), quiet=True)


# -- sources that cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize("source", [5, None, {"user": [1]}, np.eye(2), sp.eye_array(2), b"x", object()])
def test_no_source(source):
    with pytest.raises(DataError, match=r"cannot read|from_csr"):
        read(source)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("log.xlsx", b"x", r"'.xlsx' are not known; use one of .csv"),
        ("log", b"x", "'nothing' are not known"),
        ("log.csv", b"", "is empty"),
        ("log.csv", b"\n\n", "is empty"),
        ("log.csv", b"user,item", "no rows"),
        ("log.csv", b"user,item\n", "no rows"),
        ("log.csv", b"\xff\xfeu\x00s\x00", "header line is not UTF-8"),
        ("log.csv", b"1,2,3\n4,5,6\n", "header line"),
        ("log.csv", b'user,item\n"a,b\nc,d\n', r"cannot be read|columns"),
        ("log.csv.gz", b"no gzip", "cannot be read"),
        ("log.csv.gz", gzip.compress(b"user,item\na,b\n" * 2000, mtime=0)[:40], "cannot be read"),
        ("log.parquet", b"no parquet", "not readable as Parquet"),
        ("log.json", b'[{"user": 1}]', "one JSON array"),
        ("log.jsonl", b"", "is empty"),
        ("log.jsonl", b"\n\n", "no JSON object"),
        ("log.jsonl", b"nonsense\n", "no JSON object"),
        ("log.npz", b"no zip", "not a readable .npz"),
        ("log.npz", b"", "not a readable .npz"),
    ],
)
def test_unreadable_files(tmp_path, name, content, words):
    with pytest.raises(DataError, match=words):
        read(save(tmp_path, name, content), quiet=True)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"folder without .parquet files"):
        read(tmp_path)


def test_parquet_parts_that_differ(tmp_path):
    pq.write_table(pa.table({"user": [1], "item": [2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"user": [1], "thing": [2]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="no column 'item'"):
        read(tmp_path, quiet=True)


@pytest.mark.parametrize(
    "empty", [[], iter(()), pa.table({"user": [], "item": []}), pl.DataFrame({"user": [], "item": []})]
)
def test_empty_logs(empty):
    with pytest.raises(DataError, match="no rows"):
        read(empty, quiet=True)


def test_nothing_left():
    with pytest.raises(DataError, match=r"nothing is left of 2 rows: 2 skipped .2 × column .user."):
        read([(None, "a"), ("", "b")], on_error="skip")
    with pytest.raises(DataError, match="nothing is left of 1 rows: 1 of weight 0"):
        read([("a", "b", 0)])


# -- columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "user", "item"),
    [
        (["user", "item"], "user", "item"),
        (["UserID", "MovieID", "Rating"], "UserID", "MovieID"),
        (["userId", "movieId", "title"], "userId", "movieId"),
        (["Customer ID", "product-id", "user name"], "Customer ID", "product-id"),
        (["visitorid", "event", "itemid"], "visitorid", "itemid"),
        (["user_id", "user", "item", "item_id"], "user_id", "item_id"),
        (["reviewer_id", "asin"], "reviewer_id", "asin"),
        (["session", "article"], "session", "article"),
        (["uid", "iid"], "uid", "iid"),
        (["member", "venue"], "member", "venue"),
        (["account", "isbn"], "account", "isbn"),
        (["user_id", "business_id", "location"], "user_id", "business_id"),
        (["user", "song"], "user", "song"),
    ],
)
def test_guesses_are_shown(columns, user, item, capsys):
    frame = pa.table({name: [f"{name}!"] for name in columns})
    log = read(frame)
    assert as_dicts(log) == {f"{user}!": {f"{item}!": 1.0}}
    said = f'user column "{user}", item column "{item}" (guessed; name them with user= and item=)'
    assert said in log.notes
    assert capsys.readouterr().err == f"monogram: the pyarrow frame: {said}\n"
    read(frame, quiet=True)
    read(frame, user=user, item=item)
    assert capsys.readouterr().err == ""


def test_one_guess(capsys):
    log = read(pa.table({"user": ["a"], "item": ["b"]}), user="item", item="user")
    assert as_dicts(log) == {"b": {"a": 1.0}}
    log = read(pa.table({"who": ["a"], "item": ["b"], "user": [3.0]}), user="who", weight="user")
    assert log.notes == ('item column "item" (guessed; name it with item=)',)


@pytest.mark.parametrize(
    ("columns", "given", "words"),
    [
        (["a", "b"], {}, 'no column looks like the user. The columns are "a", "b"'),
        (["user", "b"], {}, 'no column looks like the item.*item="user"'),
        (["customer_id", "visitor_id", "item"], {}, "could each be the user"),
        (["user", "artist", "track"], {}, '"artist", "track" could each be the item'),
        (["customer", "sku"], {"user": "custmer"}, "no column 'custmer' for user.*Did you mean user=\"customer\""),
        (["Customer ID", "sku"], {"user": "customer_id"}, 'Did you mean user="Customer ID"'),
        (["user", "item"], {"weight": "rating"}, "no column 'rating' for weight"),
        (["user", "item"], {"time": "when"}, "no column 'when' for time"),
        (["user", "item"], {"user": "item", "item": "item"}, "own column"),
        (["user", "item"], {"weight": "item", "item": "item"}, "own column"),
    ],
)
def test_columns_that_cannot_be_settled(columns, given, words):
    with pytest.raises(DataError, match=words):
        read(pa.table({name: ["x"] for name in columns}), **given)


def test_duplicate_header(tmp_path):
    with pytest.raises(DataError, match='"item" occurs more than once'):
        read(save(tmp_path, "a.csv", "user,item,item\n1,2,3\n"))
    with pytest.raises(DataError, match="more than once"):
        read(pd.DataFrame([[1, 2]], columns=["user", "user"]))


def test_delimiter_is_noted(tmp_path):
    assert "delimiter ';' found in the header" in read(written(tmp_path, "semicolon"), quiet=True).notes
    assert not any("delimiter" in note for note in read(written(tmp_path, "tsv"), quiet=True).notes)
    path = save(tmp_path, "q.csv", '"user;x",item\na,b\n')
    assert read(path, user="user;x", item="item").n_events == 1


def test_what_is_told_goes_where_it_is_wanted(tmp_path, capsys):
    path, told = tmp_path / "log.csv", []
    path.write_text("user,item\na,b\n")
    read(path, tell=told.append)
    assert len(told) == 1
    assert told[0].endswith('user column "user", item column "item" (guessed; name them with user= and item=)')
    assert capsys.readouterr().err == ""
    read(path, quiet=True, tell=told.append)
    assert len(told) == 1


def test_weight_and_time_are_never_guessed(tmp_path):
    log = read(pa.table({"user": ["a"], "item": ["b"], "weight": [7.0], "rating": [3.0], "time": [1]}), quiet=True)
    assert log.matrix.data.tolist() == [1.0]
    assert log.times is None


# -- ids ---------------------------------------------------------------------------------------------------


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
    assert not any("line break" in note for note in read(save(tmp_path, "c.csv", csv_text()), quiet=True).notes)


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
    assert any("came as floats" in note for note in log.notes)
    assert list(read([(1.0, "a"), (2, "b")]).users) == [1, 2]


def test_decimals_without_fraction():
    relation = duckdb.connect().sql("select 3::hugeint as user, 'x' as item")
    assert list(read(relation, quiet=True).users) == [3]


def test_non_string_column_names():
    assert read(pd.DataFrame({0: ["a"], 1: ["b"]}), user=0, item=1).n_events == 1


# -- rows that cannot be used: raise names row and column, skip counts ---------------------------------------

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
    (1, UUIDS[0], "the id is uuid where the ids before are string"),
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
        with pytest.raises(DataError, match="nothing is left of 1 rows: 1 skipped"):
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
    with pytest.raises(DataError, match="nothing is left of 1 rows"):
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
    monkeypatch.setattr(files, "_JSON_BLOCK", 4096)
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
    monkeypatch.setattr(files, "_CSV_BLOCK", 512)
    monkeypatch.setattr(files, "_JSON_BLOCK", 512)
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


# -- times -------------------------------------------------------------------------------------------------

SECOND = 1_577_836_800  # 2020-01-01
MICROS = SECOND * 10**6


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1, 2], [1, 2]),
        ([1.5, 2], [1.5, 2.0]),
        (pa.array([1, 2], pa.uint8()), [1, 2]),
        (pa.array([datetime(2020, 1, 1)] * 2, pa.timestamp("ns")), [MICROS] * 2),
        (pa.array([datetime(2020, 1, 1)] * 2, pa.timestamp("s", "Europe/Berlin")), [MICROS] * 2),
        (pa.array([date(2020, 1, 1)] * 2), [MICROS] * 2),
        (["2020-01-01", "2020-01-01T00:00:01"], [MICROS, MICROS + 10**6]),
        (["2020-01-01T00:00:00Z", "2020-01-01T01:00:00+01:00"], [MICROS] * 2),
        (["2020-01-01T00:00:00Z", "2020-01-01 00:00:00.5"], [MICROS, MICROS + 500_000]),
        (["15", "16"], [15, 16]),
        (["15", "16.5"], [15.0, 16.5]),
    ],
)
def test_times(times, expected):
    log = read(pa.table({"user": ["a", "b"], "item": ["x", "y"], "t": times}), time="t", quiet=True)
    assert log.times.tolist() == expected
    assert log.times.dtype == (np.int64 if isinstance(expected[0], int) else np.float64)
    assert not log.times.flags.writeable


def test_times_of_objects_and_csv(tmp_path):
    frame = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "t": pd.to_datetime(["2020-01-01", None])})
    with pytest.raises(DataError, match='row 2, column "t": the time is missing'):
        read(frame, time="t", quiet=True)
    assert read(frame, time="t", quiet=True, on_error="skip").times.tolist() == [MICROS]
    frame["t"] = pd.Series([date(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 1)], dtype=object)
    assert read(frame, time="t", quiet=True).times.tolist() == [MICROS, MICROS + 10**6]
    path = save(tmp_path, "a.csv", "user,item,t\na,x,2020-01-01 00:00:00\nb,x,2020-01-01\n")
    assert read(path, time="t", quiet=True).times.tolist() == [MICROS, MICROS]


def test_periods_are_no_times(tmp_path):
    months = pd.period_range("2020-01", periods=2, freq="M")
    frame = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "t": months})
    table = pa.table(frame)
    for source in (frame, table, table.to_batches()[0]):
        with pytest.raises(DataError, match=r"column .t.: times of type pandas.period are not supported"):
            read(source, time="t", quiet=True)
    with pytest.raises(DataError, match="the time cannot be read"):
        read(frame.astype({"t": object}), time="t", quiet=True)
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(DataError, match="times of type pandas"):
        read(tmp_path / "p.parquet", time="t", quiet=True)
    unregistered = pa.schema([pa.field("t", pa.int64(), metadata={"ARROW:extension:name": "pandas.period"})])
    with pytest.raises(DataError, match="column 't' holds periods of pandas"):
        parquet._check_periods(tmp_path, unregistered, ["t"])
    assert read(tmp_path / "p.parquet", quiet=True).n_events == 2


def test_the_first_time_stays_and_times_follow_their_events():
    rows = pa.table({"user": ["b", "a", "b", "a"], "item": ["x", "y", "x", "x"], "t": [5, 1, 3, 2], "w": [1, 2, 4, 8]})
    log = read(rows, time="t", weight="w", quiet=True)
    assert log.times.tolist() == [2, 1, 3]  # (a, x), (a, y), (b, x)
    assert log.matrix.data.tolist() == [8, 2, 5]
    assert read(rows, time="t", quiet=True).times.tolist() == [2, 1, 3]


def test_times_may_turn_to_floats_later(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "_CSV_BLOCK", 64)
    rows = "".join(f"u{n},i,{n if n < 50 else n + 0.5}\n" for n in range(60))
    log = read(save(tmp_path, "a.csv", "user,item,t\n" + rows), time="t", quiet=True)
    assert log.times.dtype == np.float64
    assert sorted(log.times.tolist()) == [n if n < 50 else n + 0.5 for n in range(60)]


# -- npz ---------------------------------------------------------------------------------------------------


def split_file(folder: Path, **more: object) -> Path:
    arrays = {
        "train_indptr": [0, 2, 3, 3], "train_indices": [0, 2, 1], "test_indptr": [0, 1, 1, 2],
        "test_indices": [1, 3], "shape": [3, 4],
    }  # fmt: skip
    np.savez(folder / "split.npz", **{k: np.asarray(v) for k, v in {**arrays, **more}.items()})
    return folder / "split.npz"


def log_file(folder: Path, **more: object) -> Path:
    arrays = {"user": [0, 2, 0], "item": [1, 0, 1], "rating": [4.0, 3.0, 1.0], "timestamp": [7, 8, 9], "shape": [4, 3]}
    np.savez_compressed(folder / "log.npz", **{k: np.asarray(v) for k, v in {**arrays, **more}.items()})
    return folder / "log.npz"


def test_npz_split(tmp_path):
    train, test = read(split_file(tmp_path)), read(split_file(tmp_path), part="test")
    assert train.matrix.toarray().tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert test.matrix.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert train.users == test.users
    assert train.items == test.items
    assert train.merge == "binary"
    assert list(read(split_file(tmp_path, item_ids=["d", "c", "b", "a"])).items) == ["d", "c", "b", "a"]


def test_npz_log(tmp_path):
    log = read(log_file(tmp_path, item_ids=[30, 20, 10]), weight="rating", time="timestamp")
    assert as_dicts(log) == {0: {20: 5.0}, 1: {}, 2: {30: 3.0}, 3: {}}
    assert list(log.items) == [30, 20, 10]
    assert log.times.tolist() == [7, 8]
    assert read(log_file(tmp_path)).matrix.data.tolist() == [1, 1]
    log = read(log_file(tmp_path, rating=[0, 3, 1]), weight="rating")
    assert "1 row with weight 0 left out" in log.notes
    assert log.matrix.data.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("more", "given", "words"),
    [
        ({"user": [0, 9, 0]}, {}, 'row 2, column "user": the index is outside 0 … 3, got 9'),
        ({"item": [0, 1, -1]}, {}, 'row 3, column "item": the index is outside'),
        ({"rating": [1, 1, -5]}, {"weight": "rating"}, 'row 3, column "rating": the weight is negative'),
        ({"user": [0, 1]}, {}, "equally long"),
        ({"user": [0.5, 1, 1]}, {}, "not usable"),
        ({"shape": [0, 3]}, {}, "at least 1"),
        ({"shape": [4]}, {}, "shape must be"),
        ({"item_ids": [1, 2]}, {}, "item_ids has 2 ids"),
        ({"item_ids": [1, 2, 2]}, {}, "occurs 2 times"),
        ({"user": np.array([0, 1, None], dtype=object)}, {}, "cannot be read"),
        ({"user": [], "item": [], "rating": []}, {}, "not usable|no rows"),
        ({}, {"weight": "stars"}, "no array 'stars'"),
        ({}, {"part": "test"}, "no part 'test'"),
    ],
)
def test_bad_npz_logs(tmp_path, more, given, words):
    with pytest.raises(DataError, match=words):
        read(log_file(tmp_path, **more), **given)


def test_npz_skip(tmp_path):
    log = read(log_file(tmp_path, user=[0, 9, 0]), on_error="skip")
    assert (log.skipped, log.n_events, log.n_users) == (1, 1, 4)


@pytest.mark.parametrize(
    "more",
    [{"train_indices": [0, 9, 1]}, {"train_indptr": [0, 2, 1, 3]}, {"train_indptr": [0, 3]}, {"train_indices": [0, 1]}],
)
def test_bad_npz_splits(tmp_path, more):
    with pytest.raises(DataError):
        read(split_file(tmp_path, **more))
    with pytest.raises(DataError, match="no weight"):
        read(split_file(tmp_path), weight="rating")


def test_cut_npz(tmp_path):
    data = log_file(tmp_path).read_bytes()
    with pytest.raises(DataError):
        read(save(tmp_path, "cut.npz", data[:-100]))
    with pytest.raises(DataError):
        read(save(tmp_path, "bent.npz", split_file(tmp_path).read_bytes().replace(b"NUMPY", b"NUMPX")))
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    with pytest.raises(DataError):
        read(save(tmp_path, "one.npz", buffer.getvalue()))


# -- progress ----------------------------------------------------------------------------------------------


def test_progress_only_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    read(ROWS)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    read(ROWS, quiet=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TERM", "xterm")
    assert read(ROWS).n_events == 3
    assert read(pa.table(TABLE), "user", "item").n_events == 3
    assert "reading" in capsys.readouterr().err


# -- laws --------------------------------------------------------------------------------------------------

names = st.one_of(
    st.sampled_from(["a", "b", "é", "007", "a b"]),
    st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1),
).filter(str.strip)
logs = st.one_of(
    st.lists(st.tuples(names, st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 9), names, st.integers(1, 9)), min_size=1, max_size=40),
).filter(lambda rows: any(row[2] for row in rows))


def reference(rows: list[tuple]) -> dict:
    found: dict = {}
    for user, item, weight in rows:
        if weight:
            found.setdefault(user, {}).setdefault(item, 0.0)
            found[user][item] += weight
    return found


@given(logs)
def test_reading_is_adding_up(rows):
    log = read(rows)
    assert as_dicts(log) == reference(rows)
    keys = [list(log.users), list(log.items)]
    assert all(ids == sorted(ids, key=lambda x: x.encode() if isinstance(x, str) else x) for ids in keys)


@given(logs, st.randoms(use_true_random=False))
def test_order_does_not_matter(rows, random):
    other = list(rows)
    random.shuffle(other)
    first, second = read(rows), read(other)
    assert first.users == second.users
    assert first.items == second.items
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(first.matrix, name), getattr(second.matrix, name))


@given(logs)
def test_twice_the_rows_twice_the_weights(rows):
    once, twice = read(rows), read(rows + rows)
    np.testing.assert_array_equal(twice.matrix.toarray(), 2 * once.matrix.toarray())
    np.testing.assert_array_equal(read(rows + rows, merge="binary").matrix.toarray(), once.matrix.toarray() > 0)


@given(logs)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_forms_agree(tmp_path, rows):
    table = pa.table(dict(zip(("user", "item", "w"), map(list, zip(*rows, strict=True)), strict=True)))
    pq.write_table(table, tmp_path / "a.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    for source in (table, tmp_path / "a.parquet", save(tmp_path, "a.jsonl", lines), pl.from_arrow(table)):
        assert as_dicts(read(source, weight="w", quiet=True)) == reference(rows)


@pytest.mark.parametrize("weighted", [True, False])
def test_many_batches_and_many_spans(monkeypatch, weighted):
    monkeypatch.setattr(encode, "_FOLD", 64)
    monkeypatch.setattr(encode, "_SLAB", 128)
    monkeypatch.setattr(merge, "_SLAB", 128)
    monkeypatch.setattr("monogram.data.frames.BATCH_ROWS", 100)
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 300, 3000), rng.zipf(1.5, 3000) % 50
    weights = rng.integers(0, 3, 3000).astype(np.float32)
    table = pa.table({"user": [f"u{x}" for x in users], "item": items, "w": weights})
    log = read(table, weight="w" if weighted else None, merge="sum", quiet=True)
    rows = zip((f"u{x}" for x in users), items.tolist(), weights.tolist() if weighted else [1.0] * 3000, strict=True)
    assert as_dicts(log) == reference(list(rows))


# -- real data, where it is at hand ------------------------------------------------------------------------

REAL = Path(os.environ.get("MONOGRAM_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.skipif(not (REAL / "ml-100k.npz").exists(), reason=f"no ml-100k.npz in {REAL} (set MONOGRAM_DATA)")
def test_real_log(tmp_path):
    log = read(REAL / "ml-100k.npz", weight="rating", time="timestamp")
    assert (log.n_users, log.n_items, log.n_events) == (943, 1682, 100_000)
    rows = log.matrix.tocoo()
    table = pa.table({"user": rows.row, "item": rows.col, "rating": rows.data, "t": log.times})
    pq.write_table(table, tmp_path / "ml.parquet")
    again = read(tmp_path / "ml.parquet", weight="rating", time="t", quiet=True)
    np.testing.assert_array_equal(again.matrix.data, log.matrix.data)
    np.testing.assert_array_equal(again.times, log.times)


@pytest.mark.skipif(not (REAL / "gowalla.npz").exists(), reason=f"no gowalla.npz in {REAL} (set MONOGRAM_DATA)")
def test_real_split():
    assert read(REAL / "gowalla.npz").n_events == 810_128
    assert read(REAL / "gowalla.npz", part="test").n_events == 217_242
