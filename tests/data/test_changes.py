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
