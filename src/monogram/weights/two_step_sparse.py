"""Two-step scoring through the sparse B of local regressions: the scores hB are multiplied by B a second time."""

from __future__ import annotations

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.engine.topk.two_steps import two_step_scores
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights, batches, checked, joined, part
from monogram.weights.sparse import Sparse

SCORES = 1 << 23  # scores in memory at a time: 64 MB in float64


class TwoStepSparse(Weights):
    """W = ((1 − s)·B + s·B² + GGᵀ)·diag(f) with a sparse B; B² is not formed.

    Parameters
    ----------
    matrix : B
    share : s
    factors : f, above 0
    basis : G, n × some columns, or None
    """

    kind = "two_step_sparse"
    linear = True

    def __init__(self, matrix: Csr, share: float, factors: Float64, basis: Float | None = None) -> None:
        self.first, self.share, self.factors = Sparse(matrix), share, factors
        self.basis = np.zeros((len(factors), 0), matrix.dtype) if basis is None else basis
        self.batch_invariant = not self.basis.size

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> TwoStepSparse:
        """Build from stored arrays."""
        n = training.shape[1]
        share, factors = float(checked(tensors, "share", (1,))[0]), checked(tensors, "factors", (n,))
        if not 0 <= share <= 1:
            raise ModelFileError(f"the file's weights have a share of {share:g}; expected one between 0 and 1")
        if not (factors > 0).all():
            raise ModelFileError("the file's weights have a factor of an item that is not above 0")
        stored = tensors.get("basis")
        width = stored.shape[1] if stored is not None and stored.ndim == 2 else 1
        basis = None if stored is None else checked(tensors, "basis", (n, width))
        return cls(Sparse.from_tensors(tensors, training).matrix, share, factors, basis)

    @property
    def nbytes(self) -> int:
        return int(self.first.nbytes + self.factors.nbytes + self.basis.nbytes)

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        return self.heads(np.ones((1, len(self.factors))), histories, eligible, k, threads)[0]

    def heads(self, thetas: Float64, histories: Csr, eligible: Eligible, k: int, threads: int) -> list[Best]:
        """The best items by each row of `thetas` times the scores."""
        parts: list[list[Best]] = [[] for _ in thetas]
        for start, stop in batches(histories.shape[0], max(1, SCORES // len(self.factors))):
            scores, rules = self._scores(histories[start:stop], threads), part(eligible, start, stop)
            found = heads_by_scores(scores, thetas * self.factors, rules, k, threads=threads)
            for head, best in zip(parts, found, strict=True):
                head.append(best)
        return [joined(head, k) for head in parts]

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        out = np.empty((histories.shape[0], len(items)))
        for start, stop in batches(len(out), max(1, SCORES // len(self.factors))):
            out[start:stop] = self._scores(histories[start:stop], threads)[:, items] * self.factors[items]
        return out

    def columns(self, items: Indices) -> Float64:
        first = self.first.columns(items)
        second = self.first.matrix.astype(np.float64) @ first
        projected = self.basis @ self.basis[items].T.astype(np.float64)
        return np.asarray(((1 - self.share) * first + self.share * second + projected) * self.factors[items])

    def tensors(self) -> Tensors:
        tensors = self.first.tensors() | {"share": np.array([self.share]), "factors": self.factors}
        return tensors | {"basis": self.basis} if self.basis.size else tensors

    def _scores(self, histories: Csr, threads: int) -> Float64:
        """Scores without the item factors."""
        scores = two_step_scores(self.first.matrix, histories, self.share, threads=threads)
        if self.basis.size:
            common = np.asarray(histories.astype(np.float64) @ self.basis.astype(np.float64))
            with parallel.blas_threads(threads):
                scores += common @ self.basis.T.astype(np.float64)
        return scores
