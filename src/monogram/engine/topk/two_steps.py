"""Scores of two steps through a sparse matrix B: hB and hB², without forming B²."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk.scores import add_sparse_rows, clear, sums


def two_steps(matrix: Csr, histories: Csr, *, threads: int = 1) -> tuple[Float64, Float64]:
    """hB and hB² for each history (histories × items), in float64; each history is summed by one thread."""
    first, second = np.zeros(histories.shape), np.zeros(histories.shape)
    data = histories.data.astype(np.float64)
    arrays = matrix.indptr, matrix.indices, matrix.data, histories.indptr, histories.indices, data

    def block(start: int, stop: int) -> None:
        _two_steps(*arrays, first, second, start, stop, *sums(histories.shape[1]))

    parallel.parallel_for(block, len(first), 4, threads)
    return first, second


@kernel
def _two_steps(
    pointers: Any,
    columns: Any,
    values: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    out_first: Any,
    out_second: Any,
    start: int,
    stop: int,
    total: Any,
    is_summed: Any,
    summed: Any,
) -> None:
    for user in range(start, stop):
        part = slice(indptr[user], indptr[user + 1])
        number = add_sparse_rows(pointers, columns, values, indices[part], data[part], total, is_summed, summed)
        first, second = out_first[user], out_second[user]
        for i in summed[:number]:
            first[i] = factor = total[i]
            for t in range(pointers[i], pointers[i + 1]):
                second[columns[t]] += factor * values[t]
        clear(total, is_summed, summed[:number])
