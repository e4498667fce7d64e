"""Rows of the item Gram S = XᵀX without an n × n array.

A row is stored sparse, or dense where that takes less memory (an item that shares users with half of the others), or
not at all where the memory does not suffice: then it is made from the data wherever it is needed. The rows of popular
items are stored first, because they take longest to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import by_column, squares
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.jit import fused, kernel

ABSENT = -1  # length of a row that is not stored
CHUNK = 64  # rows made at a time


@dataclass(frozen=True)
class SparseRows:
    """The Gram matrix by rows.

    Attributes
    ----------
    data : X by user and by item; makes the rows that are not stored
    rows : offsets, lengths and offsets of the indices of the stored rows, their indices and their values
        A row of length n is dense, and has no indices.
    diagonal : d = diag S
    nonnegative : whether no entry of X, and so none of S, is negative
    """

    data: tuple[Any, ...]
    rows: tuple[Any, ...]
    diagonal: Float64
    nonnegative: bool

    @property
    def n(self) -> int:
        """The number of items."""
        return len(self.diagonal)

    @property
    def source(self) -> tuple[Any, ...]:
        """All arrays, as the kernels take them."""
        return self.rows + self.data

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.rows[4].dtype

    @property
    def nbytes(self) -> int:
        """The bytes of the stored rows."""
        return sum(int(array.nbytes) for array in self.rows)


def row_bytes(products: NDArray[Any], n: int, dtype: Any) -> NDArray[np.int64]:
    """The largest number of bytes of each stored row, from the number of products that it is the sum of."""
    width = np.dtype(dtype).itemsize
    return np.asarray(np.minimum(products * (4 + width), n * width), np.int64)


def sparse_rows(matrix: Csr, *, dtype: Any = np.float32, most: float = np.inf, threads: int = 1) -> SparseRows:
    """The rows of XᵀX, as many of them stored as `most` bytes allow.

    Parameters
    ----------
    matrix : X, CSR with sorted indices
    dtype : of the stored values; each entry is summed in float64
    """
    n = matrix.shape[1]
    data = (matrix.indptr, matrix.indices, matrix.data, *by_column(matrix))
    lengths_of_users = np.diff(matrix.indptr).astype(np.float64)
    products = np.asarray(np.bincount(matrix.indices, np.repeat(lengths_of_users, np.diff(matrix.indptr)), n))
    stored = _affordable(products, row_bytes(products, n, dtype), most)
    dense = stored & (row_bytes(products, n, dtype) == n * np.dtype(dtype).itemsize)
    lengths = np.where(dense, n, ABSENT).astype(np.int64)
    listed = np.flatnonzero(stored & ~dense)

    def count(start: int, stop: int) -> None:
        found, mark = np.empty(n, np.int32), np.full(n, -1, np.int32)
        for i in listed[start:stop].tolist():
            lengths[i] = _list(data, i, found, mark)

    parallel.parallel_for(count, len(listed), CHUNK * 8, threads)
    offsets, places = _offsets(np.maximum(lengths, 0)), _offsets(np.where(dense, 0, np.maximum(lengths, 0)))
    rows = (offsets, lengths, places, np.empty(places[-1], np.int32), np.empty(offsets[-1], dtype))
    chosen = np.flatnonzero(stored)

    def fill(start: int, stop: int) -> None:
        _fill(data, chosen[start:stop], rows, np.zeros(n), np.full(n, -1, np.int32))

    parallel.parallel_for(fill, len(chosen), CHUNK, threads)
    return SparseRows(data, rows, squares(matrix), bool(matrix.data.min(initial=0) >= 0))


def _affordable(products: NDArray[Any], needed: NDArray[np.int64], most: float) -> NDArray[np.bool_]:
    """Which rows are stored: in the order of the work that it takes to make them, as many as fit."""
    order = np.argsort(-products, kind="stable")
    stored = np.zeros(len(products), bool)
    stored[order[np.cumsum(needed[order]) <= most]] = True
    return stored


def _offsets(lengths: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@kernel
def _fill(data: Any, items: Any, rows: Any, total: Any, mark: Any) -> None:
    """Write rows; `total` is an array of zeros, and is so again afterwards."""
    offsets, lengths, places, columns, values = rows
    n = len(total)
    for i in items:
        first, place = offsets[i], places[i]
        _make(data, i, 1.0, total)
        if lengths[i] == n:
            for k in range(n):
                values[first + k] = total[k]
                total[k] = 0.0
            continue
        _list(data, i, columns[place : place + lengths[i]], mark)
        for t in range(lengths[i]):
            k = columns[place + t]
            values[first + t] = total[k]
            total[k] = 0.0


@kernel
def _list(data: Any, i: int, found: Any, mark: Any) -> int:
    """List the columns of the entries of a row, each once; their number."""
    indptr, indices, _, pointers, owners, _ = data
    number = 0
    for p in range(pointers[i], pointers[i + 1]):
        user = owners[p]
        for q in range(indptr[user], indptr[user + 1]):
            k = indices[q]
            if mark[k] != i:
                mark[k] = i
                found[number] = k
                number += 1
    return number


@kernel
def _make(data: Any, i: int, scale: float, out: Any) -> None:
    """out += scale · row i, made from the data."""
    indptr, indices, weights, pointers, owners, entries = data
    for p in range(pointers[i], pointers[i + 1]):
        user = owners[p]
        factor = scale * weights[entries[p]]
        for q in range(indptr[user], indptr[user + 1]):
            out[indices[q]] += factor * weights[q]


@fused
def add_row(source: Any, i: int, scale: Any, out: Any) -> None:
    """out += scale · row i of S."""
    offsets, lengths, places, columns, values = source[:5]
    length, first, place = lengths[i], offsets[i], places[i]
    if length == len(out):
        row = values[first : first + length]
        for k in range(length):
            out[k] += scale * row[k]
    elif length >= 0:
        for t in range(length):
            out[columns[place + t]] += scale * values[first + t]
    else:
        _make(source[5:], i, scale, out)


@kernel
def gather_row(source: Any, i: int, items: Any, number: int, place: Any, out: Any, total: Any) -> None:
    """out[place[k]] = S_ik for some items: `place` has their places in `items`, and −1 for all others."""
    offsets, lengths, places, columns, values = source[:5]
    length, first = lengths[i], offsets[i]
    if length == len(place):
        row = values[first : first + length]
        for k in range(number):
            out[k] = row[items[k]]
        return
    if length < 0:
        total[:] = 0
        _make(source[5:], i, total.dtype.type(1), total)
        for k in range(number):
            out[k] = total[items[k]]
        return
    out[:number] = 0
    listed = columns[places[i] : places[i] + length]
    for t in range(length):
        at = place[listed[t]]
        if at >= 0:
            out[at] = values[first + t]
