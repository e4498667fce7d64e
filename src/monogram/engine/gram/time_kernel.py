"""The time kernel of a Gram matrix: S_ij = Σ_u k(|t_ui − t_uj|)·x_ui·x_uj; items used close together count more.

k(Δ) = floor + (1 − floor)·(1 + Δ)^(−decay) is convex and decreasing, hence positive definite (Pólya): S stays a Gram
matrix. k(0) = 1, so that the diagonal of S is that without a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime.arrays import Csr, Float64


@dataclass(frozen=True, eq=False)
class TimeKernel:
    """A kernel k, and the place of each entry of the data on the time axis of its row.

    Parameters
    ----------
    positions : of each entry of a CSR matrix, in its order: int32 (events) or float64 (times, in units)
    decay : above 0
    floor : from 0 up to, but not including, 1: the value of k at a great distance
    """

    positions: NDArray[Any]
    decay: float
    floor: float = 0.0

    def __call__(self, distance: Any) -> Float64:
        """The kernel k at distances of at least 0."""
        return np.asarray(self.floor + (1 - self.floor) * (1.0 + np.asarray(distance, np.float64)) ** -self.decay)

    def part(self, places: Any) -> TimeKernel:
        """The kernel of some entries."""
        return TimeKernel(self.positions[places], self.decay, self.floor)

    def expanded(self, matrix: Csr) -> Csr:
        """Rows Y with YᵀY = S of a matrix of few rows: the row of a user with L entries becomes L rows, K_u = L·Lᵀ."""
        blocks, indices, counts = [matrix.data[:0]], [matrix.indices[:0]], [np.zeros(1, np.int64)]
        for row in range(matrix.shape[0]):
            part = slice(matrix.indptr[row], matrix.indptr[row + 1])
            size = part.stop - part.start
            if not size:
                continue
            at = self.positions[part].astype(np.float64)
            factor = np.linalg.cholesky(self(np.abs(at[:, None] - at)) + 1e-12 * np.eye(size))
            own, places = np.nonzero(factor.T)
            blocks.append((factor.T * matrix.data[part])[own, places])
            indices.append(matrix.indices[part][places])
            counts.append(np.bincount(own, minlength=size))
        pointers = np.cumsum(np.concatenate(counts))
        rows = Csr(
            (np.concatenate(blocks), np.concatenate(indices), pointers), shape=(len(pointers) - 1, matrix.shape[1])
        )
        rows.sort_indices()
        return rows
