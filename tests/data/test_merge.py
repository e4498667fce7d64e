"""The first and the last time of repeated pairs, and the order of a user's events, against a slow loop over rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monogram.data import gather, spill
from monogram.data.interactions import Interactions
from monogram.data.readers import read
from monogram.errors import DataError, ParameterError

rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=40)


def table(found: list[tuple]) -> pa.Table:
    return pa.table(dict(zip(("user", "item", "t"), map(list, zip(*found, strict=True)), strict=True)))


def expected(found: list[tuple], timed: bool) -> dict:
    """By pair: the first time, the last time, and the position in the user's history."""
    facts: dict = {}
    for number, (user, item, moment) in enumerate(found):
        time = moment if timed else number
        first, last, place = facts.get((user, item), (time, time, number))
        if time >= last:
            last, place = time, number
        facts[user, item] = (min(first, time), last, place)
    result = {}
    for (user, item), (first, last, place) in facts.items():
        before = [pair for pair, fact in facts.items() if pair[0] == user and fact[1:] < (last, place)]
        result[user, item] = (first, last, len(before))
    return result


def facts(log: Interactions, timed: bool) -> dict:
    result = {}
    for row, user in enumerate(log.users):
        for place in range(log.matrix.indptr[row], log.matrix.indptr[row + 1]):
            times = (log.times[place], log.latest[place]) if timed else ()
            result[user, log.items[int(log.matrix.indices[place])]] = (*times, log.positions[place])
    return result


@given(found=rows, timed=st.booleans(), merge=st.sampled_from(["binary", "sum"]))
@settings(max_examples=80, deadline=None)
def test_times_and_positions_are_those_of_a_loop(found, timed, merge):
    log = read(table(found), time="t" if timed else "order", merge=merge, quiet=True)
    wanted = expected(found, timed)
    assert facts(log, timed) == {pair: fact if timed else fact[2:] for pair, fact in wanted.items()}
    assert (log.last_times is not None) == (timed and any(first != last for first, last, _ in wanted.values()))
    if not timed:
        assert (log.times, log.last_times) == (None, None)
        assert log.order.tolist() == log.positions.tolist()


@given(found=rows, timed=st.booleans(), sizes=st.tuples(st.integers(1, 200), st.integers(1, 200), st.integers(1, 400)))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_spilled_log_has_the_same_order(tmp_path_factory, monkeypatch, found, timed, sizes, write, same):
    path = write(tmp_path_factory.mktemp("log") / "a.parquet", table(found), row_group_size=7)
    time = "t" if timed else "order"
    held = read(path, time=time, quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(gather, "WHOLE", sizes[0])
        patch.setattr(gather, "BLOCK", sizes[1])
        patch.setattr(spill, "SHARD_BYTES", sizes[2])
        patch.setattr(spill, "MERGE_ROWS", 5)
        patch.setattr("monogram.data.parquet.BATCH_ROWS", 3)
        same(read(path, time=time, quiet=True), held)


def test_many_rows_in_memory_are_merged_by_ranges_of_users(monkeypatch, same):
    rng = np.random.default_rng(3)
    columns = {"user": rng.integers(0, 90, 3_000), "item": rng.integers(0, 20, 3_000), "t": rng.integers(0, 30, 3_000)}
    held = [read(pa.table(columns), time=time, quiet=True) for time in ("t", "order")]
    monkeypatch.setattr("monogram.data.merge._SPAN_ROWS", 100)
    for time, log in zip(("t", "order"), held, strict=True):
        same(read(pa.table(columns), time=time, quiet=True), log)


def test_the_order_is_left_out_where_the_times_give_it():
    log = read(table([("a", 1, 5), ("a", 0, 3), ("b", 2, 5)]), time="t", quiet=True)
    assert (log.order, log.last_times) == (None, None)
    assert log.positions.tolist() == [0, 1, 0]
    tied = read(table([("a", 1, 5), ("a", 0, 5)]), time="t", quiet=True)
    assert tied.positions.tolist() == [1, 0]
    assert read(table([("a", 0, 5), ("a", 1, 5)]), time="t", quiet=True).order is None


def test_a_log_without_times_has_no_order():
    log = read(table([("a", 1, 5), ("a", 0, 3)]), quiet=True)
    assert not log.has_order
    with pytest.raises(DataError, match='time="order"'):
        _ = log.positions


def test_skipped_rows_do_not_change_the_order(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item\na,z\n,y\na,b\na,z\n", encoding="utf-8")
    log = read(path, time="order", on_error="skip", quiet=True)
    assert log.order.tolist() == [0, 1]  # b, then z again
    assert "rows are taken in their order, without times" in log.notes


def test_pairs_frames_and_folders_stand_in_order(tmp_path, write, same):
    pairs = [("a", "z"), ("a", "b"), ("b", "x"), ("a", "k")]
    log = read(pairs, time="order")
    assert log.positions.tolist() == [1, 2, 0, 0]
    columns = pa.table({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]})
    for number in range(4):
        write(tmp_path / "log" / f"{number}.parquet", columns.slice(number, 1))
    for source in (columns, columns.to_pandas(), tmp_path / "log"):
        assert read(source, time="order", quiet=True).order.tolist() == [1, 2, 0, 0]
    with pytest.raises(ParameterError, match="pairs have no named columns"):
        read(pairs, time="t")


def test_a_column_named_order_is_the_column_of_the_times(tmp_path):
    rows = pa.table({"user": ["a", "a"], "item": ["x", "y"], "order": [9, 4]})
    log = read(rows, time="order", quiet=True)
    assert log.times.tolist() == [9, 4]
    assert any('times are those of the column "order"' in note for note in log.notes)
    assert read(rows.rename_columns(["user", "item", "n"]), time="order", quiet=True).times is None
    path: Path = tmp_path / "log.jsonl"
    path.write_text('{"user": "a", "item": "x"}\n{"user": "a", "item": "b"}\n', encoding="utf-8")
    assert read(path, time="order", quiet=True).order.tolist() == [1, 0]


def test_the_unit_of_times():
    rows = pa.table({"user": ["a", "a"], "item": ["x", "y"], "t": [9, 4], "day": ["2025-01-01", "2025-01-02"]})
    assert read(rows, time="t", quiet=True).time_unit is None
    assert read(rows, time="t", time_unit="h", quiet=True).time_unit == "h"
    assert read(rows, time="day", quiet=True).time_unit == "us"
    with pytest.raises(DataError, match=r'column "day" holds dates.*time_unit="s"'):
        read(rows, time="day", time_unit="s", quiet=True)
    for options, words in (
        ({"time": "t", "time_unit": "years"}, "time_unit = 'years'"),
        ({"time_unit": "s"}, "name their column, with time="),
        ({"time": "order", "time_unit": "s"}, "rows in order have no times"),
    ):
        with pytest.raises(ParameterError, match=words):
            read(rows, quiet=True, **options)
