"""Exact updates of an inverse by the Woodbury identity: rows are added or removed, penalties change.

*primal*. A = S + Λ becomes A + Fᵀ·diag(σ)·F with σ = ±1. F has one sparse row for each row of data that is added (+) or
removed (−), and one for each changed penalty, which holds the root of the difference. Then, with Y = F·C,

    C' = C − Yᵀ(diag σ + Y·Fᵀ)⁻¹Y.

C is not a second array: it is read from the weights, which hold C·diag(s) off the diagonal, and the new weights are
written in one pass over the rows.

*dual*. Rows of removed users leave K⁻¹ (Schur complement), changed penalties are a Woodbury update, and added users
border K⁻¹. Each step needs K⁻¹ times a sparse block, solved to float64 whatever the precision of K⁻¹.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads scipy.linalg when a function of it is called
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine.inverse.dual import dual_solve
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.runtime.jit import kernel
from monogram.errors import NumericalError

SLAB = 2048  # columns of C read in float64 at once
ROWS = 64  # rows of the weights updated in one task
SOLVED = 128  # columns of K⁻¹ solved for at once


@dataclass(frozen=True)
class InverseInWeights:
    """C as stored in weights: `array` = C·diag(scale) off its diagonal (C-ordered), and the diagonal of C."""

    array: Float
    scale: Float64
    diagonal: Float64

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""
        out: Float64 = self.array[:, items].astype(np.float64) / self.scale[items]
        out[items, np.arange(len(items))] = self.diagonal[items]
        return out


@dataclass(frozen=True)
class GramChange:
    """The change Fᵀ·diag(signs)·F of S + Λ, with sparse rows of F."""

    rows: Csr
    signs: Float64

    @property
    def rank(self) -> int:
        """The number of rows of F."""
        return len(self.signs)


def gram_change(removed: Csr, added: Csr, shift: Float64) -> GramChange:
    """The change from rows of data that are removed and added (CSR), and from the shift of each penalty."""
    moved = np.flatnonzero(shift)
    roots = np.sqrt(np.abs(shift[moved]))
    own = sp.csr_array((roots, moved, np.arange(len(moved) + 1)), shape=(len(moved), len(shift)))
    parts = [block.astype(np.float64) for block in (added, removed, own)]
    rows = sp.csr_array(sp.vstack(parts, format="csr"))
    signs = np.concatenate([np.ones(added.shape[0]), -np.ones(removed.shape[0]), np.sign(shift[moved])])
    nonempty = np.flatnonzero(np.diff(rows.indptr))
    return GramChange(rows[nonempty], signs[nonempty])


def flops(rank: int, side: int) -> float:
    """Flops of an update of a rank, for an inverse of a side (a new factorisation costs side³)."""
    return 2.0 * side**2 * rank + 2.0 * side * rank**2 + float(rank) ** 3


def working_bytes(rank: int, side: int, dtype: Any, threads: int = 1) -> int:
    """Bytes of an update beside the array it changes: Y, its solution, temporaries and slabs."""
    size = int(np.dtype(dtype).itemsize)
    return rank * side * (24 + 2 * size) + 24 * rank**2 + threads * ROWS * side * size + 8 * SLAB * (side + rank)


@dataclass(frozen=True)
class Correction:
    """C' = C − left·right, and the diagonal of C'; rows and columns of `unused` items are 0 off the diagonal."""

    left: Float64
    right: Float64
    diagonal: Float64
    unused: Indices


def correction(current: InverseInWeights, wanted: GramChange, alone: Float64) -> Correction:
    """The correction of C by a change, without applying it. NumericalError where S + Λ would become singular.

    `alone` is the diagonal entry 1/ℓ of each item without events after the change, and 0 for the other items.
    """
    rows, n = wanted.rows, len(current.scale)
    touched = np.unique(rows.indices)
    narrow = rows[:, touched]
    product = np.empty((wanted.rank, n))
    for start in range(0, n, SLAB):
        stop = min(start + SLAB, n)
        block = current.array[touched, start:stop].astype(np.float64)
        inside = np.flatnonzero((touched >= start) & (touched < stop))
        at = touched[inside]
        block[inside, at - start] = (
            current.diagonal[at] * current.scale[at]
        )  # the diagonal of the weights is not that of C
        product[:, start:stop] = (narrow @ block) / current.scale[start:stop]
    right = _solve(np.diag(wanted.signs) + rows @ product.T, product)
    diagonal = np.where(alone > 0, alone, current.diagonal - np.einsum("ri,ri->i", product, right))
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        raise NumericalError(
            "the change cannot be computed in this precision: the diagonal of C would not stay above 0"
        )
    return Correction(product.T, right, diagonal, np.flatnonzero(alone))


class WeightsUpdate:
    """The step from C·diag(s) to C'·diag(s') in the precision of the weights: some columns, or all in place.

    Rows and columns of items without remaining events are set to 0: rounding errors there would reveal removed users.
    """

    def __init__(self, current: InverseInWeights, taken: Correction, scale: Float64) -> None:
        dtype = current.array.dtype
        self.current, self.scale, self.diagonal, self.unused = current, scale, taken.diagonal, taken.unused
        self.ratio = (scale / current.scale).astype(dtype)
        self.left = np.ascontiguousarray(taken.left, dtype)
        self.right = (taken.right * scale).astype(dtype)

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns of C' as `into` would write them."""
        out = self.current.array[:, items] * self.ratio[items] - self.left @ self.right[:, items]
        columns: Float64 = out.astype(np.float64) / self.scale[items]
        columns[self.unused] = 0.0
        columns[:, np.isin(items, self.unused)] = 0.0
        columns[items, np.arange(len(items))] = self.diagonal[items]
        return columns

    def into(self, out: Float, diagonal: Float64, threads: int) -> None:
        """Write C'·diag(s') with the diagonal `diagonal` into `out`, which may be the array of C·diag(s)."""
        array = self.current.array

        def rows(start: int, stop: int) -> None:
            _rescale(array[start:stop], self.ratio, self.left[start:stop] @ self.right, out[start:stop])

        with parallel.blas_threads(1):  # threads share the slabs, BLAS runs on one thread each
            parallel.parallel_for(rows, len(out), ROWS, threads)
        out[self.unused] = 0
        out[:, self.unused] = 0
        np.fill_diagonal(out, diagonal)


def rescaled(array: Float, ratio: Float64, diagonal: Float64, threads: int) -> Float:
    """A new array: each column times its ratio, and another diagonal."""
    out, ratio = np.empty_like(array), ratio.astype(array.dtype)

    def rows(start: int, stop: int) -> None:
        np.multiply(array[start:stop], ratio, out=out[start:stop])

    parallel.parallel_for(rows, len(out), ROWS, threads)
    np.fill_diagonal(out, diagonal)
    return out


def grown(array: Float, side: int) -> Float:
    """A square array extended by zero rows and columns, in the same memory order."""
    columns = array.flags.f_contiguous and not array.flags.c_contiguous
    out: Float = np.zeros((side, side), array.dtype, order="F" if columns else "C")
    out[: len(array), : len(array)] = array
    return out


def add_to_gram(gram: Float, removed: Csr, added: Csr) -> None:
    """Subtract removed rows from the lower triangle of S and add new ones, in place."""
    for rows, sign in ((removed, -1.0), (added, 1.0)):
        wide = rows.astype(np.float64)
        pairs = sp.tril(wide.T @ wide, format="coo")
        gram[pairs.row, pairs.col] += (sign * pairs.data).astype(gram.dtype)


def dual(
    inverse: Float,
    matrix: Csr,
    penalties: Float64,
    *,
    removed: Indices,
    appended: Csr,
    new_penalties: Float64,
    threads: int = 1,
) -> Float:
    """K⁻¹ of a matrix without the rows `removed`, with the rows `appended`, and with the new penalties.

    Returns a new array, Fortran-ordered, both triangles. NumericalError where a solve does not converge.
    """
    staying = np.setdiff1d(np.arange(len(inverse)), removed)
    k, more = len(staying), appended.shape[0]
    out = np.empty((k + more, k + more), inverse.dtype, order="F")
    top = out[:k, :k]
    for start in range(0, k, ROWS):
        part = slice(start, min(start + ROWS, k))
        top[:, part] = inverse[:, staying[part]][staying]
    if len(removed):
        count = len(removed)
        units = sp.csr_array((np.ones(count), (removed, np.arange(count))), shape=(len(inverse), count))
        columns = _solved(inverse, matrix.T.tocsr(), penalties, units)
        _subtract(top, columns[staying], _solve(columns[removed], columns[staying].T), threads)
    stayed = matrix[staying].astype(np.float64)
    by_item = stayed.T.tocsr()
    shift = 1 / new_penalties - 1 / penalties
    shifted = np.flatnonzero((new_penalties != penalties) & (np.diff(by_item.indptr) > 0))
    if len(shifted):
        wide = sp.csr_array(stayed[:, shifted] * np.sqrt(np.abs(shift[shifted])))
        columns = _solved(top, by_item, penalties, wide)
        _subtract(top, columns, _solve(np.diag(np.sign(shift[shifted])) + wide.T @ columns, columns.T), threads)
    if more:
        _border(out, k, by_item, sp.csr_array(appended.astype(np.float64)), new_penalties, threads)
    return out


def _border(out: Float, k: int, by_item: Csr, appended: Csr, penalties: Float64, threads: int) -> None:
    """[[K, B], [Bᵀ, D]]⁻¹ from K⁻¹ in the first k rows and columns: with P = K⁻¹B, the new corner is (D − BᵀP)⁻¹."""
    count = appended.shape[0]
    scaled = sp.csr_array(appended / penalties)
    border = sp.csr_array(by_item.T @ scaled.T)
    columns = _solved(out[:k, :k], by_item, penalties, border)
    corner = np.eye(count) + (appended @ scaled.T).toarray() - border.T @ columns
    last = _solve(corner, np.eye(count))
    side = _solve(corner, columns.T)
    _subtract(out[:k, :k], columns, -side, threads)
    out[k:, :k] = -side
    out[:k, k:] = -side.T
    out[k:, k:] = last


def _solved(inverse: Float, by_item: Csr, penalties: Float64, right: Csr) -> Float64:
    """K⁻¹·right to float64, in blocks of columns."""
    out = np.empty(right.shape)
    columns = right.tocsc()
    for start in range(0, out.shape[1], SOLVED):
        part = slice(start, min(start + SOLVED, out.shape[1]))
        out[:, part], converged = dual_solve(inverse, by_item, penalties, columns[:, part])
        if not converged:
            raise NumericalError("the change cannot be computed in this precision: a solve did not converge")
    return out


def _subtract(square: Float, left: Float64, right: Float64, threads: int) -> None:
    """Subtract left·right from the array, in place, in slabs of columns."""

    def columns(start: int, stop: int) -> None:
        square[:, start:stop] -= (left @ right[:, start:stop]).astype(square.dtype)

    with parallel.blas_threads(1):
        parallel.parallel_for(columns, len(square), ROWS, threads)


def _solve(core: Float64, right: Float64) -> Float64:
    """Solve a small symmetric system that may be indefinite; NumericalError where it is singular."""
    core = np.asarray((core + core.T) / 2)
    if not len(core):
        return np.zeros_like(right)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
            return np.asarray(scipy.linalg.solve(core, right, assume_a="gen", check_finite=False))
    except (scipy.linalg.LinAlgError, scipy.linalg.LinAlgWarning) as error:
        raise NumericalError(f"the change cannot be computed in this precision: {error}") from error


@kernel
def _rescale(array: Any, ratio: Any, taken: Any, out: Any) -> None:
    for i in range(array.shape[0]):
        row, less, target = array[i], taken[i], out[i]
        for j in range(len(ratio)):
            target[j] = row[j] * ratio[j] - less[j]
