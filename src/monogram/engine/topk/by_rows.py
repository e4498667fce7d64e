"""The k best items by summed rows of a weight matrix: score = base + Σ h_i·W[i, :].

Columns are taken in tiles whose sums stay in the first cache; the rows of W that the users of one block share stay in
the larger caches. Where many users share rows, `by_panels` makes the same lists in less time, except for a few users.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk import several_heads
from monogram.engine.topk.best import USERS, Best, Eligible, arrays, empty, share_of_users
from monogram.engine.topk.selection import exclude, exclude_all_but, select, sort
from monogram.engine.topk.several_heads import select_heads

TILE = 4096  # columns: 32 kB of float64 sums


def best_by_rows(
    weights: Float,
    histories: Csr,
    eligible: Eligible,
    k: int,
    *,
    base: Float64 | None = None,
    threads: int = 1,
) -> Best:
    """Top k by summed rows of a C-ordered matrix (n rows, or 0 rows where the scores are the base alone)."""
    users, n = histories.shape
    best = empty(users, k, 1)
    remaining = np.arange(users)
    if base is None and len(weights) and users > 1:
        from monogram.engine.topk.by_panels import rank_by_panels  # imports numba

        lists = tuple(array[0] for array in best)
        remaining = rank_by_panels(weights, histories, eligible, lists, threads=threads)
    base = np.zeros(n) if base is None else base
    _rank(weights, base, np.empty((0, n)), histories, eligible, best, remaining, threads)
    return Best(*(array[0] for array in best))


def heads_by_rows(
    weights: Float,
    scales: Float64,
    histories: Csr,
    eligible: Eligible,
    k: int,
    *,
    threads: int = 1,
) -> list[Best]:
    """For each head, a row of `scales` (one factor for each item): the top k by its factors times the summed rows."""
    users, n = histories.shape
    best = empty(users, k, max(1, len(scales)))
    _rank(weights, np.zeros(n), scales, histories, eligible, best, np.arange(users), threads)
    return [Best(*lists) for lists in zip(*best, strict=True)]


def _rank(
    weights: Float,
    base: Float64,
    scales: Float64,
    histories: Csr,
    eligible: Eligible,
    best: tuple[Indices, Float64, Indices],
    users: Indices,
    threads: int,
) -> None:
    """Fill the lists of some users for each head; without heads, one list of the unscaled sums."""
    data, bounds_ = histories.data.astype(np.float64), several_heads.bounds(scales)

    def block(start: int, stop: int) -> None:
        _rows(
            weights,
            base,
            scales,
            *bounds_,
            histories.indptr,
            histories.indices,
            data,
            *arrays(eligible),
            *best,
            users[start:stop],
            np.empty(TILE),
        )

    parallel.parallel_for(block, len(users), min(USERS, share_of_users(len(users), threads)), threads)


@kernel
def _add(weights: Any, rows: Any, factors: Any, first: int, total: Any) -> None:
    """Add rows of the weights, from column `first` on, to the total; four rows at a time, to overlap their loads."""
    size, number = len(total), len(rows)
    whole = number - number % 4
    for p in range(0, whole, 4):
        a = weights[rows[p], first : first + size]
        b = weights[rows[p + 1], first : first + size]
        c = weights[rows[p + 2], first : first + size]
        d = weights[rows[p + 3], first : first + size]
        fa, fb, fc, fd = factors[p], factors[p + 1], factors[p + 2], factors[p + 3]
        for t in range(size):
            total[t] += (fa * a[t] + fb * b[t]) + (fc * c[t] + fd * d[t])
    for p in range(whole, number):
        row = weights[rows[p], first : first + size]
        factor = factors[p]
        for t in range(size):
            total[t] += factor * row[t]


@kernel
def _rows(
    weights: Any,
    base: Any,
    scales: Any,
    sizes: Any,
    upper: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    mask: Any,
    out_pointers: Any,
    out: Any,
    only_pointers: Any,
    only: Any,
    best_items: Any,
    best_scores: Any,
    counts: Any,
    users: Any,
    buffer: Any,
) -> None:
    n = len(base)
    tile = len(buffer)
    rows = weights.shape[0]
    chosen = np.empty(tile if len(scales) > 0 else 0, np.int64)
    for first in range(0, n, tile):
        size = min(tile, n - first)
        total = buffer[:size]
        for user in users:
            total[:] = base[first : first + size]
            if rows > 0:
                _add(
                    weights,
                    indices[indptr[user] : indptr[user + 1]],
                    data[indptr[user] : indptr[user + 1]],
                    first,
                    total,
                )
            exclude(total, first, mask, out[out_pointers[user] : out_pointers[user + 1]])
            if len(only_pointers) > 0:
                exclude_all_but(total, first, only[only_pointers[user] : only_pointers[user + 1]])
            if len(scales) == 0:
                counts[0, user] = select(total, first, best_items[0, user], best_scores[0, user], counts[0, user])
            else:
                select_heads(
                    total,
                    first,
                    scales,
                    sizes,
                    upper,
                    best_items,
                    best_scores,
                    counts,
                    user,
                    chosen,
                )
    if n <= tile and len(scales) > 0:
        return  # with one tile every head is sorted already
    for h in range(len(counts)):
        for user in users:
            sort(best_items[h, user], best_scores[h, user], counts[h, user])
