"""Merge the rows of a log into a CSR matrix; the ids, weights and times do not depend on the order of the rows.

The weights of a pair are added in float64 in ascending order, and equal weights as weight · count, which is exact. So
a log merged in parts is bit-identical to the same log merged at once.

A log with times, or with rows that stand in order, also has an order of each user's events: by the last time of each
pair, then by the number of the last row at that time. This alone depends on the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """Rows of a log: user and item of each as one key, with weights, counts, times and row numbers.

    Attributes
    ----------
    keys
        The user's code times 2³², plus the item's.
    weights
        None when every weight is 1, or when weights are ignored.
    counts
        Number of rows of the log that each row stands for; None when 1, or when counts are ignored.
    times
        The first time of each row; None when there are none.
    last_times
        The last time of each row; None when it is the first.
    numbers
        The number of the last row of the log that each row stands for, at its last time; None where the log has no
        order.
    """

    keys: Places
    weights: npt.NDArray[np.float32] | None = None
    counts: npt.NDArray[np.int64] | None = None
    times: npt.NDArray[Any] | None = None
    last_times: npt.NDArray[Any] | None = None
    numbers: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def fields(self) -> tuple[npt.NDArray[Any] | None, ...]:
        """The arrays beside the keys, in the order of the attributes."""
        return self.weights, self.counts, self.times, self.last_times, self.numbers

    @property
    def latest(self) -> npt.NDArray[Any] | None:
        """The last time of each row; None when there are no times."""
        return self.times if self.last_times is None else self.last_times

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
        return LogRows(self.keys[places], *(None if values is None else values[places] for values in self.fields))


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
    keys = np.concatenate([part.keys for part in parts])
    fields = zip(*(part.fields for part in parts), strict=True)
    return LogRows(keys, *(None if values[0] is None else np.concatenate(values) for values in fields))


def condensed(rows: LogRows, binary: bool) -> LogRows:
    """Sort rows by key and weight; equal rows become one with their count and times. Needs one row or more."""
    if all(values is None for values in rows.fields):
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
        *_extremes(rows, first),
    )


def _extremes(rows: LogRows, first: Places) -> tuple[npt.NDArray[Any] | None, ...]:
    """The first time, the last time, and the number of the last row at the last time, of each group of rows."""
    times, latest, numbers = rows.times, rows.latest, rows.numbers
    if times is not None and latest is not None:
        times, every = np.minimum.reduceat(times, first), latest
        latest = np.maximum.reduceat(every, first)
        if numbers is not None and len(first) < len(rows):
            numbers = np.where(every == np.repeat(latest, np.diff(first, append=len(rows))), numbers, -1)
    return times, latest, None if numbers is None else np.maximum.reduceat(numbers, first)


def _by_weight(weights: npt.NDArray[np.float32], fresh: npt.NDArray[np.bool_]) -> Places:
    """The order that sorts rows of the same key by weight; rows are sorted by key already, and stay so."""
    group = np.cumsum(fresh)
    repeated = np.flatnonzero(np.bincount(group)[group] > 1)
    order = np.arange(len(weights))
    order[repeated] = repeated[np.lexsort((weights[repeated], group[repeated]))]
    return order


def pairs(rows: LogRows, binary: bool) -> LogRows:
    """Every pair once, sorted by key, with its weight (None when binary) and times. Needs one row or more.

    The number of a pair becomes its rank among the pairs of its user; all pairs of a user must be there.
    """
    rows = condensed(rows, binary)
    first = starts(rows.keys)
    weights = None if binary else _sums(rows.weights, rows.counts, first)
    distinct = LogRows(rows.keys[first], weights, None, *_extremes(rows, first))
    return distinct if distinct.numbers is None else replace(distinct, numbers=_ranks(distinct))


def _ranks(rows: LogRows) -> npt.NDArray[np.int64]:
    """The rank of each row among the rows of its user, by last time and row number; rows are sorted by key."""
    users, latest = rows.users, rows.latest
    keys: list[Any] = [rows.numbers, users] if latest is None else [rows.numbers, latest, users]
    first = starts(users)
    ranks = np.empty(len(rows), dtype=np.int64)
    ranks[np.lexsort(keys)] = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
    return ranks


def _ties_decide(rows: LogRows) -> bool:
    """Whether the ranks of pairs at the same last time differ from the order of the items."""
    latest = rows.latest
    if latest is None or rows.numbers is None:
        return rows.numbers is not None
    places = np.empty(len(rows), dtype=np.int64)
    first = starts(rows.users)
    places[np.repeat(first, np.diff(first, append=len(rows))) + rows.numbers] = np.arange(len(rows))
    times, users = latest[places], rows.users
    tied = (users[1:] == users[:-1]) & (times[1:] == times[:-1])
    return bool((tied & (places[1:] < places[:-1])).any())


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
    """CSR arrays with every pair once; `data` is None when every weight is 1.

    The times and the order are those of `Interactions`: `last_times` is None where no pair has another last time than
    its first, `order` where last times, and at equal times the order of items, give it.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    data: npt.NDArray[np.float32] | None
    times: npt.NDArray[Any] | None
    last_times: npt.NDArray[Any] | None = None
    order: npt.NDArray[np.int32] | None = None

    def matrix(self, n_items: int) -> Any:
        """Return the CSR matrix."""
        data = np.ones(len(self.indices), dtype=np.float32) if self.data is None else self.data
        index = np.int64 if len(self.indices) > np.iinfo(np.int32).max else np.int32
        indices, indptr = self.indices.astype(index, copy=False), self.indptr.astype(index)
        return sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_items))


class MergedArrays:
    """The arrays of `Merged`, filled part by part with pairs from `pairs`.

    Parameters
    ----------
    n_users : number of rows of the matrix
    size : the largest number of pairs
    binary : whether every pair counts 1
    times : type of the times; None when there are none
    ordered : whether the pairs have ranks
    """

    def __init__(self, n_users: int, size: int, binary: bool, times: Any, ordered: bool) -> None:
        self.indptr = np.zeros(n_users + 1, dtype=np.int64)
        self._indices = np.empty(size, dtype=np.int32)
        self._data = None if binary else np.empty(size, dtype=np.float32)
        self._times = None if times is None else np.empty(size, dtype=times)
        self._last_times = None if times is None else np.empty(size, dtype=times)
        self._order = np.empty(size, dtype=np.int32) if ordered else None
        self._repeated = self._ties = False

    def put(self, places: Any, distinct: LogRows) -> None:
        """Put pairs at these places of the arrays."""
        self._indices[places] = distinct.items
        by_pair: tuple[Any, ...] = (distinct.weights, distinct.times, distinct.latest, distinct.numbers)
        for array, values in zip((self._data, self._times, self._last_times, self._order), by_pair, strict=True):
            if array is not None:
                array[places] = values
        if distinct.times is not None and not self._repeated:
            self._repeated = bool((distinct.times != distinct.latest).any())
        self._ties = self._ties or _ties_decide(distinct)

    def finish(self, size: int) -> Merged:
        """The first `size` pairs; `indptr` is final."""
        last_times = self._last_times if self._repeated else None
        order = self._order if self._ties else None
        self._last_times = self._order = None
        arrays: tuple[Any, ...] = (self._indices, self._data, self._times, last_times, order)
        for array in arrays:
            if array is not None:
                array.resize(size, refcheck=False)  # releases the unused tail without a copy
        return Merged(self.indptr, *arrays)


def merged(
    users: npt.NDArray[np.int32],
    items: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32] | None,
    times: npt.NDArray[Any] | None,
    n_users: int,
    binary: bool,
    *,
    last_times: npt.NDArray[Any] | None = None,
    numbers: npt.NDArray[np.int64] | None = None,
    in_order: bool = False,
) -> Merged:
    """Sort the rows of a log by user and item and merge repeats: weights are added, the first and last times stay.

    One range of users is sorted at a time, so that the 64-bit keys never exist for the whole log.

    Parameters
    ----------
    times, last_times : first and last time of each row; None: no times, or no other last times
    numbers : numbers by which rows at the same last time are ordered; by default their places
    in_order : whether rows without times stand in order
    """
    ordered = in_order or times is not None or numbers is not None
    arrays = MergedArrays(n_users, len(users), binary, None if times is None else times.dtype, ordered)
    indptr, end = arrays.indptr, 0
    for low, high in _spans(users, n_users):
        rows = _between(users, low, high)
        by_row = (None if binary else weights, None, times, last_times, numbers)
        fields: list[Any] = [None if values is None else values[rows] for values in by_row]
        fields[-1] = rows if ordered and numbers is None else fields[-1]
        distinct = pairs(LogRows(keys_of(users[rows], items[rows]), *fields), binary)
        arrays.put(slice(end, end + len(distinct)), distinct)
        indptr[low + 1 : high + 1] = np.bincount(distinct.users - low, minlength=high - low)
        end += len(distinct)
    np.cumsum(indptr, out=indptr)
    return arrays.finish(end)


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
