"""The primal inverse: C = (S + Λ)⁻¹ with S = Xᵀ·diag(w)·X as one n × n array, factored and inverted in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import gram
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.linalg.cholesky import potrf, potri
from monogram.engine.linalg.symmetric import BLOCK, fill_upper, mirror_scaled, symmetric_times
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.progress import Stage, silent


class PrimalInverse:
    """C in the lower triangle of one n × n array."""

    solver = "primal"

    def __init__(self, lower: Float, threads: int = 1) -> None:
        self.lower, self.threads = lower, threads
        self.diagonal: Float64 = np.diagonal(lower).astype(np.float64)
        self.mirrored = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the array."""
        return self.lower.dtype

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""
        out = np.empty((len(self.lower), len(items)))
        for k, j in enumerate(items):
            out[j:, k] = self.lower[j:, j]
            out[:j, k] = self.lower[j, :j]
        out[items, np.arange(len(items))] = self.diagonal[items]
        return out

    def times(self, block: Float) -> Float:
        """The product C·block, in the precision of the block."""
        return np.asarray(self.times_off_diagonal(block) + self.diagonal.astype(block.dtype)[:, None] * block)

    def times_off_diagonal(self, block: Float) -> Float:
        """The product (C − diag c)·block, in the precision of the block, without cancellation from the diagonal.

        The first call fills the upper triangle of the array and sets its diagonal to 0.
        """
        if not self.mirrored:
            fill_upper(self.lower, self.threads)
            np.fill_diagonal(self.lower, 0)
            self.mirrored = True
        return symmetric_times(self.lower, block)

    def into_weights(self, scale: Float64, diagonal: Float64, threads: int) -> Float:
        """C·diag(scale) with another diagonal, computed in the array of C; this object is unusable afterwards.

        The result is C-ordered: row i holds what item i of a history adds to every score.
        """
        lower, scale = self.lower, scale.astype(self.lower.dtype)
        del self.lower
        n = len(lower)

        def mirror(start: int, stop: int) -> None:
            mirror_scaled(lower, scale, start, stop)

        parallel.parallel_for(mirror, n, max(BLOCK, n // (16 * threads) // BLOCK * BLOCK), threads)
        weights = lower.T
        np.fill_diagonal(weights, diagonal)
        return weights


def primal_inverse(
    matrix: Csr,
    penalties: Float64,
    *,
    kernel: TimeKernel | None = None,
    known_gram: Float | None = None,
    dtype: Any = np.float32,
    threads: int = 1,
    stage: Stage = silent,
) -> PrimalInverse:
    """C = (XᵀX + diag ℓ)⁻¹ of an m × n matrix X, by an in-place Cholesky factorisation of the n × n Gram matrix.

    `kernel` is a time kernel on the entries of X: then the Gram matrix is that of the kernel. `known_gram` is the Gram
    matrix (lower triangle) where it exists already; a copy of it is factored.
    """
    n = matrix.shape[1]
    out = np.empty((n, n), dtype, order="F")
    if known_gram is None:
        gram(matrix, out, kernel=kernel, threads=threads, done=lambda k: stage("gram", k))
    else:
        parallel.parallel_for(
            lambda start, stop: np.copyto(out[:, start:stop], known_gram[:, start:stop]),
            n,
            max(1, n // (4 * threads)),
            threads,
        )
    invert_gram(out, penalties, stage)
    return PrimalInverse(out, threads)


def invert_gram(out: Float, penalties: Float64, stage: Stage = silent) -> None:
    """(G + diag ℓ)⁻¹ of a Gram matrix G in the lower triangle of an array, in place."""
    np.einsum("ii->i", out)[...] += penalties.astype(out.dtype)
    potrf(out, tick=lambda flops: stage("factor", flops))
    potri(out, tick=lambda flops: stage("invert", flops))
