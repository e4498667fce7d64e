"""The interfaces of an inverse C = (S + Λ)⁻¹, whatever its form (primal, dual, on disk, inside weights)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime.arrays import Float, Float64


class ReadableInverse(Protocol):
    """An inverse whose diagonal and columns can be read: what `certificate` needs."""

    @property
    def diagonal(self) -> Float64:
        """The diagonal of C."""

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""


class InverseOperator(ReadableInverse, Protocol):
    """An inverse that also multiplies blocks of columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of its array."""

    def times(self, block: Float) -> Float:
        """The product C·block, in the precision of the block."""

    def times_off_diagonal(self, block: Float) -> Float:
        """The product (C − diag c)·block, in the precision of the block."""
