"""Products and solves with triangular matrices, in strips: gemm on large blocks and trsm on small triangles.

Strips skip most of the zero half, and no BLAS routine receives a large triangle (see `blas`). Arrays are
Fortran-ordered; a lower triangle that is multiplied has zeros above its diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.linalg.blas import gemm, trsm

STRIP = 1024
SOLVED = 512  # smallest strip of a solve: trsm skips the part above the diagonal by itself


def _strips(size: int, least: int = 64) -> Iterator[tuple[int, int]]:
    width = max(least, min(STRIP, -(-size // 8)))
    for start in range(0, size, width):
        yield start, min(start + width, size)


def add_lower(out: NDArray[Any], left: NDArray[Any], right: NDArray[Any], *, alpha: float, transpose: bytes) -> None:
    """Lower triangle of out += alpha·left·rightᵀ (NT) or alpha·leftᵀ·right (TN); entries above it are undefined."""
    for a, b in _strips(len(out)):
        if transpose == b"NT":
            gemm(out[a:, a:b], left[a:], right[a:b], alpha=alpha, transpose=transpose)
        else:
            gemm(out[a:, a:b], left[:, a:], right[:, a:b], alpha=alpha, transpose=transpose)


def solve_right(lower: NDArray[Any], panel: NDArray[Any]) -> None:
    """Panel ← panel·L⁻ᵀ."""
    for a, b in _strips(len(lower), SOLVED):
        if a:
            gemm(panel[:, a:b], panel[:, :a], lower[a:b, :a], alpha=-1.0, transpose=b"NT")
        trsm(lower[a:b, a:b], panel[:, a:b], side=b"R")


def solve_left(lower: NDArray[Any], panel: NDArray[Any]) -> None:
    """Panel ← L⁻¹·panel."""
    for a, b in _strips(len(lower), SOLVED):
        if a:
            gemm(panel[a:b], lower[a:b, :a], panel[:a], alpha=-1.0)
        trsm(lower[a:b, a:b], panel[a:b], side=b"L")


def times_lower(out: NDArray[Any], left: NDArray[Any], lower: NDArray[Any]) -> None:
    """Out += left·L."""
    for a, b in _strips(len(lower)):
        gemm(out[:, a:b], left[:, a:], lower[a:, a:b])


def lower_times(out: NDArray[Any], lower: NDArray[Any], right: NDArray[Any]) -> None:
    """Out += Lᵀ·right."""
    for a, b in _strips(len(lower)):
        gemm(out[a:b], lower[a:, a:b], right[a:], transpose=b"TN")


def clear_above(square: NDArray[Any]) -> None:
    """Write zeros above the diagonal."""
    for column in range(1, len(square)):
        square[:column, column] = 0


def mirror_below(square: NDArray[Any], out: NDArray[Any]) -> None:
    """Copy the lower triangle of a symmetric matrix to both triangles of `out`."""
    np.copyto(out, square)
    for row in range(len(square)):
        out[row, row + 1 :] = square[row + 1 :, row]
