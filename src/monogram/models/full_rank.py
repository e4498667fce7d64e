"""Full-rank linear autoencoders: one inverse, then each model is a rescaling of its columns.

With S = XᵀX, d its diagonal, q = 1 − dropout, ℓ = l2 + (dropout/q)·d, C = (S + diag ℓ)⁻¹ and c = diag C,
B = −C·diag(1/c) with zero diagonal regresses every item on all others, and every model here is
W = B·diag(θ) + diag(δ). A model is its penalties ℓ and its (θ, δ).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.engine import inverse
from monogram.errors import ParameterError
from monogram.models.autoencoder import Autoencoder, Solved
from monogram.models.base import Work
from monogram.models.parameters import param
from monogram.weights import Dense, Dual, Weights

Float = NDArray[np.float64]


@dataclass(kw_only=True, eq=False)
class FullRank(Autoencoder):
    """Engine 1: the inverse becomes the weights."""

    def _fit(self, log: Interactions, work: Work) -> Weights:
        solved = self._solve(log, work)
        theta, delta = self._head(solved.inverse.diagonal, solved.penalties, solved.d)
        return _weights(solved.inverse, log, solved.penalties, theta, delta, work.threads)

    def _theta(self, solved: Solved) -> Float:
        """The rescaling θ by which it ranks what a history does not hold; see `shared_weights`."""
        return self._head(solved.inverse.diagonal, solved.penalties, solved.d)[0]


@dataclass(kw_only=True, eq=False)
class EASE(FullRank):
    """Embarrassingly shallow autoencoder (Steck 2019).

    Minimises ‖X − XB‖² + l2·‖B‖² with diag B = 0. Solution: B = −C·diag(1/c) off the diagonal, C = (S + l2·I)⁻¹.
    """

    name: ClassVar[str] = "ease"
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30)

    def _rates(self) -> tuple[float, float]:
        return self.l2, 0.0

    def _head(self, c: Float, penalties: Float, d: Float) -> tuple[Float, Float]:
        return np.ones_like(c), np.zeros_like(c)


@dataclass(kw_only=True, eq=False)
class EDLAE(FullRank):
    """Emphasised denoising autoencoder, full rank (Steck 2020, eq. 8).

    Minimises the expected error on dropped entries alone: ‖X − XB‖² + ‖Λ^½B‖² with diag B = 0 and
    Λ = diag(l2 + dropout/(1 − dropout)·d). Solution: B = −C·diag(1/c) off the diagonal.
    """

    name: ClassVar[str] = "edlae"
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True)

    def _rates(self) -> tuple[float, float]:
        return self.l2, self.dropout

    def _head(self, c: Float, penalties: Float, d: Float) -> tuple[Float, Float]:
        return np.ones_like(c), np.zeros_like(c)


@dataclass(kw_only=True, eq=False)
class DLAE(FullRank):
    """Denoising linear autoencoder, full rank.

    Minimises ‖X − XW‖² + ‖Λ^½W‖² with a free diagonal, Λ = diag(l2 + dropout/(1 − dropout)·d).
    Solution: W = C·S = I − CΛ, that is θ = c·ℓ and δ = 1 − c·ℓ.
    """

    name: ClassVar[str] = "dlae"
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True)

    def _rates(self) -> tuple[float, float]:
        return self.l2, self.dropout

    def _head(self, c: Float, penalties: Float, d: Float) -> tuple[Float, Float]:
        theta = c * penalties
        return theta, np.where(d == 0, 0.0, 1 - theta)


@dataclass(kw_only=True, eq=False)
class DEQL(FullRank):
    """Autoencoder of the decoupled expected quadratic loss (Guo et al. 2026, eq. 5).

    Minimises E‖A ⊙ (X − (Δ ⊙ X)W)‖² + γ·l2·‖W‖² where Δ hides entries with probability `dropout` and A weighs hidden
    entries by `a`, kept ones by `b`; γ = q²p·a² + q³b² puts l2 in the units of S. Solution by column:
    δ = q·b²·(1/c − ℓ) / (q·b²·d + γ·l2 − (q⁴b⁴/γ)·β) with β = d + ℓ − 1/c, and θ = 1/q − (q²b²/γ)·δ.
    With b = 0 the diagonal is free; it is set to 0, which is EDLAE times 1/q.
    """

    name: ClassVar[str] = "deql"
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True)
    a: float = param(1.0, "weight of the error on hidden entries", low=0, high=1e6)
    b: float = param(0.5, "weight of the error on kept entries", low=0, high=1e6)
    zero_diagonal: bool = param(False, "force the diagonal of the weights to 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._gamma() == 0:
            raise ParameterError(
                f"a = {self.a:g}, b = {self.b:g}, dropout = {self.dropout:g} leave no error to minimise; "
                "expected b above 0, or a and dropout above 0"
            )

    def _gamma(self) -> float:
        q = 1 - self.dropout
        return q**2 * self.dropout * self.a**2 + q**3 * self.b**2

    def _rates(self) -> tuple[float, float]:
        return self.l2, self.dropout

    def _head(self, c: Float, penalties: Float, d: Float) -> tuple[Float, Float]:
        q, gamma, b2 = 1 - self.dropout, self._gamma(), self.b**2
        delta = np.zeros_like(c)
        if not self.zero_diagonal and b2 > 0:
            beta = d + penalties - 1 / c
            below = q * b2 * d + gamma * self.l2 - (q**4 * b2**2 / gamma) * beta
            live = (d > 0) & (below > 0)
            delta[live] = (q * b2 * (1 / c - penalties))[live] / below[live]
        return 1 / q - (q**2 * b2 / gamma) * delta, delta


def shared_weights(solved: Solved, log: Interactions, threads: int) -> Dense | Dual:
    """The weights B that models of one l2 and dropout share: (hB)·θ ranks as each of them; the inverse is gone after.

    Their `heads` rank for every θ in one pass.
    """
    one = np.ones(log.n_items)
    return _weights(solved.inverse, log, solved.penalties, one, 0 * one, threads)


def _weights(
    solved: inverse.Inverse, log: Interactions, penalties: Float, theta: Float, delta: Float, threads: int
) -> Dense | Dual:
    c = solved.diagonal
    if isinstance(solved, inverse.Primal):
        return Dense(solved.into_weights(-theta / c, delta, threads))
    scale = -theta / (c * penalties)
    return Dual(solved.inverse, log.matrix, penalties, scale, theta + delta, np.ones(log.n_users))
