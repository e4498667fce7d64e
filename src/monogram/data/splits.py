"""Named ways to hold events back, each with an audit of what leaks.

A split is unpacked as `train, test = splits.holdout(log)`: fit on the first, give the second to `evaluate`.
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

    if not TYPE_CHECKING:  # what type checkers know from the tuple

        def __iter__(self) -> Iterator[Interactions | Split]:
            yield self.train
            yield self

        def __getitem__(self, index: int) -> Interactions | Split:
            return (self.train, self)[index]

        def __len__(self) -> int:
            return 2

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
        np.maximum.at(latest, rows_of(self.histories.matrix), before)
        return {
            "early": int((times <= latest[rows_of(self.targets.matrix)]).sum()),
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
    check_part(part)
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
    return _within("temporal", data, times >= moment(at))


def leave_last(log: Any) -> Split:
    """Hold back each user's last event (of those with two or more; ties go to the higher item index)."""
    data = as_interactions(log)
    times = _times(data)
    matrix = data.matrix
    rows = rows_of(matrix)
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
    check_users(users)
    number = int(users) if isinstance(users, int | np.integer) else round(float(users) * data.n_users)
    if not 0 < number < data.n_users:
        raise ParameterError(f"users = {users!r} holds out {number} of {data.n_users} users; expected some, not all")
    order = np.random.default_rng(check_seed(seed)).permutation(data.n_users)
    out, kept = np.sort(order[:number]), np.sort(order[number:])
    columns = np.flatnonzero(np.bincount(data.matrix[kept].indices, minlength=data.n_items))
    train, held = part_of(data, kept, columns), part_of(data, out, columns)
    lengths = np.diff(held.matrix.indptr)
    quota = np.where(lengths >= 5, (share * lengths).astype(int), 0)
    asked = _position(held.matrix, seed + 1) < np.repeat(quota, lengths)
    return replace(_tested("strong", train, held, asked), untested=int((quota == 0).sum()))


def public(path: str | Path) -> Split:
    """The fixed train and test lists of a public data set, from its npz file."""
    if Path(path).suffix.lower() != ".npz":
        raise DataError(
            f"{path} is not an .npz file; expected one with both lists (train_indptr, …, test_indices, shape)"
        )
    train = read(path, part="train", quiet=True)
    targets = read(path, part="test", quiet=True)
    has_target, has_history = np.diff(targets.matrix.indptr) > 0, np.diff(train.matrix.indptr) > 0
    asked, every = np.flatnonzero(has_target & has_history), np.arange(train.n_items)
    cold = int((has_target & ~has_history).sum())
    return Split("public", train, part_of(train, asked, every), part_of(targets, asked, every), cold_users=cold)


lightgcn = public  # the name of the papers on Gowalla, Yelp2018 and Amazon-Book

PROTOCOLS: dict[str, Callable[..., Split]] = {
    "holdout": holdout,
    "strong": strong,
    "ratio811": ratio811,
    "temporal": temporal,
    "leave_last": leave_last,
    "public": public,
    "lightgcn": lightgcn,
}


def _within(protocol: str, data: Interactions, asked: Mask, apart: Mask | None = None, hide: bool = False) -> Split:
    """A split inside the users' own histories; `apart` is in neither side."""
    out = asked if apart is None else asked | apart
    if not asked.any() or out.all():
        raise DataError(f"{protocol} leaves nothing to {'test' if not asked.any() else 'learn from'} in this log")
    train = events(data, ~out)
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
    known, wanted = events(data, ~(asked if out is None else out)), events(data, asked)
    has_target, has_history = np.diff(wanted.matrix.indptr) > 0, np.diff(known.matrix.indptr) > 0
    rows, every = np.flatnonzero(has_target & has_history), np.arange(data.n_items)
    if not len(rows):
        raise DataError(f"{protocol} finds no user with both a history and something held back")
    return Split(
        protocol,
        train,
        part_of(known, rows, every),
        part_of(wanted, rows, every),
        None if hidden is None else events(data, hidden).matrix[rows],
        cold_users=int((has_target & ~has_history).sum()),
    )


def _position(matrix: Any, seed: int) -> NDArray[np.int64]:
    """A random place for each event among those of its user, from 0."""
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
