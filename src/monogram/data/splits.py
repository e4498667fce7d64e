"""Split protocols: each holds out events of a log for testing, with an audit of leaks.

A split is unpacked as `train, test = splits.holdout(log)`: fit on the first, pass the second to `evaluate`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.options import check_part, check_seed, check_share, check_users, moment
from monogram.data.parts import Mask, events, part_of, rows_of
from monogram.data.readers import as_interactions, read
from monogram.errors import DataError, Message, MonogramWarning, Option, ParameterError


@dataclass(frozen=True)
class Audit:
    """Counts of held-out events and of leaks of a split.

    Attributes
    ----------
    events : held-out events
    users : users with at least one held-out event
    repeated : held-out events whose user and item are in the history too
    cold_items : held-out events of items without events in train, which no model can recommend
    cold_users : users with held-out events but no history, who are excluded
    untested : held-out users with too few events for a test, in `strong`
    early : held-out events not later than the last event of the same user's history (None without times)
    after : held-out events not later than the last event of train, so that train contains the future (None without
        times)
    """

    events: int
    users: int
    repeated: int
    cold_items: int
    cold_users: int
    early: int | None = None
    after: int | None = None
    untested: int = 0

    def __str__(self) -> str:
        def order(number: int | None) -> str:
            return "unknown (no times)" if number is None else f"{number:,}"

        return (
            f"{self.events:,} events of {self.users:,} users held out; {self.repeated:,} also in the history; "
            f"{self.cold_items:,} of items not in train; {self.cold_users:,} users without a history excluded; "
            f"{self.untested:,} held-out users with too few events; "
            f"not later than the user's history: {order(self.early)}; "
            f"not later than the end of train: {order(self.after)}"
        )


if TYPE_CHECKING:
    # Only a tuple can be unpacked into parts of different types by type checkers.
    _Pair: TypeAlias = tuple[Interactions, "Split"]
else:
    _Pair = object


@dataclass(frozen=True)
class Split(_Pair):
    """A log cut in two; unpacks to the pair (`train`, the split itself), the second for `evaluate`.

    Attributes
    ----------
    protocol : name of the protocol
    train : training events
    histories : events of each test user that the model may use
    targets : held-out events, rows as in `histories`
    hidden : items excluded from histories and recommendations (validation when testing), rows as in `histories`, or
        None
    """

    protocol: str
    train: Interactions
    histories: Interactions
    targets: Interactions
    hidden: Any = None
    cold_users: int = 0
    untested: int = 0

    if not TYPE_CHECKING:  # what type checkers know from the tuple

        def __iter__(self) -> Iterator[Interactions | Split]:
            yield self.train
            yield self

        def __getitem__(self, index: int) -> Interactions | Split:
            return (self.train, self)[index]

        def __len__(self) -> int:
            return 2

    def audit(self) -> Audit:
        """Count the leaks from test to train, and the targets that no model can recommend."""
        targets, histories = self.targets.matrix, self.histories.matrix
        known = np.bincount(self.train.matrix.indices, minlength=self.train.n_items) > 0
        return Audit(
            events=int(targets.nnz),
            users=int((np.diff(targets.indptr) > 0).sum()),
            repeated=int((targets.astype(bool).multiply(histories.astype(bool))).nnz),
            cold_items=int((~known[targets.indices]).sum()),
            cold_users=self.cold_users,
            untested=self.untested,
            **self._order(),
        )

    def _order(self) -> dict[str, int | None]:
        times, before, train = self.targets.times, self.histories.times, self.train.times
        if times is None or before is None or train is None:
            return {"early": None, "after": None}
        latest = np.full(self.histories.n_users, -np.inf)
        np.maximum.at(latest, rows_of(self.histories.matrix), before)
        return {
            "early": int((times <= latest[rows_of(self.targets.matrix)]).sum()),
            "after": int((times <= train.max()).sum()) if len(train) else 0,
        }

    def __repr__(self) -> str:
        return f"Split({self.protocol}: {self.audit()})"


def holdout(log: Any, share: float = 0.2, seed: int = 1) -> Split:
    """Hold out a random share of each user's events (at least one of two or more)."""
    data = as_interactions(log)
    check_share(share)
    lengths = np.diff(data.matrix.indptr)
    quota = np.where(lengths >= 2, np.maximum(1, (share * lengths).astype(int)), 0)
    return _within("holdout", data, _position(data.matrix, seed) < np.repeat(quota, lengths))


def ratio811(log: Any, seed: int = 1, part: str = "test") -> Split:
    """Shuffle each user's events and split them 80/10/10; validation and test ⌊n/10⌋ each, at least 1 when possible.

    With part="test" the validation events are hidden: excluded from the history and from the recommendations.
    """
    data = as_interactions(log)
    check_part(part)
    lengths = np.diff(data.matrix.indptr)
    tenth = lengths // 10
    test = np.where(lengths >= 2, np.maximum(1, tenth), 0)
    validation = np.where(lengths >= 3, np.maximum(1, tenth), 0)
    position = _position(data.matrix, seed)
    ends = (np.repeat(test, lengths), np.repeat(test + validation, lengths))
    in_test, in_validation = position < ends[0], (position >= ends[0]) & (position < ends[1])
    targets, other = (in_test, in_validation) if part == "test" else (in_validation, in_test)
    return _within("ratio811", data, targets, excluded=other, hide=part == "test")


def temporal(log: Any, at: Any = None, share: float = 0.2) -> Split:
    """Split at one time for all users: train before it, test from it on. The protocol closest to production.

    Parameters
    ----------
    at : the time of the split: a date (datetime, or text such as "2025-06-01") where the log has dates, else a number
        in the unit of `log.times`; by default the time after which `share` of the events come

    Notes
    -----
    Repeated events of a user and an item are one event, at the earliest time: a repeat of an item from before the split
    is not held out. Where weights are added, the sum includes the repeats after the split.
    """
    data = as_interactions(log)
    times = _times(data)
    if at is None:
        check_share(share)
        at = float(np.quantile(times, 1 - share))
    return _within("temporal", data, times >= moment(at))


def leave_last(log: Any) -> Split:
    """Hold out the last event of each user with two or more; of events at the same time, the higher item index."""
    data = as_interactions(log)
    times = _times(data)
    matrix = data.matrix
    rows = rows_of(matrix)
    order = np.lexsort((np.arange(len(rows)), times, rows))
    last = np.zeros(len(rows), np.bool_)
    ends = matrix.indptr[1:][np.diff(matrix.indptr) >= 2] - 1
    last[order[ends]] = True
    warnings.warn(
        "leave_last is not an estimate of production: train contains events later than the held-out ones; use temporal",
        MonogramWarning,
        stacklevel=2,
    )
    return _within("leave_last", data, last)


def strong(log: Any, users: float = 0.2, share: float = 0.2, seed: int = 1) -> Split:
    """Strong generalisation: hold out users, who are not in the training data.

    Of each held-out user int(share·n) random events are targets (none below 5 events), and the others are the history.
    The items are those of the training users; other items of the held-out users are dropped.

    Parameters
    ----------
    users : share of users held out, or their number
    """
    data = as_interactions(log)
    check_share(share)
    check_users(users)
    number = int(users) if isinstance(users, int | np.integer) else round(float(users) * data.n_users)
    if not 0 < number < data.n_users:
        raise ParameterError(
            f"users = {users!r} holds out {number} of {data.n_users} users; expected at least one and not all"
        )
    order = np.random.default_rng(check_seed(seed)).permutation(data.n_users)
    test_users, train_users = np.sort(order[:number]), np.sort(order[number:])
    columns = np.flatnonzero(np.bincount(data.matrix[train_users].indices, minlength=data.n_items))
    train, held_out = part_of(data, train_users, columns), part_of(data, test_users, columns)
    lengths = np.diff(held_out.matrix.indptr)
    quota = np.where(lengths >= 5, (share * lengths).astype(int), 0)
    targets = _position(held_out.matrix, seed + 1) < np.repeat(quota, lengths)
    return replace(_tested("strong", train, held_out, targets), untested=int((quota == 0).sum()))


def public(path: str | Path) -> Split:
    """The fixed train and test lists of a public data set, from its npz file."""
    if Path(path).suffix.lower() != ".npz":
        raise DataError(
            f"{path} is not an .npz file; expected one with train and test lists (train_indptr, …, test_indices, shape)"
        )
    train = read(path, part="train", quiet=True)
    targets = read(path, part="test", quiet=True)
    has_target, has_history = np.diff(targets.matrix.indptr) > 0, np.diff(train.matrix.indptr) > 0
    rows, every = np.flatnonzero(has_target & has_history), np.arange(train.n_items)
    cold = int((has_target & ~has_history).sum())
    return Split("public", train, part_of(train, rows, every), part_of(targets, rows, every), cold_users=cold)


lightgcn = public  # its name in the papers on Gowalla, Yelp2018 and Amazon-Book

PROTOCOLS: dict[str, Callable[..., Split]] = {
    "holdout": holdout,
    "strong": strong,
    "ratio811": ratio811,
    "temporal": temporal,
    "leave_last": leave_last,
    "public": public,
    "lightgcn": lightgcn,
}


def _within(
    protocol: str, data: Interactions, targets: Mask, excluded: Mask | None = None, hide: bool = False
) -> Split:
    """A split of the events of each user; `excluded` events are in neither part."""
    not_in_train = targets if excluded is None else targets | excluded
    if not targets.any() or not_in_train.all():
        raise DataError(f"{protocol} leaves no event to {'test' if not targets.any() else 'learn from'} in this log")
    train = events(data, ~not_in_train)
    return _tested(protocol, train, data, targets, not_in_train, excluded if hide else None)


def _tested(
    protocol: str,
    train: Interactions,
    data: Interactions,
    targets: Mask,
    not_in_history: Mask | None = None,
    hidden: Mask | None = None,
) -> Split:
    """The split with histories and targets of the users who have both."""
    history = events(data, ~(targets if not_in_history is None else not_in_history))
    held_out = events(data, targets)
    has_target, has_history = np.diff(held_out.matrix.indptr) > 0, np.diff(history.matrix.indptr) > 0
    rows, every = np.flatnonzero(has_target & has_history), np.arange(data.n_items)
    if not len(rows):
        raise DataError(f"{protocol} finds no user with both a history and a held-out event")
    return Split(
        protocol,
        train,
        part_of(history, rows, every),
        part_of(held_out, rows, every),
        None if hidden is None else events(data, hidden).matrix[rows],
        cold_users=int((has_target & ~has_history).sum()),
    )


def _position(matrix: Any, seed: int) -> NDArray[np.int64]:
    """A random position of each event among the events of its user, from 0."""
    rows = rows_of(matrix)
    order = np.lexsort((np.random.default_rng(check_seed(seed)).random(matrix.nnz), rows))
    position = np.empty(matrix.nnz, np.int64)
    position[order] = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    return position


def _times(data: Interactions) -> NDArray[Any]:
    if data.times is None:
        raise DataError(
            Message("this log has no times; to split by time, name their column when it is read, with ", Option("time"))
        )
    return data.times
