"""The state for exact updates of full-rank weights: diag C, penalties, optionally the Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from monogram.engine.runtime.arrays import Float, Float64
from monogram.errors import ParameterError


@dataclass(frozen=True)
class UpdateState:
    """c = diag C, the penalties ℓ, and S where the fit keeps it.

    S is in the lower triangle of a Fortran-ordered array. `scale` is the factor −θ/c by which dense weights differ from
    C, of the parameters that they were made with.
    """

    c: Float64
    penalties: Float64
    gram: Float | None = None
    scale: Float64 | None = None

    def usable_scale(self) -> Float64:
        """The factor by which dense weights differ from C, if C can be read from them; else a ParameterError."""
        if self.scale is None:
            raise ParameterError("this model was saved without the diagonal of C, which updates need: fit it again")
        return check_scale(self.scale)


def check_scale(scale: Float64) -> Float64:
    """A factor −θ/c, if C can be read from the weights that have it; else a ParameterError."""
    if not (np.isfinite(scale).all() and (scale != 0).all()):
        raise ParameterError(
            f"in {int((scale == 0).sum()):,} columns the weights of this model are 0 times the inverse (θ = 0: without "
            "l2 and dropout it copies its input), so that it cannot be changed without a refit; give it l2 above 0"
        )
    return scale


def rounded_scale(theta: Float64, c: Float64, dtype: Any) -> Float64:
    """The factor −θ/c of `UpdateState`, as it is rounded into weights of a precision."""
    with np.errstate(over="ignore", under="ignore"):
        scale: Float64 = (-theta / c).astype(dtype).astype(np.float64)
    return scale
