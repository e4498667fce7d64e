"""The moments of session models: pairs of items of a session, and of its past and future at every cut.

A session with the items at positions 0 … L − 1 is cut at c = 1 … L − 1: the past is positions below c, the future the
rest. An item of the past at distance c − 1 − a from the cut counts q^(c − 1 − a), an item of the future q^(b − c). With
A and T the rows of all pasts and futures,

    (AᵀA)_ab = q^(b − a)·Σ_{m < L − 1 − b} q^(2m)     positions a ≤ b: both are in the past of the cuts after b
    (AᵀT)_ab = (b − a)·q^(b − a − 1)                  positions a < b: there are b − a cuts between them, else 0

so that no cut is visited: the moments cost the Σ L² of XᵀX. Every column is summed in float64 by one thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import by_column
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.jit import kernel

DENSE_SHARE = 0.25  # a cross moment with a larger share of its entries is an array: from there on it takes less memory


def session_moments(
    matrix: Csr,
    positions: NDArray[np.int32] | None,
    second: Float,
    *,
    alpha: float = 1.0,
    decay: float = 0.0,
    weights: Float64 | None = None,
    threads: int = 1,
    done: Any = None,
) -> Csr | Float:
    """Write α·XᵀWX + (1 − α)·AᵀWA into `second`, and return α·XᵀWX + (1 − α)·AᵀWT, with W = diag(w).

    Parameters
    ----------
    matrix : X, sessions × n, CSR with sorted indices
    positions : of each entry in its session, 0 the oldest; None for α = 1
    second : n × n, Fortran-ordered; its lower triangle is written
    alpha : share of the whole sessions
    decay : q = e^(−decay)
    weights : w, one for each session
    done : receives the number of finished columns, for progress

    Returns
    -------
    The cross moment in the precision of `second`: by column, as a CSR matrix of its transpose, or where more than a
    quarter of its entries are not 0, as a Fortran-ordered array.
    """
    n = matrix.shape[1]
    if positions is None:
        positions = np.zeros(matrix.nnz, np.int32)
    pointers, owners, places = by_column(matrix)
    listed = (pointers, owners, matrix.indptr, matrix.indices)
    counts = np.zeros(n + 1, np.int64)
    chunk = max(16, min(256, n // (8 * threads) + 1))
    parallel.parallel_for(
        lambda start, stop: _count(*listed, counts, start, stop, np.full(n, -1, np.int32)), n, chunk, threads
    )
    offsets = np.cumsum(counts)
    is_dense = bool(offsets[-1] > DENSE_SHARE * n * n)
    stored = 0 if is_dense else int(offsets[-1])
    rows, values = np.empty(stored, np.int32), np.empty(stored, second.dtype)
    square = np.zeros((n, n) if is_dense else (0, 0), second.dtype, order="F")
    row_weights = np.ones(matrix.shape[0]) if weights is None else np.ascontiguousarray(weights, np.float64)
    data = (*listed, places, matrix.data, positions, row_weights, *_tables(matrix, decay), alpha)

    def fill(start: int, stop: int) -> None:
        totals = np.zeros(n), np.zeros(n), np.empty(n, np.int32), np.full(n, -1, np.int32)
        _fill(*data, second, offsets, rows, values, square, start, stop, *totals)

    parallel.parallel_for(fill, n, chunk, threads, done)
    if is_dense:
        return square
    by_columns: Csr = sp.csr_array((values, rows, _narrow(offsets)), shape=(n, n))
    by_columns.sort_indices()
    if alpha < 1:
        by_columns.eliminate_zeros()
    return by_columns


def _narrow(offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Offsets in 32 bits where they fit, as the indices are."""
    return offsets.astype(np.int32) if offsets[-1] <= np.iinfo(np.int32).max else offsets


def _tables(matrix: Csr, decay: float) -> tuple[Float64, Float64, Float64]:
    """By a distance d: q^d, Σ_{m < d} q^(2m), and d·q^(d − 1)."""
    distances = np.arange(int(np.diff(matrix.indptr).max(initial=0)) + 1)
    near = np.exp(-decay * distances)
    sums = np.concatenate([[0.0], np.cumsum(near[:-1] ** 2)])
    return near, sums, distances * near * math.exp(decay)


@kernel
def _count(
    pointers: Any, owners: Any, indptr: Any, indices: Any, counts: Any, start: int, stop: int, mark: Any
) -> None:
    """Count the items that share a session with each item, itself included."""
    for j in range(start, stop):
        number = 0
        for p in range(pointers[j], pointers[j + 1]):
            user = owners[p]
            for q in range(indptr[user], indptr[user + 1]):
                if mark[indices[q]] != j:
                    mark[indices[q]] = j
                    number += 1
        counts[j + 1] = number


@kernel
def _fill(
    pointers: Any,
    owners: Any,
    indptr: Any,
    indices: Any,
    places: Any,
    data: Any,
    positions: Any,
    weights: Any,
    near: Any,
    sums: Any,
    ahead: Any,
    alpha: float,
    second: Any,
    offsets: Any,
    rows: Any,
    values: Any,
    square: Any,
    start: int,
    stop: int,
    total: Any,
    cross: Any,
    found: Any,
    mark: Any,
) -> None:
    """Write columns of both moments; `total` and `cross` are arrays of zeros, and are so again afterwards."""
    n = len(total)
    for j in range(start, stop):
        number = 0
        for p in range(pointers[j], pointers[j + 1]):
            user, place = owners[p], places[p]
            b, last = positions[place], indptr[user + 1] - indptr[user] - 1
            factor = weights[user] * np.float64(data[place])
            for q in range(indptr[user], indptr[user + 1]):
                i, a = indices[q], positions[q]
                if mark[i] != j:
                    mark[i] = j
                    found[number] = i
                    number += 1
                value = factor * data[q]
                if q >= place:  # indices are sorted: the lower triangle; the cross moment is not symmetric
                    total[i] += value * (alpha + (1 - alpha) * near[abs(b - a)] * sums[last - max(a, b)])
                cross[i] += value * (alpha + (1 - alpha) * ahead[b - a] if a < b else alpha)
        for i in range(j, n):
            second[i, j] = 0.0
        for t in range(number):
            i = found[t]
            if i >= j:
                second[i, j] = total[i]
            if len(square) > 0:
                square[i, j] = cross[i]
            else:
                rows[offsets[j] + t] = i
                values[offsets[j] + t] = cross[i]
            total[i] = 0.0
            cross[i] = 0.0
