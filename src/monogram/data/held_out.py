"""The result of a split protocol: train, histories and targets, and an audit of leaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.parts import Mask, events, part_of, ranks, rows_of
from monogram.errors import DataError


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
    exclude_seen : whether items of a history are left out of its recommendations
    sequence : of a split by `sessions` of a file with repeats, the rows of train and the items of its events, repeats
        included, by row and the oldest first: validation sessions are cut from it; else None
    """

    protocol: str
    train: Interactions
    histories: Interactions
    targets: Interactions
    hidden: Any = None
    cold_users: int = 0
    untested: int = 0
    exclude_seen: bool = True
    sequence: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

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
        times, before, train = self.targets.times, self.histories.latest, self.train.latest
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


def within(
    protocol: str,
    data: Interactions,
    targets: Mask,
    excluded: Mask | None = None,
    hide: bool = False,
    before: NDArray[Any] | None = None,
) -> Split:
    """A split of the events of each user.

    Parameters
    ----------
    targets : the held-out events
    excluded : events in neither part
    hide : whether the excluded events are hidden from recommendations
    before : for each user the time before which train ends; last times from then on are set back to the first time
    """
    not_in_train = targets if excluded is None else targets | excluded
    if not targets.any() or not_in_train.all():
        raise DataError(f"{protocol} leaves no event to {'test' if not targets.any() else 'learn from'} in this log")
    known = data if before is None else set_back(data, before[rows_of(data.matrix)])
    train = events(known, ~not_in_train)
    return split_of(protocol, train, data, targets, not_in_train, excluded if hide else None, known)


def split_of(
    protocol: str,
    train: Interactions,
    data: Interactions,
    targets: Mask,
    not_in_history: Mask | None = None,
    hidden: Mask | None = None,
    known: Interactions | None = None,
) -> Split:
    """The split with histories (of `known`, by default `data`) and targets of the users who have both."""
    history = events(known or data, ~(targets if not_in_history is None else not_in_history))
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


def set_back(data: Interactions, before: NDArray[Any]) -> Interactions:
    """The log without last times from `before` (one for each event) on: the first time takes their place.

    The order follows. Between events at the same time, one that was set back comes first: when the user had it again
    is not known there.
    """
    times, latest = data.times, data.last_times
    if times is None or latest is None:
        return data
    late = (latest >= before) & (latest != times)
    if not late.any():
        return data
    last_times = np.where(late, times, latest)
    key = np.empty(len(last_times), np.int64)
    key[np.lexsort((np.where(late, -1, data.positions), last_times))] = np.arange(len(key))
    places = ranks(data.matrix, key)
    by_times = data.order is None and np.array_equal(places, ranks(data.matrix, last_times))
    repeated = bool((last_times != times).any())
    return replace(data, last_times=last_times if repeated else None, order=None if by_times else places)
