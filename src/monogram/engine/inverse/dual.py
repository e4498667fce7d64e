"""The dual inverse: C = (S + Λ)⁻¹ through the m × m matrix K⁻¹ over the users.

With X̃ = diag(√w)·X and K = I + X̃Λ⁻¹X̃ᵀ, C = Λ⁻¹ − Λ⁻¹X̃ᵀK⁻¹X̃Λ⁻¹ (Woodbury identity). K is factored and inverted in
place; C is never formed, its columns and products are computed from K⁻¹.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import gram
from monogram.engine.gram.operators import multiply
from monogram.engine.inverse.primal import invert_gram
from monogram.engine.linalg.conjugate_gradients import conjugate_gradients
from monogram.engine.linalg.symmetric import fill_upper, symmetric_times
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.runtime.progress import Stage, silent


class DualInverse:
    """C through K⁻¹ and the sparse data."""

    solver = "dual"

    def __init__(self, inverse: Float, by_item: Csr, penalties: Float64, threads: int = 1) -> None:
        self.inverse = inverse  # symmetric, both triangles
        self.by_item = by_item  # X̃ᵀ as CSR: items × users
        self.penalties, self.threads = penalties, threads
        self.explained = _quadratic_forms(inverse, by_item, threads) / penalties**2  # diag C = 1/ℓ − explained
        self.diagonal = 1 / penalties - self.explained

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of K⁻¹."""
        return self.inverse.dtype

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""
        return dual_columns(self.inverse, self.by_item, self.penalties, np.asarray(items))

    def times(self, block: Float) -> Float:
        """The product C·block, in the precision of the block."""
        return np.asarray(self.times_off_diagonal(block) + self.diagonal.astype(block.dtype)[:, None] * block)

    def times_off_diagonal(self, block: Float) -> Float:
        """The product (C − diag c)·block, in the precision of the block, without cancellation from 1/ℓ."""
        shrink = (1 / self.penalties).astype(block.dtype)[:, None]
        spread = multiply(self._by_user, shrink * block, self.threads)
        gathered = multiply(self.by_item, symmetric_times(self.inverse, spread), self.threads)
        return np.asarray(self.explained.astype(block.dtype)[:, None] * block - shrink * gathered)

    @cached_property
    def _by_user(self) -> Csr:
        return self.by_item.T.tocsr()


def dual_inverse(
    matrix: Csr,
    penalties: Float64,
    *,
    dtype: Any = np.float32,
    threads: int = 1,
    stage: Stage = silent,
) -> DualInverse:
    """C of an m × n matrix through K (m × m), inverted by Cholesky in place. Every penalty must be above 0."""
    m = matrix.shape[0]
    by_item = matrix.T.tocsr()
    out = np.empty((m, m), dtype, order="F")
    gram(by_item, out, weights=1 / penalties, threads=threads, done=lambda k: stage("gram", k))
    invert_gram(out, np.ones(m), stage)
    fill_upper(out, threads)
    return DualInverse(out, by_item, penalties, threads)


def dual_solve(inverse: Float, by_item: Csr, penalties: Float64, right: Csr) -> tuple[Float64, bool]:
    """K⁻¹·right (sparse, users × columns) in float64: the stored inverse, refined; and whether that converged.

    A K⁻¹ stored in float32 loses digits to cancellation in a column of C. Conjugate gradients with K⁻¹ as start and
    preconditioner restore them, in one or two steps on most data.
    """

    def apply(block: Float64) -> Float64:
        return np.asarray(block + by_item.T @ ((by_item @ block) / penalties[:, None]))

    def precondition(block: Float64) -> Float64:
        return np.asarray(inverse @ block.astype(inverse.dtype), np.float64)

    start = np.zeros((inverse.shape[0], right.shape[1]))
    columns = right.tocsc()
    if right.shape[1] <= 16:
        for k in range(right.shape[1]):
            part = slice(columns.indptr[k], columns.indptr[k + 1])
            _add_rows(inverse, columns.indices[part], columns.data[part], start[:, k])
    else:
        start = precondition(columns.toarray())
    return conjugate_gradients(apply, precondition, columns.toarray(), start, steps=50)


def exact_columns(
    inverse: Float, by_item: Csr, penalties: Float64, items: NDArray[np.integer[Any]]
) -> tuple[Float64, bool]:
    """Columns of C through `dual_solve`, and whether the solve converged."""
    rows = by_item[items].astype(np.float64)
    right = rows.multiply(1 / penalties[items][:, None]).tocsr().T
    solved, converged = dual_solve(inverse, by_item, penalties, right)
    out = np.asarray(-(by_item @ solved) / penalties[:, None])
    out[items, np.arange(len(items))] += 1 / penalties[items]
    return out, converged


def dual_columns(inverse: Float, by_item: Csr, penalties: Float64, items: NDArray[np.integer[Any]]) -> Float64:
    """Columns of C = Λ⁻¹ − Λ⁻¹X̃ᵀK⁻¹X̃Λ⁻¹, summed in float64."""
    out = np.empty((by_item.shape[0], len(items)))
    for k, j in enumerate(items):
        part = slice(by_item.indptr[j], by_item.indptr[j + 1])
        solved = np.zeros(len(inverse))
        _add_rows(inverse, by_item.indices[part], by_item.data[part] / penalties[j], solved)
        out[:, k] = -(by_item @ solved) / penalties
        out[j, k] += 1 / penalties[j]
    return out


def _quadratic_forms(inverse: Float, by_item: Csr, threads: int) -> Float64:
    """The quadratic form x_jᵀK⁻¹x_j of each item."""
    forms = np.empty(by_item.shape[0])

    def quadratic(start: int, stop: int) -> None:
        _quadratic(inverse, by_item.indptr, by_item.indices, by_item.data, forms, start, stop)

    parallel.parallel_for(quadratic, len(forms), max(1, len(forms) // (32 * threads)), threads)
    return forms


@kernel
def _quadratic(inverse: Any, indptr: Any, indices: Any, data: Any, forms: Any, start: int, stop: int) -> None:
    """The quadratic forms xᵀK⁻¹x of the items start:stop, in float64."""
    for j in range(start, stop):
        total = 0.0
        for p in range(indptr[j], indptr[j + 1]):
            row = inverse[:, indices[p]]
            part = 0.0
            for q in range(indptr[j], p):
                part += np.float64(row[indices[q]]) * data[q]
            total += data[p] * (2.0 * part + np.float64(row[indices[p]]) * data[p])
        forms[j] = total


@kernel
def _add_rows(matrix: Any, rows: Any, factors: Any, total: Any) -> None:
    """Add factors[k] times column rows[k] of a symmetric matrix to the total."""
    n = len(total)
    for k in range(len(rows)):
        column = matrix[:, rows[k]]
        factor = factors[k]
        for i in range(n):
            total[i] += factor * column[i]
