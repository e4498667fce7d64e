"""W = C·V as a symmetric array and a sparse matrix: the product is not formed."""

from __future__ import annotations

import numpy as np

from monogram.engine.gram.operators import multiply
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.engine.topk.few import sum_rows
from monogram.weights.common import Tensors, Weights, batches, checked, joined, part
from monogram.weights.sparse import Sparse

SCORES = 1 << 22  # scores in memory at a time, and as many products: 32 MB each
ROWS = 512  # rows of C in float64 at a time


class SolvedProduct(Weights):
    """W = C·V: a history scores (hC)·V, in float64.

    Parameters
    ----------
    square : C, n × n, symmetric, C-ordered
    by_column : V by column, the CSR matrix of its transpose
    """

    kind = "solved_product"
    linear = True
    batch_invariant = True

    def __init__(self, square: Float, by_column: Csr) -> None:
        self.square, self._targets = square, Sparse(by_column)

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> SolvedProduct:
        """Build from stored arrays, with every index checked."""
        n = training.shape[1]
        return cls(checked(tensors, "square", (n, n)), Sparse.from_tensors(tensors, training).matrix)

    @property
    def by_column(self) -> Csr:
        """V by column: row j of this matrix is column j of V."""
        return self._targets.matrix

    @property
    def nbytes(self) -> int:
        return int(self.square.nbytes + self._targets.nbytes)

    @property
    def batch(self) -> int:
        """Histories that are ranked at a time."""
        return max(1, SCORES // len(self.square))

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        every, ones = np.arange(len(self.square)), np.ones((1, len(self.square)))
        parts = []
        for start, stop in batches(histories.shape[0], self.batch):
            scores = self._scores(histories[start:stop], every, threads)
            parts += heads_by_scores(scores, ones, part(eligible, start, stop), k, threads=threads)
        return joined(parts, k)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        out = np.empty((histories.shape[0], len(items)))
        for start, stop in batches(len(out), self.batch):
            out[start:stop] = self._scores(histories[start:stop], items, threads)
        return out

    def columns(self, items: Indices) -> Float64:
        out = np.zeros((len(self.square), len(items)))
        for place, item in enumerate(items):
            rows, values = self._column(item)
            for start, stop in batches(len(rows), ROWS):  # by symmetry, rows in place of columns
                out[:, place] += values[start:stop] @ self.square[rows[start:stop]].astype(np.float64)
        return out

    def shares(self, history: Csr, item: int) -> Float64:
        rows, values = self._column(item)
        return np.asarray(self.square[np.ix_(history.indices, rows)].astype(np.float64) @ values * history.data)

    def tensors(self) -> Tensors:
        return self._targets.tensors() | {"square": self.square}

    def _column(self, item: int) -> tuple[Indices, Float64]:
        """The rows and values of a column of V."""
        matrix = self.by_column
        stored = slice(matrix.indptr[item], matrix.indptr[item + 1])
        return matrix.indices[stored], matrix.data[stored].astype(np.float64)

    def _scores(self, histories: Csr, items: Indices, threads: int) -> Float64:
        """Scores of some items; the bits of a history do not depend on the others."""
        solved = sum_rows(self.square, histories, np.arange(len(self.square)), threads=threads)
        whole = len(items) == len(self.square) and bool((items == np.arange(len(items))).all())
        matrix = self.by_column if whole else self.by_column[items]
        return np.ascontiguousarray(multiply(matrix, solved.T, threads).T)
