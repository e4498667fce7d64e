"""Every split: nothing lost, nothing in two places, the shares promised, and an audit that finds leaks."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.data import splits
from monogram.data.splits import Split
from monogram.errors import DataError, MonogramWarning, ParameterError


def log(seed: int = 0, users: int = 30, items: int = 20, times: bool = True) -> mg.Interactions:
    rng = np.random.default_rng(seed)
    matrix = sp.csr_array((rng.random((users, items)) < rng.uniform(0.05, 0.6, (users, 1))).astype(np.float32))
    if matrix.nnz == 0:
        matrix = sp.csr_array(np.ones((users, items), np.float32))
    names = [f"user {number}" for number in range(users)]
    when = rng.integers(0, 1000, matrix.nnz) if times else None
    return mg.Interactions.from_csr(matrix, users=names, items=[f"item {n}" for n in range(items)], times=when)


def events(part: mg.Interactions) -> set[tuple[object, object]]:
    return {(user, item) for user in part.users for item in part.history(user)}


WITHIN = {
    "holdout": lambda data, seed: splits.holdout(data, share=0.3, seed=seed),
    "ratio811": lambda data, seed: splits.ratio811(data, seed=seed),
    "validation": lambda data, seed: splits.ratio811(data, seed=seed, part="validation"),
    "temporal": lambda data, seed: splits.temporal(data, share=0.3),
}


@pytest.mark.parametrize("name", WITHIN)
@given(seed=st.integers(0, 200))
def test_inside_histories_nothing_is_lost_or_doubled(name, seed):
    data = log(seed)
    split = WITHIN[name](data, seed)
    train, asked, known = events(split.train), events(split.targets), events(split.histories)
    assert not train & asked
    assert known <= train
    assert asked <= events(data)
    assert list(split.histories.users) == list(split.targets.users)
    assert (np.diff(split.targets.matrix.indptr) > 0).all()
    assert (np.diff(split.histories.matrix.indptr) > 0).all()
    if name in ("holdout", "temporal"):
        left = events(data) - train - asked
        assert {user for user, _ in left} <= set(data.users) - set(split.histories.users), "only users without history"
    audit = split.audit()
    assert audit.repeated == 0
    assert audit.events == len(asked)
    assert audit.users == split.targets.n_users
    known_items = {item for _, item in train}
    assert audit.cold_items == sum(item not in known_items for _, item in asked)


@given(seed=st.integers(0, 100), share=st.floats(0.05, 0.9))
def test_holdout_takes_its_share_of_each_user(seed, share):
    data = log(seed)
    split = splits.holdout(data, share=share, seed=seed)
    for user in split.targets.users:
        total = len(data.history(user))
        assert len(split.targets.history(user)) == max(1, int(share * total))


def test_ratio811_is_80_10_10_and_hides_the_validation():
    data = log(5, users=40, items=60)
    test, validation = splits.ratio811(data, seed=3), splits.ratio811(data, seed=3, part="validation")
    assert events(test.train) == events(validation.train)
    assert not events(test.targets) & events(validation.targets)
    for user in test.targets.users:
        total = len(data.history(user))
        assert len(test.targets.history(user)) == max(1, total // 10)
    hidden = {
        (test.histories.users[int(row)], test.histories.items[int(column)])
        for row, column in zip(*test.hidden.nonzero(), strict=True)
    }
    kept = {(u, i) for u, i in events(validation.targets) if u in set(test.histories.users)}
    assert hidden == kept
    assert validation.hidden is None


@given(seed=st.integers(0, 100))
def test_strong_holds_out_whole_users_and_the_items_of_train(seed):
    data = log(seed, users=60)
    split = splits.strong(data, users=0.25, seed=seed)
    assert split.train.n_users == 45
    assert not set(split.train.users) & set(split.histories.users)
    assert set(split.train.items) == {item for _, item in events(split.train)}
    assert list(split.train.items) == list(split.histories.items) == list(split.targets.items)
    assert split.targets.n_users + split.audit().untested == 15
    for user in split.targets.users:
        total = len(split.targets.history(user)) + len(split.histories.history(user))
        assert total >= 5
        assert len(split.targets.history(user)) == int(0.2 * total)


def test_temporal_is_one_moment_for_all():
    data = log(1)
    split = splits.temporal(data, at=700)
    assert split.train.times.max() < 700 <= split.targets.times.min()
    audit = split.audit()
    assert audit.early == 0
    assert audit.after == 0


def test_leave_last_warns_and_takes_the_last():
    data = log(2)
    with pytest.warns(MonogramWarning, match="not an estimate of production"):
        split = splits.leave_last(data)
    for row, user in enumerate(data.users):
        part = slice(data.matrix.indptr[row], data.matrix.indptr[row + 1])
        if part.stop - part.start >= 2:
            (item,) = split.targets.history(user)
            mine = dict(zip(data.items.ids(data.matrix.indices[part]), data.times[part], strict=True))
            assert mine[item] == max(mine.values())
    assert split.audit().after > 0, "train knows the future, and the audit says so"


def test_the_audit_finds_what_leaks():
    data = log(3)
    honest = splits.holdout(data)
    leaky = Split("leaky", honest.train, honest.histories, honest.histories)
    audit = leaky.audit()
    assert audit.repeated == audit.events == honest.histories.n_events
    assert audit.early > 0
    assert "also in the history" in str(audit)
    assert splits.holdout(log(3, times=False)).audit().early is None


def test_the_public_lists_have_the_name_of_their_papers_too():
    assert splits.lightgcn is splits.public
    for name, function in splits.PROTOCOLS.items():
        assert getattr(splits, name) is function
    own = {name for name, one in vars(splits).items() if getattr(one, "__module__", "") == splits.__name__}
    public = {name for name in own if name.islower() and not name.startswith("_")}
    assert set(splits.PROTOCOLS) == public | {"sessions"}


def test_public_lists(tmp_path):
    np.savez(
        tmp_path / "x.npz",
        train_indptr=np.array([0, 2, 3, 4], np.int32),
        train_indices=np.array([0, 2, 1, 3], np.int32),
        test_indptr=np.array([0, 1, 1, 2], np.int32),
        test_indices=np.array([1, 0], np.int32),
        shape=np.array([3, 4]),
    )
    split = splits.public(tmp_path / "x.npz")
    assert events(split.train) == {(0, 0), (0, 2), (1, 1), (2, 3)}
    assert events(split.targets) == {(0, 1), (2, 0)}
    assert list(split.histories.users) == [0, 2]


def test_a_split_unpacks_as_train_and_test():
    split = splits.holdout(log())
    train, test = split
    assert (split[0], split[1], split[-1], len(split)) == (train, test, test, 2)
    assert train is split.train
    assert test is split
    assert "holdout" in repr(split)


def test_the_seed_decides():
    data = log(8)
    assert events(splits.holdout(data, seed=1).targets) == events(splits.holdout(data, seed=1).targets)
    assert events(splits.holdout(data, seed=1).targets) != events(splits.holdout(data, seed=2).targets)


@pytest.mark.parametrize(
    ("cut", "kind", "text"),
    [
        (lambda: splits.holdout(log(), share=0), ParameterError, "share = 0"),
        (lambda: splits.holdout(log(), share=1.5), ParameterError, "share = 1.5"),
        (lambda: splits.strong(log(), users=1.0), ParameterError, "users = 1.0"),
        (lambda: splits.strong(log(), users=0), ParameterError, "users = 0"),
        (lambda: splits.ratio811(log(), part="train"), ParameterError, "part = 'train'"),
        (lambda: splits.temporal(log(times=False)), DataError, "no times"),
        (lambda: splits.temporal(log(), at=10**9), DataError, "no event to test"),
        (lambda: splits.temporal(log(), at=-1), DataError, "no event to learn"),
        (lambda: splits.holdout([("ann", "x"), ("bob", "y")]), DataError, "no event to test"),
    ],
)
def test_what_cannot_be_cut_is_refused(cut, kind, text):
    with pytest.raises(kind, match=text):
        cut()


def test_what_was_known_before_the_moment_stays_known():
    """Buying again after the cut takes nothing out of train, and is not a target."""
    rows_ = [(f"u{n % 20}", f"i{n % 7}", 1.0, n) for n in range(400)]
    rows = {"user": [e[0] for e in rows_], "item": [e[1] for e in rows_], "t": [e[3] for e in rows_]}
    data = mg.read(pa.table(rows), time="t", quiet=True)
    split = splits.temporal(data, at=100)
    before = {(user, item) for user, item, _, moment in rows_ if moment < 100}
    assert events(split.train) == before
    assert not events(split.targets) & before


def test_a_moment_can_be_a_date():
    rows = {"user": ["a", "a", "b", "b"], "item": ["x", "y", "x", "z"]}
    days = np.array(["2025-01-01", "2025-03-01", "2025-01-05", "2025-04-01"], "datetime64[us]")
    data = mg.read(pa.table(rows | {"t": pa.array(days)}), time="t", quiet=True)
    for at in ("2025-02-01", np.datetime64("2025-02-01"), datetime.datetime(2025, 2, 1), datetime.date(2025, 2, 1)):
        assert events(splits.temporal(data, at=at).targets) == {("a", "y"), ("b", "z")}
    for at in ("soon", None.__class__, True):
        with pytest.raises(ParameterError, match="at = "):
            splits.temporal(data, at=at)


@pytest.mark.parametrize(
    "cut",
    [
        lambda: splits.holdout(log(), seed=-1),
        lambda: splits.holdout(log(), seed=1.5),
        lambda: splits.holdout(log(), share="0.2"),
        lambda: splits.strong(log(), users=True),
        lambda: splits.strong(log(), users="300"),
    ],
)
def test_options_of_another_type_are_refused(cut):
    with pytest.raises(ParameterError):
        cut()


def test_a_share_may_be_any_float():
    assert splits.strong(log(users=60), users=np.float32(0.25)).train.n_users == 45


def test_public_counts_users_without_history(tmp_path):
    np.savez(
        tmp_path / "x.npz",
        train_indptr=np.array([0, 2, 2], np.int32),
        train_indices=np.array([0, 2], np.int32),
        test_indptr=np.array([0, 1, 2], np.int32),
        test_indices=np.array([1, 0], np.int32),
        shape=np.array([2, 3]),
    )
    split = splits.public(tmp_path / "x.npz")
    assert list(split.histories.users) == [0]
    assert split.audit().cold_users == 1
