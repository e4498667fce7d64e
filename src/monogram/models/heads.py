"""Heads: the column factors θ and the diagonal δ of W = B·diag(θ) + diag(δ), computed from an inverse.

With C = (S + diag ℓ)⁻¹, c = diag C and d = diag S, the matrix B = −C·diag(1/c) with zero diagonal regresses every item
on all others. A head is a frozen value. Called with c, ℓ, d and the number of users of each item, it returns θ and δ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from monogram.engine.gram import user_weights
from monogram.engine.runtime.arrays import Float64
from monogram.models.recipe import GramRecipe, Penalties
from monogram.weights.common import Head


class Formula(NamedTuple):
    """The definition of a model that is computed from one inverse: the recipe of S, the penalties, and the head."""

    recipe: GramRecipe
    penalties: Penalties
    head: Head

    @property
    def shared(self) -> tuple[GramRecipe, Penalties]:
        """Recipe and penalties; models with equal ones share one factorisation."""
        return self.recipe, self.penalties


@dataclass(frozen=True)
class ZeroDiagonal:
    """The constraint diag W = 0: θ = 1 and δ = 0."""

    needs_diagonal: ClassVar[bool] = True

    def __call__(self, c: Float64, penalties: Float64, d: Float64, counts: Float64) -> tuple[Float64, Float64]:
        """θ and δ."""
        return np.ones_like(c), np.zeros_like(c)


@dataclass(frozen=True)
class FreeDiagonal:
    """No constraint on the diagonal: W = C·S = I − CΛ, that is θ = c·ℓ and δ = 1 − c·ℓ."""

    needs_diagonal: ClassVar[bool] = False

    def __call__(self, c: Float64, penalties: Float64, d: Float64, counts: Float64) -> tuple[Float64, Float64]:
        """θ and δ."""
        theta = c * penalties
        return theta, np.where(d == 0, 0.0, 1 - theta)


@dataclass(frozen=True)
class DecoupledLoss:
    """The expected quadratic loss with weight a on hidden entries and b on kept entries; `DEQL` has the equations."""

    penalties: Penalties
    a: float = 1.0
    b: float = 0.5
    zero_diagonal: bool = False
    needs_diagonal: ClassVar[bool] = True

    @property
    def gamma(self) -> float:
        """γ = q²p·a² + q³b², the factor of S in the expected loss."""
        q = 1 - self.penalties.dropout
        return q**2 * self.penalties.dropout * self.a**2 + q**3 * self.b**2

    def __call__(self, c: Float64, penalties: Float64, d: Float64, counts: Float64) -> tuple[Float64, Float64]:
        """θ and δ."""
        q, gamma, b2 = 1 - self.penalties.dropout, self.gamma, self.b**2
        delta = np.zeros_like(c)
        if not self.zero_diagonal and b2 > 0:
            beta = d + penalties - 1 / c
            denominator = q * b2 * d + gamma * self.penalties.l2 - (q**4 * b2**2 / gamma) * beta
            defined = (d > 0) & (denominator > 0)
            delta[defined] = (q * b2 * (1 / c - penalties))[defined] / denominator[defined]
        return 1 / q - (q**2 * b2 / gamma) * delta, delta


@dataclass(frozen=True)
class PopularityScaled:
    """Another head, with column j multiplied by max(users of item j, ½)^item_power."""

    head: Head
    item_power: float

    @property
    def needs_diagonal(self) -> bool:
        """Whether the other head needs c = diag C."""
        return bool(self.head.needs_diagonal)

    def __call__(self, c: Float64, penalties: Float64, d: Float64, counts: Float64) -> tuple[Float64, Float64]:
        """θ and δ."""
        theta, delta = self.head(c, penalties, d, counts)
        factors = user_weights.popularity(counts, self.item_power)
        return theta * factors, delta * factors


@dataclass(frozen=True)
class Repeated:
    """Another head, with a number added to the diagonal: δ + repeat."""

    head: Head
    repeat: float

    @property
    def needs_diagonal(self) -> bool:
        """Whether the other head needs c = diag C."""
        return bool(self.head.needs_diagonal)

    def __call__(self, c: Float64, penalties: Float64, d: Float64, counts: Float64) -> tuple[Float64, Float64]:
        """θ and δ."""
        theta, delta = self.head(c, penalties, d, counts)
        return theta, delta + self.repeat
