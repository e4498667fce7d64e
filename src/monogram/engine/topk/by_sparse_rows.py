"""The k best items by summed rows of a sparse weight matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk.best import USERS, Best, Eligible, arrays, empty, select_rows, share_of_users
from monogram.engine.topk.scores import add_sparse_rows


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
            np.empty((1, histories.shape[1])),
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
) -> None:
    for user in range(start, stop):
        total[:] = 0.0
        part = slice(indptr[user], indptr[user + 1])
        add_sparse_rows(row_pointers, columns, values, indices[part], data[part], total[0])
        select_rows(total, mask, out_pointers, out, only_pointers, only, best_items, best_scores, counts, user)
