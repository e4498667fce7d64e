"""Small symmetric systems inside numba kernels: products, Cholesky factor and solution, lower triangle, in place.

One thread solves one system, in tiles of 4 × 4 sums held in registers; a tile is sixteen dot products of contiguous
rows. (LAPACK would start its own threads inside each of ours.) Sizes are multiples of 4; callers pad with zero rows
and ones on the diagonal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime.jit import fused

TILE = 4


@fused
def _tile(out: Any, i: int, j: int, left: Any, right: Any, length: int, sign: Any) -> None:
    """Add sign·left·rightᵀ of four rows each, over their first `length` entries, to a tile of `out`."""
    a0, a1, a2, a3 = left[i], left[i + 1], left[i + 2], left[i + 3]
    b0, b1, b2, b3 = right[j], right[j + 1], right[j + 2], right[j + 3]
    zero = left.dtype.type(0)
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = zero
    s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = zero
    for p in range(length):
        x0, x1, x2, x3 = a0[p], a1[p], a2[p], a3[p]
        y0, y1, y2, y3 = b0[p], b1[p], b2[p], b3[p]
        s00, s01, s02, s03 = s00 + x0 * y0, s01 + x0 * y1, s02 + x0 * y2, s03 + x0 * y3
        s10, s11, s12, s13 = s10 + x1 * y0, s11 + x1 * y1, s12 + x1 * y2, s13 + x1 * y3
        s20, s21, s22, s23 = s20 + x2 * y0, s21 + x2 * y1, s22 + x2 * y2, s23 + x2 * y3
        s30, s31, s32, s33 = s30 + x3 * y0, s31 + x3 * y1, s32 + x3 * y2, s33 + x3 * y3
    _add_four(out[i], j, sign, s00, s01, s02, s03)
    _add_four(out[i + 1], j, sign, s10, s11, s12, s13)
    _add_four(out[i + 2], j, sign, s20, s21, s22, s23)
    _add_four(out[i + 3], j, sign, s30, s31, s32, s33)


@fused
def _add_four(row: Any, j: int, sign: Any, s0: Any, s1: Any, s2: Any, s3: Any) -> None:
    row[j] += sign * s0
    row[j + 1] += sign * s1
    row[j + 2] += sign * s2
    row[j + 3] += sign * s3


@fused
def add_products(out: Any, left: Any, right: Any, size: int, length: int) -> None:
    """Lower triangle of out += left·rightᵀ, over the first `length` entries of `size` rows."""
    one = out.dtype.type(1)
    for i in range(0, size, 4):
        for j in range(0, i + 4, 4):
            _tile(out, i, j, left, right, length, one)


@fused
def factor(matrix: Any, size: int) -> bool:
    """The Cholesky factor of the first `size` rows in place; False where a pivot is not above 0."""
    minus = matrix.dtype.type(-1)
    for j in range(0, size, 4):
        _tile(matrix, j, j, matrix, matrix, j, minus)
        if not _corner(matrix, j):
            return False
        for i in range(j + 4, size, 4):
            _tile(matrix, i, j, matrix, matrix, j, minus)
            _below(matrix, i, j)
    return True


@fused
def _corner(matrix: Any, j: int) -> bool:
    """Factor the tile on the diagonal."""
    for c in range(j, j + 4):
        pivot = matrix[c, c]
        for t in range(j, c):
            pivot -= matrix[c, t] * matrix[c, t]
        if not pivot > 0:
            return False
        matrix[c, c] = np.sqrt(pivot)
        for r in range(c + 1, j + 4):
            value = matrix[r, c]
            for t in range(j, c):
                value -= matrix[r, t] * matrix[c, t]
            matrix[r, c] = value / matrix[c, c]
    return True


@fused
def _below(matrix: Any, i: int, j: int) -> None:
    """Divide the tile at rows i by the factored one on the diagonal above it."""
    one = matrix.dtype.type(1)
    d0, d1 = one / matrix[j, j], one / matrix[j + 1, j + 1]
    d2, d3 = one / matrix[j + 2, j + 2], one / matrix[j + 3, j + 3]
    l10, l20, l21 = matrix[j + 1, j], matrix[j + 2, j], matrix[j + 2, j + 1]
    l30, l31, l32 = matrix[j + 3, j], matrix[j + 3, j + 1], matrix[j + 3, j + 2]
    for r in range(i, i + 4):
        row = matrix[r]
        x0 = row[j] * d0
        x1 = (row[j + 1] - x0 * l10) * d1
        x2 = (row[j + 2] - x0 * l20 - x1 * l21) * d2
        row[j + 3] = (row[j + 3] - x0 * l30 - x1 * l31 - x2 * l32) * d3
        row[j], row[j + 1], row[j + 2] = x0, x1, x2


@fused
def substitute(matrix: Any, size: int, vector: Any) -> None:
    """Solve with the factor, in place: L, then Lᵀ."""
    for i in range(size):
        row = matrix[i]
        total = vector.dtype.type(0)
        for t in range(i):
            total += row[t] * vector[t]
        vector[i] = (vector[i] - total) / row[i]
    for i in range(size - 1, -1, -1):
        row = matrix[i]
        value = vector[i] / row[i]
        vector[i] = value
        for t in range(i):
            vector[t] -= value * row[t]
