"""W as a sparse matrix, from local regressions: it can take another head, and be updated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from monogram.engine.inverse import local
from monogram.engine.runtime import memory
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.errors import MemoryBudgetError
from monogram.weights.common import Head, Weights
from monogram.weights.sparse import Sparse
from monogram.weights.update_state import UpdateState, rounded_scale


class Local(Sparse):
    """W = B·diag(θ) + diag(δ) with at most a few hundred weights an item; see `engine.inverse.local`."""

    kind = "local"
    solver = local.NAME
    refit_from_log = True

    def __init__(self, matrix: Csr, update_state: UpdateState | None = None) -> None:
        super().__init__(matrix)
        self.update_state = update_state

    def serves_head(self, head: Head) -> bool:
        return self.update_state is not None and self.update_state.scale is not None

    def with_head(self, head: Head, d: Float64, counts: Float64) -> Weights:
        state = self.required_state()
        theta, delta = head(state.c, state.penalties, d, counts)
        ratio = (-theta / state.c) / state.usable_scale()
        matrix = self.matrix.copy()
        matrix.data *= ratio.astype(matrix.dtype)[matrix.indices]
        if delta.any() or self._has_diagonal():
            matrix.setdiag(delta.astype(matrix.dtype))
            matrix.sort_indices()
        scale = rounded_scale(theta, state.c, matrix.dtype)
        return Local(matrix, replace(state, scale=scale))

    def copy_with_head(self, head: Head, d: Float64, counts: Float64, *, budget: int, threads: int) -> Weights:
        needed = self.nbytes + (4 + self.matrix.dtype.itemsize) * len(d)
        if needed > budget:
            raise MemoryBudgetError(
                f"a second array of weights needs {memory.show(needed)}, but may use {memory.show(budget)}"
            )
        return self.with_head(head, d, counts)

    def _has_diagonal(self) -> bool:
        return bool(np.any(self.matrix.diagonal()))
