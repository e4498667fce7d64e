"""Folders of Parquet files: however the rows are cut into files, it is the same log."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monogram.data.readers import read
from monogram.errors import DataError

PAIRS = {"user": ["ann", "bob", "ann", "cid"], "item": ["tea", "tea", "jam", "tea"]}


rows = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.integers(-2, 4),
        st.floats(0, 2.0**99, width=32),
        st.one_of(st.integers(0, 9), st.integers(2**53, 2**53 + 9)),
    ),
    min_size=1,
    max_size=30,
).filter(lambda found: any(row[2] for row in found))


def table(found: list[tuple]) -> pa.Table:
    return pa.table(dict(zip(("user", "item", "w", "t"), map(list, zip(*found, strict=True)), strict=True)))


@given(
    found=rows,
    random=st.randoms(use_true_random=False),
    merge=st.sampled_from([None, "sum", "binary"]),
    weighted=st.booleans(),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_cut_and_any_order_is_the_same_log(tmp_path_factory, found, random, merge, weighted, write, same):
    folder = tmp_path_factory.mktemp("cut")
    options = {"time": "t", "merge": merge, "quiet": True, **({"weight": "w"} if weighted else {})}
    whole = read(write(folder / "whole" / "a.parquet", table(found)), **options)
    mixed = list(found)
    random.shuffle(mixed)
    place = 0
    while place < len(mixed):
        size = random.randint(1, 6)
        name = folder / "parts" / random.choice(["", "x", "x/y"]) / f"{random.randint(0, 9)}-{place}.parquet"
        write(name, table(mixed[place : place + size]), row_group_size=random.randint(1, 6))
        place += size
    parts = read(folder / "parts", **options)
    same(replace(parts, order=None), replace(whole, order=None))  # the rows decide the order at equal times


def test_folders_in_folders_and_what_is_no_part_of_the_log(tmp_path, write):
    write(tmp_path / "a.parquet", pa.table(PAIRS).slice(0, 1))
    write(tmp_path / "deep" / "er" / "b.PARQUET", pa.table(PAIRS).slice(1, 1))
    write(tmp_path / "c.pq", pa.table(PAIRS).slice(2, 1))
    write(tmp_path / "whole.parquet" / "part-0.parquet", pa.table(PAIRS).slice(3))  # as Spark writes a table
    for name in ("_temporary/0/d.parquet", ".hidden.parquet", ".trash/e.parquet", "_metadata"):
        write(tmp_path / name, {"user": ["x"], "item": ["y"]})
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "readme.txt").write_text("a log")
    assert read(tmp_path, quiet=True).n_events == 4


@pytest.mark.parametrize(
    "types",
    [
        {"user": (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view())},
        {"w": (pa.float32(), pa.float64(), pa.int8(), pa.decimal128(25, 1))},
        {"t": (pa.int64(), pa.int32(), pa.uint16())},
    ],
)
def test_schemas_that_differ_but_fit(tmp_path, types, write, same):
    column, kinds = next(iter(types.items()))
    columns = {**PAIRS, "w": [1, 2, 3, 4], "t": [5, 6, 7, 8]}
    whole = read(write(tmp_path / "whole.parquet", columns), "user", "item", "w", "t")
    for number, kind in enumerate(kinds):
        part = pa.table(columns).slice(number, 1 if number < len(kinds) - 1 else None)
        place = part.schema.get_field_index(column)
        part = part.set_column(place, column, part.column(column).cast(kind))
        names = part.schema.names if number % 2 else part.schema.names[::-1]
        extra = part.select(names).append_column(f"more{number}", pa.array([None] * len(part)))
        write(tmp_path / "parts" / f"{number}.parquet", extra)
    same(read(tmp_path / "parts", "user", "item", "w", "t"), whole)


def test_a_folder_for_each_value_is_a_column(tmp_path, write):
    for number, (user, item) in enumerate(zip(*PAIRS.values(), strict=True)):
        write(
            tmp_path / f"day=2020-01-0{number % 2 + 1}" / f"shop={number}" / "0.parquet", {"user": [user], "i": [item]}
        )
    log = read(tmp_path, "user", "i", time="day")
    day = 86_400 * 10**6
    first = (date(2020, 1, 1) - date(1970, 1, 1)).days * day
    assert log.times.tolist() == [
        first,
        first,
        first + day,
        first + day,
    ]  # (ann, jam), (ann, tea), (bob, tea), (cid, tea)
    assert list(read(tmp_path, "shop", "i").users) == [0, 1, 2, 3]
    assert list(read(tmp_path, "day", "i").users) == ["2020-01-01", "2020-01-02"]
    assert read(tmp_path, "user", "i", weight="shop").history("cid") == {"tea": 3.0}


def test_names_of_folders_are_unescaped_and_typed_together(tmp_path, write):
    for name in ("user=7", "user=caf%C3%A9%2F1"):
        write(tmp_path / name / "0.parquet", {"item": ["x"]})
    assert list(read(tmp_path, quiet=True).users) == ["7", "café/1"]
    write(tmp_path / "user=__HIVE_DEFAULT_PARTITION__" / "0.parquet", {"item": ["x"]})
    with pytest.raises(DataError, match=r'PARTITION__.0\.parquet, row 1, column "user": the id is missing'):
        read(tmp_path, quiet=True)
    assert read(tmp_path, quiet=True, on_error="skip").skipped == 1


def test_a_column_in_the_file_goes_before_the_folder_name(tmp_path, write):
    write(tmp_path / "user=x" / "0.parquet", {"user": ["ann"], "item": ["tea"]})
    assert list(read(tmp_path, quiet=True).users) == ["ann"]


def test_all_columns_may_be_names_of_folders(tmp_path, write):
    for user, item in (("ann", 1), ("bob", 2)):
        write(tmp_path / f"user={user}" / f"item={item}" / "0.parquet", {"more": [0.5, 1.5]})
    log = read(tmp_path, "user", "item", merge="sum")
    assert {user: log.history(user) for user in log.users} == {"ann": {1: 2.0}, "bob": {2: 2.0}}


def test_guesses_are_printed_with_the_folder(tmp_path, capsys, write):
    write(tmp_path / "a.parquet", PAIRS)
    read(tmp_path)
    assert capsys.readouterr().err == (
        f'monogram: {tmp_path}: user column "user", item column "item" (guessed; name them with user= and item=)\n'
    )


# -- what is wrong is named with its file --------------------------------------------------------------------


def test_no_parquet_files(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DataError, match=r"is a folder without .parquet files"):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all, though long enough"])
def test_a_file_that_is_no_parquet(tmp_path, content, write):
    write(tmp_path / "a.parquet", PAIRS)
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"b\.parquet is not readable as Parquet"):
        read(tmp_path, quiet=True)


def test_a_cut_file(tmp_path, write):
    write(tmp_path / "a.parquet", PAIRS)
    content = write(tmp_path / "b.parquet", PAIRS).read_bytes()
    (tmp_path / "b.parquet").write_bytes(content[:-20])
    with pytest.raises(DataError, match=r"b\.parquet is not readable as Parquet"):
        read(tmp_path, quiet=True)


def test_a_bent_file(tmp_path, write):
    write(tmp_path / "a.parquet", PAIRS)
    columns = {"user": [f"u{n}" for n in range(5000)], "item": [f"i{n}" for n in range(5000)]}
    content = bytearray(write(tmp_path / "b.parquet", columns, use_dictionary=False).read_bytes())
    content[100:2000] = bytes(1900)
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"b\.parquet cannot be read"):
        read(tmp_path, quiet=True)


def test_a_file_without_a_column(tmp_path, write):
    write(tmp_path / "a.parquet", {**PAIRS, "w": [1, 2, 3, 4]})
    write(tmp_path / "b.parquet", PAIRS)
    assert read(tmp_path, quiet=True).n_events == 4
    with pytest.raises(DataError, match=r"b\.parquet has no column 'w', unlike .*a\.parquet"):
        read(tmp_path, "user", "item", weight="w")


def test_ids_of_another_type(tmp_path, write):
    write(tmp_path / "a.parquet", PAIRS)
    write(tmp_path / "b.parquet", {"user": [7, 8], "item": ["tea", "jam"]})
    with pytest.raises(DataError, match=r'b\.parquet, row 1, column "user": the id is integer where'):
        read(tmp_path, quiet=True)
    assert read(tmp_path, quiet=True, on_error="skip").skipped == 2


def test_bad_rows_are_named_by_file_and_row(tmp_path, monkeypatch, write):
    monkeypatch.setattr("monogram.data.parquet.BATCH_ROWS", 2)
    write(tmp_path / "a.parquet", PAIRS)
    write(tmp_path / "b.parquet", {"user": ["ann", "bob", None], "item": ["x", "y", "z"]})
    with pytest.raises(DataError, match=r'b\.parquet, row 3, column "user": the id is missing'):
        read(tmp_path, quiet=True)
    log = read(tmp_path, quiet=True, on_error="skip")
    assert log.notes[-1] == '1 row skipped: 1 × column "user": the id is missing'


def test_files_without_rows(tmp_path, write):
    nothing = pa.table({"user": pa.array([], pa.int64()), "item": pa.array([], pa.int64())})
    write(tmp_path / "a.parquet", nothing)
    with pytest.raises(DataError, match="has no rows"):
        read(tmp_path, quiet=True)
    write(tmp_path / "b.parquet", PAIRS)
    assert read(tmp_path, quiet=True).n_events == 4


def test_a_file_twice_is_twice_the_weight(tmp_path, write):
    for name in ("a", "b"):
        write(tmp_path / "twice" / f"{name}.parquet", PAIRS)
    once = read(write(tmp_path / "a.parquet", PAIRS), quiet=True, merge="sum")
    twice = read(tmp_path / "twice", quiet=True, merge="sum")
    np.testing.assert_array_equal(twice.matrix.toarray(), 2 * once.matrix.toarray())


@pytest.mark.parametrize("turn", [1, -1])
def test_sums_do_not_depend_on_the_order(tmp_path, turn, write):
    """In float64, 2⁵³ + 2²⁹ + 1 + 1 is rounded on the way or not, as the order may be; float32 shows which."""
    weights = [2.0**53, 2.0**29, 1.0, 1.0][::turn]
    for number, weight in enumerate(weights):
        write(tmp_path / f"{number}.parquet", {"user": ["a"], "item": ["x"], "w": [weight]})
    assert read(tmp_path, weight="w", quiet=True).matrix.data.tolist() == [2.0**53 + 2.0**30]
    assert read([("a", "x", weight) for weight in weights]).matrix.data.tolist() == [2.0**53 + 2.0**30]
