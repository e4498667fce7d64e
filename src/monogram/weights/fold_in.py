"""Item factors of a weighted factorisation; the user factor of a history is solved from them (fold-in)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from monogram.engine.iterative.wrmf import ridges, solve
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.by_products import best_by_products
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights, checked


class FoldIn(Weights):
    """Item factors Q: a history h scores p·Qᵀ, where p is the user factor that a half-step gives for h.

    With g = alpha·h and ρ = l2·(n + Σ g)^nu, p = A⁻¹·Σ (1 + g_i)·q_i and A = QᵀQ + ρ·I + Σ g_i·q_i·q_iᵀ, solved
    exactly in float64, whatever the solver of the fit. A score is not linear in the history, but it is still a sum over
    its items: item i adds (1 + g_i)·q_jᵀ·A⁻¹·q_i to the score of j.

    Parameters
    ----------
    items : Q, n × rank, rotated so that QᵀQ is diagonal (see `engine.iterative.wrmf.rotate_to_axes`)
    spectrum : the diagonal of QᵀQ
    l2, alpha, nu : parameters of the fit
    """

    kind = "folded"
    linear = False

    def __init__(self, items: Float, spectrum: Float64, *, l2: float, alpha: float, nu: float) -> None:
        self.items, self.spectrum, self.l2, self.alpha, self.nu = items, spectrum, l2, alpha, nu

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> FoldIn:
        """Build from stored arrays."""
        rank = len(tensors["spectrum"])
        items = checked(tensors, "items", (training.shape[1], rank))
        spectrum = checked(tensors, "spectrum", (rank,))
        l2, alpha, nu = checked(tensors, "settings", (3,)).tolist()
        if not (l2 > 0 and alpha >= 0 and nu >= 0 and (spectrum >= 0).all()):
            raise ModelFileError("the file's fold-in weights need l2 above 0, and alpha, nu and spectrum of at least 0")
        return cls(items, spectrum, l2=l2, alpha=alpha, nu=nu)

    @property
    def nbytes(self) -> int:
        return int(self.items.nbytes)

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        base = np.zeros(len(self.items))
        return best_by_products(self.rows(histories, threads), self.items, base, eligible, k, threads=threads)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        return np.asarray(self.rows(histories, threads) @ self.items[items].astype(np.float64).T)

    def columns(self, items: Indices) -> Float64:
        """W[i, j]: the score of j for the history [i] alone."""
        return self.score(sp.eye_array(len(self.items), dtype=np.float32, format="csr"), items, 1)

    def shares(self, history: Csr, item: int) -> Float64:
        seen = self.items[history.indices].astype(np.float64)
        gains = self.alpha * history.data.astype(np.float64)
        matrix = (seen.T * gains) @ seen
        np.einsum("ii->i", matrix)[...] += self.spectrum + self._ridges(history)
        return np.asarray((1 + gains) * (seen @ np.linalg.solve(matrix, self.items[item].astype(np.float64))))

    def tensors(self) -> Tensors:
        settings = np.array([self.l2, self.alpha, self.nu])
        return {"items": self.items, "spectrum": self.spectrum, "settings": settings}

    def rows(self, histories: Csr, threads: int) -> Float64:
        """The user factor p of each history."""
        out = np.zeros((histories.shape[0], self.items.shape[1]))
        solve(histories, self._ridges(histories), self.alpha, self.items, self.spectrum, out, threads)
        return out

    def _ridges(self, histories: Csr) -> Float64:
        return ridges(histories, self.l2, self.alpha, self.nu)
