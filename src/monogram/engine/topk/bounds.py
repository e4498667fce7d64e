"""The best items from solved columns z: score_j = own_j·h_j − scale_j·z_j, with error bounds of both factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk.best import Best, Eligible, arrays, select_rows
from monogram.engine.topk.selection import worse


@dataclass(frozen=True)
class Terms:
    """The factors of each item in score_j = own_j·h_j − scale_j·z_j, and bounds of their errors (slack)."""

    scale: Float64
    own: Float64
    scale_slack: Float64
    own_slack: Float64


def best_by_columns(
    solution: Float64, terms: Terms, histories: Csr, eligible: Eligible, k: int, *, threads: int = 1
) -> Best:
    """Top k of each history by the upper bound of the score; `solution` is items × histories."""
    users = histories.shape[0]
    best = np.zeros((users, k), np.int64), np.zeros((users, k)), np.zeros(users, np.int64)
    rules = arrays(eligible)
    data = histories.data.astype(np.float64)

    def block(start: int, stop: int) -> None:
        _by_columns(
            solution,
            terms.scale,
            terms.own,
            terms.scale_slack,
            terms.own_slack,
            histories.indptr,
            histories.indices,
            data,
            *rules,
            *best,
            start,
            stop,
            np.empty((1, len(solution))),
        )

    parallel.parallel_for(block, users, 1, threads)
    return Best(*best)


def rescored(
    candidates: Best, solution: Float64, terms: Terms, histories: Csr, k: int
) -> tuple[Best, NDArray[np.bool_]]:
    """The k best of some candidates by scores with exact factors, and which lists are certain.

    A list is certain where its last item ranks no lower than the upper bound of the last candidate: every item outside
    the candidates has a lower upper bound.
    """
    users, width = candidates.items.shape
    best = np.zeros((users, k), np.int64), np.zeros((users, k)), np.zeros(users, np.int64)
    certain = np.zeros(users, np.bool_)
    data = histories.data.astype(np.float64)
    _rescored(
        candidates.items,
        candidates.scores,
        candidates.counts,
        solution,
        terms.scale,
        terms.own,
        histories.indptr,
        histories.indices,
        data,
        *best,
        certain,
        np.empty(width),
    )
    return Best(*best), certain


@kernel
def _by_columns(
    solution: Any,
    scale: Any,
    own: Any,
    scale_slack: Any,
    own_slack: Any,
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
    for user in range(start, stop):
        for j in range(total.shape[1]):
            value = solution[j, user]
            total[0, j] = scale_slack[j] * abs(value) - scale[j] * value + 0.0  # 0, not −0
        for p in range(indptr[user], indptr[user + 1]):
            total[0, indices[p]] += (own[indices[p]] + own_slack[indices[p]]) * data[p]
        select_rows(total, mask, out_pointers, out, only_pointers, only, best_items, best_scores, counts, user)


@kernel
def _rescored(
    items: Any,
    upper: Any,
    numbers: Any,
    solution: Any,
    scale: Any,
    own: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    best_items: Any,
    best_scores: Any,
    counts: Any,
    certain: Any,
    exact: Any,
) -> None:
    k = best_items.shape[1]
    for user in range(len(items)):
        number = numbers[user]
        history = indices[indptr[user] : indptr[user + 1]]
        for place in range(number):
            j = items[user, place]
            exact[place] = 0.0 - scale[j] * solution[j, user] + 0.0
            at = np.searchsorted(history, j)
            if at < len(history) and history[at] == j:
                exact[place] += own[j] * data[indptr[user] + at]
        counts[user] = min(k, number)
        taken = np.zeros(number, np.bool_)
        for rank in range(counts[user]):
            first = -1
            for place in range(number):
                if not taken[place] and (
                    first < 0 or worse(exact[first], items[user, first], exact[place], items[user, place])
                ):
                    first = place
            taken[first] = True
            best_items[user, rank], best_scores[user, rank] = items[user, first], exact[first]
        certain[user] = number < items.shape[1] or (
            counts[user] > 0
            and not worse(
                best_scores[user, counts[user] - 1],
                best_items[user, counts[user] - 1],
                upper[user, number - 1],
                items[user, number - 1],
            )
        )
