"""Splits of the latest events: the shares promised, file order at ties, and no last time of the future in train."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.data import splits
from monogram.data.sessions import validation_sessions
from monogram.errors import DataError, MonogramWarning, ParameterError

rows = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 8)), min_size=30, max_size=80)


def read(found: list[tuple], time: str = "t") -> mg.Interactions:
    columns = dict(zip(("user", "item", "t"), map(list, zip(*found, strict=True)), strict=True))
    return mg.read(pa.table(columns), time=time, quiet=True)


def in_order(log: mg.Interactions) -> dict:
    """By user, the items, the oldest first."""
    found = {}
    for row, user in enumerate(log.users):
        part = slice(log.matrix.indptr[row], log.matrix.indptr[row + 1])
        items = log.items.ids(log.matrix.indices[part])
        found[user] = [item for _, item in sorted(zip(log.positions[part].tolist(), items, strict=True))]
    return found


def leave_last(log: mg.Interactions) -> splits.Split:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MonogramWarning)
        return splits.leave_last(log)


QUOTA = {
    "latest": (splits.latest, lambda number: max(1, int(0.2 * number)) if number >= 5 else 0),
    "leave_last": (leave_last, lambda number: int(number >= 2)),
}


@pytest.mark.parametrize("name", QUOTA)
@given(found=rows, time=st.sampled_from(["t", "order"]))
def test_the_latest_events_of_each_user_are_held_out(name, found, time):
    cut, quota = QUOTA[name]
    log = read(found, time)
    if not any(quota(len(items)) for items in in_order(log).values()):
        return
    split = cut(log)
    train, targets = in_order(split.train), {user: set(split.targets.history(user)) for user in split.targets.users}
    for user, items in in_order(log).items():
        number = quota(len(items))
        assert targets.get(user, set()) == set(items[len(items) - number :])
        assert set(train[user]) == set(items[: len(items) - number])
    assert in_order(split.histories) == {user: train[user] for user in split.histories.users}
    assert split.audit().repeated == 0
    if time == "order":
        assert train == {user: items[: len(items) - quota(len(items))] for user, items in in_order(log).items()}


def times_of(log: mg.Interactions) -> dict:
    users = np.repeat(np.arange(log.n_users), np.diff(log.matrix.indptr))
    pairs = list(zip(log.users.ids(users), log.items.ids(log.matrix.indices), strict=True))
    return dict(zip(pairs, zip(log.times.tolist(), log.latest.tolist(), strict=True), strict=True))


@given(found=rows, at=st.integers(1, 7))
def test_temporal_leaves_no_last_time_from_the_split_on(found, at):
    log = read(found)
    if not log.times.min() < at <= log.times.max():
        return
    old = {user for (user, _), (first, _) in times_of(log).items() if first < at}
    if not old & {user for (user, _), (first, _) in times_of(log).items() if first >= at}:
        return
    split = splits.temporal(log, at=at)
    for part in (split.train, split.histories):
        for pair, (first, last) in times_of(part).items():
            before = times_of(log)[pair]
            assert (first, last) == (before[0], before[1] if before[1] < at else before[0])
            assert last < at
        for user, items in in_order(part).items():
            lasts = [times_of(part)[user, item][1] for item in items]
            assert lasts == sorted(lasts)
    assert split.audit().early == split.audit().after == 0


@pytest.mark.parametrize("name", QUOTA)
@given(found=rows)
def test_no_last_time_of_train_is_that_of_a_held_out_event(name, found):
    log = read(found)
    cut, quota = QUOTA[name]
    if not any(quota(len(items)) for items in in_order(log).values()):
        return
    split = cut(log)
    held_out: dict = {}
    for (user, _), (time, _) in times_of(split.targets).items():
        held_out[user] = min(time, held_out.get(user, time))
    for part in (split.train, split.histories):
        for (user, _), (first, last) in times_of(part).items():
            assert last < held_out.get(user, np.inf) or last == first


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "h", "d", None])
def test_temporal_takes_a_date_in_the_unit_of_the_log(unit):
    days = np.array([20_089, 20_090, 20_091] * 2)  # 2025-01-01 to 2025-01-03
    scale = {"s": 86_400, "ms": 86_400_000, "us": 86_400 * 10**6, "ns": 86_400 * 10**9, "h": 24, "d": 1, None: 86_400}
    matrix = np.ones((2, 3), np.float32)
    log = mg.Interactions.from_csr(sp.csr_array(matrix), times=days * scale[unit], time_unit=unit)
    for at in ("2025-01-03", "2025-01-03T00:00:00Z", np.datetime64("2025-01-03", "ns"), int(days[2] * scale[unit])):
        assert (splits.temporal(log, at=at).targets.times == days[2] * scale[unit]).all()
    with pytest.raises(DataError, match=r"no event to test .* times of the log are 2025-01-01 .* 2025-01-03"):
        splits.temporal(log, at="2025-02")
    with pytest.raises(DataError, match="no event to learn from"):
        splits.temporal(log, at="2024-02")


def test_an_event_set_back_comes_before_those_at_its_first_time():
    found = [("a", "y", 1), ("a", "x", 1), ("a", "z", 2), ("a", "x", 5), ("a", "w", 6), ("b", "w", 1)]
    split = splits.temporal(read(found), at=5)
    assert in_order(split.train)["a"] == ["x", "y", "z"]
    assert split.train.last_times is None
    assert in_order(splits.latest(read([("a", n, 0) for n in "gfedc"])).train)["a"] == list("gfed")


@pytest.mark.parametrize("others", [[("v", "c", 1), ("v", "a", 30)], [("v", "c", 1), ("v", "b", 1), ("v", "a", 30)]])
def test_an_event_set_back_comes_first_whatever_the_ties_of_others(others):
    log = read([("u", "a", 5), ("u", "b", 5), ("u", "b", 20), ("u", "c", 6), *others])
    assert (log.order is None) == (len(others) == 2)
    assert in_order(splits.temporal(log, at=10).train)["u"] == list("bac")


def test_a_log_without_order_has_no_latest_events():
    log = read([(1, n, 0) for n in range(9)], None)
    for cut in (splits.latest, leave_last, splits.sessions):
        with pytest.raises(DataError, match='time="order"'):
            cut(log)
    with pytest.raises(DataError, match="no times"):
        splits.temporal(read([(1, n, 0) for n in range(9)], "order"))


# -- sessions ---------------------------------------------------------------------------------------------------------


def prefixes(by_session: dict[object, list]) -> dict:
    """By id of a prefix: its items in order, a repeated one at its last place, and the next item."""
    found = {}
    for session, items in by_session.items():
        for length in range(1, len(items)):
            prefix = items[:length]
            last = sorted(set(prefix), key=lambda item: max(n for n, own in enumerate(prefix) if own == item))
            found[f"{session} / {length}"] = (last, items[length])
    return found


def asked(split: splits.Split) -> dict:
    known = in_order(split.histories)
    return {row: (known[row], *split.targets.history(row)) for row in split.targets.users}


def asked_if_any(split: splits.Split) -> dict:
    """As `asked`, None for a prefix that predicts nothing."""
    known = in_order(split.histories)
    targets = {row: list(split.targets.history(row)) for row in split.targets.users}
    return {row: (known[row], *items) if items else None for row, items in targets.items()}


@given(found=rows, n_train=st.integers(1, 4))
def test_every_prefix_of_a_test_session_predicts_its_next_item(tmp_path_factory, found, n_train):
    by_session: dict = {number: [] for number in range(5)}
    for session, item, _ in sorted(found, key=lambda row: row[0]):
        by_session[session].append(item)
    path = tmp_path_factory.mktemp("sessions") / "s.npz"
    arrays = {"user": [row[0] for row in sorted(found)], "item": [i for items in by_session.values() for i in items]}
    np.savez(path, **arrays, n_train_users=n_train, shape=[5, 10])
    test = prefixes({session: items for session, items in by_session.items() if session >= n_train})
    if not mg.read(path).has_order or not test or not any(by_session[session] for session in range(n_train)):
        return
    split = splits.sessions(path)
    assert asked(split) == test
    assert list(split.train.users) == list(range(n_train))
    assert (split.exclude_seen, split.hidden, split.cold_users) == (False, None, 0)
    assert (split.histories.matrix.data == 1).all()


@given(found=rows, share=st.sampled_from([0.2, 0.5]))
def test_the_latest_sessions_of_a_log_with_times_are_held_out(found, share):
    log = read(found)
    order = sorted(
        range(log.n_users), key=lambda row: log.latest[log.matrix.indptr[row] : log.matrix.indptr[row + 1]].max()
    )
    held_out = {log.users[row] for row in order[log.n_users - max(1, int(share * log.n_users)) :]}
    wanted = prefixes({user: items for user, items in in_order(log).items() if user in held_out})
    if not wanted or len(held_out) == log.n_users:
        return
    split = splits.sessions(log, share=share)
    assert asked(split) == wanted
    assert set(split.train.users) == set(log.users) - held_out
    lasts = times_of(split.histories)
    assert all(last == times_of(log)[int(row.split(" / ")[0]), item][1] for (row, item), (_, last) in lasts.items())


def session_file(folder) -> object:
    items = [[0, 1, 0, 2], [2, 1], [1, 0, 3, 0, 1], [3, 1, 3], [3]]
    users = [number for number, own in enumerate(items) for _ in own]
    np.savez(folder / "s.npz", user=users, item=[item for own in items for item in own], n_train_users=3, shape=[5, 4])
    return folder / "s.npz"


def test_the_validation_part_is_the_latest_tenth_of_the_training_sessions(tmp_path):
    path = session_file(tmp_path)
    split = splits.sessions(path, part="validation")
    assert list(split.train.users) == [0, 1]
    assert {row.split(" / ")[0] for row in split.targets.users} == {"2"}
    own = splits.sessions(path, n_train=2)
    assert list(own.train.users) == [0, 1]
    merged = splits.sessions(mg.read(path), n_train=3)
    assert asked(merged) == {"3 / 1": ([1], 3)}  # the first 3 was merged with the last


@pytest.mark.parametrize("n_train", [0, 5, 2.5, True, "3"])
def test_numbers_of_training_sessions_that_are_refused(tmp_path, n_train):
    with pytest.raises(ParameterError, match=r"n_train = .*between 1 and 4"):
        splits.sessions(session_file(tmp_path), n_train=n_train)


def test_seen_items_count_in_sessions(tmp_path):
    split = splits.sessions(session_file(tmp_path))
    result = mg.evaluate(mg.EASE(l2=1), split)
    assert [row["metric"] for row in result.rows()[:2]] == ["recall@20", "mrr@20"]
    assert result.value("popularity", "recall@20") == 1.0  # every item is in the list, those of the session too
    popular = np.argsort(-np.bincount(split.train.matrix.indices, minlength=4), kind="stable").tolist()
    ranks = [popular.index(item) + 1 for item in (1, 3)]
    assert result.value("popularity", "mrr@20") == pytest.approx(np.mean([1 / rank for rank in ranks]))


def test_without_repeats_seen_items_are_neither_asked_nor_listed(tmp_path):
    path = session_file(tmp_path)
    both, fresh = splits.sessions(path), splits.sessions(path, repeats=False)
    assert (both.exclude_seen, fresh.exclude_seen) == (False, True)
    wanted = {row: (seen, item) for row, (seen, item) in asked(both).items() if item not in seen}
    assert wanted != asked(both), "a session has a repeat"
    assert {row: answer for row, answer in asked_if_any(fresh).items() if answer} == wanted
    for part in (validation_sessions(fresh), splits.sessions(path, part="validation", repeats=False)):
        assert part.exclude_seen
        answers = asked_if_any(part)
        assert {row for row, answer in answers.items() if answer} == {"2 / 1", "2 / 2"}, "1 0 3 0 1"
    with pytest.raises(ParameterError, match="repeats = 1; expected True or False"):
        splits.sessions(path, repeats=1)
    only = mg.read([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")], time="order", quiet=True)
    with pytest.warns(MonogramWarning, match="ids"):
        assert asked(splits.sessions(only, n_train=1, repeats=False)) == {"b / 1": (["x"], "y")}


def test_sessions_without_times_whose_ids_are_texts_warn():
    log = mg.read([(f"s{n}", item) for n in (1, 2, 10) for item in "xy"], time="order", quiet=True)
    with pytest.warns(MonogramWarning, match="'s1' is taken as the oldest, 's2' as the latest"):
        assert splits.sessions(log, n_train=2).targets.users[0] == "s2 / 1"


def test_a_file_of_sessions_with_sorted_items_is_in_order(tmp_path):
    np.savez(tmp_path / "s.npz", user=[0, 0, 1, 1, 1], item=[0, 1, 0, 1, 2], n_train_users=1, shape=[2, 3])
    assert asked(splits.sessions(tmp_path / "s.npz")) == {"1 / 1": ([0], 1), "1 / 2": ([0, 1], 2)}
