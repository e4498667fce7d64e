"""What the forms of an inverse C = (S + Λ)⁻¹ have in common."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime.arrays import Float, Float64


class ReadableInverse(Protocol):
    """What a certificate needs to know of an inverse."""

    @property
    def diagonal(self) -> Float64:
        """The diagonal of C."""

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""


class InverseOperator(ReadableInverse, Protocol):
    """What every inverse answers, wherever it lies."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision it is held in."""

    def times(self, block: Float) -> Float:
        """The product C·block, in the block's precision."""

    def times_off_diagonal(self, block: Float) -> Float:
        """The product (C − diag c)·block, in the block's precision."""
