"""Merge the rows of a log into a CSR matrix; the result does not depend on the order of the rows.

The weights of a pair are added in float64 in ascending order, and equal weights as weight · count, which is exact. So
a log merged in parts is bit-identical to the same log merged at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

_SPANS = 64  # maximum number of ranges of users, each merged on its own
_SPAN_ROWS = 131_072  # rows of a range, unless the log is too large for _SPANS of them
SLAB = 262_144  # rows processed at once in a pass over the whole log
ITEM = np.int64(2**32 - 1)  # mask of the item in a key; the user is in the bits above

Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LogRows:
    """Rows of a log: user and item of each as one key, with weights, counts and times.

    Attributes
    ----------
    keys
        The user's code times 2³², plus the item's.
    weights
        None when every weight is 1, or when weights are ignored.
    counts
        Number of rows of the log that each row stands for; None when 1, or when counts are ignored.
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

    def take(self, places: Any) -> LogRows:
        """The rows at these positions."""
        parts = (None if values is None else values[places] for values in (self.weights, self.counts, self.times))
        return LogRows(self.keys[places], *parts)


def keys_of(users: npt.NDArray[np.int32], items: npt.NDArray[np.int32]) -> Places:
    """One key for each pair of codes."""
    keys = users.astype(np.int64)
    keys <<= 32
    keys |= items
    return keys


def joined(parts: list[LogRows]) -> LogRows:
    """Concatenate rows that have the same fields."""
    if len(parts) == 1:
        return parts[0]
    fields = [[getattr(part, name) for part in parts] for name in ("weights", "counts", "times")]
    keys = np.concatenate([part.keys for part in parts])
    return LogRows(keys, *(None if values[0] is None else np.concatenate(values) for values in fields))


def condensed(rows: LogRows, binary: bool) -> LogRows:
    """Sort rows by key and weight; equal rows become one with their count and earliest time. Needs one row or more."""
    if rows.weights is None and rows.counts is None and rows.times is None:
        keys = np.sort(rows.keys)
        first = starts(keys)
        return LogRows(keys[first], None, None if binary else np.diff(first, append=len(keys)))
    rows = rows.take(np.argsort(rows.keys))  # not stable, three times as fast; the order of equal keys does not matter
    fresh = _changes(rows.keys)
    if rows.weights is not None and not fresh.all():
        rows = rows.take(_by_weight(rows.weights, fresh))
        fresh |= _changes(rows.weights)
    first = np.flatnonzero(fresh)
    counts = np.diff(first, append=len(rows)) if rows.counts is None else np.add.reduceat(rows.counts, first)
    return LogRows(
        rows.keys[first],
        None if rows.weights is None else rows.weights[first],
        None if binary else counts,
        None if rows.times is None else np.minimum.reduceat(rows.times, first),
    )


def _by_weight(weights: npt.NDArray[np.float32], fresh: npt.NDArray[np.bool_]) -> Places:
    """The order that sorts rows of the same key by weight; rows are sorted by key already, and stay so."""
    group = np.cumsum(fresh)
    repeated = np.flatnonzero(np.bincount(group)[group] > 1)
    order = np.arange(len(weights))
    order[repeated] = repeated[np.lexsort((weights[repeated], group[repeated]))]
    return order


def pairs(rows: LogRows, binary: bool) -> LogRows:
    """Every pair once, sorted by key, with its weight (None when binary) and earliest time. Needs one row or more."""
    rows = condensed(rows, binary)
    first = starts(rows.keys)
    times = None if rows.times is None else np.minimum.reduceat(rows.times, first)
    return LogRows(rows.keys[first], None if binary else _sums(rows.weights, rows.counts, first), None, times)


def _sums(weights: npt.NDArray[np.float32] | None, counts: Any, first: Places) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # `check_weights` refuses an infinite sum later
        values = counts if weights is None else weights.astype(np.float64) * counts
        return np.add.reduceat(values, first).astype(np.float32)


def _changes(values: Any) -> npt.NDArray[np.bool_]:
    """Mask of the positions where a sorted array has a new value; the first is one."""
    fresh = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=fresh[1:])
    return fresh


def starts(values: npt.NDArray[Any]) -> Places:
    """Position of the first occurrence of each value of a sorted array."""
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
    """Sort the rows of a log by user and item and merge repeats: weights are added, the earliest time stays.

    One range of users is sorted at a time, so that the 64-bit keys never exist for the whole log.
    """
    size = len(users)
    indices = np.empty(size, dtype=np.int32)
    data = None if binary else np.empty(size, dtype=np.float32)
    merged_times = None if times is None else np.empty(size, dtype=times.dtype)
    indptr, end = np.zeros(n_users + 1, dtype=np.int64), 0
    for low, high in _spans(users, n_users):
        rows = _between(users, low, high)
        row_weights = None if weights is None or binary else weights[rows]
        row_times = None if times is None else times[rows]
        distinct = pairs(LogRows(keys_of(users[rows], items[rows]), row_weights, None, row_times), binary)
        part = slice(end, end + len(distinct))
        indices[part] = distinct.items
        indptr[low + 1 : high + 1] = np.bincount(distinct.users - low, minlength=high - low)
        for array, values in ((data, distinct.weights), (merged_times, distinct.times)):
            if array is not None:
                array[part] = values
        end = part.stop
    for array in (indices, data, merged_times):
        if array is not None:
            array.resize(end, refcheck=False)  # releases the unused tail without a copy
    return Merged(np.cumsum(indptr), indices, data, merged_times)


def _between(users: npt.NDArray[np.int32], low: int, high: int) -> Places:
    """Positions of the rows of a range of users, searched slab by slab without a mask of the whole log."""
    slabs = ((start, users[start : start + SLAB]) for start in range(0, len(users), SLAB))
    return np.concatenate([np.flatnonzero((part >= low) & (part < high)) + start for start, part in slabs])


def _spans(users: npt.NDArray[np.int32], n_users: int) -> list[tuple[int, int]]:
    """Ranges of users with about the same number of rows, at least one row each."""
    counts = np.zeros(n_users, dtype=np.int64)
    for start in range(0, len(users), SLAB):
        counts += np.bincount(users[start : start + SLAB], minlength=n_users)
    totals = np.cumsum(counts)
    parts = min(_SPANS, 1 + len(users) // _SPAN_ROWS)
    goals = np.arange(1, parts) * (len(users) / parts)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(totals, goals) + 1, [n_users]]))
    filled = np.concatenate([[0], totals])[cuts]
    return [(int(a), int(b)) for a, b, n in zip(cuts, cuts[1:], np.diff(filled), strict=False) if n]
