"""W of low rank: two n × k factors; scores are two matrix products."""

from __future__ import annotations

import numpy as np

from monogram.engine.gram.accumulate import row_sums
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.few import best_by_products, sum_rows
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights, checked


class Factors(Weights):
    """W = U·diag(f)·Vᵀ; a history scores reach·(hU)·diag(f)·Vᵀ + base.

    With a ridge the factors of a short history shrink: f becomes f/(1 + ridge·reach·f), which for f = 1/g is
    1/(g + ridge·reach). That is the fold-in of RG² under the plain penalty: with QᵀQ = diag(g), s = 1ᵀQ, |D| the sum
    of the log and t = N·h/|h| − 1, w = |h|/(2N|D|), p = w·tQ/(w·g + λ) is the row of left = N·Q − 1·sᵀ, f = 1/g,
    length = 1 and ridge = 2λN|D|.

    Parameters
    ----------
    left : U, n × k
    right : V, n × k; may be the same array as `left`, which is then stored once
    scale : f
    base : added to the scores of every history; by default 0
    length : 0, or N where a history is normalised: reach = N/Σh (RG²); else reach = 1
    ridge : at least 0
    """

    kind = "factors"

    def __init__(
        self,
        left: Float,
        right: Float,
        scale: Float64,
        base: Float64 | None = None,
        length: float = 0.0,
        ridge: float = 0.0,
    ) -> None:
        self.left, self.right, self.scale, self.length, self.ridge = left, right, scale, length, ridge
        self.offset = np.zeros(len(right)) if base is None else base

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> Factors:
        """Build from stored arrays."""
        n, rank = training.shape[1], tensors["scale"].size if "scale" in tensors else 0
        right = checked(tensors, "right", (n, rank))
        left = checked(tensors, "left", (n, rank)) if "left" in tensors else right
        scale, base = checked(tensors, "scale", (rank,)), checked(tensors, "base", (n,))
        length = float(checked(tensors, "length", (1,))[0])
        ridge = float(checked(tensors, "ridge", (1,))[0]) if "ridge" in tensors else 0.0
        if not length >= 0.0:
            raise ModelFileError(f"the file's weights have a length of {length:g}; expected 0 or more")
        if not ridge >= 0.0 or (ridge and (scale < 0.0).any()):  # else a history could divide by 0
            raise ModelFileError(f"the file's weights have a ridge of {ridge:g}; expected 0, or more beside scales ≥ 0")
        return cls(left, right, scale, base, length, ridge)

    @property
    def linear(self) -> bool:
        return not self.length and not self.offset.any()

    @property
    def nbytes(self) -> int:
        return int(self.right.nbytes + (0 if self.left is self.right else self.left.nbytes))

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        projected = self._projected(histories, threads)
        return best_by_products(projected, self.right, self.offset, eligible, k, threads=threads)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        return self._projected(histories, threads) @ self.right[items].astype(np.float64).T + self.offset[items]

    def columns(self, items: Indices) -> Float64:
        reach = self.length or 1.0  # of a history of one item
        wanted = self.right[items].astype(np.float64) * self._filter(np.array([reach]))
        return np.asarray(self.left @ wanted.T)

    def shares(self, history: Csr, item: int) -> Float64:
        wanted = self.right[item].astype(np.float64) * self._filter(self._reach(history))[0]
        return np.asarray((self.left[history.indices] @ wanted) * history.data)

    def base(self, items: Indices) -> Float64:
        return np.asarray(self.offset[items])

    def tensors(self) -> Tensors:
        stored = {"right": self.right, "scale": self.scale, "base": self.offset, "length": np.array([self.length])}
        stored |= {"ridge": np.array([self.ridge])} if self.ridge else {}
        return stored if self.left is self.right else stored | {"left": self.left}

    def _projected(self, histories: Csr, threads: int) -> Float64:
        projections = sum_rows(self.left, histories, np.arange(self.left.shape[1]), threads=threads)
        return projections * self._filter(self._reach(histories))

    def _filter(self, reach: Float64) -> Float64:
        """What each history's projection is multiplied by (histories × k): reach·f/(1 + ridge·reach·f)."""
        strength = self.scale * reach[:, None]
        return strength / (1.0 + self.ridge * strength) if self.ridge else strength

    def _reach(self, histories: Csr) -> Float64:
        if not self.length:
            return np.ones(histories.shape[0])
        sums = row_sums(histories)
        return np.asarray(np.divide(self.length, sums, out=np.zeros_like(sums), where=sums > 0))
