"""Every kind of source, the choice of columns, and the laws that reading obeys."""

from __future__ import annotations

import gzip
import json
import os
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

from monogram.data import encode, frames, merge, progress
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
        ("log.xlsx", b"x", r"'.xlsx' are not supported; use one of .csv"),
        ("log", b"x", "'nothing' are not supported"),
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
    with pytest.raises(DataError, match=r"none of the 2 rows can be used: 2 skipped .2 × column .user."):
        read([(None, "a"), ("", "b")], on_error="skip")
    with pytest.raises(DataError, match="none of the 1 rows can be used: 1 of weight 0"):
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


def test_messages_go_to_the_callback(tmp_path, capsys):
    path, printed = tmp_path / "log.csv", []
    path.write_text("user,item\na,b\n")
    read(path, tell=printed.append)
    assert len(printed) == 1
    assert printed[0].endswith('user column "user", item column "item" (guessed; name them with user= and item=)')
    assert capsys.readouterr().err == ""
    read(path, quiet=True, tell=printed.append)
    assert len(printed) == 1


def test_weight_and_time_are_never_guessed(tmp_path):
    log = read(pa.table({"user": ["a"], "item": ["b"], "weight": [7.0], "rating": [3.0], "time": [1]}), quiet=True)
    assert log.matrix.data.tolist() == [1.0]
    assert log.times is None


# -- progress ----------------------------------------------------------------------------------------------


def test_progress_only_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "DELAY", -1.0)
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
    monkeypatch.setattr(encode, "FOLD", 64)
    monkeypatch.setattr(encode, "SLAB", 128)
    monkeypatch.setattr(merge, "SLAB", 128)
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
