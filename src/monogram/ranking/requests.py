"""Requests as CSR rows: known users, given histories or items, with a label for each row and the unknown ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.id_arrays import arrow_numbers
from monogram.data.interactions import Interactions
from monogram.data.vocabulary import Vocabulary
from monogram.engine.runtime.arrays import Csr, Float64, Indices
from monogram.ranking.ages import FEW, Aging, weighted
from monogram.ranking.events import LARGEST, History, checked_histories, histories_of
from monogram.ranking.ids import id_list, unknown_ids
from monogram.ranking.recency import NO_RECENCY, Recency


@dataclass(eq=False)
class Histories:
    """A batch of histories in CSR form, a label for each row, and the requested ids that are unknown.

    It is not changed once it is made; it is not declared frozen, which would double the time to make one.

    Parameters
    ----------
    pointers, items, weights : arrays
        Row r holds items[pointers[r] : pointers[r + 1]], sorted, and their weights.
    n_items : int
        Size of the catalogue.
    label_index : array
        For each row the index of its label in `vocabulary`; without a vocabulary the label itself, a position.
    vocabulary : Vocabulary, optional
        The ids that label the rows.
    unknown_users, unknown_items : tuple
        Ids in the request that the log does not have; they were left out.
    n_requests : int, optional
        Number of requests, unknown users included; by default the number of rows.
    positions : array, optional
        Position of each row among the requests; by default every request has a row.
    """

    pointers: Indices
    items: NDArray[Any]
    weights: NDArray[Any]
    n_items: int
    label_index: Indices
    vocabulary: Vocabulary | None = None
    unknown_users: tuple[Any, ...] = ()
    unknown_items: tuple[Any, ...] = ()
    n_requests: int | None = None
    positions: Indices | None = None

    @classmethod
    def from_matrix(cls, matrix: Csr, label_index: Indices, vocabulary: Vocabulary, **unknown: Any) -> Histories:
        """Histories over the arrays of a CSR matrix."""
        histories = cls(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1], label_index, vocabulary, **unknown)
        histories.__dict__["matrix"] = matrix
        return histories

    @classmethod
    def stack(cls, batches: Sequence[Histories]) -> Histories:
        """The rows of several batches, one after the other, labelled by their positions."""
        if len(batches) == 1:
            return batches[0]
        shifts = np.cumsum([0, *(batch.pointers[-1] for batch in batches)])
        ends = [batch.pointers[1:] + shift for batch, shift in zip(batches, shifts, strict=False)]
        pointers = np.concatenate([np.zeros(1, np.int64), *ends])
        items = np.concatenate([batch.items for batch in batches])
        weights = np.concatenate([batch.weights for batch in batches])
        return cls(pointers, items, weights, batches[0].n_items, np.arange(len(pointers) - 1))

    def __len__(self) -> int:
        return len(self.label_index)

    @cached_property
    def matrix(self) -> Csr:
        """The histories as a CSR matrix, histories × items."""
        return sp.csr_array((self.weights, self.items, self.pointers), shape=(len(self), self.n_items))

    def span(self, row: int) -> slice:
        """Where the entries of a row are in `items` and `weights`."""
        return slice(int(self.pointers[row]), int(self.pointers[row + 1]))

    def row_matrix(self, row: int) -> Csr:
        """One row as a CSR matrix."""
        if len(self) == 1:
            return self.matrix
        span = self.span(row)
        pointers = np.array([0, span.stop - span.start])
        return sp.csr_array((self.weights[span], self.items[span], pointers), shape=(1, self.n_items))

    def empty_rows(self) -> Indices:
        """Rows without a known item: their scores hold no information."""
        return np.flatnonzero(np.diff(self.pointers) == 0)

    def labels(self) -> list[Any]:
        """The label of each row: an id, or a position."""
        if self.vocabulary is None:
            return list(self.label_index.tolist())
        return self.vocabulary.ids(self.label_index) if len(self) else []

    def label_column(self, rows: Indices) -> Any:
        """The labels of some rows as an Arrow array."""
        chosen = self.label_index[rows]
        return arrow_numbers(chosen) if self.vocabulary is None else self.vocabulary.take(chosen)


def known_users(users: Any, log: Interactions, recency: Recency = NO_RECENCY, at: Any = None) -> Histories:
    """The training histories of users by id; None means every user of the log.

    Parameters
    ----------
    recency : how their events are weighted by their age
    at : the time of asking, a date or a number in the unit of the log's times; None: each user's latest event
    """
    if users is None:
        matrix, rows = log.matrix, np.arange(log.n_users)
        aging = Aging.of(recency, log, at)
        if aging is not None:
            factors = aging.of_users(rows, np.arange(log.n_events), matrix.indptr[1:])
            matrix = sp.csr_array((weighted(matrix.data, factors), matrix.indices, matrix.indptr), shape=matrix.shape)
            matrix.has_canonical_format = True
        return Histories.from_matrix(matrix, rows, log.users)
    return user_histories(id_list(users, "the list of users"), log, recency, at)


def user_histories(users: Sequence[Any], log: Interactions, recency: Recency = NO_RECENCY, at: Any = None) -> Histories:
    """The training histories of users by id; unknown users are left out. `recency`, `at`: as of `known_users`."""
    index = log.users.index(users)
    positions = np.flatnonzero(index >= 0)
    unknown = tuple(unknown_ids(users, index))
    rows = index[positions]
    return training_histories(rows, log, recency, at, unknown_users=unknown, n_requests=len(users), positions=positions)


def training_histories(
    rows: Indices, log: Interactions, recency: Recency = NO_RECENCY, at: Any = None, **unknown: Any
) -> Histories:
    """The training histories of users by their indices in the log. `recency`, `at`: as of `known_users`."""
    matrix = log.matrix
    aging = Aging.of(recency, log, at)
    if aging is not None:
        return _by_age(rows, aging, **unknown)
    if len(rows) > FEW:
        return Histories.from_matrix(matrix[rows], rows, log.users, **unknown)
    spans = [slice(matrix.indptr[row], matrix.indptr[row + 1]) for row in rows]
    arrays = _concatenated([matrix.indices[span] for span in spans], [matrix.data[span] for span in spans], log)
    return Histories(*arrays, log.n_items, rows, log.users, **unknown)


def _by_age(rows: Indices, aging: Aging, **unknown: Any) -> Histories:
    """The training histories of users, weighted by the age of their events."""
    log, matrix = aging.log, aging.log.matrix
    starts = matrix.indptr[rows].astype(np.int64)
    lengths = matrix.indptr[np.asarray(rows) + 1] - starts
    pointers = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=pointers[1:])
    places = np.repeat(starts - pointers[:-1], lengths) + np.arange(pointers[-1])
    weights = weighted(matrix.data[places], aging.of_users(rows, places, pointers[1:]))
    return Histories(pointers, matrix.indices[places], weights, log.n_items, rows, log.users, **unknown)


def item_histories(ids: Sequence[Any], log: Interactions) -> Histories:
    """For each known item a history of this item alone, labelled by the item: the requests of `similar`."""
    index = log.items.index(ids)
    known = index[index >= 0]
    items = known.astype(log.matrix.indices.dtype)
    weights = np.ones(len(known), np.float32)
    unknown = tuple(unknown_ids(ids, index))
    return Histories(
        np.arange(len(known) + 1), items, weights, log.n_items, known, log.items, unknown_items=unknown
    )  # fmt: skip


def given_histories(histories: Any, log: Interactions, recency: Recency = NO_RECENCY, at: Any = None) -> Histories:
    """Histories given by their content: lists of item ids, mappings from item id to weight, or an Interactions.

    Lists and mappings are in order, the oldest item first. A list may hold events with times in place of ids, as pairs
    (item, time) or as mappings {"item": …, "time": …, "weight": …}. See `merged_histories` for how repeated items,
    weights and ages count.
    """
    if isinstance(histories, Interactions):
        return merged_histories(histories_of(histories, recency, log.unit_of_times), log, recency, at)
    return merged_histories(checked_histories(histories, recency), log, recency, at)


def merged_histories(
    histories: Sequence[History], log: Interactions, recency: Recency = NO_RECENCY, at: Any = None
) -> Histories:
    """Checked histories as rows, labelled by their positions.

    They are merged as the log was. On a "binary" log every item of a history counts 1, whatever its weight; an item of
    weight 0 is left out. On a "sum" log weights count, and an item named twice counts twice.

    The age of an item is that of its last event. Unknown items are left out before ages are counted.

    Parameters
    ----------
    histories : (ids, weights, times) of each, the oldest event first unless times are given
        Weights and times may be None; a time is a date, or a number in the unit of the log's times.
    recency : how events are weighted by their age
    at : the time of asking; None: the latest event of each history
    """
    aging = Aging.of(recency, log, at)
    index = log.items.index([id_ for ids, _, _ in histories for id_ in ids])
    items, weights, start = [], [], 0
    unknown: dict[Any, None] = {}
    for number, (ids, values, times) in enumerate(histories):
        positions = index[start : start + len(ids)]
        start += len(ids)
        if missing := unknown_ids(ids, positions):
            unknown |= dict.fromkeys(missing)
        keep = positions >= 0 if values is None else (positions >= 0) & (values > 0)
        row_items, inverse, row_weights = _merged(positions[keep], values, keep, log.merge == "binary")
        if aging is not None:
            known_times = None if times is None else _selected(times, keep)
            factors = aging.of_history(inverse, len(row_items), known_times, number)
            row_weights = weighted(row_weights, factors)
        items.append(row_items)
        weights.append(row_weights)
    arrays = _concatenated(items, weights, log)
    return Histories(*arrays, log.n_items, np.arange(len(histories)), unknown_items=tuple(unknown))


def _merged(
    positions: Indices, values: Float64 | None, keep: NDArray[np.bool_], binary: bool
) -> tuple[Indices, Indices, NDArray[np.float32]]:
    """The sorted items of one history, the item of each of its events, and the weights of the items."""
    items, inverse = np.unique(positions, return_inverse=True)
    if binary:
        return items, inverse, np.ones(len(items), np.float32)
    counted = np.ones(len(positions)) if values is None else np.minimum(values[keep], LARGEST)
    return items, inverse, np.bincount(inverse, counted, len(items)).astype(np.float32)


def _selected(times: Any, keep: NDArray[np.bool_]) -> Any:
    """The times of the events that are kept."""
    if isinstance(times, np.ndarray):
        return times[keep]
    return [time for time, kept in zip(times, keep.tolist(), strict=True) if kept]


def _concatenated(
    items: list[NDArray[Any]], weights: list[NDArray[Any]], log: Interactions
) -> tuple[Indices, NDArray[Any], NDArray[Any]]:
    """CSR arrays of rows, with the dtypes of the log also where there is no row."""
    pointers = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(row) for row in items], out=pointers[1:])
    matrix = log.matrix
    all_items = np.concatenate([matrix.indices[:0], *items]).astype(matrix.indices.dtype, copy=False)
    return pointers, all_items, np.concatenate([matrix.data[:0], *weights])
