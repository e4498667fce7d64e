"""Two-step scoring through the sparse B of local regressions: the scores hB are multiplied by B a second time."""

from __future__ import annotations

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64, Indices
from monogram.engine.topk.two_steps import two_steps
from monogram.weights.common import Tensors, batches
from monogram.weights.projection import Projection
from monogram.weights.sparse import Sparse
from monogram.weights.two_step import TwoStepWeights, own_scores

SCORES = 1 << 22  # scores of each step in memory at a time: 32 MB in float64


class TwoStepSparse(TwoStepWeights):
    """W = ((1 − s)·B + s·B² + P)·diag(f) + r·I with a sparse B; B² is not formed. See `TwoStepWeights`."""

    kind = "two_step_sparse"

    def __init__(
        self, matrix: Csr, share: float, factors: Float64, low_pass: Projection | None = None, repeat: float = 0.0
    ) -> None:
        super().__init__(Sparse(matrix), share, factors, low_pass, repeat, matrix.dtype)
        self.batch_invariant = not self.low_pass.basis.size

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> TwoStepSparse:
        """Build from stored arrays."""
        return cls(Sparse.from_tensors(tensors, training).matrix, *cls.stored(tensors, training.shape[1]))

    @property
    def batch(self) -> int:
        return max(1, SCORES // len(self.factors))

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        out = np.empty((histories.shape[0], len(items)))
        for start, stop in batches(len(out), self.batch):
            rows = histories[start:stop]
            out[start:stop] = self._ranking_scores(rows, threads)[:, items] * self.factors[items]
            if self.repeat:
                out[start:stop] += own_scores(rows, np.full(len(self.factors), self.repeat))[:, items]
        return out

    def columns(self, items: Indices) -> Float64:
        first = self.first.columns(items)
        second = self.first.matrix.astype(np.float64) @ first
        mixed = (1 - self.share) * first + self.share * second + self.low_pass.columns(items)
        out = np.asarray(mixed * self.factors[items])
        out[items, np.arange(len(items))] += self.repeat
        return out

    def _ranking_scores(self, rows: Csr, threads: int) -> Float64:
        first, scores = two_steps(self.first.matrix, rows, threads=threads)
        scores *= self.share
        first *= 1 - self.share
        scores += first
        if self.low_pass.basis.size:
            with parallel.blas_threads(threads):
                scores += self.low_pass.of_items(rows, np.arange(len(self.factors)))
        return scores
