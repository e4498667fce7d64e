"""W of low rank: two thin factors, scored in two thin products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.scores import sum_rows
from monogram.engine.topk import Best, Eligible, best_by_products
from monogram.weights.common import Float, Indices, Tensors, checked


class Factors:
    """W = U·diag(f)·Vᵀ; a history scores reach·(hU)·diag(f)·Vᵀ + base.

    Parameters
    ----------
    left : U, n × k
    right : V, n × k; may be the same array as `left`, and is then held and stored once
    scale : f
    base : what every history's scores start from; by default 0
    length : 0, or N where a history counts by its shares: reach = N/Σh (RG²); else reach = 1
    """

    kind = "factors"

    def __init__(
        self, left: NDArray[Any], right: NDArray[Any], scale: Float, base: Float | None = None, length: float = 0.0
    ) -> None:
        self.left, self.right, self.scale, self.length = left, right, scale, length
        self.offset = np.zeros(len(right)) if base is None else base

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Any) -> Factors:
        """Build from stored arrays."""
        n, rank = training.shape[1], len(tensors["scale"])
        right = checked(tensors, "right", (n, rank))
        left = checked(tensors, "left", (n, rank)) if "left" in tensors else right
        length = checked(tensors, "length", (1,))
        return cls(left, right, checked(tensors, "scale", (rank,)), checked(tensors, "base", (n,)), float(length[0]))

    @property
    def nbytes(self) -> int:
        return int(self.right.nbytes + (0 if self.left is self.right else self.left.nbytes))

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        projected = self._projected(histories, threads)
        return best_by_products(projected, self.right, self.offset, eligible, k, threads=threads)

    def score(self, histories: Any, items: Indices, threads: int) -> Float:
        return self._projected(histories, threads) @ self.right[items].astype(np.float64).T + self.offset[items]

    def columns(self, items: Indices) -> Float:
        wanted = self.right[items].astype(np.float64) * (self.scale * (self.length or 1.0))
        return np.asarray(self.left @ wanted.T)

    def shares(self, history: Any, item: int) -> Float:
        wanted = self.right[item].astype(np.float64) * self.scale
        return np.asarray((self.left[history.indices] @ wanted) * history.data * self._reach(history)[0])

    def base(self, items: Indices) -> Float:
        return np.asarray(self.offset[items])

    def tensors(self) -> Tensors:
        stored = {"right": self.right, "scale": self.scale, "base": self.offset, "length": np.array([self.length])}
        return stored if self.left is self.right else stored | {"left": self.left}

    def _projected(self, histories: Any, threads: int) -> Float:
        found = sum_rows(self.left, histories, np.arange(self.left.shape[1]), threads=threads)
        return found * self.scale * self._reach(histories)[:, None]

    def _reach(self, histories: Any) -> Float:
        if not self.length:
            return np.ones(histories.shape[0])
        sums = np.asarray(histories.sum(axis=1, dtype=np.float64)).ravel()
        return np.asarray(np.divide(self.length, sums, out=np.zeros_like(sums), where=sums > 0))
