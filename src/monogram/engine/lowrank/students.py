"""Low-rank students W = UVᵀ (rank k) of a full-rank teacher.

With A = S + Λ, C = A⁻¹ and c = diag C, a teacher is W* = B·diag(θ) + diag(δ), B = −(C − diag c)·diag(1/c). It is
never formed; it multiplies blocks of columns through C. The student nearest to it in the norm of A (that of the stacked
[X; Λ^½]) is V = eig_k(W*ᵀAW*), U = W*V; nearest in the plain norm, V = eig_k(W*ᵀW*), U = W*V = svd_k(W*).

The exact objective of the emphasised autoencoder, f(U, V) = ‖X − XW₀‖² + ‖Λ^½W₀‖² with W₀ = UVᵀ − diag(UVᵀ), has no
closed form; `student_loops` minimises it iteratively.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from monogram.engine.gram.operators import Operator
from monogram.engine.inverse.protocols import InverseOperator
from monogram.engine.linalg.products import inner
from monogram.engine.lowrank import spectrum
from monogram.engine.runtime.arrays import Float, Float64
from monogram.engine.runtime.progress import Stage, silent

SLAB = 64  # columns of a product computed at once
BLOCKS = 16  # n × k arrays of float64 at the peak of a loop of `student_loops`


@dataclass(frozen=True)
class StudentProblem:
    """The data, penalties and inverse from which a student is computed.

    Attributes
    ----------
    data : X
    penalties : ℓ
    d : diag S
    inverse : C
    """

    data: Operator
    penalties: Float64
    d: Float64
    inverse: InverseOperator

    @property
    def diagonal(self) -> Float64:
        """The diagonal of A."""
        return self.d + self.penalties

    def gram_times(self, block: Float) -> Float64:
        """The product S·block, in float64."""
        out = np.empty(block.shape)
        for start in range(0, block.shape[1], SLAB):
            part = slice(start, start + SLAB)
            out[:, part] = self.data.item_gram_times(block[:, part].astype(np.float64))
        return out

    def system_times(self, block: Float) -> Float64:
        """The product A·block, in float64."""
        return np.asarray(self.gram_times(block) + self.penalties[:, None] * block)

    def inverse_times(self, block: Float64) -> Float64:
        """The product C·block, computed in the precision of C."""
        return self.inverse.times(block.astype(self.inverse.dtype)).astype(np.float64)


@dataclass(frozen=True)
class Teacher:
    """The teacher W* = B·diag(θ) + diag(δ) as an operator on blocks, in the precision of the block."""

    problem: StudentProblem
    theta: Float64
    delta: Float64

    def times(self, block: Float) -> Float:
        """The product W*·block."""
        slopes, own = self._scales(block.dtype)
        return np.asarray(own * block - self.problem.inverse.times_off_diagonal(slopes * block))

    def transpose_times(self, block: Float) -> Float:
        """The product W*ᵀ·block."""
        slopes, own = self._scales(block.dtype)
        return np.asarray(own * block - slopes * self.problem.inverse.times_off_diagonal(block))

    def system_times(self, block: Float) -> Float:
        """The product A·W*·block = S(θ + δ)·block + (ℓ(θ + δ) − θ/c)·block, since A·B = A − diag(1/c); float64."""
        total = self.theta + self.delta
        diagonal = self.problem.penalties * total - self.theta / self.problem.inverse.diagonal
        return np.asarray(self.problem.gram_times(total[:, None] * block) + diagonal[:, None] * block)

    def _scales(self, dtype: np.dtype[Any]) -> tuple[Float, Float]:
        slopes = self.theta / self.problem.inverse.diagonal
        return slopes.astype(dtype)[:, None], self.delta.astype(dtype)[:, None]


def nearest(
    teacher: Teacher, rank: int, *, plain: bool = False, dtype: str = "float32", stage: Stage = silent
) -> tuple[Float, Float, float]:
    """The student of rank k nearest to a teacher: U, V, and the residual of the eigenpairs V is made of.

    Minimises ‖A^½(W* − UVᵀ)‖, or ‖W* − UVᵀ‖ when `plain`, over all U and V with k columns (Eckart–Young): V is eig_k of
    W*ᵀAW* (of W*ᵀW*), U = W*V. The result has fewer columns where the rank of the teacher is lower.
    """

    size = teacher.problem.data.shape[1]
    dense = spectrum.method(size, rank) == "dense"

    def apply(block: Float) -> Float:
        if plain:
            return teacher.transpose_times(teacher.times(block))
        # Lanczos: half the work. Dense: symmetric to float64, so that small pairs are accurate too.
        image = teacher.problem.system_times(teacher.times(block)) if dense else teacher.system_times(block)
        return teacher.transpose_times(image.astype(block.dtype))

    # The precision of C limits the residual; a finer measurement would cast all of C in every product.
    measured = "float64" if dense else dtype
    pairs = spectrum.leading(apply, size, rank, dtype=dtype, measured=measured, stage=stage)
    right, residual = pairs.vectors, pairs.residual
    right[teacher.problem.d == 0] = 0.0  # an item without events has zero weights, without rounding errors
    left = np.empty_like(right)
    for start in range(0, right.shape[1], SLAB):
        part = slice(start, start + SLAB)
        left[:, part] = teacher.times(right[:, part])
    return left, right, residual


def objective(problem: StudentProblem, left: Float, right: Float) -> float:
    """The exact objective f(U, V) = ‖X − XW₀‖² + ‖Λ^½W₀‖² with W₀ = UVᵀ − diag(UVᵀ).

    With D = diag(UVᵀ): f = tr S − 2(⟨SU, V⟩ − d·D) + ⟨UᵀAU, VᵀV⟩ − 2·D·diag(AUVᵀ) + Σ A_ii·D_i².
    """
    own = row_products(left, right)
    explained, whole, mixed = -float(problem.diagonal @ own), 0.0, 0.0
    for start in range(0, left.shape[1], SLAB):  # in slabs: no n × k array in float64
        part = slice(start, start + SLAB)
        image, other = problem.system_times(left[:, part]), right[:, part].astype(np.float64)
        explained += float((image * other).sum())
        whole += float((inner(left, image) * inner(right, other)).sum())
        mixed += float(own @ row_products(image, other))
    return float(problem.d.sum()) - 2 * explained + whole - 2 * mixed + float(problem.diagonal @ own**2)


def row_products(left: Float, right: Float) -> Float64:
    """The inner products of corresponding rows: diag(left·rightᵀ)."""
    return np.asarray(np.einsum("ij,ij->i", left, right, dtype=np.float64))
