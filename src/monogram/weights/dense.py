"""W as an n × n array, and constant scores that do not depend on the history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from monogram.engine.inverse import woodbury
from monogram.engine.inverse.disk import ScratchFolder
from monogram.engine.inverse.protocols import ReadableInverse
from monogram.engine.runtime import memory
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.by_rows import heads_by_rows
from monogram.engine.topk.few import best_by_rows, sum_rows
from monogram.errors import MemoryBudgetError
from monogram.weights.common import Head, Tensors, Weights, checked
from monogram.weights.rescaled import Rescaled
from monogram.weights.update_state import UpdateState, rounded_scale


class Dense(Weights):
    """W as one C-ordered array: row i holds what item i of a history adds to every score.

    Where the array is a memory-mapped file of a fit on disk, `scratch` is the folder of that file.
    """

    kind = "dense"
    solver = "primal"
    linear = True
    batch_invariant = True
    square_axis = "items"
    tensor = "weights"  # the name of W among the stored arrays

    def __init__(
        self, matrix: Float, scratch: ScratchFolder | None = None, update_state: UpdateState | None = None
    ) -> None:
        self.matrix, self.scratch, self.update_state = matrix, scratch, update_state

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> Dense:
        """Build from stored arrays."""
        n = training.shape[1]
        return cls(checked(tensors, cls.tensor, (n, n)))

    @property
    def nbytes(self) -> int:
        return int(self.matrix.nbytes)

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        return best_by_rows(self.matrix, histories, eligible, k, threads=threads)

    def heads(self, thetas: Float64, histories: Csr, eligible: Eligible, k: int, threads: int) -> list[Best]:
        """The best items by each row of `thetas` times the scores: for models that differ by one factor per item."""
        return heads_by_rows(self.matrix, thetas, histories, eligible, k, threads=threads)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        return sum_rows(self.matrix, histories, items, threads=threads)

    def columns(self, items: Indices) -> Float64:
        return self.matrix[:, items].astype(np.float64)

    def shares(self, history: Csr, item: int) -> Float64:
        return np.asarray(self.matrix[history.indices, item].astype(np.float64) * history.data)

    def tensors(self) -> Tensors:
        return {self.tensor: self.matrix}

    def serves_head(self, head: Head) -> bool:
        return self.update_state is not None and self.update_state.scale is not None

    def with_head(self, head: Head, d: Float64, counts: Float64) -> Weights:
        state = self.required_state()
        theta, delta = head(state.c, state.penalties, d, counts)
        return Rescaled(self, np.asarray((-theta / state.c) / state.usable_scale()), delta)

    def copy_with_head(self, head: Head, d: Float64, counts: Float64, *, budget: int, threads: int) -> Weights:
        state, needed = self.required_state(), self.matrix.nbytes
        if needed > budget:
            raise MemoryBudgetError(
                f"a second array of weights needs {memory.show(needed)}, but may use {memory.show(budget)}"
            )
        theta, delta = head(state.c, state.penalties, d, counts)
        ratio = (-theta / state.c) / state.usable_scale()
        scale = rounded_scale(theta, state.c, self.matrix.dtype)
        array = woodbury.rescaled(self.matrix, ratio, delta, threads)
        return Dense(array, update_state=replace(state, scale=scale))

    def read_inverse(self, data: Csr) -> ReadableInverse:
        state = self.required_state()
        return woodbury.InverseInWeights(self.matrix, state.usable_scale(), state.c)


class Fixed(Weights):
    """One score for each item, whatever the history."""

    kind = "fixed"
    linear = False
    batch_invariant = True

    def __init__(self, scores: Float64) -> None:
        self.scores = scores

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> Fixed:
        """Build from stored arrays."""
        return cls(checked(tensors, "scores", (training.shape[1],)))

    @property
    def nbytes(self) -> int:
        return int(self.scores.nbytes)

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        no_rows = np.empty((0, len(self.scores)))
        return best_by_rows(no_rows, histories, eligible, k, base=self.scores, threads=threads)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        return np.tile(self.scores[items], (histories.shape[0], 1))

    def columns(self, items: Indices) -> Float64:
        return np.zeros((len(self.scores), len(items)))

    def shares(self, history: Csr, item: int) -> Float64:
        return np.zeros(history.nnz)

    def base(self, items: Indices) -> Float64:
        return np.asarray(self.scores[items])

    def tensors(self) -> Tensors:
        return {"scores": self.scores}
