"""The k best items of each history from dual coefficients y over the training users.

score_j = scale_j·Σ_v y_v·x_vj (+ h_j·own_j), with sparse x. Eight histories are summed together, so that each entry of
x is read once for all of them; several heads select from the same sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk.best import Best, Eligible, arrays, empty
from monogram.engine.topk.selection import offer, sort
from monogram.engine.topk.several_heads import bounds

LANES = 8  # histories summed together: one cache line of float64


def best_by_gathering(
    by_item: Csr,
    scale: Float64,
    own: Float64,
    coefficients: Float64,
    histories: Csr,
    eligible: Eligible,
    k: int,
    *,
    threads: int = 1,
) -> Best:
    """Top k from coefficients over training users: scale·(x̃ᵀy), plus `own` at each entry of the histories."""
    return heads_by_gathering(by_item, scale[None], own, coefficients, histories, eligible, k, threads=threads)[0]


def heads_by_gathering(
    by_item: Csr,
    scales: Float64,
    own: Float64,
    coefficients: Float64,
    histories: Csr,
    eligible: Eligible,
    k: int,
    *,
    threads: int = 1,
) -> list[Best]:
    """For each head, a row of `scales`: the result of `best_by_gathering` with that scale."""
    users = histories.shape[0]
    best = empty(users, k, len(scales))
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes, upper = bounds(scales / scales[0])

    def block(start: int, stop: int) -> None:
        lanes = np.zeros((by_item.shape[1], LANES), coefficients.dtype)
        lanes[:, : stop - start] = coefficients[start:stop].T
        _gathered(
            lanes,
            by_item.indptr,
            by_item.indices,
            by_item.data,
            scales,
            sizes,
            upper,
            histories.indptr,
            histories.indices,
            own,
            *arrays(eligible),
            *best,
            start,
            stop,
        )

    parallel.parallel_for(block, users, LANES, threads)
    return [Best(*lists) for lists in zip(*best, strict=True)]


@kernel
def _floor(scores: Any, counts: Any, sizes: Any, user: int, k: int) -> float:
    """A lower bound: first score times largest factor of an item must exceed it to enter a full list of any head."""
    low = np.inf
    for h in range(len(sizes)):
        if counts[h, user] < k:
            return -np.inf
        low = min(low, scores[h, user, 0] / sizes[h])
    return low * (1 - 1e-9)


@kernel
def _gathered(
    lanes: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    scales: Any,
    sizes: Any,
    upper: Any,
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
    k = best_items.shape[2]
    floors = np.full(width, -np.inf)  # an item below is in no list; valid once all lists are full
    for j in range(len(mask)):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0  # scalars stay in registers and are vectorised
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
            own_score = 0.0
            if at_own[lane] < history_pointers[user + 1] and history[at_own[lane]] == j:
                own_score = own[at_own[lane]]
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
            if not allowed:
                continue
            if floors[lane] > 0 and own_score == 0.0 and sums[lane] * scales[0, j] * upper[j] <= floors[lane]:
                continue
            taken = False
            for h in range(len(scales)):
                score = sums[lane] * scales[h, j] + own_score + 0.0  # 0, not −0
                if counts[h, user] < k or score > best_scores[h, user, 0]:
                    counts[h, user] = offer(best_items[h, user], best_scores[h, user], counts[h, user], j, score)
                    taken = True
            if taken and len(upper) > 0:
                floors[lane] = _floor(best_scores, counts, sizes, user, k)
    for h in range(len(scales)):
        for user in range(start, stop):
            sort(best_items[h, user], best_scores[h, user], counts[h, user])
