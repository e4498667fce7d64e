"""What a fitted model holds beside its weights: the state that changes need, and what pruning left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.engine.runtime import memory
from monogram.engine.runtime.arrays import Float64

LENGTH = 20  # of the lists that pruning is measured on


@dataclass(frozen=True)
class UpdateState:
    """What a full-rank model keeps beside its weights, so that it can be changed: c = diag C, ℓ, and S where asked for.

    S is in the lower triangle of a Fortran-ordered array. `scale` is the factor −θ/c by which dense weights differ from
    C, of the parameters that they were made with.
    """

    c: Float64
    penalties: Float64
    gram: NDArray[Any] | None = None
    scale: Float64 | None = None


def factor(theta: Float64, c: Float64, dtype: Any) -> Float64:
    """The factor −θ/c of `UpdateState`, as it is rounded into weights of a precision."""
    with np.errstate(over="ignore", under="ignore"):
        found: Float64 = (-theta / c).astype(dtype).astype(np.float64)
    return found


@dataclass(frozen=True)
class RefitSource:
    """A log, and the factor of the users' weights of an earlier fit: `fit` takes it in place of the log."""

    log: Interactions
    unit: float | None


@dataclass(frozen=True)
class Pruning:
    """What was left out of a model's weights.

    Attributes
    ----------
    keep : weights kept for each item
    density : share of the entries of W that are left
    overlap : share of a user's first 20 items that is still among them, mean over the users that were asked
    users : how many were asked
    bytes_before, bytes_after : size of the weights
    """

    keep: int
    density: float
    overlap: float
    users: int
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        return (
            f"{self.keep:,} weights an item, {self.density:.2%} of all; {memory.show(self.bytes_before)} became "
            f"{memory.show(self.bytes_after)}; overlap@{LENGTH} {self.overlap:.3f} on {self.users:,} users"
        )
