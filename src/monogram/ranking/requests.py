"""Requests as CSR rows: known users, given histories or items, with a label for each row and the unknown ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from monogram.errors import ParameterError
from monogram.ranking.ids import IdScalar, as_python, id_list, is_matrix, short_repr, shorten, unknown_ids

FEW = 256  # rows up to which slices of the log are quicker than SciPy's row selection
LARGEST = float(np.finfo(np.float32).max)

History = tuple[Sequence[Any], Float64 | None]  # item ids, and a weight for each; None: every item counts 1


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


def known_users(users: Any, log: Interactions) -> Histories:
    """The training histories of users by id; None means every user of the log."""
    if users is None:
        return Histories.from_matrix(log.matrix, np.arange(log.n_users), log.users)
    return user_histories(id_list(users, "the list of users"), log)


def user_histories(users: Sequence[Any], log: Interactions) -> Histories:
    """The training histories of users by id; unknown users are left out."""
    index = log.users.index(users)
    positions = np.flatnonzero(index >= 0)
    unknown = tuple(unknown_ids(users, index))
    rows = index[positions]
    return training_histories(rows, log, unknown_users=unknown, n_requests=len(users), positions=positions)


def training_histories(rows: Indices, log: Interactions, **unknown: Any) -> Histories:
    """The training histories of users by their indices in the log."""
    matrix = log.matrix
    if len(rows) > FEW:
        return Histories.from_matrix(matrix[rows], rows, log.users, **unknown)
    spans = [slice(matrix.indptr[row], matrix.indptr[row + 1]) for row in rows]
    arrays = _concatenated([matrix.indices[span] for span in spans], [matrix.data[span] for span in spans], log)
    return Histories(*arrays, log.n_items, rows, log.users, **unknown)


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


def given_histories(histories: Any, log: Interactions) -> Histories:
    """Histories given by their content: lists of item ids, mappings from item id to weight, or an Interactions.

    See `merged_histories` for how repeated items and weights count.
    """
    if isinstance(histories, Interactions):
        histories = [histories.history(user) for user in histories.users]
    histories = as_python(histories)
    if is_matrix(histories):
        raise ParameterError(
            f"histories is a matrix ({type(histories).__name__}); expected a list of histories, each a list of item "
            "ids, or an Interactions: monogram.Interactions.from_csr(matrix, items=…)"
        )
    if isinstance(histories, str | Mapping) or not isinstance(histories, Iterable):
        raise ParameterError(
            f"histories = {short_repr(histories)}; expected a list of histories, each a list of item ids"
        )
    return merged_histories([_checked(history, position) for position, history in enumerate(histories)], log)


def merged_histories(histories: Sequence[History], log: Interactions) -> Histories:
    """Checked histories as rows, labelled by their positions.

    They are merged as the log was. On a "binary" log every item of a history counts 1, whatever its weight; an item of
    weight 0 is left out. On a "sum" log weights count, and an item named twice counts twice.
    """
    index = log.items.index([id_ for ids, _ in histories for id_ in ids])
    items, weights, start = [], [], 0
    unknown: dict[Any, None] = {}
    for ids, values in histories:
        positions = index[start : start + len(ids)]
        start += len(ids)
        if missing := unknown_ids(ids, positions):
            unknown |= dict.fromkeys(missing)
        row_items, row_weights = _merged(positions, values, log.merge == "binary")
        items.append(row_items)
        weights.append(row_weights)
    arrays = _concatenated(items, weights, log)
    return Histories(*arrays, log.n_items, np.arange(len(histories)), unknown_items=tuple(unknown))


def _merged(positions: Indices, values: Float64 | None, binary: bool) -> tuple[Indices, NDArray[np.float32]]:
    """The sorted known items of one history, and their weights."""
    keep = positions >= 0
    if values is None:
        positions = positions[keep]
        values = np.ones(len(positions))
    else:
        keep &= values > 0
        positions, values = positions[keep], np.minimum(values[keep], LARGEST)
    items, inverse = np.unique(positions, return_inverse=True)
    if binary:
        return items, np.ones(len(items), np.float32)
    return items, np.bincount(inverse, values, len(items)).astype(np.float32)


def _concatenated(
    items: list[NDArray[Any]], weights: list[NDArray[Any]], log: Interactions
) -> tuple[Indices, NDArray[Any], NDArray[Any]]:
    """CSR arrays of rows, with the dtypes of the log also where there is no row."""
    pointers = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(row) for row in items], out=pointers[1:])
    matrix = log.matrix
    all_items = np.concatenate([matrix.indices[:0], *items]).astype(matrix.indices.dtype, copy=False)
    return pointers, all_items, np.concatenate([matrix.data[:0], *weights])


def _checked(history: Any, position: int) -> History:
    """The ids and weights of one history of a caller."""
    history = as_python(history)
    if isinstance(history, IdScalar) or not isinstance(history, Iterable) or is_matrix(history):
        raise ParameterError(
            f"history {position} is {short_repr(history)}; expected a list of item ids. For one history, write [[…]]"
        )
    ids = id_list(history, f"history {position}")
    return ids, _weights(history, position) if isinstance(history, Mapping) else None


def _weights(history: Mapping[Any, Any], position: int) -> Float64:
    weights = np.array([_number(value) for value in history.values()], np.float64)
    for item, value, weight in zip(history, history.values(), weights, strict=True):
        if not 0 <= weight <= LARGEST:
            raise ParameterError(
                f"history {position} gives {shorten(item)} the weight {short_repr(value)}; "
                "expected a finite number of at least 0"
            )
    return weights


def _number(value: Any) -> float:
    """The value as a float; NaN where it is not a number."""
    try:
        return float(as_python(value))
    except (TypeError, ValueError, OverflowError):
        return np.nan
