"""The time kernel as a table, which the loops over pairs of events read instead of computing a power.

Between events (int32 positions) the table holds k at every distance. Between times (float64) it holds cubic pieces of k
on intervals of 1 + Δ with a width in proportion to 1 + Δ: the leading bits of 1 + Δ as a floating-point number are the
place in the table. The pieces agree with k and its slope at their ends, and with k elsewhere to a relative 1e-10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.jit import fused
from monogram.engine.runtime.jit import kernel as compiled

ONE = 0x3FF0000000000000  # the bits of the float64 number 1
MANTISSA = 52
ACCURACY = 1e-10


@dataclass(frozen=True)
class KernelTable:
    """A kernel as arrays for compiled loops.

    Attributes
    ----------
    positions : place of each entry on the time axis, int32 or float64
    table : k at each distance, or the coefficients of each piece (pieces × 4)
    shift : bits of 1 + Δ below those that number the pieces; 0 where the table holds distances
    """

    positions: NDArray[Any]
    table: Float64
    shift: int

    @property
    def arrays(self) -> tuple[NDArray[Any], Float64, int]:
        """All of it, as the compiled loops take it."""
        return self.positions, self.table, self.shift


def kernel_table(kernel: TimeKernel) -> KernelTable:
    """The table of a kernel, up to the largest distance between two of its entries."""
    at = kernel.positions
    span = float(at.max()) - float(at.min()) if len(at) else 0.0
    if np.issubdtype(at.dtype, np.integer):
        return KernelTable(np.ascontiguousarray(at, np.int32), kernel(np.arange(int(span) + 1)), 0)
    leading = _leading_bits(kernel.decay)
    return KernelTable(np.ascontiguousarray(at, np.float64), _pieces(kernel, span, leading), MANTISSA - leading)


def _leading_bits(decay: float) -> int:
    """Bits of the mantissa that number the pieces: the error of a piece of relative width h is at most k''''·h⁴/384."""
    fourth = decay * (decay + 1) * (decay + 2) * (decay + 3)
    return max(4, math.ceil(math.log2(fourth / (384 * ACCURACY)) / 4))


def _pieces(kernel: TimeKernel, span: float, leading: int) -> Float64:
    """Coefficients of the cubic Hermite pieces, in powers of the distance from the start of a piece."""
    shift = MANTISSA - leading
    last = (int(np.float64(1 + span).view(np.int64)) - ONE) >> shift
    ends = (ONE + (np.arange(last + 2, dtype=np.int64) << shift)).view(np.float64)
    values = kernel(ends - 1)
    slopes = -(1 - kernel.floor) * kernel.decay * ends ** (-kernel.decay - 1)
    width, rise = np.diff(ends), np.diff(values)
    left, right = width * slopes[:-1], width * slopes[1:]
    coefficients = np.stack([values[:-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise], axis=1)
    return np.ascontiguousarray(coefficients / width[:, None] ** np.arange(4))


@compiled
def at_distance(table: Any, shift: int, here: Any, there: Any) -> Any:
    """The kernel at the distance of two positions, from the table."""
    if table.ndim == 1:  # decided when the function is compiled
        return table[abs(here - there)]
    at = np.float64(1.0 + abs(here - there))
    bits = at.view(np.int64)
    beyond = at - np.int64((bits >> shift) << shift).view(np.float64)  # from the start of the piece
    piece = table[(bits - ONE) >> shift]
    return piece[0] + beyond * (piece[1] + beyond * (piece[2] + beyond * piece[3]))


@fused
def fill_products(table: Any, shift: int, here: Any, positions: Any, factor: float, values: Any, out: Any) -> None:
    """out = factor · values · k at the distances of some positions from one; apart from sums, so that it vectorises."""
    if table.ndim == 1:
        for q in range(len(positions)):
            out[q] = factor * values[q] * table[np.uint32(abs(positions[q] - here))]
    else:
        for q in range(len(positions)):
            out[q] = factor * values[q] * at_distance(table, shift, here, positions[q])
