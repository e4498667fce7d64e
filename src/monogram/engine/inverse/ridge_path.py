"""The ridge path: C = (S + l2·E)⁻¹ for many values of l2, from one eigendecomposition.

Penalties ℓ = l2 + (p/q)·d of one ratio r = (p/q)/l2 are l2·E with E = diag(1 + r·d). With E^-½SE^-½ = V·diag(s)·Vᵀ and
U = E^-½V, C = U·diag(1/(s + l2))·Uᵀ for every l2: its diagonal costs n² operations, the scores of m histories 2mn².

On items outside a history h, hC = −(hU)·diag(s/(l2·(s + l2)))·Uᵀ: the part E⁻¹/l2 of C affects the items of the history
only. So the scores suffer no cancellation.

The eigendecomposition is computed in float64 whatever the precision of U: its errors scale with the largest
eigenvalue, while those of a Cholesky factorisation scale with the size of each item. In float32 lists would change at
a typical l2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # loads scipy.linalg when a function of it is called

from monogram.engine.gram.accumulate import gram
from monogram.engine.gram.operators import gram_product, multiply
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.errors import NumericalError

LARGEST = 15_000  # items: beyond, the threaded LAPACK routines are unreliable
COARSE = 10.0  # l2 must be at least this many rounding units of the largest eigenvalue
BLOCK = 1024  # histories scored at once
SLAB = 256


class RidgePath:
    """U and s of a Gram matrix and a diagonal E.

    Parameters
    ----------
    values : s, none below 0
    basis : U = E^-½V, n × n, C-ordered
    """

    def __init__(self, values: Float64, basis: Float, threads: int = 1) -> None:
        self.values, self.basis, self.threads = values, basis, threads

    def diagonals(self, l2s: Any) -> Float64:
        """The diagonal of C for each l2, one in each row, summed in float64."""
        shares = 1 / (self.values[:, None] + np.asarray(l2s, np.float64))
        out = np.empty((len(self.basis), shares.shape[1]))
        for start in range(0, len(out), SLAB):
            rows = slice(start, start + SLAB)
            out[rows] = self.basis[rows].astype(np.float64) ** 2 @ shares
        return np.ascontiguousarray(out.T)

    def prepare(self, histories: Csr) -> Float:
        """The product hU of a CSR batch: the part of the scores that all l2 share."""
        return multiply(histories, self.basis, self.threads)

    def scores(self, prepared: Float, l2: float) -> Float:
        """−hC for the items outside each history (histories × items); other entries are undefined."""
        shares = (self.values / (l2 * (self.values + l2))).astype(self.basis.dtype)
        return np.asarray((prepared * shares) @ self.basis.T)


def decompose(
    matrix: Csr,
    scale: Float64,
    *,
    kernel: TimeKernel | None = None,
    known_gram: Float | None = None,
    dtype: Any = np.float32,
    threads: int = 1,
) -> RidgePath:
    """The ridge path of an m × n matrix, with or without a time kernel, and the diagonal `scale` of E.

    `known_gram` is the Gram matrix (lower triangle) where it exists already; it is not changed.
    """
    n = matrix.shape[1]
    square = np.empty((n, n), order="F")
    if known_gram is None:
        gram(matrix, square, kernel=kernel, threads=threads)
    root = 1 / np.sqrt(scale)

    source = square if known_gram is None else known_gram

    def scaled(start: int, stop: int) -> None:
        for j in range(start, stop):  # the lower triangle only
            np.multiply(source[j:, j], root[j] * root[j:], out=square[j:, j])

    parallel.parallel_for(scaled, n, max(1, n // (4 * threads)), threads)
    try:
        values, vectors = scipy.linalg.eigh(square, lower=True, overwrite_a=True, check_finite=False, driver="evd")
    except np.linalg.LinAlgError as error:
        raise NumericalError(f"the eigendecomposition of the Gram failed: {error}") from error
    basis = np.empty((n, n), dtype)
    np.multiply(vectors, root[:, None], out=basis, casting="same_kind")
    return RidgePath(np.maximum(values, 0.0), basis, threads)


def lowest(matrix: Csr, scale: Float64, dtype: Any, *, kernel: TimeKernel | None = None, threads: int = 1) -> float:
    """The smallest l2 for which a ridge path in this precision is as accurate as an inverse.

    It is a multiple of the rounding error of the largest eigenvalue, which is estimated by power iteration.
    """
    root, product = 1 / np.sqrt(scale), gram_product(matrix, kernel, threads)
    vector, top = np.ones((len(scale), 1)), 0.0
    for _ in range(10):
        length = float(np.linalg.norm(vector))
        if length == 0:
            return 0.0
        vector = root[:, None] * product(root[:, None] * (vector / length))
        top = float(np.linalg.norm(vector))
    return COARSE * float(np.finfo(dtype).eps) * top
