"""What S is and how large its penalties are: two frozen values. Models with equal ones share one factorisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from monogram.engine.gram import user_weights
from monogram.engine.gram.user_weights import scale_rows
from monogram.engine.runtime.arrays import Float64


@dataclass(frozen=True)
class GramRecipe:
    """How the Gram S = Xᵀ·diag(w)·X is made of a log.

    Parameters
    ----------
    user_power : user u has the weight w_u = unit·n_u^(−user_power), n_u the sum of the user's row; 0: all weigh 1
    """

    user_power: float = 0.0

    @property
    def weighted(self) -> bool:
        """Whether users have weights of their own."""
        return self.user_power != 0

    def unit(self, matrix: Any) -> float | None:
        """The factor with which the mean weight of an event of this log is 1; None where all users weigh 1."""
        return user_weights.unit(matrix, self.user_power) if self.weighted else None

    def weights(self, matrix: Any, unit: float | None) -> Float64 | None:
        """The weights of the users for a factor; None where all weigh 1."""
        return user_weights.user_weights(matrix, self.user_power, unit) if self.weighted and unit is not None else None

    def data(self, matrix: Any, unit: float | None) -> Any:
        """The data whose Gram is S: X̃ = diag(√w)·X, or X itself where all users weigh 1."""
        return scale_rows(matrix, self.weights(matrix, unit))

    def copied_bytes(self, events: int) -> int:
        """Bytes of the weighted data beside the log: by user, and once more by item."""
        return 16 * events if self.weighted else 0


@dataclass(frozen=True)
class Penalties:
    """The penalties ℓ = l2 + dropout/(1 − dropout)·d on the squared weights of each item, d = diag S."""

    l2: float
    dropout: float = 0.0

    @property
    def none(self) -> bool:
        """Whether there is no penalty at all: S itself is then to be inverted."""
        return self.l2 == 0 and self.dropout == 0

    def of(self, d: Float64) -> Float64:
        """The penalty of each item."""
        found = self.l2 + self.dropout / (1 - self.dropout) * d
        # An item nobody used is alone in S + Λ: any penalty gives it zero weights, 0 would make it singular.
        return np.where((d == 0) & (found == 0), 1.0, found)
