"""Square arrays: fill one triangle of a symmetric one from the other, multiply a block of columns, transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float, Float64
from monogram.engine.runtime.jit import kernel

BLOCK = 64  # rows and columns mirrored through one small buffer


def symmetric_times(square: Float, block: Float, rows: int = 1024) -> Float:
    """A symmetric array times a block, in the precision of the block; another precision is cast in slabs."""
    if square.dtype == block.dtype:
        return np.asarray(square @ block)
    out = np.empty_like(block)
    for start in range(0, len(square), rows):
        part = slice(start, start + rows)
        out[part] = square[:, part].astype(block.dtype).T @ block
    return out


def lower_times(lower: Float, block: Float64, columns: int = 512) -> Float64:
    """A symmetric array, of which only the lower triangle is read, times a block of columns, in float64."""
    out = np.zeros(block.shape)
    for start in range(0, len(lower), columns):
        stop = min(start + columns, len(lower))
        square = np.tril(lower[start:stop, start:stop]).astype(np.float64)  # above it may be anything, also no number
        below = lower[stop:, start:stop].astype(np.float64)
        out[start:stop] += square @ block[start:stop] + np.tril(square, -1).T @ block[start:stop]
        out[start:stop] += below.T @ block[stop:]
        out[stop:] += below @ block[start:stop]
    return out


def transpose(square: Float, side: int = 512) -> Float:
    """The same matrix in the other order of its entries in memory, in place, block by block."""
    for start in range(0, len(square), side):
        a = slice(start, start + side)
        square[a, a] = square[a, a].T.copy()
        for other in range(start + side, len(square), side):
            b = slice(other, other + side)
            square[a, b], square[b, a] = square[b, a].T.copy(), square[a, b].T.copy()
    return square.T


def fill_upper(square: Float, threads: int) -> None:
    """Copy the lower triangle to the upper one, in place."""
    n, ones = len(square), np.ones(len(square), square.dtype)
    chunk = max(BLOCK, n // 64 // BLOCK * BLOCK)
    parallel.parallel_for(lambda start, stop: mirror_scaled(square, ones, start, stop), n, chunk, threads)


@kernel
def mirror_scaled(square: Any, scale: Any, start: int, stop: int) -> None:
    """Fill both triangles of the columns start:stop from the lower one, with row r multiplied by scale[r].

    Each block is transposed through a small buffer, so that all reads and writes run along the columns.
    """
    n = square.shape[0]
    block = np.empty((64, 64), square.dtype)
    for j0 in range(start, stop, 64):
        j1 = min(j0 + 64, stop)
        for j in range(j0, j1):
            for i in range(j + 1, j1):
                square[j, i] = square[i, j] * scale[j]
                square[i, j] *= scale[i]
        for i0 in range(j1, n, 64):
            i1 = min(i0 + 64, n)
            for j in range(j1 - j0):
                column = square[i0:i1, j0 + j]
                for i in range(i1 - i0):
                    block[i, j] = column[i]
                    column[i] *= scale[i0 + i]
            for i in range(i1 - i0):
                column = square[j0:j1, i0 + i]
                row = block[i]
                for j in range(j1 - j0):
                    column[j] = row[j] * scale[j0 + j]
