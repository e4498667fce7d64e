"""Split protocols: each holds out events of a log for testing, with an audit of leaks.

A split is unpacked as `train, test = splits.holdout(log)`: fit on the first, pass the second to `evaluate`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.data.held_out import Audit as Audit
from monogram.data.held_out import Split as Split
from monogram.data.held_out import split_of, within
from monogram.data.interactions import Interactions
from monogram.data.moments import moment_in, range_of
from monogram.data.options import check_part, check_seed, check_share, check_users
from monogram.data.parts import part_of, rows_of
from monogram.data.readers import as_interactions, read
from monogram.data.sessions import sessions as sessions
from monogram.errors import DataError, Message, MonogramWarning, Option, ParameterError


def holdout(log: Any, share: float = 0.2, seed: int = 1) -> Split:
    """Hold out a random share of each user's events (at least one of two or more)."""
    data = as_interactions(log)
    check_share(share)
    lengths = np.diff(data.matrix.indptr)
    quota = np.where(lengths >= 2, np.maximum(1, (share * lengths).astype(int)), 0)
    return within("holdout", data, _position(data.matrix, seed) < np.repeat(quota, lengths))


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
    return within("ratio811", data, targets, excluded=other, hide=part == "test")


def temporal(log: Any, at: Any = None, share: float = 0.2) -> Split:
    """Split at one time for all users: train before it, test from it on. The protocol closest to production.

    Parameters
    ----------
    at : the time of the split: a date (datetime, or text such as "2025-06-01") where the unit of the log's times is
        known, or a number in the unit of `log.times`; by default the time after which `share` of the events come

    Notes
    -----
    Repeated events of a user and an item are one event, at the earliest time: a repeat of an item from before the split
    is not held out. Where weights are added, the sum includes the repeats after the split; last times from the split on
    are set back to the first time.
    """
    data = as_interactions(log)
    times = _times(data)
    if at is None:
        check_share(share)
        at = float(np.quantile(times, 1 - share))
    at = moment_in(data, at)
    targets = times >= at
    if targets.all() or not targets.any():
        raise DataError(
            f"temporal leaves no event to {'learn from' if targets.all() else 'test'} in this log: the split is at "
            f"{at:.16g}, and the times of the log are {range_of(data)}; give a time in between"
        )
    return within("temporal", data, targets, before=np.full(data.n_users, at))


def latest(log: Any, share: float = 0.2) -> Split:
    """Hold out the latest part of each user's events: int(share·n) of n, at least one of five or more.

    The public lists of `lightgcn` were cut this way. The log needs times or an order; users with fewer than five events
    have no held-out event. As in `leave_last`, train has events of other users that are later than held-out ones.

    Notes
    -----
    Repeated events of a user and an item are one event, at the last time.
    """
    data = as_interactions(log)
    check_share(share)
    lengths = np.diff(data.matrix.indptr)
    quota = np.where(lengths >= 5, np.maximum(1, (share * lengths).astype(int)), 0)
    return _of_the_end("latest", data, quota)


def leave_last(log: Any) -> Split:
    """Hold out the last event of each user with two or more, by times, then by the order of the rows.

    Repeated events of a user and an item are one event, at the last time.
    """
    data = as_interactions(log)
    split = _of_the_end("leave_last", data, (np.diff(data.matrix.indptr) >= 2).astype(int))
    warnings.warn(
        "leave_last is not an estimate of production: train contains events later than the held-out ones; use temporal",
        MonogramWarning,
        stacklevel=2,
    )
    return split


def _of_the_end(protocol: str, data: Interactions, quota: NDArray[Any]) -> Split:
    """Hold out so many of the last events of each user, at their last times."""
    lengths = np.diff(data.matrix.indptr)
    targets = data.positions >= np.repeat(lengths - quota, lengths)
    if data.latest is None:
        return within(protocol, data, targets)
    first = np.full(data.n_users, np.inf)
    np.minimum.at(first, rows_of(data.matrix)[targets], data.latest[targets])
    split = within(protocol, data, targets, before=first)
    return replace(split, targets=replace(split.targets, times=split.targets.latest, last_times=None))


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
    return replace(split_of("strong", train, held_out, targets), untested=int((quota == 0).sum()))


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
    "latest": latest,
    "leave_last": leave_last,
    "sessions": sessions,
    "public": public,
    "lightgcn": lightgcn,
}


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
