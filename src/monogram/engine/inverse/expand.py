"""From the dual inverse to the weights: rows of M = X̃ᵀK⁻¹X̃, scaled.

Off the diagonal C = −Λ⁻¹MΛ⁻¹, so that weights W = −C·diag(θ/c) are rows of M times one factor for each row and one for
each column. A row of M takes two sums: p = K⁻¹x̃_i over the users of item i, along rows of K⁻¹, and M_ij = x̃_jᵀp over
the users of each item j. The second sum is made for `LANES` rows at once, whose p lie side by side: one entry of X̃
reads two cache lines. All sums are in float64; p is rounded to the precision of K⁻¹.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.jit import kernel

LANES = 32  # rows of M summed together: two cache lines of float32
BLOCK_BYTES = 1 << 27  # of the rows that are computed at once where they go to a file
USERS = 2048  # entries of p summed together, so that the sums stay in the fastest cache


def expand_rows(
    inverse: Float,
    by_item: Csr,
    row_factors: Float64,
    column_factors: Float64,
    out: Float,
    first: int = 0,
    threads: int = 1,
    done: Any = None,
) -> None:
    """Fill `out` with the rows of diag(row_factors)·M·diag(column_factors) that start at `first`.

    Parameters
    ----------
    inverse : K⁻¹, m × m, symmetric, Fortran-ordered
    by_item : X̃ᵀ, n × m
    out : rows × n, C-ordered
    done : callable, optional
        Receives the number of finished rows, for progress.
    """
    arrays = (by_item.indptr, by_item.indices, by_item.data)

    def rows(start: int, stop: int) -> None:
        lanes = np.zeros((by_item.shape[1], LANES), inverse.dtype)
        _solved(inverse, *arrays, first + start, first + stop, np.empty(USERS), lanes)
        factors = row_factors[first + start : first + stop], column_factors
        _gathered(lanes, *arrays, *factors, np.empty(LANES), out[start:stop])

    parallel.parallel_for(rows, len(out), LANES, threads, done)


def block_rows(items: int, itemsize: int, threads: int) -> int:
    """How many rows to compute at once where they go to a file: a multiple of those that the threads sum together."""
    together = LANES * threads
    return min(items, max(1, BLOCK_BYTES // (together * items * itemsize)) * together)


def buffer_bytes(users: int, itemsize: int, threads: int) -> int:
    """Memory of `expand_rows` beside its arguments."""
    return threads * (users * LANES * itemsize + 8 * USERS)


@kernel
def _solved(inverse: Any, indptr: Any, indices: Any, data: Any, start: int, stop: int, total: Any, lanes: Any) -> None:
    """Column i − start of `lanes` is K⁻¹x̃_i, for the items start:stop."""
    m = len(lanes)
    for low in range(0, m, len(total)):
        high = min(low + len(total), m)
        for i in range(start, stop):
            total[:] = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                value = np.float64(data[p])
                part = inverse[low:high, indices[p]]
                for u in range(len(part)):
                    total[u] += value * part[u]
            for u in range(high - low):
                lanes[low + u, i - start] = total[u]


@kernel
def _gathered(
    lanes: Any, indptr: Any, indices: Any, data: Any, row_factors: Any, column_factors: Any, sums: Any, out: Any
) -> None:
    """Row t of `out` is row_factors[t]·(x̃_jᵀ·lanes[:, t])·column_factors[j]."""
    for j in range(len(column_factors)):
        sums[:] = 0.0
        for p in range(indptr[j], indptr[j + 1]):
            value = np.float64(data[p])
            line = lanes[indices[p]]
            for t in range(len(sums)):  # not a constant: the compiler would unroll the loop in place of vectorising it
                sums[t] += value * line[t]
        for t in range(len(out)):
            out[t, j] = sums[t] * row_factors[t] * column_factors[j]
