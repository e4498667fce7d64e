"""Item factors of a weighted factorisation: the row of a history is solved from them, then multiplied."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine.iterative.wrmf import ridges, solve
from monogram.engine.runtime.arrays import Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.by_products import best_by_products
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights, checked


class FoldIn(Weights):
    """Q; a history h scores p·Qᵀ, where p is the row that training would give someone with this history.

    With g = alpha·h and ρ = l2·(n + Σ g)^nu, p = A⁻¹·Σ (1 + g_i)·q_i and A = QᵀQ + ρ·I + Σ g_i·q_i·q_iᵀ, in float64
    and exactly, whichever solver the training used. So a score is not linear in the history, but it is still a sum
    over it: item i adds (1 + g_i)·q_jᵀ·A⁻¹·q_i to the score of j.

    Parameters
    ----------
    items : Q, n × rank, turned so that QᵀQ is diagonal (see `engine.iterative.wrmf.rotate_to_axes`)
    spectrum : that diagonal
    l2, alpha, nu : those of the training
    """

    kind = "folded"
    linear = False

    def __init__(self, items: NDArray[Any], spectrum: Float64, *, l2: float, alpha: float, nu: float) -> None:
        self.items, self.spectrum, self.l2, self.alpha, self.nu = items, spectrum, l2, alpha, nu

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Any) -> FoldIn:
        """Build from stored arrays."""
        rank = len(tensors["spectrum"])
        items = checked(tensors, "items", (training.shape[1], rank))
        spectrum = checked(tensors, "spectrum", (rank,))
        l2, alpha, nu = checked(tensors, "settings", (3,)).tolist()
        if not (l2 > 0 and alpha >= 0 and nu >= 0 and (spectrum >= 0).all()):
            raise ModelFileError("the file's folded weights need l2 above 0, and alpha, nu and spectrum of at least 0")
        return cls(items, spectrum, l2=l2, alpha=alpha, nu=nu)

    @property
    def nbytes(self) -> int:
        return int(self.items.nbytes)

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        nothing = np.zeros(len(self.items))
        return best_by_products(self.rows(histories, threads), self.items, nothing, eligible, k, threads=threads)

    def score(self, histories: Any, items: Indices, threads: int) -> Float64:
        return np.asarray(self.rows(histories, threads) @ self.items[items].astype(np.float64).T)

    def columns(self, items: Indices) -> Float64:
        """W[i, j]: the score of j for the history [i] alone."""
        return self.score(sp.eye_array(len(self.items), dtype=np.float32, format="csr"), items, 1)

    def shares(self, history: Any, item: int) -> Float64:
        seen = self.items[history.indices].astype(np.float64)
        gains = self.alpha * history.data.astype(np.float64)
        matrix = (seen.T * gains) @ seen
        np.einsum("ii->i", matrix)[...] += self.spectrum + self._ridges(history)
        return np.asarray((1 + gains) * (seen @ np.linalg.solve(matrix, self.items[item].astype(np.float64))))

    def base(self, items: Indices) -> Float64:
        return np.zeros(len(items))

    def tensors(self) -> Tensors:
        settings = np.array([self.l2, self.alpha, self.nu])
        return {"items": self.items, "spectrum": self.spectrum, "settings": settings}

    def rows(self, histories: Any, threads: int) -> Float64:
        """The factors p of each history."""
        out = np.zeros((histories.shape[0], self.items.shape[1]))
        solve(histories, self._ridges(histories), self.alpha, self.items, self.spectrum, out, threads)
        return out

    def _ridges(self, histories: Any) -> Float64:
        return ridges(histories, self.l2, self.alpha, self.nu)
