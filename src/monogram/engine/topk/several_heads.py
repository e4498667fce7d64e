"""Top-k selection for several heads at once: models whose scores differ by one factor per item.

The k best items of one head have some lowest score under another head, and no item below it can be in the top k there.
So the first head is ranked in full, and the others select from the few items that exceed their bound with the largest
factor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk.selection import offer, sort


def bounds(scales: Float64) -> tuple[Float64, Float64]:
    """The mean of each scale, and the largest relative factor of each item; empty where a factor is not above 0."""
    if len(scales) < 2 or not (scales > 0).all():
        return np.ones(len(scales)), np.zeros(0)
    sizes = scales.mean(axis=1)
    return sizes, np.asarray((scales / sizes[:, None]).max(axis=0))


@kernel
def select_heads(
    total: Any,
    first: int,
    scales: Any,
    sizes: Any,
    upper: Any,
    items: Any,
    scores: Any,
    counts: Any,
    user: int,
    candidates: Any,
) -> None:
    """Select from the totals of one user, from item `first` on, for every head; the output arrays cover all users.

    Where the totals cover all items, the lists are sorted on return; else they are heaps for the next tile.
    """
    heads, _, k = items.shape
    size = len(total)
    whole = size == scales.shape[1]
    for h in range(heads):
        own, values, low = items[h, user], scores[h, user], -np.inf
        if h > 0 and counts[h - 1, user] == k:
            low = reached(items[h - 1, user], scores[h - 1, user], scales[h - 1], scales[h])
        counts[h, user] = select_scaled(
            total, scales[h, first : first + size], low, first, own, values, counts[h, user]
        )
        if whole:
            sort(own, values, counts[h, user])
            few = h == 0 and counts[0, user] == k and len(upper) > 0
            if few and _rank_other_heads(total, scales, sizes, upper, items, scores, user, candidates):
                counts[:, user] = k
                return


@kernel
def _rank_other_heads(
    total: Any, scales: Any, sizes: Any, upper: Any, items: Any, scores: Any, user: int, candidates: Any
) -> bool:
    """Rank for all heads but the first from the few items that can enter a list; False where no bound is known."""
    floor = np.inf
    for h in range(1, len(scales)):
        floor = min(floor, reached(items[0, user], scores[0, user], scales[0], scales[h]) / sizes[h])
    if not floor > 0:
        return False
    number = _above(total, upper, floor * (1 - 1e-9), candidates)
    for h in range(1, len(scales)):
        low = reached(items[0, user], scores[0, user], scales[0], scales[h])
        _insert(candidates[:number], total, scales[h], low, items[h, user], scores[h, user])
    return True


@kernel
def reached(items: Any, scores: Any, before: Any, scale: Any) -> float:
    """A lower bound of the k-th best score under a scale, from the k best items under another scale."""
    low = np.inf
    for t in range(len(items)):
        if before[items[t]] == 0:
            return -np.inf
        low = min(low, scores[t] / before[items[t]] * scale[items[t]])
    return low - 1e-9 * abs(low) - 1e-300  # slightly lower: the quotient is rounded


@kernel
def _above(total: Any, scale: Any, low: float, out: Any) -> int:
    """Write the indices of the totals with total·scale > low to `out`; their number."""
    size, count = len(total), 0
    for base in range(0, size, 32):
        end = min(base + 32, size)
        any_above = end < base + 32
        if not any_above:
            part, factors = total[base:end], scale[base:end]
            for t in range(32):  # a fixed count, so that the loop is vectorised
                any_above |= part[t] * factors[t] > low
        if any_above:
            for t in range(base, end):
                if total[t] * scale[t] > low:
                    out[count] = t
                    count += 1
    return count


@kernel
def _insert(chosen: Any, total: Any, scale: Any, low: float, items: Any, scores: Any) -> None:
    """The k best of a few items in ascending order of index, by insertion; at least k of them exceed `low`."""
    k, count, worst = len(items), 0, low
    for item in chosen:
        score = total[item] * scale[item]
        if score > worst:
            at = count if count < k else k - 1
            while at > 0 and scores[at - 1] < score:
                scores[at], items[at] = scores[at - 1], items[at - 1]
                at -= 1
            scores[at], items[at] = score, item
            count = min(count + 1, k)
            worst = max(low, scores[k - 1]) if count == k else low


@kernel
def select_scaled(total: Any, scale: Any, low: float, first: int, items: Any, scores: Any, count: int) -> int:
    """As `selection.select` with total·scale; excluded items stay excluded, scores at or below `low` are skipped."""
    size = len(total)
    worst = max(low, scores[0]) if count == len(items) else low
    for base in range(0, size, 64):
        end = min(base + 64, size)
        any_above = end < base + 64
        if not any_above:
            part, factors = total[base:end], scale[base:end]
            for t in range(64):
                any_above |= part[t] * factors[t] > worst
        if any_above:
            for t in range(base, end):
                score = total[t] * scale[t]
                if score > worst and total[t] > -np.inf:
                    count = offer(items, scores, count, first + t, score)
                    worst = max(low, scores[0]) if count == len(items) else low
    return count
