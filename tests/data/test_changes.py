"""A log that goes on equals the log read whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.data import changes
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError

events = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=40)


def histories(log):
    return {user: log.history(user) for user in log.users}


@given(first=events, second=events, merge=st.sampled_from(["binary", "sum"]))
def test_two_logs_are_one(first, second, merge):
    log, more = mg.read(first, merge=merge), mg.read(second)
    new = [item for item in more.items if item not in log.items]
    changed = changes.with_users(changes.with_items(log, new), more)
    assert histories(changed.log) == histories(mg.read(first + second, merge=merge))
    assert changed.log.merge == merge
    assert list(changed.log.users)[-changed.n_added :] == list(more.users)
    assert [log.users[row] for row in changed.removed_rows] == [user for user in log.users if user in more.users]


@given(rows=events, seed=st.integers(0, 100))
def test_who_is_left_out_was_never_there(rows, seed):
    log = mg.read(rows, merge="sum")
    gone = np.flatnonzero(np.random.default_rng(seed).random(log.n_users) < 0.4)
    if len(gone) == log.n_users:
        with pytest.raises(DataError, match="is left to learn from"):
            changes.without_users(log, gone)
        return
    names = {log.users[int(row)] for row in gone}
    changed = changes.without_users(log, gone).log
    assert histories(changed) == {user: own for user, own in histories(log).items() if user not in names}
    assert changed.items == log.items


@given(first=events, second=events, seed=st.integers(0, 100), share=st.sampled_from([0.0, 0.5, 1.0]))
def test_some_go_and_others_come_in_one_change(first, second, seed, share):
    log, more = mg.read(first, merge="sum"), mg.read(second)
    log = changes.with_items(log, [item for item in more.items if item not in log.items])
    gone = np.flatnonzero(np.random.default_rng(seed).random(log.n_users) < share)
    names = {log.users[int(row)] for row in gone}
    changed = changes.exchanged(log, gone, more)
    left = [row for row in first if row[0] not in names]
    assert histories(changed.log) == histories(mg.read(left + second, merge="sum"))
    assert list(changed.log.users)[-changed.n_added :] == list(more.users)
    assert {log.users[int(row)] for row in changed.removed_rows} == names | (set(log.users) & set(more.users))
    stay = [user for user in log.users if user not in names and user not in more.users]
    assert list(changed.log.users)[: -changed.n_added] == stay


def test_times_follow_and_the_first_stays():
    times = {"user": ["a", "a", "b"], "item": ["x", "y", "x"], "t": [5, 6, 7]}
    pa = pytest.importorskip("pyarrow")
    log = mg.read(pa.table(times), "user", "item", time="t")
    more = mg.read(pa.table({"user": ["a", "c"], "item": ["x", "y"], "t": [1, 9]}), "user", "item", time="t")
    changed = changes.with_users(log, more).log
    assert list(changed.users) == ["b", "a", "c"]
    assert changed.times.tolist() == [7, 1, 6, 9]
    assert changes.without_users(changed, np.array([1])).log.times.tolist() == [7, 9]
    assert changes.with_users(log, mg.read([("a", "y")])).log.times is None
    assert changes.exchanged(log, np.array([0]), more).log.times.tolist() == [7, 1, 9]


def test_a_vocabulary_grows_by_its_own_kind():
    assert list(Vocabulary([1, 2]).extended(["3", 4.0])) == [1, 2, 3, 4]
    assert list(Vocabulary(["a"]).extended([7])) == ["a", "7"]
    assert list(Vocabulary(["a", "b", "c"]).part([2, 0])) == ["c", "a"]
    for ids, more in ((["a"], [None]), ([1], ["x"]), (["a"], ["a"]), ([1], [2**70])):
        with pytest.raises(DataError):
            Vocabulary(ids).extended(more)


timed_events = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=25)


def with_times(rows, time="t", **options):
    pa = pytest.importorskip("pyarrow")
    columns = dict(zip(("user", "item", "t"), map(list, zip(*rows, strict=True)), strict=True))
    return mg.read(pa.table(columns), time=time, quiet=True, **options)


def in_order(log):
    """By user: the items, the oldest first, with their first and last times."""
    found = {}
    for row, user in enumerate(log.users):
        part = slice(log.matrix.indptr[row], log.matrix.indptr[row + 1])
        times = [None] * log.n_events if log.times is None else list(zip(log.times, log.latest, strict=True))
        items = log.items.ids(log.matrix.indices[part])
        found[user] = [fact[1:] for fact in sorted(zip(log.positions[part], items, times[part], strict=True))]
    return found


@given(first=timed_events, second=timed_events, time=st.sampled_from(["t", "order"]))
def test_the_order_of_two_logs_is_that_of_one_after_the_other(first, second, time):
    log, more = with_times(first, time), with_times(second, time)
    log = changes.with_items(log, [item for item in more.items if item not in log.items])
    changed = changes.with_users(log, more).log
    assert in_order(changed) == in_order(with_times(first + second, time))
    assert (changed.times is None) == (time == "order")


@given(rows=timed_events, time=st.sampled_from(["t", "order"]), seed=st.integers(0, 9))
def test_the_order_of_those_who_stay_does_not_change(rows, time, seed):
    log = with_times(rows, time)
    gone = np.flatnonzero(np.random.default_rng(seed).random(log.n_users) < 0.4)
    if len(gone) == log.n_users:
        return
    names = {log.users[int(row)] for row in gone}
    left = changes.without_users(log, gone).log
    assert in_order(left) == {user: own for user, own in in_order(log).items() if user not in names}
    again = changes.exchanged(log, gone, with_times([(9, rows[0][1], 1)], time)).log
    assert in_order(again) == in_order(left) | in_order(with_times([(9, rows[0][1], 1)], time))


def test_an_order_is_lost_where_one_log_has_none():
    log, rows = with_times([(1, 2, 3), (1, 1, 5)]), [(1, 3, 1), (1, 1, 1), (2, 2, 1)]
    log = changes.with_items(log, [3])
    blind = changes.with_users(log, mg.read([row[:2] for row in rows])).log
    assert not blind.has_order
    assert blind.time_unit is None
    ordered = changes.with_users(log, with_times(rows, "order")).log
    assert (ordered.has_order, ordered.times) == (True, None)
    assert {user: [item for item, _ in own] for user, own in in_order(ordered).items()} == {1: [2, 3, 1], 2: [2]}


def test_times_are_put_into_the_unit_of_the_log():
    log = with_times([(1, 2, 100), (2, 2, 200)], time_unit="s")
    days = changes.with_users(log, with_times([(1, 2, 1), (3, 2, 2)], time_unit="d")).log
    assert (days.times.tolist(), days.latest.tolist()) == ([200, 100, 172_800], [200, 86_400, 172_800])
    assert days.times.dtype == np.int64
    fine = changes.with_users(log, with_times([(3, 2, 1_500)], time_unit="ms")).log
    assert (fine.times.tolist(), fine.time_unit) == ([100, 200, 1.5], "s")
    unix = changes.with_users(
        with_times([(1, 2, 1_700_000_000)]), with_times([(2, 2, 1_700_000_000_000_000)], time_unit="us")
    )
    assert (unix.log.times.tolist(), unix.log.time_unit) == ([1_700_000_000] * 2, "s")
    with pytest.raises(DataError, match=r"of one the unit is s, of the other it is not known.*time_unit"):
        changes.with_users(log, with_times([(1, 2, 7)]))


def test_unix_times_of_different_units_are_converted_where_neither_unit_was_given():
    log = with_times([(1, 2, 1_700_000_000), (2, 2, 1_700_000_100)])
    added = changes.with_users(log, with_times([(3, 2, 1_700_000_000_500), (3, 2, 1_700_000_001_500)])).log
    assert (added.times.tolist(), added.latest.tolist()[-1]) == (
        [*log.times.tolist(), 1_700_000_000.5],
        1_700_000_001.5,
    )
    same = changes.with_users(log, with_times([(3, 2, 1_700_000_200)])).log
    assert (same.times.tolist()[-1], same.time_unit) == (1_700_000_200, None)
    small = changes.with_users(with_times([(1, 2, 3)]), with_times([(3, 2, 5)])).log
    assert (small.times.tolist(), small.time_unit) == ([3, 5], None)
    with pytest.raises(DataError, match="of one the unit is s, of the other it is not known"):
        changes.with_users(log, with_times([(3, 2, 5)]))
