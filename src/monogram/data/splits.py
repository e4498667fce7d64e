"""Named ways to hold events back, each with an audit of what leaks.

A split is unpacked as `train, test = splits.holdout(log)`: fit on the first, give the second to `evaluate`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.options import check_seed, check_share
from monogram.data.readers import as_interactions, read
from monogram.errors import DataError, MonogramWarning, ParameterError

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Audit:
    """What is wrong, or only to be known, about a split.

    Attributes
    ----------
    events : events held back
    users : users with at least one
    repeated : of the events, those whose user and item are in the history too
    cold_items : of the events, those with an item nobody has in train: no model can give it
    cold_users : users with events held back but no history: they are left out
    untested : users held out whole who gave nothing to test (too few events), in `strong`
    early : of the events, those not later than the last of the same user's history (None without times)
    after : of the events, those not later than the last event of train: train knows the future (None without times)
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
            f"{self.events:,} events of {self.users:,} users held back; {self.repeated:,} also in the history; "
            f"{self.cold_items:,} of items not in train; {self.cold_users:,} users without history left out; "
            f"{self.untested:,} held-out users with too few events; "
            f"not later than the user's history: {order(self.early)}; "
            f"not later than the end of train: {order(self.after)}"
        )


@dataclass(frozen=True)
class Split:
    """A log cut in two.

    Attributes
    ----------
    protocol : name of the way it was cut
    train : what a model may learn from
    histories : what is known of each test user when asking
    targets : what was held back, rows as in `histories`
    hidden : items that are neither shown nor asked for (validation when testing), rows as in `histories`, or None
    """

    protocol: str
    train: Interactions
    histories: Interactions
    targets: Interactions
    hidden: Any = None
    cold_users: int = 0
    untested: int = 0

    def __iter__(self) -> Iterator[Any]:
        yield self.train
        yield self

    def audit(self) -> Audit:
        """Count what leaks from the test into train, or cannot be answered."""
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
        np.maximum.at(latest, _rows(self.histories.matrix), before)
        return {
            "early": int((times <= latest[_rows(self.targets.matrix)]).sum()),
            "after": int((times <= train.max()).sum()) if len(train) else 0,
        }

    def __repr__(self) -> str:
        return f"Split({self.protocol}: {self.audit()})"


def holdout(log: Any, share: float = 0.2, seed: int = 1) -> Split:
    """Hold back a random share of each user's events (at least one where there are two or more)."""
    data = as_interactions(log)
    check_share(share)
    lengths = np.diff(data.matrix.indptr)
    quota = np.where(lengths >= 2, np.maximum(1, (share * lengths).astype(int)), 0)
    return _within("holdout", data, _position(data.matrix, seed) < np.repeat(quota, lengths))


def ratio811(log: Any, seed: int = 1, part: str = "test") -> Split:
    """Each user's events shuffled and cut 80/10/10; validation and test ⌊n/10⌋ each, at least 1 when possible.

    With part="test" the validation events are hidden: neither in the history nor to be recommended.
    """
    data = as_interactions(log)
    if part not in ("test", "validation"):
        raise ParameterError(f"part = {part!r}; expected 'test' or 'validation'")
    lengths = np.diff(data.matrix.indptr)
    tenth = lengths // 10
    test = np.where(lengths >= 2, np.maximum(1, tenth), 0)
    validation = np.where(lengths >= 3, np.maximum(1, tenth), 0)
    position = _position(data.matrix, seed)
    ends = (np.repeat(test, lengths), np.repeat(test + validation, lengths))
    in_test, in_validation = position < ends[0], (position >= ends[0]) & (position < ends[1])
    asked, other = (in_test, in_validation) if part == "test" else (in_validation, in_test)
    return _within("ratio811", data, asked, apart=other, hide=part == "test")


def temporal(log: Any, at: Any = None, share: float = 0.2) -> Split:
    """One moment for all: before it train, from it on test. What a shop should use.

    Parameters
    ----------
    at : the moment: a date (datetime, or text such as "2025-06-01") where the log has dates, else a number in the unit
        of `log.times`; by default such that `share` of the events come after it

    Notes
    -----
    The same user and item twice is one event, at its first time: what was known before the moment stays known, and
    using it again is not held back. Where weights are added, those of later repeats are in the sum.
    """
    data = as_interactions(log)
    times = _times(data)
    if at is None:
        check_share(share)
        at = float(np.quantile(times, 1 - share))
    return _within("temporal", data, times >= _moment(at))


def leave_last(log: Any) -> Split:
    """Hold back each user's last event (of those with two or more; ties go to the higher item index)."""
    data = as_interactions(log)
    times = _times(data)
    matrix = data.matrix
    rows = _rows(matrix)
    order = np.lexsort((np.arange(len(rows)), times, rows))
    last = np.zeros(len(rows), np.bool_)
    ends = matrix.indptr[1:][np.diff(matrix.indptr) >= 2] - 1
    last[order[ends]] = True
    warnings.warn(
        "leave_last is not an estimate of production: train holds events later than those asked for; use temporal",
        MonogramWarning,
        stacklevel=2,
    )
    return _within("leave_last", data, last)


def strong(log: Any, users: float = 0.2, share: float = 0.2, seed: int = 1) -> Split:
    """Hold out whole users: a model never sees them in training.

    Of each held-out user int(share·n) random events are targets (none under 5 events), the rest is the history. The
    items are those of the training users; what else held-out users have is dropped.

    Parameters
    ----------
    users : share of users held out, or how many
    """
    data = as_interactions(log)
    check_share(share)
    if isinstance(users, bool) or not isinstance(users, int | float | np.number):
        raise ParameterError(f"users = {users!r}; expected a share between 0 and 1, or how many to hold out")
    number = int(users) if isinstance(users, int | np.integer) else round(float(users) * data.n_users)
    if not 0 < number < data.n_users:
        raise ParameterError(f"users = {users!r} holds out {number} of {data.n_users} users; expected some, not all")
    order = np.random.default_rng(check_seed(seed)).permutation(data.n_users)
    out, kept = np.sort(order[:number]), np.sort(order[number:])
    columns = np.flatnonzero(np.bincount(data.matrix[kept].indices, minlength=data.n_items))
    train, held = _part(data, kept, columns), _part(data, out, columns)
    lengths = np.diff(held.matrix.indptr)
    quota = np.where(lengths >= 5, (share * lengths).astype(int), 0)
    asked = _position(held.matrix, seed + 1) < np.repeat(quota, lengths)
    return replace(_tested("strong", train, held, asked), untested=int((quota == 0).sum()))


def public(path: str | Path) -> Split:
    """The fixed train and test lists of a public data set, from its npz file."""
    train = read(path, part="train", quiet=True)
    targets = read(path, part="test", quiet=True)
    has_target, has_history = np.diff(targets.matrix.indptr) > 0, np.diff(train.matrix.indptr) > 0
    asked, every = np.flatnonzero(has_target & has_history), np.arange(train.n_items)
    cold = int((has_target & ~has_history).sum())
    return Split("public", train, _part(train, asked, every), _part(targets, asked, every), cold_users=cold)


def _within(protocol: str, data: Interactions, asked: Mask, apart: Mask | None = None, hide: bool = False) -> Split:
    """A split inside the users' own histories; `apart` is in neither side."""
    out = asked if apart is None else asked | apart
    if not asked.any() or out.all():
        raise DataError(f"{protocol} leaves nothing to {'test' if not asked.any() else 'learn from'} in this log")
    train = _events(data, ~out)
    return _tested(protocol, train, data, asked, out, apart if hide else None)


def _tested(
    protocol: str,
    train: Interactions,
    data: Interactions,
    asked: Mask,
    out: Mask | None = None,
    hidden: Mask | None = None,
) -> Split:
    """Histories and targets of the users who have both."""
    known, wanted = _events(data, ~(asked if out is None else out)), _events(data, asked)
    has_target, has_history = np.diff(wanted.matrix.indptr) > 0, np.diff(known.matrix.indptr) > 0
    rows, every = np.flatnonzero(has_target & has_history), np.arange(data.n_items)
    if not len(rows):
        raise DataError(f"{protocol} finds no user with both a history and something held back")
    return Split(
        protocol,
        train,
        _part(known, rows, every),
        _part(wanted, rows, every),
        None if hidden is None else _events(data, hidden).matrix[rows],
        cold_users=int((has_target & ~has_history).sum()),
    )


def _rows(matrix: Any) -> NDArray[np.int64]:
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _position(matrix: Any, seed: int) -> NDArray[np.int64]:
    """A random place for each event among those of its user, from 0."""
    rows = _rows(matrix)
    order = np.lexsort((np.random.default_rng(check_seed(seed)).random(matrix.nnz), rows))
    position = np.empty(matrix.nnz, np.int64)
    position[order] = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    return position


def _events(data: Interactions, keep: Mask) -> Interactions:
    """The same users and items with some of the events."""
    matrix = data.matrix
    counts = np.concatenate([[0], np.cumsum(keep)])
    pointers = counts[matrix.indptr].astype(matrix.indptr.dtype)
    part = sp.csr_array((matrix.data[keep], matrix.indices[keep], pointers), shape=matrix.shape)
    return Interactions(part, data.users, data.items, None if data.times is None else data.times[keep], data.merge)


def _part(data: Interactions, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Interactions:
    """Some of the users and items, with their events."""
    matrix = data.matrix
    place = np.full(data.n_items, -1, np.int64)
    place[columns] = np.arange(len(columns))
    chosen = np.zeros(data.n_users, np.bool_)
    chosen[rows] = True
    keep = chosen[_rows(matrix)] & (place[matrix.indices] >= 0)
    inside = _events(data, keep)
    pointers = np.concatenate([[0], np.cumsum(np.diff(inside.matrix.indptr)[rows])])
    indices = place[inside.matrix.indices].astype(matrix.indices.dtype)
    part = sp.csr_array((inside.matrix.data, indices, pointers), shape=(len(rows), len(columns)))
    users, items = data.users.ids(rows), data.items.ids(columns)
    return Interactions(part, type(data.users)(users), type(data.items)(items), inside.times, data.merge)


def _times(data: Interactions) -> NDArray[Any]:
    if data.times is None:
        raise DataError(
            "this log has no times; name their column (time=…, on the command line --time-column) to split by time"
        )
    return data.times


def _moment(at: Any) -> Any:
    """A moment as a number: dates are kept in microseconds."""
    if isinstance(at, str | date | np.datetime64):
        try:
            return int(np.array(at, "datetime64[us]").astype(np.int64))
        except ValueError as error:
            raise ParameterError(f"at = {at!r}; expected a date such as '2025-06-01', or a number") from error
    if isinstance(at, bool) or not isinstance(at, int | float | np.number):
        raise ParameterError(f"at = {at!r}; expected a date such as '2025-06-01', or a number")
    return at
