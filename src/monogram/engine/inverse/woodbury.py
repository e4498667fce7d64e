"""Exact changes of an inverse: rows of data come and go, penalties move, and nothing is factorised again.

*primal*. A = S + Λ becomes A + Fᵀ·diag(σ)·F with σ = ±1: F has a sparse row for each row of data that comes (+) or goes
(−), and one for each penalty that moves, with the root of the difference in it. Then (Woodbury), with Y = F·C,

    C' = C − Yᵀ(diag σ + Y·Fᵀ)⁻¹Y.

C is never a second array: it is read from the weights, which hold C·diag(s) off the diagonal, and becomes the new
weights in one pass over their rows.

*dual*. K⁻¹ loses the rows of users who go (a Schur complement), follows the penalties (Woodbury) and is bordered by
those who come. Each needs columns of K⁻¹ times something sparse, solved to float64 whatever K⁻¹ is held in.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine.inverse.dual import dual_solve
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64, Indices
from monogram.engine.runtime.jit import kernel
from monogram.errors import NumericalError

SLAB = 2048  # columns of C read in float64 at once
ROWS = 64  # rows of the weights changed at once by a thread
SOLVED = 128  # columns of K⁻¹ solved for at once


@dataclass(frozen=True)
class InverseInWeights:
    """C as weights hold it: `array` = C·diag(scale) off its diagonal (C-ordered), and the diagonal of C beside it."""

    array: NDArray[Any]
    scale: Float64
    diagonal: Float64

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""
        out: Float64 = self.array[:, items].astype(np.float64) / self.scale[items]
        out[items, np.arange(len(items))] = self.diagonal[items]
        return out


@dataclass(frozen=True)
class GramChange:
    """What is added to S + Λ: Fᵀ·diag(signs)·F, the rows of F sparse."""

    rows: Any
    signs: Float64

    @property
    def rank(self) -> int:
        """How many rows F has."""
        return len(self.signs)


def gram_change(gone: Any, come: Any, shift: Float64) -> GramChange:
    """The change by rows of data that go and come (CSR), and by what is added to each penalty."""
    moved = np.flatnonzero(shift)
    roots = np.sqrt(np.abs(shift[moved]))
    own = sp.csr_array((roots, moved, np.arange(len(moved) + 1)), shape=(len(moved), len(shift)))
    parts = [one.astype(np.float64) for one in (come, gone, own)]
    rows = sp.csr_array(sp.vstack(parts, format="csr"))
    signs = np.concatenate([np.ones(come.shape[0]), -np.ones(gone.shape[0]), np.sign(shift[moved])])
    some = np.flatnonzero(np.diff(rows.indptr))
    return GramChange(rows[some], signs[some])


def flops(rank: int, side: int) -> float:
    """Of a change of a rank, on an inverse of a side (a factorisation anew: side³)."""
    return 2.0 * side**2 * rank + 2.0 * side * rank**2 + float(rank) ** 3


def working_bytes(rank: int, side: int, dtype: Any, threads: int = 1) -> int:
    """Bytes of a change beside the array it changes: Y, its solution and what is on the way, and slabs."""
    size = int(np.dtype(dtype).itemsize)
    return rank * side * (24 + 2 * size) + 24 * rank**2 + threads * ROWS * side * size + 8 * SLAB * (side + rank)


@dataclass(frozen=True)
class Correction:
    """C' = C − left·right, and the diagonal of C'; `unused` items are alone in it, with zeros beside them."""

    left: Float64
    right: Float64
    diagonal: Float64
    unused: Indices


def correction(held: InverseInWeights, wanted: GramChange, alone: Float64) -> Correction:
    """What a change takes from C; nothing is changed yet. NumericalError where S + Λ would not stay invertible.

    `alone` is the c of each item that nobody uses after the change, and 0 for all others.
    """
    rows, n = wanted.rows, len(held.scale)
    touched = np.unique(rows.indices)
    narrow = rows[:, touched]
    product = np.empty((wanted.rank, n))
    for start in range(0, n, SLAB):
        stop = min(start + SLAB, n)
        block = held.array[touched, start:stop].astype(np.float64)
        inside = np.flatnonzero((touched >= start) & (touched < stop))
        at = touched[inside]
        block[inside, at - start] = held.diagonal[at] * held.scale[at]  # the weights have their own diagonal
        product[:, start:stop] = (narrow @ block) / held.scale[start:stop]
    right = _solve(np.diag(wanted.signs) + rows @ product.T, product)
    diagonal = np.where(alone > 0, alone, held.diagonal - np.einsum("ri,ri->i", product, right))
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        raise NumericalError(
            "the change cannot be carried out in this precision: the diagonal of C would not stay above 0"
        )
    return Correction(product.T, right, diagonal, np.flatnonzero(alone))


class WeightsUpdate:
    """The way from C·diag(s) to C'·diag(s') in the precision of the weights: some columns of it, or all in place.

    What rounding would leave beside an item that nobody uses any more would tell who used it: there zeros are written.
    """

    def __init__(self, held: InverseInWeights, taken: Correction, scale: Float64) -> None:
        dtype = held.array.dtype
        self.held, self.scale, self.diagonal, self.unused = held, scale, taken.diagonal, taken.unused
        self.ratio = (scale / held.scale).astype(dtype)
        self.left = np.ascontiguousarray(taken.left, dtype)
        self.right = (taken.right * scale).astype(dtype)

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns of C' as the pass would leave them."""
        out = self.held.array[:, items] * self.ratio[items] - self.left @ self.right[:, items]
        found: Float64 = out.astype(np.float64) / self.scale[items]
        found[self.unused] = 0.0
        found[:, np.isin(items, self.unused)] = 0.0
        found[items, np.arange(len(items))] = self.diagonal[items]
        return found

    def into(self, out: NDArray[Any], diagonal: Float64, threads: int) -> None:
        """C'·diag(s') with the given diagonal, into an array that may be that of C·diag(s)."""
        array = self.held.array

        def rows(start: int, stop: int) -> None:
            _rescale(array[start:stop], self.ratio, self.left[start:stop] @ self.right, out[start:stop])

        with parallel.blas_threads(1):  # the slabs are shared among threads, not the products
            parallel.parallel_for(rows, len(out), ROWS, threads)
        out[self.unused] = 0
        out[:, self.unused] = 0
        np.fill_diagonal(out, diagonal)


def rescaled(array: NDArray[Any], ratio: Float64, diagonal: Float64, threads: int) -> NDArray[Any]:
    """A new array: the columns times a ratio each, and another diagonal."""
    out, ratio = np.empty_like(array), ratio.astype(array.dtype)

    def rows(start: int, stop: int) -> None:
        np.multiply(array[start:stop], ratio, out=out[start:stop])

    parallel.parallel_for(rows, len(out), ROWS, threads)
    np.fill_diagonal(out, diagonal)
    return out


def grown(array: NDArray[Any], side: int) -> NDArray[Any]:
    """A square array with zero rows and columns after its own, in the same order of memory."""
    columns = array.flags.f_contiguous and not array.flags.c_contiguous
    out: NDArray[Any] = np.zeros((side, side), array.dtype, order="F" if columns else "C")
    out[: len(array), : len(array)] = array
    return out


def add_to_gram(gram: NDArray[Any], gone: Any, come: Any) -> None:
    """Follow rows that go and come in the lower triangle of S, in place."""
    for rows, sign in ((gone, -1.0), (come, 1.0)):
        wide = rows.astype(np.float64)
        pairs = sp.tril(wide.T @ wide, format="coo")
        gram[pairs.row, pairs.col] += (sign * pairs.data).astype(gram.dtype)


def dual(
    inverse: NDArray[Any],
    matrix: Any,
    penalties: Float64,
    *,
    gone: Indices,
    come: Any,
    moved: Float64,
    threads: int = 1,
) -> NDArray[Any]:
    """K⁻¹ of a matrix without the rows `gone`, with the rows `come` after the others, for the penalties `moved`.

    A new array, Fortran-ordered, both triangles. NumericalError where the solves do not converge.
    """
    kept = np.setdiff1d(np.arange(len(inverse)), gone)
    k, more = len(kept), come.shape[0]
    out = np.empty((k + more, k + more), inverse.dtype, order="F")
    top = out[:k, :k]
    for start in range(0, k, ROWS):
        part = slice(start, min(start + ROWS, k))
        top[:, part] = inverse[:, kept[part]][kept]
    if len(gone):
        some = sp.csr_array((np.ones(len(gone)), (gone, np.arange(len(gone)))), shape=(len(inverse), len(gone)))
        columns = _solved(inverse, matrix.T.tocsr(), penalties, some)
        _take(top, columns[kept], _solve(columns[gone], columns[kept].T), threads)
    stay = matrix[kept].astype(np.float64)
    by_item = stay.T.tocsr()
    shift = 1 / moved - 1 / penalties
    some = np.flatnonzero((moved != penalties) & (np.diff(by_item.indptr) > 0))
    if len(some):
        wide = sp.csr_array(stay[:, some] * np.sqrt(np.abs(shift[some])))
        columns = _solved(top, by_item, penalties, wide)
        _take(top, columns, _solve(np.diag(np.sign(shift[some])) + wide.T @ columns, columns.T), threads)
    if more:
        _border(out, k, by_item, sp.csr_array(come.astype(np.float64)), moved, threads)
    return out


def _border(out: NDArray[Any], k: int, by_item: Any, come: Any, penalties: Float64, threads: int) -> None:
    """[[K, B], [Bᵀ, D]]⁻¹ from K⁻¹ in the first k rows and columns: with P = K⁻¹B, the corner is (D − BᵀP)⁻¹."""
    more = come.shape[0]
    scaled = sp.csr_array(come / penalties)
    beside = sp.csr_array(by_item.T @ scaled.T)
    columns = _solved(out[:k, :k], by_item, penalties, beside)
    corner = np.eye(more) + (come @ scaled.T).toarray() - beside.T @ columns
    last = _solve(corner, np.eye(more))
    side = _solve(corner, columns.T)
    _take(out[:k, :k], columns, -side, threads)
    out[k:, :k] = -side
    out[:k, k:] = -side.T
    out[k:, k:] = last


def _solved(inverse: NDArray[Any], by_item: Any, penalties: Float64, right: Any) -> Float64:
    """K⁻¹·right to float64, a few columns at a time."""
    out = np.empty(right.shape)
    columns = right.tocsc()
    for start in range(0, out.shape[1], SOLVED):
        part = slice(start, min(start + SOLVED, out.shape[1]))
        out[:, part], converged = dual_solve(inverse, by_item, penalties, columns[:, part])
        if not converged:
            raise NumericalError("the change cannot be carried out in this precision: a solve did not converge")
    return out


def _take(square: NDArray[Any], left: Float64, right: Float64, threads: int) -> None:
    """The array less left·right, in place, a slab of columns at a time."""

    def columns(start: int, stop: int) -> None:
        square[:, start:stop] -= (left @ right[:, start:stop]).astype(square.dtype)

    with parallel.blas_threads(1):
        parallel.parallel_for(columns, len(square), ROWS, threads)


def _solve(core: Float64, right: Float64) -> Float64:
    """The solution of a small symmetric system that may be indefinite; NumericalError where there is none."""
    core = np.asarray((core + core.T) / 2)
    if not len(core):
        return np.zeros_like(right)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
            return np.asarray(scipy.linalg.solve(core, right, assume_a="gen", check_finite=False))
    except (scipy.linalg.LinAlgError, scipy.linalg.LinAlgWarning) as error:
        raise NumericalError(f"the change cannot be carried out in this precision: {error}") from error


@kernel
def _rescale(array: Any, ratio: Any, taken: Any, out: Any) -> None:
    for i in range(array.shape[0]):
        row, less, target = array[i], taken[i], out[i]
        for j in range(len(ratio)):
            target[j] = row[j] * ratio[j] - less[j]
