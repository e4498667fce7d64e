"""Products of factors with many rows and few columns, summed in float64 whatever the precision of the factors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime.arrays import Float64

Factor = NDArray[Any]
SLAB = 16384  # rows of a factor cast to float64 at once


def inner(left: Factor, right: Factor, weights: Float64 | None = None) -> Float64:
    """The product leftᵀ·diag(w)·right, in float64."""
    out = np.zeros((left.shape[1], right.shape[1]))
    if right is left and weights is not None:  # BLAS does half the work for a block times itself
        for _, scaled in slabs(left, left, np.sqrt(weights)):
            out += scaled.T @ scaled
        return out
    for part, scaled in slabs(left, right, weights):
        out += part.T @ scaled
    return out


def dot(left: Factor, right: Factor, weights: Float64 | None = None) -> float:
    """The sum Σ w_u·left_uk·right_uk, in float64."""
    return float(sum(np.vdot(part, scaled) for part, scaled in slabs(left, right, weights)))


def slabs(left: Factor, right: Factor, weights: Float64 | None) -> Iterator[tuple[Float64, Float64]]:
    """Yield slabs of rows of both factors in float64, those of the second multiplied by w."""
    for start in range(0, len(left), SLAB):
        rows = slice(start, start + SLAB)
        part = left[rows].astype(np.float64, copy=False)
        other = part if right is left else right[rows].astype(np.float64, copy=False)
        yield part, other if weights is None else other * weights[rows, None]
