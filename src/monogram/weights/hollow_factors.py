"""W = A·Aᵀ without its diagonal, from one n × k array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.weights.common import Tensors, checked, columns_of
from monogram.weights.factors import Factors


class HollowFactors(Factors):
    """W = A·Aᵀ − diag(A·Aᵀ): a history h scores (hA)·Aᵀ − h∘δ, δ_i = ‖a_i‖².

    Parameters
    ----------
    items : A, n × k
    """

    kind = "hollow_factors"
    linear = True

    def __init__(self, items: Float) -> None:
        super().__init__(items, items, np.ones(items.shape[1]))
        self.diagonal = np.einsum("ik,ik->i", items, items, dtype=np.float64)

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> HollowFactors:
        """Build from stored arrays."""
        return cls(checked(tensors, "items", (training.shape[1], columns_of(tensors, "items"))))

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        """The k best. The diagonal lowers only the scores of a history's own items, so few more than k are compared."""
        whole = super().best(histories, eligible, k, threads)
        if not whole.among(histories).any():
            return whole
        longest = int(np.diff(histories.indptr).max())
        return self._without_diagonal(super().best(histories, eligible, k + longest, threads), histories, k)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        own = histories[:, items].astype(np.float64).toarray() * self.diagonal[items]
        return np.asarray(super().score(histories, items, threads) - own)

    def columns(self, items: Indices) -> Float64:
        columns = super().columns(items)
        columns[items, np.arange(len(items))] = 0.0
        return columns

    def shares(self, history: Csr, item: int) -> Float64:
        return np.asarray(np.where(history.indices == item, 0.0, super().shares(history, item)))

    def tensors(self) -> Tensors:
        return {"items": self.right}

    def _without_diagonal(self, wide: Best, histories: Csr, k: int) -> Best:
        """The k best of lists that were ranked with the diagonal."""
        scores = wide.scores - _own(wide.items, wide.among(histories), histories) * self.diagonal[wide.items]
        scores[np.arange(scores.shape[1]) >= wide.counts[:, None]] = -np.inf
        order = np.lexsort((wide.items, -scores))[:, :k]
        items, scores = (np.take_along_axis(array, order, axis=1) for array in (wide.items, scores))
        counts = np.minimum(wide.counts, k)
        unfilled = np.arange(items.shape[1]) >= counts[:, None]
        items[unfilled], scores[unfilled] = 0, 0.0
        return Best(items, scores, counts)


def _own(items: Indices, among: NDArray[np.bool_], histories: Csr) -> Float64:
    """The weight of each item in the history of its row; 0 where it is not in it (`among`)."""
    n = histories.shape[1]
    rows = np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))
    keys = rows * n + histories.indices
    values = np.zeros(items.shape)
    wanted = (np.arange(len(items))[:, None] * n + items)[among]
    values[among] = histories.data[np.searchsorted(keys, wanted)]
    return values
