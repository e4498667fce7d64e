"""Top-k selection: a binary heap of the k best items, worst on top.

Of items with equal scores, the lower index ranks first. `select` visits items in ascending order of index, so that an
item enters only with a strictly higher score than the worst in the heap; `offer` takes items in any order. Items that
are not eligible have the score −∞ and never enter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime.jit import kernel


@kernel
def worse(score: float, item: int, other_score: float, other_item: int) -> bool:
    """Whether one pair ranks below the other: a lower score, or the same and a higher index."""
    return score < other_score or (score == other_score and item > other_item)


@kernel
def sink(items: Any, scores: Any, size: int) -> None:
    """Restore the heap (worst on top) after its top was replaced."""
    at = 0
    while True:
        worst = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and worse(scores[child], items[child], scores[worst], items[worst]):
                worst = child
        if worst == at:
            return
        scores[at], scores[worst] = scores[worst], scores[at]
        items[at], items[worst] = items[worst], items[at]
        at = worst


@kernel
def offer(items: Any, scores: Any, count: int, item: int, score: float) -> int:
    """Insert an item if it is good enough; return the size of the heap. The order of the calls makes no difference."""
    k = len(items)
    if count == k:
        if k > 0 and worse(scores[0], items[0], score, item):
            scores[0] = score
            items[0] = item
            sink(items, scores, k)
        return count
    at = count
    scores[at] = score
    items[at] = item
    while at > 0:
        parent = (at - 1) // 2
        if not worse(scores[at], items[at], scores[parent], items[parent]):
            break
        scores[at], scores[parent] = scores[parent], scores[at]
        items[at], items[parent] = items[parent], items[at]
        at = parent
    return count + 1


@kernel
def sort(items: Any, scores: Any, count: int) -> None:
    """Heap (worst on top) to best first, in place."""
    for last in range(count - 1, 0, -1):
        scores[0], scores[last] = scores[last], scores[0]
        items[0], items[last] = items[last], items[0]
        sink(items, scores, last)


@kernel
def exclude(total: Any, first: int, mask: Any, out: Any) -> None:
    """Exclude items: set the score to −∞ where the mask is False or the item is in the sorted list `out`."""
    for t in range(len(total)):
        total[t] = total[t] if mask[first + t] else -np.inf
    for p in range(np.searchsorted(out, first), len(out)):
        if out[p] >= first + len(total):
            break
        total[out[p] - first] = -np.inf


@kernel
def exclude_all_but(total: Any, first: int, only: Any) -> None:
    """Exclude every item that is not in the sorted list `only`."""
    p = np.searchsorted(only, first)
    for t in range(len(total)):
        if p < len(only) and only[p] == first + t:
            p += 1
        else:
            total[t] = -np.inf


@kernel
def select(total: Any, first: int, items: Any, scores: Any, count: int) -> int:
    """Offer every score above the worst of the heap; blocks of 64 without any are skipped."""
    size = len(total)
    worst = scores[0] if count == len(items) else -np.inf
    for base in range(0, size, 64):
        end = min(base + 64, size)
        any_above = end < base + 64
        if not any_above:
            part = total[base:end]
            for t in range(64):  # a fixed count, so that the loop is vectorised
                any_above |= part[t] > worst
        if any_above:
            for t in range(base, end):
                if total[t] > worst:
                    count = offer(items, scores, count, first + t, total[t])
                    worst = scores[0] if count == len(items) else -np.inf
    return count
