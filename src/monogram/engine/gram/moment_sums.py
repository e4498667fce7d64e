"""Moments summed over blocks of inputs and targets, in float64, sparse while that takes less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from monogram.engine.gram.session_moments import DENSE_SHARE
from monogram.engine.runtime import memory
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.errors import MemoryBudgetError

BATCH = 1_000_000  # entries of inputs that are multiplied at once


class MomentSums:
    """Sums Σ w·x̂ᵀx̂ and Σ w·x̂ᵀt over the rows of blocks.

    Parameters
    ----------
    items : number of columns of inputs and targets
    budget : bytes that the sums may take
    """

    def __init__(self, items: int, budget: float = np.inf) -> None:
        self.items, self.budget = items, budget
        self._second: Any = Csr((items, items), dtype=np.float64)
        self._cross: Any = Csr((items, items), dtype=np.float64)
        self._waiting: list[tuple[Csr, Any, Float64]] = []
        self._size = 0

    def add(self, inputs: Csr, targets: Any, weights: Float64) -> None:
        """Add the rows of a block; targets are sparse, or an array."""
        self._waiting.append((inputs, targets, weights))
        self._size += inputs.nnz + (targets.nnz if sp.issparse(targets) else targets.size)
        if self._size >= BATCH:
            self._flush()

    def sums(self) -> tuple[Any, Any]:
        """Both sums: each a CSR matrix, or an array where it is dense."""
        self._flush()
        return self._second, self._cross

    def _flush(self) -> None:
        """Multiply the blocks that wait, sparse targets apart from dense ones."""
        for is_sparse in (True, False):
            blocks = [block for block in self._waiting if sp.issparse(block[1]) is is_sparse]
            if not blocks:
                continue
            inputs = sp.vstack([block[0] for block in blocks], format="csr", dtype=np.float64)
            targets = [block[1] for block in blocks]
            stacked = sp.vstack(targets, format="csr", dtype=np.float64) if is_sparse else np.vstack(targets)
            weighted = inputs.copy()
            weighted.data *= np.repeat(np.concatenate([block[2] for block in blocks]), np.diff(inputs.indptr))
            self._second = self._summed(self._second, weighted.T @ inputs)
            self._cross = self._summed(self._cross, weighted.T @ stacked)
        self._waiting, self._size = [], 0

    def _summed(self, total: Any, part: Any) -> Any:
        if isinstance(total, np.ndarray):
            if sp.issparse(part):
                entries = part.tocoo()
                np.add.at(total, (entries.row, entries.col), entries.data)
            else:
                total += part
            return total
        dense = not sp.issparse(part) or total.nnz + part.nnz > DENSE_SHARE * self.items**2
        self._require((8 * self.items**2 if dense else 0) + 12 * (total.nnz + (part.nnz if sp.issparse(part) else 0)))
        return total.toarray() + (part.toarray() if sp.issparse(part) else part) if dense else total + part

    def _require(self, needed: int) -> None:
        """MemoryBudgetError where one more sum does not fit beside the other one."""
        held = sum(total.nbytes if isinstance(total, np.ndarray) else 12 * total.nnz for total in self._both)
        if held + needed > self.budget:
            raise MemoryBudgetError(
                f"the moments of {self.items:,} items need {memory.show(held + needed)}, but may use "
                f"{memory.show(self.budget)}"
            )

    @property
    def _both(self) -> tuple[Any, Any]:
        return self._second, self._cross
