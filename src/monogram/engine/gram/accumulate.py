"""Gram matrices of sparse data, written into the array that a solver then factors in place.

G = Aᵀ·diag(w)·A for a sparse A (rows × n). With A = X it is the item Gram S; with A = Xᵀ and w = 1/ℓ it is
X·Λ⁻¹·Xᵀ of the dual. With a time kernel each product x_ui·x_uj counts k(|t_ui − t_uj|). Only the lower triangle is
written. Each column is summed in float64 by one thread in a fixed order, so the result does not depend on the number of
threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.kernel_table import fill_products, kernel_table
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.jit import kernel as compiled


def squares(matrix: Csr, weights: Float64 | None = None, slab: int = 1_000_000) -> Float64:
    """Diagonal of the Gram matrix: Σ w·x² of each column, in float64, computed in slabs of events."""
    total = np.zeros(matrix.shape[1])
    rows = None if weights is None else np.searchsorted(matrix.indptr, np.arange(matrix.nnz), side="right") - 1
    for start in range(0, matrix.nnz, slab):
        part = slice(start, start + slab)
        values = matrix.data[part].astype(np.float64) ** 2
        if weights is not None and rows is not None:
            values *= weights[rows[part]]
        total += np.bincount(matrix.indices[part], values, matrix.shape[1])
    return total


def row_sums(matrix: Csr) -> Float64:
    """The sum of each row, in float64 (`matrix.sum` of SciPy adds in the precision of the data)."""
    return np.asarray(matrix @ np.ones(matrix.shape[1]))


def gram(
    matrix: Csr,
    out: Float,
    *,
    weights: Float64 | None = None,
    kernel: TimeKernel | None = None,
    threads: int = 1,
    done: Any = None,
) -> None:
    """Write the lower triangle of Aᵀ·diag(w)·A, or of the Gram matrix of a time kernel, into `out`.

    Parameters
    ----------
    matrix : CSR, rows × n, sorted indices
    out : ndarray, n × n, Fortran-ordered
        The entries above the diagonal are not written.
    weights : float64 array, one weight for each row, optional
    kernel : the time kernel on the entries of the matrix, optional
    threads : int
    done : callable, optional
        Receives the number of finished columns, for progress.
    """
    GramColumns(matrix, weights, threads, kernel).write(out, done=done)


class GramColumns:
    """Computes the lower triangle of Aᵀ·diag(w)·A, or that of a time kernel, in panels of columns; see `gram`."""

    def __init__(
        self,
        matrix: Csr,
        weights: Float64 | None = None,
        threads: int = 1,
        kernel: TimeKernel | None = None,
    ) -> None:
        rows, self.n = matrix.shape
        weights = np.ones(rows) if weights is None else np.ascontiguousarray(weights, np.float64)
        self._lists = *by_column(matrix), matrix.indptr, matrix.indices
        self._data, self._weights, self._kernel, self._threads = matrix.data, weights, kernel, threads
        self._by_dtype: dict[Any, tuple[Any, tuple[Any, ...]]] = {}

    def write(self, out: Float, first: int = 0, top: int = 0, done: Any = None) -> None:
        """Fill `out` with the columns that start at `first`, from row `top` on (top ≤ first)."""
        width, n = out.shape[1], self.n
        fill, data = self._loop(out.dtype)

        def columns(start: int, stop: int) -> None:
            fill(*data, out, first + start, first + stop, top, first, np.empty(n))

        parallel.parallel_for(columns, width, max(16, min(256, width // (8 * self._threads) + 1)), self._threads, done)

    def _loop(self, dtype: Any) -> tuple[Any, tuple[Any, ...]]:
        """The loop over columns for results of a type, and its data."""
        if dtype not in self._by_dtype:
            self._by_dtype[dtype] = self._choose(dtype)
        return self._by_dtype[dtype]

    def _choose(self, dtype: Any) -> tuple[Any, tuple[Any, ...]]:
        kernel = self._kernel
        if kernel is None:
            return _columns, (*self._lists, self._data, self._weights)
        if dtype == np.float32 and np.issubdtype(kernel.positions.dtype, np.floating):
            from monogram.engine.gram import time_simd  # imports numba

            if kernel.decay <= time_simd.MOST_DECAY:
                missing = max(0, time_simd.LANES - len(self._data))
                data, positions = (
                    np.pad(array, (0, missing)) if missing else np.ascontiguousarray(array)
                    for array in (self._data, np.asarray(kernel.positions, np.float64))
                )
                constants = time_simd.constants(kernel)
                return time_simd.power_columns, (*self._lists, data, self._weights, positions, *constants)
        return _timed_columns, (*self._lists, self._data, self._weights, *kernel_table(kernel).arrays)


def by_column(matrix: Csr) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Column pointers of a CSR matrix, and by column the row and the CSR position of each entry."""
    counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    owners = np.empty(matrix.nnz, np.int32)
    places = np.empty(matrix.nnz, np.int64)
    _scatter(matrix.indptr, matrix.indices, pointers[:-1].copy(), owners, places)
    return pointers, owners, places


@compiled
def _scatter(indptr: Any, indices: Any, cursor: Any, owners: Any, places: Any) -> None:
    for row in range(len(indptr) - 1):
        for place in range(indptr[row], indptr[row + 1]):
            column = indices[place]
            owners[cursor[column]] = row
            places[cursor[column]] = place
            cursor[column] += 1


@compiled
def _columns(
    pointers: Any,
    owners: Any,
    places: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    weights: Any,
    out: Any,
    start: int,
    stop: int,
    top: int,
    left: int,
    total: Any,
) -> None:
    n = len(total)
    for j in range(start, stop):
        total[j:] = 0.0
        for p in range(pointers[j], pointers[j + 1]):
            row = owners[p]
            first = places[p]
            factor = weights[row] * np.float64(data[first])
            for q in range(first, indptr[row + 1]):  # indices are sorted: columns from j on
                total[indices[q]] += factor * data[q]
        for i in range(j, n):
            out[i - top, j - left] = total[i]


@compiled
def _timed_columns(
    pointers: Any,
    owners: Any,
    places: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    weights: Any,
    positions: Any,
    table: Any,
    shift: int,
    out: Any,
    start: int,
    stop: int,
    top: int,
    left: int,
    total: Any,
) -> None:
    n = len(total)
    products = np.empty(n)  # an item occurs once in a row
    for j in range(start, stop):
        total[j:] = 0.0
        for p in range(pointers[j], pointers[j + 1]):
            row = owners[p]
            first, last = places[p], indptr[row + 1]
            factor = weights[row] * np.float64(data[first])
            fill_products(table, shift, positions[first], positions[first:last], factor, data[first:last], products)
            columns = indices[first:last]
            for q in range(len(columns)):
                total[columns[q]] += products[q]
        for i in range(j, n):
            out[i - top, j - left] = total[i]
