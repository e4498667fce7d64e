"""The k best items by summed rows of a sparse weight matrix.

Only the items in the rows of a history are summed and compared. All others have the score 0, so that they are in a list
only where fewer than k items have a score above 0, the lowest index first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk.best import USERS, Best, Eligible, arrays, empty, share_of_users
from monogram.engine.topk.scores import add_sparse_rows, clear, sums
from monogram.engine.topk.selection import offer, sort, worse


def best_by_sparse_rows(matrix: Csr, histories: Csr, eligible: Eligible, k: int, *, threads: int = 1) -> Best:
    """Top k by summed rows of a CSR matrix, summed in float64 in the order of the items of a history."""
    best = tuple(array[0] for array in empty(histories.shape[0], k, 1))
    data = histories.data.astype(np.float64)

    def block(start: int, stop: int) -> None:
        _sparse_rows(
            matrix.indptr,
            matrix.indices,
            matrix.data,
            histories.indptr,
            histories.indices,
            data,
            *arrays(eligible),
            *best,
            start,
            stop,
            *sums(histories.shape[1]),
        )

    parallel.parallel_for(block, histories.shape[0], min(USERS, share_of_users(histories.shape[0], threads)), threads)
    return Best(*best)


@kernel
def _sparse_rows(
    row_pointers: Any,
    columns: Any,
    values: Any,
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
    is_summed: Any,
    summed: Any,
) -> None:
    for user in range(start, stop):
        part = slice(indptr[user], indptr[user + 1])
        number = add_sparse_rows(row_pointers, columns, values, indices[part], data[part], total, is_summed, summed)
        excluded = out[out_pointers[user] : out_pointers[user + 1]]
        items, scores = best_items[user], best_scores[user]
        if len(only_pointers) > 0:
            allowed = only[only_pointers[user] : only_pointers[user + 1]]
            count = _select(total, allowed, mask, excluded, items, scores)
        else:
            count = _select(total, summed[:number], mask, excluded, items, scores)
            count = _fill(is_summed, mask, excluded, items, scores, count)
        sort(items, scores, count)
        counts[user] = count
        clear(total, is_summed, summed[:number])


@kernel
def _select(total: Any, chosen: Any, mask: Any, excluded: Any, items: Any, scores: Any) -> int:
    """Offer the eligible of the chosen items, in any order; the size of the heap."""
    count, k = 0, len(items)
    if k == 0:
        return 0
    for j in chosen:
        score = total[j]
        if not score > -np.inf or (count == k and score < scores[0]):
            continue
        if mask[j] and not _contains(excluded, j):
            count = offer(items, scores, count, j, score)
    return count


@kernel
def _fill(is_summed: Any, mask: Any, excluded: Any, items: Any, scores: Any, count: int) -> int:
    """Offer the eligible items that were not summed, with the score 0, until one does not enter."""
    k = len(items)
    for j in range(len(mask)):
        if count == k and (k == 0 or not worse(scores[0], items[0], 0.0, j)):
            break
        if mask[j] and not is_summed[j] and not _contains(excluded, j):
            count = offer(items, scores, count, j, 0.0)
    return count


@kernel
def _contains(items: Any, item: int) -> Any:
    """Whether an item is in a sorted list."""
    at = np.searchsorted(items, item)
    return at < len(items) and items[at] == item
