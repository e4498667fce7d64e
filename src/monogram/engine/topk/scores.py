"""Scores of a few histories, as plain arrays: for `score`, `explain` and checks (ranking goes through topk)."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    """The same for a CSR matrix: the sums, and so the scores, are those of `best_by_sparse_rows` to the last bit."""
    out = np.empty((histories.shape[0], len(columns)))
    data = histories.data.astype(np.float64)

    def block(start: int, stop: int) -> None:
        total = np.empty(matrix.shape[1])
        for user in range(start, stop):
            part = slice(histories.indptr[user], histories.indptr[user + 1])
            total[:] = 0.0
            add_sparse_rows(matrix.indptr, matrix.indices, matrix.data, histories.indices[part], data[part], total)
            out[user] = total[columns]

    parallel.parallel_for(block, len(out), max(1, len(out) // (4 * threads)), threads)
    return out


@kernel
def add_sparse_rows(pointers: Any, columns: Any, values: Any, rows: Any, factors: Any, total: Any) -> None:
    """Add factors[p] times row rows[p] of a CSR matrix to the total."""
    for p in range(len(rows)):
        for t in range(pointers[rows[p]], pointers[rows[p] + 1]):
            total[columns[t]] += factors[p] * values[t]


@kernel
def _sum_rows(matrix: Any, indptr: Any, indices: Any, data: Any, columns: Any, out: Any, start: int, stop: int) -> None:
    for user in range(start, stop):
        for p in range(indptr[user], indptr[user + 1]):
            row = matrix[indices[p]]
            for t in range(len(columns)):
                out[user, t] += data[p] * row[columns[t]]
