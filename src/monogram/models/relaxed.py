"""The full-rank autoencoder between EDLAE and DLAE: its diagonal is bounded, not forbidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from monogram.engine.runtime.arrays import Float64
from monogram.models.full_rank import FullRank
from monogram.models.heads import Formula
from monogram.models.parameters import param
from monogram.models.recipe import Penalties
from monogram.models.search_axes import DROPOUT, L2, Search
from monogram.models.timed import TimeKernelParameters


@dataclass(frozen=True)
class BoundedDiagonal:
    """diag W ≤ relax: θ = max(c·ℓ, 1 − relax), δ = 1 − θ."""

    relax: float

    @property
    def needs_diagonal(self) -> bool:
        """Whether the bound can hold for an item: with relax = 1 it never does, and W = I − CΛ."""
        return self.relax < 1

    def __call__(self, c: Float64, penalties: Float64, d: Float64, counts: Float64) -> tuple[Float64, Float64]:
        """θ and δ."""
        theta = np.maximum(c * penalties, 1 - self.relax)
        return theta, np.where(d == 0, 0.0, 1 - theta)


@dataclass(kw_only=True, eq=False)
class RDLAE(TimeKernelParameters, FullRank):
    """Relaxed denoising linear autoencoder, full rank (Moon et al. 2023); RLAE is the case without dropout.

    Minimises ‖X − XW‖² + ‖Λ^½W‖² with diag W ≤ relax, Λ = diag(l2 + dropout/(1 − dropout)·d). Solution: W = B·diag(θ) +
    diag(1 − θ) with θ = max(c·ℓ, 1 − relax): DLAE for items whose diagonal is below the bound, else the bound itself.
    relax = 0 is EDLAE, relax = 1 is DLAE.
    """

    name: ClassVar[str] = "rdlae"
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)
    relax: float = param(
        0.1,
        "upper bound of the diagonal of the weights",
        low=0,
        high=1,
        search=Search((0.0, 0.05, 0.1, 0.2, 0.3, 0.5), "plain", free=True),
    )

    def formula(self) -> Formula:
        """S, l2 and dropout, and a bounded diagonal."""
        head = self.with_repeat(BoundedDiagonal(self.relax))
        return Formula(self.recipe(), Penalties(self.l2, self.dropout), head)
