"""C = (S + Λ)⁻¹ with S = Xᵀ·diag(w)·X, in two exact forms with one interface: diagonal, columns, times, off.

*primal* holds C itself (n × n). *dual* holds K⁻¹ with K = I + X̃Λ⁻¹X̃ᵀ and X̃ = diag(√w)·X (m × m), from which
C = Λ⁻¹ − Λ⁻¹X̃ᵀK⁻¹X̃Λ⁻¹ is read as it is needed. Either way one large array exists, and it is worked on in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import gram, squares
from monogram.engine.gram.operators import multiply
from monogram.engine.linalg.cholesky import potrf, potri
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.runtime.progress import Stage, silent


class Primal:
    """The inverse itself, in the lower triangle of one array."""

    solver = "primal"

    def __init__(self, lower: NDArray[Any], threads: int = 1) -> None:
        self.lower, self.threads = lower, threads
        self.diagonal: Float64 = np.diagonal(lower).astype(np.float64)
        self.mirrored = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision it is held in."""
        return self.lower.dtype

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""
        out = np.empty((len(self.lower), len(items)))
        for k, j in enumerate(items):
            out[j:, k] = self.lower[j:, j]
            out[:j, k] = self.lower[j, :j]
        out[items, np.arange(len(items))] = self.diagonal[items]
        return out

    def times(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product C·block, in the block's precision."""
        return _with_diagonal(self, block)

    def off(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product (C − diag c)·block, in the block's precision: nothing of the diagonal cancels in it.

        The first call fills the upper triangle of the array and takes the diagonal out of it.
        """
        if not self.mirrored:
            _whole(self.lower, self.threads)
            np.fill_diagonal(self.lower, 0)
            self.mirrored = True
        return symmetric_times(self.lower, block)

    def into_weights(self, scale: Float64, diagonal: Float64, threads: int) -> NDArray[Any]:
        """C·diag(scale) with the given diagonal, made in the array of C, which is gone afterwards.

        The result is C-ordered: row i is what item i of a history adds to every score.
        """
        lower, scale = self.lower, scale.astype(self.lower.dtype)
        del self.lower
        n = len(lower)

        def mirror(start: int, stop: int) -> None:
            _mirror(lower, scale, start, stop)

        parallel.parallel_for(mirror, n, max(BLOCK, n // (16 * threads) // BLOCK * BLOCK), threads)
        weights = lower.T
        np.fill_diagonal(weights, diagonal)
        return weights


class Dual:
    """K⁻¹ and the sparse data beside it."""

    solver = "dual"

    def __init__(self, inverse: NDArray[Any], by_item: Any, penalties: Float64, threads: int = 1) -> None:
        self.inverse = inverse  # symmetric, both triangles
        self.by_item = by_item  # X̃ᵀ as CSR: items × users
        self.penalties, self.threads = penalties, threads
        self.taken = _forms(inverse, by_item, threads) / penalties**2  # what the data takes from 1/ℓ: diag of C
        self.diagonal = 1 / penalties - self.taken

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision it is held in."""
        return self.inverse.dtype

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""
        return dual_columns(self.inverse, self.by_item, self.penalties, np.asarray(items))

    def times(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product C·block, in the block's precision."""
        return _with_diagonal(self, block)

    def off(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product (C − diag c)·block, in the block's precision: nothing of 1/ℓ cancels in it."""
        shrink = (1 / self.penalties).astype(block.dtype)[:, None]
        spread = multiply(self._by_user, shrink * block, self.threads)
        gathered = multiply(self.by_item, symmetric_times(self.inverse, spread), self.threads)
        return np.asarray(self.taken.astype(block.dtype)[:, None] * block - shrink * gathered)

    @cached_property
    def _by_user(self) -> Any:
        return self.by_item.T.tocsr()


Inverse = Primal | Dual


class Readable(Protocol):
    """What a certificate needs to know of an inverse."""

    @property
    def diagonal(self) -> Float64:
        """The diagonal of C."""

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""


class Known(Readable, Protocol):
    """What every inverse answers, wherever it lies."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision it is held in."""

    def times(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product C·block, in the block's precision."""

    def off(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product (C − diag c)·block, in the block's precision."""


def symmetric_times(square: NDArray[Any], block: NDArray[Any], rows: int = 1024) -> NDArray[Any]:
    """A symmetric array times a block, in the block's precision; an array of another one is turned by slabs."""
    if square.dtype == block.dtype:
        return np.asarray(square @ block)
    out = np.empty_like(block)
    for start in range(0, len(square), rows):
        part = slice(start, start + rows)
        out[part] = square[:, part].astype(block.dtype).T @ block
    return out


def _with_diagonal(inverse: Inverse, block: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(inverse.off(block) + inverse.diagonal.astype(block.dtype)[:, None] * block)


def primal(
    matrix: Any,
    penalties: Float64,
    *,
    known: NDArray[Any] | None = None,
    dtype: Any = np.float32,
    threads: int = 1,
    stage: Stage = silent,
) -> Primal:
    """C of an m × n matrix, by Cholesky of the n × n Gram in place; where the Gram is `known`, of a copy of it."""
    n = matrix.shape[1]
    out = np.empty((n, n), dtype, order="F")
    if known is None:
        gram(matrix, out, threads=threads, done=lambda k: stage("gram", k))
    else:
        parallel.parallel_for(
            lambda a, b: np.copyto(out[:, a:b], known[:, a:b]), n, max(1, n // (4 * threads)), threads
        )
    invert(out, penalties, stage)
    return Primal(out, threads)


def dual(
    matrix: Any,
    penalties: Float64,
    *,
    dtype: Any = np.float32,
    threads: int = 1,
    stage: Stage = silent,
) -> Dual:
    """C of an m × n matrix through the m × m matrix K, by Cholesky in place. Every penalty must be above 0."""
    m = matrix.shape[0]
    by_item = matrix.T.tocsr()
    out = np.empty((m, m), dtype, order="F")
    gram(by_item, out, weights=1 / penalties, threads=threads, done=lambda k: stage("gram", k))
    invert(out, np.ones(m), stage)
    _whole(out, threads)
    return Dual(out, by_item, penalties, threads)


def scale_rows(matrix: Any, weights: Float64 | None) -> Any:
    """X̃ = diag(√w)·X, sharing the structure of X."""
    if weights is None:
        return matrix
    scaled = matrix.data * np.repeat(np.sqrt(weights), np.diff(matrix.indptr))
    return type(matrix)((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)


def certificate(
    data: Any,
    penalties: Float64,
    inverse: Readable,
    *,
    also: NDArray[np.int64] | None = None,
    fine: float = 1e-3,
    tolerance: float = 1e-10,
) -> tuple[float, float]:
    """How far an inverse is from the truth, on eight probe columns.

    The probes are spread over the items by popularity, the most popular among them.

    Parameters
    ----------
    also : more items to probe
    fine : an error whose bound is above this is estimated
    tolerance : of that estimate's own solution

    Returns
    -------
    residual : float
        Largest off-diagonal entry of R = (S + Λ)B − S, relative to max|S|.
    error : float
        Error of B relative to max|B|: the bound ‖R‖/min ℓ where that is small, else the solution of (S + Λ)·E = R by
        conjugate gradients. A small residual can hide a large error where S is large and a penalty small.
    """
    diagonal = squares(data)
    live, chosen = diagonal > 0, probes(diagonal)
    if also is not None:
        chosen = np.union1d(chosen, also[live[also]])
    if not len(chosen):
        return 0.0, 0.0
    own = (chosen, np.arange(len(chosen)))
    slopes = -inverse.columns(chosen) / inverse.diagonal[chosen]
    slopes[own] = -1.0
    rest = data.T @ (data @ slopes) + penalties[:, None] * slopes  # S·(B − I) + Λ·B, but for the diagonal
    rest[own] = slopes[own] = 0.0
    residual = float(np.abs(rest).max() / diagonal.max())
    largest = max(float(np.abs(slopes).max()), 1e-30)
    with np.errstate(divide="ignore"):  # a penalty of 0 bounds nothing
        error = float(np.linalg.norm(rest, axis=0).max() / penalties[live].min()) / largest if residual else 0.0
    if error > fine:
        error = float(np.abs(_error(data, penalties, diagonal, rest, own, tolerance)).max()) / largest
    return residual, error


def probes(diagonal: Float64, number: int = 8) -> NDArray[np.int64]:
    """A few items to test a fit on: spread over those in use by popularity, the most popular among them."""
    live = np.flatnonzero(diagonal)
    order = live[np.argsort(diagonal[live], kind="stable")]
    return order[np.unique(np.linspace(0, len(order) - 1, number).astype(int))] if len(order) else order


def _error(data: Any, penalties: Float64, diagonal: Float64, rest: Float64, own: Any, tolerance: float) -> Float64:
    """A few steps of conjugate gradients on (S + Λ)z = rest with z = 0 on the probes' own rows."""

    def apply(block: Float64) -> Float64:
        out = data.T @ (data @ block) + penalties[:, None] * block
        out[own] = 0.0
        return np.asarray(out)

    scale = 1 / (diagonal + penalties)[:, None]
    start = np.zeros_like(rest)
    return conjugate_gradients(apply, lambda block: scale * block, rest, start, steps=40, tolerance=tolerance)[0]


def conjugate_gradients(
    apply: Callable[[Float64], Float64],
    prepare: Callable[[Float64], Float64],
    right: Float64,
    start: Float64,
    *,
    steps: int,
    tolerance: float = 1e-10,
) -> tuple[Float64, bool]:
    """Preconditioned conjugate gradients on many right-hand sides at once, one a column; whether all converged."""
    goal = tolerance * np.linalg.norm(right, axis=0)
    solution, rest = start, right - apply(start)
    if (np.linalg.norm(rest, axis=0) <= goal).all():
        return solution, True
    ready = prepare(rest)
    direction, strength = ready, np.einsum("ij,ij->j", rest, ready)
    for _ in range(steps):
        image = apply(direction)
        curve = np.einsum("ij,ij->j", direction, image)
        step = np.divide(strength, curve, out=np.zeros_like(curve), where=curve > 0)
        solution = solution + step * direction
        rest = rest - step * image
        if (np.linalg.norm(rest, axis=0) <= goal).all():
            return solution, True
        ready = prepare(rest)
        before, strength = strength, np.einsum("ij,ij->j", rest, ready)
        ratio = np.divide(strength, before, out=np.zeros_like(before), where=before > 0)
        direction = ready + ratio * direction
    return solution, False


def dual_solve(inverse: NDArray[Any], by_item: Any, penalties: Float64, right: Any) -> tuple[Float64, bool]:
    """The exact K⁻¹·right (sparse users × columns): the stored inverse, refined in float64; whether it converged.

    In float32 the stored K⁻¹ loses what cancels in a column of C; conjugate gradients that start from it, with it as
    the preconditioner, bring that back, in one or two steps on most data.
    """

    def apply(block: Float64) -> Float64:
        return np.asarray(block + by_item.T @ ((by_item @ block) / penalties[:, None]))

    def prepare(block: Float64) -> Float64:
        return np.asarray(inverse @ block.astype(inverse.dtype), np.float64)

    start = np.zeros((inverse.shape[0], right.shape[1]))
    columns = right.tocsc()
    if right.shape[1] <= 16:
        for k in range(right.shape[1]):
            part = slice(columns.indptr[k], columns.indptr[k + 1])
            _add_rows(inverse, columns.indices[part], columns.data[part], start[:, k])
    else:
        start = prepare(columns.toarray())
    return conjugate_gradients(apply, prepare, columns.toarray(), start, steps=50)


def exact_columns(
    inverse: NDArray[Any], by_item: Any, penalties: Float64, items: NDArray[np.integer[Any]]
) -> tuple[Float64, bool]:
    """Columns of C through `dual_solve`; whether they converged."""
    rows = by_item[items].astype(np.float64)
    right = rows.multiply(1 / penalties[items][:, None]).tocsr().T
    solved, converged = dual_solve(inverse, by_item, penalties, right)
    out = np.asarray(-(by_item @ solved) / penalties[:, None])
    out[items, np.arange(len(items))] += 1 / penalties[items]
    return out, converged


def dual_columns(inverse: NDArray[Any], by_item: Any, penalties: Float64, items: NDArray[np.integer[Any]]) -> Float64:
    """Columns of C = Λ⁻¹ − Λ⁻¹X̃ᵀK⁻¹X̃Λ⁻¹, summed in float64."""
    out = np.empty((by_item.shape[0], len(items)))
    for k, j in enumerate(items):
        part = slice(by_item.indptr[j], by_item.indptr[j + 1])
        solved = np.zeros(len(inverse))
        _add_rows(inverse, by_item.indices[part], by_item.data[part] / penalties[j], solved)
        out[:, k] = -(by_item @ solved) / penalties
        out[j, k] += 1 / penalties[j]
    return out


def invert(out: NDArray[Any], penalties: Float64, stage: Stage = silent) -> None:
    """(G + diag ℓ)⁻¹ of the Gram in the lower triangle of an array, in place."""
    np.einsum("ii->i", out)[...] += penalties.astype(out.dtype)
    potrf(out, tick=lambda flops: stage("factor", flops))
    potri(out, tick=lambda flops: stage("invert", flops))


def _whole(square: NDArray[Any], threads: int) -> None:
    """The upper triangle from the lower one, in place."""
    n, one = len(square), np.ones(len(square), square.dtype)
    parallel.parallel_for(lambda a, b: _mirror(square, one, a, b), n, max(BLOCK, n // 64 // BLOCK * BLOCK), threads)


def _forms(inverse: NDArray[Any], by_item: Any, threads: int) -> Float64:
    """The form x_jᵀK⁻¹x_j of each item."""
    forms = np.empty(by_item.shape[0])

    def quadratic(start: int, stop: int) -> None:
        _quadratic(inverse, by_item.indptr, by_item.indices, by_item.data, forms, start, stop)

    parallel.parallel_for(quadratic, len(forms), max(1, len(forms) // (32 * threads)), threads)
    return forms


BLOCK = 64


@kernel
def _mirror(square: Any, scale: Any, start: int, stop: int) -> None:
    """For the columns start:stop: both triangles from the lower one, row r multiplied by scale[r].

    A block goes through a small buffer, so that both its places are read and written along the columns.
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


@kernel
def _quadratic(inverse: Any, indptr: Any, indices: Any, data: Any, forms: Any, start: int, stop: int) -> None:
    """Sum of K⁻¹ over the users of each item, in float64: xᵀK⁻¹x."""
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
