"""Scores of a few histories, as plain arrays: for `score`, `explain` and checks (ranking goes through topk)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine import parallel
from monogram.engine.native import kernel

Float = NDArray[np.float64]


def sum_rows(matrix: NDArray[Any], histories: Any, columns: NDArray[np.int64], *, threads: int = 1) -> Float:
    """Σ h_i·matrix[i, columns] for each history, in float64 and in the order of the items."""
    out = np.zeros((histories.shape[0], len(columns)))
    data = histories.data.astype(np.float64)

    def block(start: int, stop: int) -> None:
        _sum_rows(matrix, histories.indptr, histories.indices, data, columns, out, start, stop)

    parallel.over(block, len(out), max(1, len(out) // (4 * threads)), threads)
    return out


@kernel
def _sum_rows(matrix: Any, indptr: Any, indices: Any, data: Any, columns: Any, out: Any, start: int, stop: int) -> None:
    for user in range(start, stop):
        for p in range(indptr[user], indptr[user + 1]):
            row = matrix[indices[p]]
            for t in range(len(columns)):
                out[user, t] += data[p] * row[columns[t]]
