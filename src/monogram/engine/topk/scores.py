"""Scores of a few histories as dense arrays, for `score` and `explain`; ranking uses the top-k modules."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.runtime.jit import kernel


def sum_rows(matrix: Float, histories: Csr, columns: Indices, *, threads: int = 1) -> Float64:
    """Σ h_i·matrix[i, columns] for each history, in float64 and in the order of the items."""
    out = np.zeros((histories.shape[0], len(columns)))
    data = histories.data.astype(np.float64)

    def block(start: int, stop: int) -> None:
        _sum_rows(matrix, histories.indptr, histories.indices, data, columns, out, start, stop)

    parallel.parallel_for(block, len(out), max(1, len(out) // (4 * threads)), threads)
    return out


def sum_sparse_rows(matrix: Csr, histories: Csr, columns: Indices, *, threads: int = 1) -> Float64:
    """The same for a CSR matrix, bit-identical to the scores of `best_by_sparse_rows`."""
    out = np.empty((histories.shape[0], len(columns)))
    data = histories.data.astype(np.float64)

    def block(start: int, stop: int) -> None:
        _sum_sparse_rows(
            matrix.indptr,
            matrix.indices,
            matrix.data,
            histories.indptr,
            histories.indices,
            data,
            columns,
            out,
            start,
            stop,
            *sums(matrix.shape[1]),
        )

    parallel.parallel_for(block, len(out), max(1, len(out) // (4 * threads)), threads)
    return out


def entries(matrix: Csr, rows: NDArray[Any], column: int) -> Float64:
    """Entries of one column of a CSR matrix with sorted indices, in float64; a binary search in each row."""
    out = np.zeros(len(rows))
    _entries(matrix.indptr, matrix.indices, matrix.data, rows, column, out)
    return out


def sums(size: int) -> tuple[Float64, NDArray[np.bool_], Indices]:
    """Arrays for `add_sparse_rows`: the total of each item, whether it was summed, and the summed items."""
    return np.zeros(size), np.zeros(size, np.bool_), np.empty(size, np.int64)


@kernel
def add_sparse_rows(
    pointers: Any, columns: Any, values: Any, rows: Any, factors: Any, total: Any, is_summed: Any, summed: Any
) -> int:
    """Add factors[p] times row rows[p] of a CSR matrix to the total, and list the items of the rows; their number."""
    number = 0
    for p in range(len(rows)):
        for t in range(pointers[rows[p]], pointers[rows[p] + 1]):
            j = columns[t]
            if not is_summed[j]:
                is_summed[j], summed[number] = True, j
                number += 1
            total[j] += factors[p] * values[t]
    return number


@kernel
def clear(total: Any, is_summed: Any, summed: Any) -> None:
    """Reset the arrays of `add_sparse_rows` at the summed items."""
    for j in summed:
        total[j], is_summed[j] = 0.0, False


@kernel
def _sum_sparse_rows(
    pointers: Any,
    matrix_columns: Any,
    values: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    columns: Any,
    out: Any,
    start: int,
    stop: int,
    total: Any,
    is_summed: Any,
    summed: Any,
) -> None:
    for user in range(start, stop):
        part = slice(indptr[user], indptr[user + 1])
        number = add_sparse_rows(pointers, matrix_columns, values, indices[part], data[part], total, is_summed, summed)
        for t in range(len(columns)):
            out[user, t] = total[columns[t]]
        clear(total, is_summed, summed[:number])


@kernel
def _entries(pointers: Any, columns: Any, values: Any, rows: Any, column: int, out: Any) -> None:
    for t in range(len(rows)):
        start, stop = pointers[rows[t]], pointers[rows[t] + 1]
        at = start + np.searchsorted(columns[start:stop], column)
        if at < stop and columns[at] == column:
            out[t] = values[at]


@kernel
def _sum_rows(matrix: Any, indptr: Any, indices: Any, data: Any, columns: Any, out: Any, start: int, stop: int) -> None:
    for user in range(start, stop):
        for p in range(indptr[user], indptr[user + 1]):
            row = matrix[indices[p]]
            for t in range(len(columns)):
                out[user, t] += data[p] * row[columns[t]]
