"""The k best items by base + p·Vᵀ, for a vector p of each user and item factors V.

A block of users is multiplied in the precision of V, which selects a few candidates more than k. The scores of the
candidates are then summed again in float64, and the float64 scores decide.
"""

from __future__ import annotations

from typing import Any

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float, Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk.best import Best, Eligible, arrays, empty, select_rows, share_of_users
from monogram.engine.topk.selection import worse

MULTIPLIED = 64  # users multiplied at once
SPARE = 16  # candidates beyond k whose exact scores are computed


def best_by_products(
    left: Float64,
    right: Float,
    base: Float64,
    eligible: Eligible,
    k: int,
    *,
    threads: int = 1,
) -> Best:
    """Top k by base + left·rightᵀ (users × rank, items × rank)."""
    users = len(left)
    best, wide = (empty(users, size, 1) for size in (k, k + SPARE))
    chosen, candidates = (tuple(array[0] for array in lists) for lists in (best, wide))
    rough, start_from = left.astype(right.dtype), base.astype(right.dtype)

    def block(start: int, stop: int) -> None:
        scores = rough[start:stop] @ right.T
        scores += start_from
        select_rows(scores, *arrays(eligible), *candidates, start)
        _rescore(left, right, base, *candidates, start, stop)
        _truncate(*candidates, *chosen, start, stop)

    with parallel.blas_threads(1):  # threads multiply separate blocks, BLAS runs on one thread each
        parallel.parallel_for(block, users, min(MULTIPLIED, share_of_users(users, threads)), threads)
    return Best(*chosen)


@kernel
def _rescore(left: Any, right: Any, base: Any, items: Any, scores: Any, counts: Any, start: int, stop: int) -> None:
    """Recompute the scores of the candidates in float64 and sort by them."""
    rank = left.shape[1]
    for user in range(start, stop):
        for place in range(counts[user]):
            item = items[user, place]
            total = 0.0
            for t in range(rank):
                total += left[user, t] * right[item, t]
            scores[user, place] = total + base[item]
        for place in range(1, counts[user]):  # nearly sorted already: insertion
            score, item, at = scores[user, place], items[user, place], place
            while at > 0 and worse(scores[user, at - 1], items[user, at - 1], score, item):
                scores[user, at], items[user, at] = scores[user, at - 1], items[user, at - 1]
                at -= 1
            scores[user, at], items[user, at] = score, item


@kernel
def _truncate(
    items: Any, scores: Any, counts: Any, best_items: Any, best_scores: Any, best_counts: Any, start: int, stop: int
) -> None:
    k = best_items.shape[1]
    for user in range(start, stop):
        best_counts[user] = min(k, counts[user])
        for place in range(best_counts[user]):
            best_items[user, place], best_scores[user, place] = items[user, place], scores[user, place]
