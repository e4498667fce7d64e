"""The k best items of each history, without ever making a users × items matrix.

Two sources of scores, one rule of choice. A user keeps a heap of k (score, item) pairs; items are visited in
ascending order and enter only with a strictly higher score than the worst kept, so that ties go to the lower
index. What is not eligible is never offered, so that no sentinel can leak out.

*rows*: score = base + Σ h_i·W[i, :]. Columns are taken in tiles whose sums stay in the first cache; the rows of W that
users of one block share are found again in the larger ones.
*gathered*: score_j = scale_j·Σ_v y_v·x_vj (+ h_j·own_j), for coefficients y over training users and sparse x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine import parallel
from monogram.engine.native import kernel

TILE = 4096  # columns: 32 kB of float64 sums
USERS = 512  # a block of users shares the rows it reads
LANES = 8  # users gathered side by side: one cache line of float64


@dataclass(frozen=True)
class Eligible:
    """Who may get what: a mask for all, and sorted lists of indices for each user.

    Parameters
    ----------
    mask : bool array, one an item
    out_pointers, out : what each user must not get (CSR style)
    only_pointers, only : what alone each user may get; `only_pointers` of length 0 means everything
    """

    mask: NDArray[np.bool_]
    out_pointers: NDArray[np.int64]
    out: NDArray[np.int64]
    only_pointers: NDArray[np.int64]
    only: NDArray[np.int64]


@dataclass(frozen=True)
class Best:
    """The first counts[u] entries of row u are user u's items, best first, and their scores."""

    items: NDArray[np.int64]
    scores: NDArray[np.float64]
    counts: NDArray[np.int64]


def best_by_rows(
    weights: NDArray[Any],
    histories: Any,
    eligible: Eligible,
    k: int,
    *,
    base: NDArray[np.float64] | None = None,
    threads: int = 1,
) -> Best:
    """Top k by summed rows of a C-ordered matrix (n rows, or none where scores are the base alone)."""
    best = _empty(histories.shape[0], k)
    base = np.zeros(histories.shape[1]) if base is None else base
    data = histories.data.astype(np.float64)

    def block(start: int, stop: int) -> None:
        _rows(
            weights,
            base,
            histories.indptr,
            histories.indices,
            data,
            *_arrays(eligible),
            best.items,
            best.scores,
            best.counts,
            start,
            stop,
            np.empty(TILE),
        )

    parallel.over(block, histories.shape[0], min(USERS, _share(histories.shape[0], threads)), threads)
    return best


def best_by_gathering(
    by_item: Any,
    scale: NDArray[np.float64],
    own: NDArray[np.float64],
    coefficients: NDArray[np.float64],
    histories: Any,
    eligible: Eligible,
    k: int,
    *,
    threads: int = 1,
) -> Best:
    """Top k from coefficients over training users: scale·(x̃ᵀy), plus `own` at each entry of the histories."""
    users = histories.shape[0]
    best = _empty(users, k)

    def block(start: int, stop: int) -> None:
        lanes = np.zeros((by_item.shape[1], LANES), coefficients.dtype)
        lanes[:, : stop - start] = coefficients[start:stop].T
        _gathered(
            lanes,
            by_item.indptr,
            by_item.indices,
            by_item.data,
            scale,
            histories.indptr,
            histories.indices,
            own,
            *_arrays(eligible),
            best.items,
            best.scores,
            best.counts,
            start,
            stop,
        )

    parallel.over(block, users, LANES, threads)
    return best


def _share(users: int, threads: int) -> int:
    return max(1, -(-users // (4 * threads)))


def _empty(users: int, k: int) -> Best:
    return Best(np.zeros((users, k), np.int64), np.zeros((users, k)), np.zeros(users, np.int64))


def _arrays(eligible: Eligible) -> tuple[Any, ...]:
    return eligible.mask, eligible.out_pointers, eligible.out, eligible.only_pointers, eligible.only


@kernel
def _worse(score: float, item: int, other_score: float, other_item: int) -> bool:
    return score < other_score or (score == other_score and item > other_item)


@kernel
def _sink(items: Any, scores: Any, size: int) -> None:
    """Restore the heap (worst on top) after its top was replaced."""
    at = 0
    while True:
        worst = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and _worse(scores[child], items[child], scores[worst], items[worst]):
                worst = child
        if worst == at:
            return
        scores[at], scores[worst] = scores[worst], scores[at]
        items[at], items[worst] = items[worst], items[at]
        at = worst


@kernel
def _offer(items: Any, scores: Any, count: int, item: int, score: float) -> int:
    """Offer an item of higher index than all before; the number kept comes back."""
    k = len(items)
    if count == k:
        if k > 0 and score > scores[0]:
            scores[0] = score
            items[0] = item
            _sink(items, scores, k)
        return count
    at = count
    scores[at] = score
    items[at] = item
    while at > 0:
        parent = (at - 1) // 2
        if not _worse(scores[at], items[at], scores[parent], items[parent]):
            break
        scores[at], scores[parent] = scores[parent], scores[at]
        items[at], items[parent] = items[parent], items[at]
        at = parent
    return count + 1


@kernel
def _sort(items: Any, scores: Any, count: int) -> None:
    """Heap (worst on top) to best first, in place."""
    for last in range(count - 1, 0, -1):
        scores[0], scores[last] = scores[last], scores[0]
        items[0], items[last] = items[last], items[0]
        _sink(items, scores, last)


@kernel
def _add(weights: Any, rows: Any, factors: Any, first: int, total: Any) -> None:
    """Add rows of the weights, from a column on, to the total; four at a time, so that four are on their way."""
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
def _close(total: Any, first: int, mask: Any, out: Any) -> None:
    """Scores are finite: −∞ marks what may not be chosen, and is never chosen."""
    for t in range(len(total)):
        total[t] = total[t] if mask[first + t] else -np.inf
    for p in range(np.searchsorted(out, first), len(out)):
        if out[p] >= first + len(total):
            break
        total[out[p] - first] = -np.inf


@kernel
def _keep(total: Any, first: int, only: Any) -> None:
    """Close everything that is not in a sorted list."""
    p = np.searchsorted(only, first)
    for t in range(len(total)):
        if p < len(only) and only[p] == first + t:
            p += 1
        else:
            total[t] = -np.inf


@kernel
def _select(total: Any, first: int, items: Any, scores: Any, count: int) -> int:
    """Offer what is better than the worst kept; a stretch without any is passed over at once."""
    size = len(total)
    worst = scores[0] if count == len(items) else -np.inf
    for base in range(0, size, 32):
        end = min(base + 32, size)
        found = False
        for t in range(base, end):
            found |= total[t] > worst
        if found:
            for t in range(base, end):
                if total[t] > worst:
                    count = _offer(items, scores, count, first + t, total[t])
                    worst = scores[0] if count == len(items) else -np.inf
    return count


@kernel
def _rows(
    weights: Any,
    base: Any,
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
    start: int,
    stop: int,
    total: Any,
) -> None:
    n = len(base)
    tile = len(total)
    rows = weights.shape[0]
    for first in range(0, n, tile):
        size = min(tile, n - first)
        for user in range(start, stop):
            total[:size] = base[first : first + size]
            if rows > 0:
                _add(
                    weights,
                    indices[indptr[user] : indptr[user + 1]],
                    data[indptr[user] : indptr[user + 1]],
                    first,
                    total[:size],
                )
            _close(total[:size], first, mask, out[out_pointers[user] : out_pointers[user + 1]])
            if len(only_pointers) > 0:
                _keep(total[:size], first, only[only_pointers[user] : only_pointers[user + 1]])
            counts[user] = _select(total[:size], first, best_items[user], best_scores[user], counts[user])
    for user in range(start, stop):
        _sort(best_items[user], best_scores[user], counts[user])


@kernel
def _gathered(
    lanes: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    scale: Any,
    history_pointers: Any,
    history: Any,
    own: Any,
    mask: Any,
    out_pointers: Any,
    out: Any,
    only_pointers: Any,
    only: Any,
    best_items: Any,
    best_scores: Any,
    counts: Any,
    start: int,
    stop: int,
) -> None:
    width = stop - start
    sums = np.empty(8)
    at_own = history_pointers[start : stop + 1].copy()
    at_out = out_pointers[start : stop + 1].copy()
    limited = len(only_pointers) > 0
    at_only = only_pointers[start : stop + 1].copy()
    for j in range(len(mask)):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0  # scalars stay in registers, and become one vector
        for p in range(indptr[j], indptr[j + 1]):
            value = np.float64(data[p])
            lane_values = lanes[indices[p]]
            s0 += value * lane_values[0]
            s1 += value * lane_values[1]
            s2 += value * lane_values[2]
            s3 += value * lane_values[3]
            s4 += value * lane_values[4]
            s5 += value * lane_values[5]
            s6 += value * lane_values[6]
            s7 += value * lane_values[7]
        sums[0], sums[1], sums[2], sums[3] = s0, s1, s2, s3
        sums[4], sums[5], sums[6], sums[7] = s4, s5, s6, s7
        for lane in range(width):
            user = start + lane
            score = sums[lane] * scale[j] + 0.0  # 0, not −0
            if at_own[lane] < history_pointers[user + 1] and history[at_own[lane]] == j:
                score += own[at_own[lane]]
                at_own[lane] += 1
            allowed = mask[j]
            if at_out[lane] < out_pointers[user + 1] and out[at_out[lane]] == j:
                allowed = False
                at_out[lane] += 1
            if limited:
                if at_only[lane] < only_pointers[user + 1] and only[at_only[lane]] == j:
                    at_only[lane] += 1
                else:
                    allowed = False
            if allowed and (counts[user] < best_items.shape[1] or score > best_scores[user, 0]):
                counts[user] = _offer(best_items[user], best_scores[user], counts[user], j, score)
    for user in range(start, stop):
        _sort(best_items[user], best_scores[user], counts[user])
