"""The operator A = Y − a·bᵀ, sparse minus rank one, and its Gram matrices AᵀA and AAᵀ as matrix-free products.

Y is m × n. A plain log has no rank-one part; the target of RG² has one (b = 1). With a time kernel the Gram matrix over
the items is S_ij = Σ_u k(|t_ui − t_uj|)·y_ui·y_uj; the one over the users would have a row for each event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from monogram.engine.gram.accumulate import by_column, gram
from monogram.engine.gram.kernel_table import at_distance, kernel_table
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.jit import fused
from monogram.engine.runtime.jit import kernel as compiled

Apply = Callable[[Float], Float]
ROWS = 1024  # rows of a sparse matrix in one task
ITEMS = 64  # items in one task of a product with a time kernel


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


class TimedGram:
    """Products with the Gram matrix S of a time kernel, without an n × n array: ΣL² multiply-adds for each column.

    Each row of a product is summed in float64 by one thread in a fixed order.
    """

    def __init__(self, matrix: Csr, kernel: TimeKernel, threads: int = 1) -> None:
        self._data = (*by_column(matrix), matrix.indptr, matrix.indices, matrix.data, *kernel_table(kernel).arrays)
        self._items, self._threads = matrix.shape[1], threads

    @property
    def nbytes(self) -> int:
        """Bytes of the entries by item and of their positions, in addition to the data."""
        pointers, owners, places, _, _, _, positions, table, _ = self._data
        return sum(int(array.nbytes) for array in (pointers, owners, places, positions, table))

    def times(self, block: Float, threads: int | None = None) -> Float:
        """The product S·block, in the precision of the block; `threads` overrides those of this object."""
        block = np.ascontiguousarray(block)
        out = np.empty_like(block)

        def rows(start: int, stop: int) -> None:
            _timed_rows(*self._data, block, out, start, stop, np.empty(block.shape[1]))

        parallel.parallel_for(rows, self._items, ITEMS, threads or self._threads)
        return out


def gram_product(matrix: Csr, kernel: TimeKernel | None = None, threads: int = 1) -> Apply:
    """The function block → S·block of sparse data, with or without a time kernel."""
    if kernel is not None:
        return TimedGram(matrix, kernel, threads).times
    return lambda block: np.asarray(matrix.T @ (matrix @ block))


class Operator:
    """A, Aᵀ and their Gram matrices, applied to blocks of columns.

    Parameters
    ----------
    matrix : Y as CSR, m × n
    shift : (a, b), or None
    threads : int
    kernel : the time kernel on the entries of Y, or None
        With a kernel there is no shift, and no A: only products with the Gram matrix over the items.
    """

    def __init__(
        self,
        matrix: Csr,
        shift: tuple[Float64, Float64] | None = None,
        threads: int = 1,
        kernel: TimeKernel | None = None,
    ) -> None:
        if kernel is not None and shift is not None:
            raise ValueError("an operator has a rank-one part or a time kernel, not both")
        self.matrix, self.shift, self.threads, self.kernel = matrix, shift, threads, kernel
        self._timed = None if kernel is None else TimedGram(matrix, kernel, threads)
        self._by_item: Csr = matrix.T.tocsr() if kernel is None else matrix[:0].T.tocsr()  # a kernel has no use for it

    @property
    def shape(self) -> tuple[int, int]:
        """Users and items."""
        users, items = self.matrix.shape
        return users, items

    def times(self, block: Float) -> Float:
        """The product A·block (n × b → m × b)."""
        self._require_no_kernel()
        return self._times(self.matrix, block, self.shift)

    def transpose_times(self, block: Float) -> Float:
        """The product Aᵀ·block (m × b → n × b)."""
        self._require_no_kernel()
        return self._times(self._by_item, block, self.shift and self.shift[::-1])

    def item_gram_times(self, block: Float) -> Float:
        """The product AᵀA·block, or S·block with a time kernel."""
        if self._timed is not None:
            return self._timed.times(block)
        return self.transpose_times(self.times(block))

    def user_gram_times(self, block: Float) -> Float:
        """The product AAᵀ·block."""
        return self.times(self.transpose_times(block))

    def dense(self, side: str) -> Float64:
        """AᵀA (side "items") or AAᵀ (side "users") as a dense array, lower triangle only."""
        if side != "items":
            self._require_no_kernel()
        matrix, shift = (
            (self.matrix, self.shift) if side == "items" else (self._by_item, self.shift and self.shift[::-1])
        )
        n = matrix.shape[1]
        out = np.empty((n, n), np.float64, order="F")
        gram(matrix, out, kernel=self.kernel, threads=self.threads)
        return shifted(out, matrix, shift)

    def _require_no_kernel(self) -> None:
        if self.kernel is not None:
            raise ValueError("with a time kernel there are products with the Gram matrix over the items only")

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


@compiled
def _multiply(indptr: Any, indices: Any, data: Any, block: Any, out: Any, start: int, stop: int) -> None:
    for row in range(start, stop):
        total = out[row]
        total[:] = 0
        for p in range(indptr[row], indptr[row + 1]):
            value = data[p]
            other = block[indices[p]]
            for t in range(len(total)):
                total[t] += value * other[t]


@fused
def _timed_rows(
    pointers: Any,
    owners: Any,
    places: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    positions: Any,
    table: Any,
    shift: int,
    block: Any,
    out: Any,
    start: int,
    stop: int,
    total: Any,
) -> None:
    for j in range(start, stop):
        total[:] = 0.0
        for p in range(pointers[j], pointers[j + 1]):
            row, own = owners[p], places[p]
            here, value = positions[own], np.float64(data[own])
            for q in range(indptr[row], indptr[row + 1]):
                factor = value * data[q] * at_distance(table, shift, here, positions[q])
                other = block[indices[q]]
                for t in range(len(total)):
                    total[t] += factor * other[t]
        for t in range(len(total)):
            out[j, t] = total[t]
