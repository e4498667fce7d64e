"""Moments summed over blocks of inputs and targets, in float64, sparse while that takes less memory.

A product is added to its sum row by row and is never in memory as a whole. The entries of a sparse sum are counted
before its arrays are allocated, so that a sum over the budget is refused before it takes the memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from monogram.engine.gram.accumulate import by_column
from monogram.engine.gram.session_moments import DENSE_SHARE
from monogram.engine.runtime import memory
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.jit import kernel
from monogram.errors import MemoryBudgetError

ENTRY_BYTES = 72  # of a waiting sparse entry, its copies, and its place in the order by item; a bound
ARRAY_BYTES = 16  # of a waiting entry of an array, and its copy
BATCH = 1_000_000 * ENTRY_BYTES  # bytes of the blocks that are multiplied at once
BATCH_SHARE = 1 / 8  # of the budget, where that is less
ITEM_BYTES = 64  # of the counts, pointers and row buffers of an item; a bound


class MomentSums:
    """Sums Σ w·x̂ᵀx̂ and Σ w·x̂ᵀt over the rows of blocks.

    Parameters
    ----------
    items : number of columns of inputs and targets
    budget : bytes that the sums may take, with the blocks that are not added yet
    """

    def __init__(self, items: int, budget: float = np.inf) -> None:
        self.items, self.budget = items, budget
        self._batch = min(BATCH, budget * BATCH_SHARE)
        self._second: Any = Csr((items, items), dtype=np.float64)
        self._cross: Any = Csr((items, items), dtype=np.float64)
        self._waiting: list[tuple[Csr, Any, Float64]] = []
        self._size = 0

    def add(self, inputs: Csr, targets: Any, weights: Float64) -> None:
        """Add the rows of a block; targets are sparse, or an array."""
        self._waiting.append((inputs, targets, weights))
        self._size += ENTRY_BYTES * (inputs.nnz + len(weights))
        self._size += ENTRY_BYTES * targets.nnz if sp.issparse(targets) else ARRAY_BYTES * targets.size
        if self._size >= self._batch:
            self._flush()

    def sums(self) -> tuple[Any, Any]:
        """Both sums: each a CSR matrix, or an array where it is dense."""
        self._flush()
        for moment in (self._second, self._cross):
            if sp.issparse(moment):
                moment.sort_indices()
        return self._second, self._cross

    def _flush(self) -> None:
        """Multiply the blocks that wait, sparse targets apart from dense ones."""
        self._require(0)
        for is_sparse in (True, False):
            blocks = [block for block in self._waiting if sp.issparse(block[1]) is is_sparse]
            if not blocks:
                continue
            inputs = _stacked([block[0] for block in blocks])
            targets = [block[1] for block in blocks]
            stacked = _stacked(targets) if is_sparse else np.concatenate(targets, dtype=np.float64)
            left = _by_item(inputs, np.concatenate([block[2] for block in blocks]))
            self._second = self._summed(self._second, left, inputs)
            self._cross = self._summed(self._cross, left, stacked)
        self._waiting, self._size = [], 0

    def _summed(self, total: Any, left: tuple[Any, ...], right: Any) -> Any:
        """The total and the product of the weighted inputs, by item, and the rows on the right."""
        if sp.issparse(total):
            if sp.issparse(right):
                offsets = _offsets(total, left, right)
                if offsets[-1] <= DENSE_SHARE * self.items**2:
                    return self._sparse_sum(total, left, right, offsets)
            self._require(8 * self.items**2)
            total = total.toarray()
        if sp.issparse(right):
            _add_sparse(*left, right.indptr, right.indices, right.data, total)
        else:
            _add_dense(*left, right, total)
        return total

    def _sparse_sum(self, total: Csr, left: tuple[Any, ...], right: Csr, offsets: Any) -> Csr:
        stored = int(offsets[-1])
        index = _index_type(stored)
        self._require((8 + index.itemsize) * stored)
        columns, values = np.empty(stored, index), np.empty(stored)
        buffers = np.empty(self.items), np.full(self.items, -1, np.int32)
        arrays = right.indptr, right.indices, right.data, total.indptr, total.indices, total.data
        _fill(*left, *arrays, offsets, columns, values, *buffers)
        return Csr((values, columns, offsets.astype(index)), shape=total.shape)

    def _require(self, more: int) -> None:
        """MemoryBudgetError where so many more bytes do not fit beside both sums and the blocks that wait."""
        held = sum(_bytes(moment) for moment in (self._second, self._cross))
        needed = held + self._size + ITEM_BYTES * self.items + more
        if needed > self.budget:
            raise MemoryBudgetError(
                f"the moments of {self.items:,} items need {memory.show(needed)}, but may use "
                f"{memory.show(self.budget)}"
            )


def _bytes(moment: Any) -> int:
    return int(moment.data.nbytes + moment.indices.nbytes if sp.issparse(moment) else moment.nbytes)


def _index_type(stored: int) -> np.dtype[Any]:
    """The type of the indices and of the pointers; SciPy copies the indices where the types differ."""
    return np.dtype(np.int32 if stored <= np.iinfo(np.int32).max else np.int64)


def _stacked(blocks: list[Csr]) -> Csr:
    """The rows of all blocks."""
    lengths = np.concatenate([np.diff(block.indptr) for block in blocks])
    data = np.concatenate([block.data for block in blocks], dtype=np.float64, casting="same_kind")
    index = _index_type(len(data))
    indices = np.concatenate([block.indices for block in blocks], dtype=index, casting="same_kind")
    pointers = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return Csr((data, indices, pointers.astype(index)), shape=(len(lengths), blocks[0].shape[1]))


def _by_item(inputs: Csr, weights: Float64) -> tuple[Any, ...]:
    """The weighted inputs by item: pointers, rows, and weights times values."""
    pointers, owners, places = by_column(inputs)
    factors = weights[owners]
    factors *= inputs.data[places]
    return pointers, owners, factors


def _offsets(total: Csr, left: tuple[Any, ...], right: Csr) -> Any:
    """Row offsets of the sum of a total and a product."""
    counts = np.zeros(total.shape[0] + 1, np.int64)
    mark = np.full(total.shape[1], -1, np.int32)
    _count(*left[:2], right.indptr, right.indices, total.indptr, total.indices, counts, mark)
    return np.cumsum(counts, out=counts)


@kernel
def _count(
    pointers: Any, owners: Any, indptr: Any, indices: Any, old_indptr: Any, old_indices: Any, counts: Any, mark: Any
) -> None:
    """Count the columns of each row of the sum, each once."""
    for i in range(len(pointers) - 1):
        for t in range(old_indptr[i], old_indptr[i + 1]):
            mark[old_indices[t]] = i
        number = old_indptr[i + 1] - old_indptr[i]
        for p in range(pointers[i], pointers[i + 1]):
            for q in range(indptr[owners[p]], indptr[owners[p] + 1]):
                if mark[indices[q]] != i:
                    mark[indices[q]] = i
                    number += 1
        counts[i + 1] = number


@kernel
def _fill(
    pointers: Any,
    owners: Any,
    factors: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    old_indptr: Any,
    old_indices: Any,
    old_data: Any,
    offsets: Any,
    columns: Any,
    values: Any,
    row: Any,
    mark: Any,
) -> None:
    """Write the rows of the sum, their columns in no order."""
    for i in range(len(pointers) - 1):
        number = offsets[i]
        for t in range(old_indptr[i], old_indptr[i + 1]):
            j = old_indices[t]
            mark[j], row[j], columns[number] = i, old_data[t], j
            number += 1
        for p in range(pointers[i], pointers[i + 1]):
            for q in range(indptr[owners[p]], indptr[owners[p] + 1]):
                j = indices[q]
                if mark[j] != i:
                    mark[j], row[j], columns[number] = i, 0.0, j
                    number += 1
                row[j] += factors[p] * data[q]
        for t in range(offsets[i], number):
            values[t] = row[columns[t]]


@kernel
def _add_sparse(pointers: Any, owners: Any, factors: Any, indptr: Any, indices: Any, data: Any, out: Any) -> None:
    for i in range(len(pointers) - 1):
        row = out[i]
        for p in range(pointers[i], pointers[i + 1]):
            for q in range(indptr[owners[p]], indptr[owners[p] + 1]):
                row[indices[q]] += factors[p] * data[q]


@kernel
def _add_dense(pointers: Any, owners: Any, factors: Any, targets: Any, out: Any) -> None:
    for i in range(len(pointers) - 1):
        row = out[i]
        for p in range(pointers[i], pointers[i + 1]):
            target = targets[owners[p]]
            for j in range(len(row)):
                row[j] += factors[p] * target[j]
