"""Cosine similarities between items, computed in blocks of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.gram.accumulate import by_column, squares
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64, Indices
from monogram.engine.runtime.jit import kernel


class Cosines:
    """Cosines S_ij/(√(d_i·d_j) + shrink) of a CSR matrix, with a zero diagonal; no n × n array is allocated."""

    def __init__(self, matrix: Csr, shrink: float, threads: int = 1) -> None:
        self.matrix, self.shrink, self.threads = matrix, shrink, threads
        self.squares, self.by_column = squares(matrix), by_column(matrix)

    def columns(self, items: Indices) -> Float64:
        """Some columns, in float64; each column is summed by one thread in a fixed order."""
        matrix = self.matrix
        out = np.zeros((matrix.shape[1], len(items)), order="F")
        arrays = (matrix.indptr, matrix.indices, matrix.data)

        def block(start: int, stop: int) -> None:
            _cosines(*self.by_column, *arrays, self.squares, self.shrink, items, out, start, stop)

        parallel.parallel_for(block, len(items), 8, self.threads)
        return out


@kernel
def _cosines(
    pointers: Any,
    owners: Any,
    places: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    squares: Any,
    shrink: float,
    items: Any,
    out: Any,
    start: int,
    stop: int,
) -> None:
    for place in range(start, stop):
        j = items[place]
        total = out[:, place]
        for p in range(pointers[j], pointers[j + 1]):
            row, factor = owners[p], np.float64(data[places[p]])
            for q in range(indptr[row], indptr[row + 1]):
                total[indices[q]] += factor * data[q]
        total[j] = 0.0
        for i in range(len(total)):
            if total[i] > 0:
                total[i] /= np.sqrt(squares[i] * squares[j]) + shrink
