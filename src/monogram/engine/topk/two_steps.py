"""Scores of two steps through a sparse matrix B: (1 − s)·hB + s·hB², without forming B²."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk.scores import add_sparse_rows, clear, sums


def two_step_scores(matrix: Csr, histories: Csr, share: float, *, threads: int = 1) -> Float64:
    """Scores of all items for each history (histories × items), in float64; each history is summed by one thread."""
    out = np.zeros(histories.shape)
    data = histories.data.astype(np.float64)
    arrays = matrix.indptr, matrix.indices, matrix.data, histories.indptr, histories.indices, data

    def block(start: int, stop: int) -> None:
        _two_steps(*arrays, share, out, start, stop, *sums(histories.shape[1]))

    parallel.parallel_for(block, len(out), 4, threads)
    return out


@kernel
def _two_steps(
    pointers: Any,
    columns: Any,
    values: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    share: float,
    out: Any,
    start: int,
    stop: int,
    first: Any,
    is_summed: Any,
    summed: Any,
) -> None:
    for user in range(start, stop):
        part = slice(indptr[user], indptr[user + 1])
        number = add_sparse_rows(pointers, columns, values, indices[part], data[part], first, is_summed, summed)
        total = out[user]
        for i in summed[:number]:
            total[i] += (1 - share) * first[i]
            factor = share * first[i]
            for t in range(pointers[i], pointers[i + 1]):
                total[columns[t]] += factor * values[t]
        clear(first, is_summed, summed[:number])
