"""What the two kinds of two-step weights have in common: lists, stored arrays, and the low-pass projection."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights, batches, checked, joined, part
from monogram.weights.projection import Projection


class TwoStepWeights(Weights):
    """W = ((1 − s)·B + s·B² + P)·diag(f) + r·I; the kinds differ in how they hold B.

    Parameters
    ----------
    first : B, as weights
    share : s
    factors : f, above 0
    low_pass : P, or None
    repeat : r, what an item of the history adds to its own score
    dtype : of an empty projection
    """

    linear = True

    def __init__(
        self, first: Any, share: float, factors: Float64, low_pass: Projection | None, repeat: float, dtype: Any
    ) -> None:
        self.first, self.share, self.factors, self.repeat = first, share, factors, repeat
        self.low_pass = low_pass or Projection.none(len(factors), dtype)

    @staticmethod
    def stored(tensors: Tensors, items: int) -> tuple[float, Float64, Projection | None, float]:
        """Share, factors, projection and repeat from stored arrays, checked."""
        share, factors = float(checked(tensors, "share", (1,))[0]), checked(tensors, "factors", (items,))
        if not 0 <= share <= 1:
            raise ModelFileError(f"the file's weights have a share of {share:g}; expected one between 0 and 1")
        if not (factors > 0).all():
            raise ModelFileError("the file's weights have a factor of an item that is not above 0")
        repeat = float(checked(tensors, "repeat", (1,))[0]) if "repeat" in tensors else 0.0
        if not 0 <= repeat < np.inf:
            raise ModelFileError(f"the file's weights have a repeat of {repeat:g}; expected a number of at least 0")
        return share, factors, Projection.from_tensors(tensors, items), repeat

    @property
    def nbytes(self) -> int:
        return int(self.first.nbytes + self.factors.nbytes + self.low_pass.nbytes)

    @property
    def batch(self) -> int:
        """Histories that are ranked at a time."""
        raise TypeError(f"{type(self).__name__} must define batch")

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        return self.heads(np.ones((1, len(self.factors))), histories, eligible, k, threads)[0]

    def heads(self, thetas: Float64, histories: Csr, eligible: Eligible, k: int, threads: int) -> list[Best]:
        """The best items by each row of `thetas` times the scores."""
        parts: list[list[Best]] = [[] for _ in thetas]
        for start, stop in batches(histories.shape[0], self.batch):
            scores, rules = self._ranking_scores(histories[start:stop], threads), part(eligible, start, stop)
            if self.repeat:
                scores += own_scores(histories[start:stop], self.repeat / self.factors)
            found = heads_by_scores(scores, thetas * self.factors, rules, k, threads=threads)
            for head, best in zip(parts, found, strict=True):
                head.append(best)
        return [joined(head, k) for head in parts]

    def tensors(self) -> Tensors:
        tensors: Tensors = self.first.tensors() | {"share": np.array([self.share]), "factors": self.factors}
        if self.repeat:
            tensors["repeat"] = np.array([self.repeat])
        return tensors | self.low_pass.tensors()

    def _ranking_scores(self, rows: Csr, threads: int) -> Float:
        """Scores of histories without the item factors, by which lists are ranked."""
        raise TypeError(f"{type(self).__name__} must define _ranking_scores")


def own_scores(rows: Csr, factors: Float64) -> Float64:
    """The weights of histories (histories × items), each times the factor of its item."""
    return np.asarray(Csr((rows.data * factors[rows.indices], rows.indices, rows.indptr), shape=rows.shape).toarray())
