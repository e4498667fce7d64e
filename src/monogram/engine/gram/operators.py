"""The operator A = Y − a·bᵀ, sparse minus rank one, and its Gram matrices AᵀA and AAᵀ as matrix-free products.

Y is m × n. A plain log has no rank-one part; the target of RG² has one (b = 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.gram.accumulate import gram
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.jit import kernel

ROWS = 1024  # rows of a sparse matrix in one task


def multiply(matrix: Csr, block: Float, threads: int = 1) -> Float:
    """CSR times a dense block, in the precision of the block.

    The bits of a column depend neither on the number of threads nor on the other columns.
    """
    out = np.empty((matrix.shape[0], block.shape[1]), block.dtype)
    block, data = np.ascontiguousarray(block), matrix.data
    if data.dtype.itemsize > block.dtype.itemsize:
        data = data.astype(block.dtype)

    def rows(start: int, stop: int) -> None:
        _multiply(matrix.indptr, matrix.indices, data, block, out, start, stop)

    parallel.parallel_for(rows, len(out), ROWS, threads)
    return out


class Operator:
    """A, Aᵀ and their Gram matrices, applied to blocks of columns.

    Parameters
    ----------
    matrix : Y as CSR, m × n
    shift : (a, b), or None
    threads : int
    """

    def __init__(self, matrix: Csr, shift: tuple[Float64, Float64] | None = None, threads: int = 1) -> None:
        self.matrix, self.shift, self.threads = matrix, shift, threads
        self.by_item = matrix.T.tocsr()

    @property
    def shape(self) -> tuple[int, int]:
        """Users and items."""
        users, items = self.matrix.shape
        return users, items

    def times(self, block: Float) -> Float:
        """The product A·block (n × b → m × b)."""
        return self._times(self.matrix, block, self.shift)

    def transpose_times(self, block: Float) -> Float:
        """The product Aᵀ·block (m × b → n × b)."""
        return self._times(self.by_item, block, self.shift and self.shift[::-1])

    def item_gram_times(self, block: Float) -> Float:
        """The product AᵀA·block."""
        return self.transpose_times(self.times(block))

    def user_gram_times(self, block: Float) -> Float:
        """The product AAᵀ·block."""
        return self.times(self.transpose_times(block))

    def dense(self, side: str) -> Float64:
        """AᵀA (side "items") or AAᵀ (side "users") as a dense array, lower triangle only."""
        matrix, shift = (
            (self.matrix, self.shift) if side == "items" else (self.by_item, self.shift and self.shift[::-1])
        )
        n = matrix.shape[1]
        out = np.empty((n, n), np.float64, order="F")
        gram(matrix, out, threads=self.threads)
        return shifted(out, matrix, shift)

    def _times(self, matrix: Csr, block: Float, shift: tuple[Float64, Float64] | None) -> Float:
        out = multiply(matrix, block, self.threads)
        if shift is not None:
            a, b = shift
            out -= np.outer(a, b @ block.astype(np.float64)).astype(block.dtype)
        return out


def shifted(square: Float64, matrix: Csr, shift: tuple[Float64, Float64] | None) -> Float64:
    """The lower triangle of (Y − a·bᵀ)ᵀ(Y − a·bᵀ) from the lower triangle of YᵀY, in place."""
    if shift is not None:
        a, b = shift
        cross = matrix.T @ a
        for j in range(len(square)):
            square[j:, j] += (a @ a) * b[j] * b[j:] - cross[j] * b[j:] - b[j] * cross[j:]
    return square


@kernel
def _multiply(indptr: Any, indices: Any, data: Any, block: Any, out: Any, start: int, stop: int) -> None:
    for row in range(start, stop):
        total = out[row]
        total[:] = 0
        for p in range(indptr[row], indptr[row + 1]):
            value = data[p]
            other = block[indices[p]]
            for t in range(len(total)):
                total[t] += value * other[t]
