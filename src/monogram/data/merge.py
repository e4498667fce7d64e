"""Codes become a CSR matrix: repeats of a pair are merged, and the order of the rows leaves no trace.

Weights are added in float64 in ascending order, equal ones at once (weight · count, which is exact), so that a log
merged in parts has the bits of the same log merged whole, whatever the order of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

_SPANS = 64  # the log is merged in up to so many ranges of users,
_SPAN_ROWS = 131_072  # of about so many rows each unless the log is large
_SLAB = 262_144  # rows worked on at once where the whole log is gone through
ITEM = np.int64(2**32 - 1)  # the part of a key that is the item; the user is above it

Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Some rows of a log: user and item of each as one key, and what else it has.

    Attributes
    ----------
    keys
        The user's code times 2³², plus the item's.
    weights
        None when every weight is 1, or does not matter.
    counts
        How many rows of the log each stands for; None when one, or when it does not matter.
    times
        None when there are none.
    """

    keys: Places
    weights: npt.NDArray[np.float32] | None = None
    counts: npt.NDArray[np.int64] | None = None
    times: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def users(self) -> Places:
        """Code of each user."""
        return self.keys >> 32

    @property
    def items(self) -> Places:
        """Code of each item."""
        return self.keys & ITEM

    def take(self, places: Any) -> Rows:
        """Rows at these places."""
        parts = (None if values is None else values[places] for values in (self.weights, self.counts, self.times))
        return Rows(self.keys[places], *parts)


def keys_of(users: npt.NDArray[np.int32], items: npt.NDArray[np.int32]) -> Places:
    """One key for each pair of codes."""
    keys = users.astype(np.int64)
    keys <<= 32
    keys |= items
    return keys


def joined(parts: list[Rows]) -> Rows:
    """Rows of the same kind, one after the other."""
    if len(parts) == 1:
        return parts[0]
    rest = [[getattr(part, name) for part in parts] for name in ("weights", "counts", "times")]
    keys = np.concatenate([part.keys for part in parts])
    return Rows(keys, *(None if values[0] is None else np.concatenate(values) for values in rest))


def condensed(rows: Rows, binary: bool) -> Rows:
    """Rows by key and weight, equal ones once with their count and the first of their times; at least one row."""
    if rows.weights is None and rows.counts is None and rows.times is None:
        keys = np.sort(rows.keys)
        first = starts(keys)
        return Rows(keys[first], None, None if binary else np.diff(first, append=len(keys)))
    rows = rows.take(np.argsort(rows.keys))  # not stable, thrice as fast: the order of equals leaves no trace
    fresh = _changes(rows.keys)
    if rows.weights is not None and not fresh.all():
        rows = rows.take(_by_weight(rows.weights, fresh))
        fresh |= _changes(rows.weights)
    first = np.flatnonzero(fresh)
    counts = np.diff(first, append=len(rows)) if rows.counts is None else np.add.reduceat(rows.counts, first)
    return Rows(
        rows.keys[first],
        None if rows.weights is None else rows.weights[first],
        None if binary else counts,
        None if rows.times is None else np.minimum.reduceat(rows.times, first),
    )


def _by_weight(weights: npt.NDArray[np.float32], fresh: npt.NDArray[np.bool_]) -> Places:
    """Order of rows sorted by key that sorts each key's by weight; only rows of repeated keys are moved."""
    group = np.cumsum(fresh)
    several = np.flatnonzero(np.bincount(group)[group] > 1)
    order = np.arange(len(weights))
    order[several] = several[np.lexsort((weights[several], group[several]))]
    return order


def pairs(rows: Rows, binary: bool) -> Rows:
    """Every pair once, by key: its weight (None when binary) and its first time; of at least one row."""
    rows = condensed(rows, binary)
    first = starts(rows.keys)
    times = None if rows.times is None else np.minimum.reduceat(rows.times, first)
    return Rows(rows.keys[first], None if binary else _sums(rows.weights, rows.counts, first), None, times)


def _sums(weights: npt.NDArray[np.float32] | None, counts: Any, first: Places) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # an infinite sum is refused by name later
        values = counts if weights is None else weights.astype(np.float64) * counts
        return np.add.reduceat(values, first).astype(np.float32)


def _changes(values: Any) -> npt.NDArray[np.bool_]:
    """Where a sorted array goes on to another value, and its beginning."""
    fresh = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=fresh[1:])
    return fresh


def starts(values: npt.NDArray[Any]) -> Places:
    """Where each value of a sorted array begins."""
    return np.flatnonzero(_changes(values))


@dataclass(frozen=True)
class Merged:
    """CSR arrays with every pair once; `data` is None when every weight is 1."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    data: npt.NDArray[np.float32] | None
    times: npt.NDArray[Any] | None

    def matrix(self, n_items: int) -> Any:
        """Return the CSR matrix."""
        data = np.ones(len(self.indices), dtype=np.float32) if self.data is None else self.data
        index = np.int64 if len(self.indices) > np.iinfo(np.int32).max else np.int32
        indices, indptr = self.indices.astype(index, copy=False), self.indptr.astype(index)
        return sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_items))


def merged(
    users: npt.NDArray[np.int32],
    items: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32] | None,
    times: npt.NDArray[Any] | None,
    n_users: int,
    binary: bool,
) -> Merged:
    """Sort the rows of a log by user and item and merge repeats: weights are added, the first time stays.

    One range of users after the other is sorted, so that the 64-bit keys never exist for the whole log.
    """
    size = len(users)
    indices = np.empty(size, dtype=np.int32)
    data = None if binary else np.empty(size, dtype=np.float32)
    kept_times = None if times is None else np.empty(size, dtype=times.dtype)
    indptr, end = np.zeros(n_users + 1, dtype=np.int64), 0
    for low, high in _spans(users, n_users):
        rows = _between(users, low, high)
        own = None if weights is None or binary else weights[rows]
        found = pairs(
            Rows(keys_of(users[rows], items[rows]), own, None, None if times is None else times[rows]), binary
        )
        part = slice(end, end + len(found))
        indices[part] = found.items
        indptr[low + 1 : high + 1] = np.bincount(found.users - low, minlength=high - low)
        for array, values in ((data, found.weights), (kept_times, found.times)):
            if array is not None:
                array[part] = values
        end = part.stop
    for array in (indices, data, kept_times):
        if array is not None:
            array.resize(end, refcheck=False)  # gives the tail back in place
    return Merged(np.cumsum(indptr), indices, data, kept_times)


def _between(users: npt.NDArray[np.int32], low: int, high: int) -> Places:
    """Rows of a range of users, found slab by slab so that no mask of the whole log is needed."""
    slabs = ((start, users[start : start + _SLAB]) for start in range(0, len(users), _SLAB))
    return np.concatenate([np.flatnonzero((part >= low) & (part < high)) + start for start, part in slabs])


def _spans(users: npt.NDArray[np.int32], n_users: int) -> list[tuple[int, int]]:
    """Ranges of users with about as many rows each; every range has at least one row."""
    counts = np.zeros(n_users, dtype=np.int64)
    for start in range(0, len(users), _SLAB):
        counts += np.bincount(users[start : start + _SLAB], minlength=n_users)
    totals = np.cumsum(counts)
    parts = min(_SPANS, 1 + len(users) // _SPAN_ROWS)
    goals = np.arange(1, parts) * (len(users) / parts)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(totals, goals) + 1, [n_users]]))
    filled = np.concatenate([[0], totals])[cuts]
    return [(int(a), int(b)) for a, b, n in zip(cuts, cuts[1:], np.diff(filled), strict=False) if n]
