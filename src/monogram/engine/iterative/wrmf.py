"""Half-steps of alternating least squares for weighted matrix factorisation: one side is solved, the other is fixed.

Objective, over all cells of an m × n matrix R ≥ 0 (x = 1 where r > 0, else 0; gain g = alpha·r, weight c = 1 + g):

    Σ_ui c_ui·(x_ui − p_u·q_i)² + Σ_u ρ_u·‖p_u‖² + Σ_i ρ_i·‖q_i‖²,    ρ_u = l2·(Σ_i c_ui)^nu, and ρ_i likewise.

The row p of one user solves A·p = Σ (1 + g_i)·q_i with A = QᵀQ + ρ·I + Σ g_i·q_i·q_iᵀ, sums over the user's items.

*Basis.* The objective is invariant under one rotation of both P and Q. Before a half-step the fixed side is rotated so
that its Gramian QᵀQ is diagonal, λ: then the part of A common to all rows is the diagonal D = diag(λ + ρ).
*Long rows* (at least `rank` events): A is formed and factored, rank²·events/2 + rank³/6 products.
*Short rows* (most, in a log): p = D⁻¹·Zᵀ·y with (Z·D⁻¹·Zᵀ + diag(1/g))·y = 1 + 1/g, where the rows of Z are the q_i: a
system of the size of the history, rank·events²/2 + events³/6 products. Both are exact.
*Conjugate gradients* start from the row of the last epoch and are preconditioned by D; a step is 2·rank·events
products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.linalg.small_cholesky import TILE, add_products, factor, substitute
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.jit import fused
from monogram.errors import NumericalError

ROWS = 128  # rows solved in one task
BLOCK = 2048  # rows of factors cast to float64 and multiplied at once
EVENTS = 64  # events of a long row that are added to its matrix at once
STEPS = 3  # of conjugate gradients
SMALLEST = 1e-4  # gain; below it 1/g would dominate the system of a short row


def ridges(matrix: Csr, l2: float, alpha: float, nu: float) -> Float64:
    """ρ = l2·(Σ c)^nu of each row of a CSR matrix; Σ c = columns + alpha·Σ r."""
    sums = matrix @ np.ones(matrix.shape[1])  # in float64; matrix.sum would add in the precision of its data
    return np.asarray(l2 * (matrix.shape[1] + alpha * sums) ** nu)


def gramian(factors: Float, threads: int = 1) -> Float64:
    """FᵀF in float64 from blocks of fixed size: independent of the number of threads, if BLAS uses one thread."""
    parts = np.zeros((-(-len(factors) // BLOCK), factors.shape[1], factors.shape[1]))

    def rows(start: int, stop: int) -> None:
        block = factors[start:stop].astype(np.float64)
        parts[start // BLOCK] = block.T @ block

    parallel.parallel_for(rows, len(factors), BLOCK, threads)
    return np.asarray(parts.sum(axis=0))


def rotate_to_axes(fixed: Float, *others: Float, threads: int = 1) -> Float64:
    """Rotate factors in place so that the Gramian of the first is diagonal; return that diagonal."""
    spectrum, basis = np.linalg.eigh(gramian(fixed, threads))
    for factors in (fixed, *others):

        def rows(start: int, stop: int, factors: Float = factors) -> None:
            # in float64, so that small directions keep their precision
            factors[start:stop] = factors[start:stop].astype(np.float64) @ basis

        parallel.parallel_for(rows, len(factors), BLOCK, threads)
    return np.asarray(np.maximum(spectrum, 0.0))


def solve(
    matrix: Csr,
    ridge: Float64,
    alpha: float,
    fixed: Float,
    spectrum: Float64,
    out: Float,
    threads: int = 1,
) -> None:
    """Solve the factor row of each row of a CSR matrix exactly, and write it into `out`.

    Parameters
    ----------
    matrix : CSR, rows × columns
    ridge : ρ of each row
    alpha : gain of a weight of 1
    fixed : factors of the columns, rotated by `rotate_to_axes`
    spectrum : diagonal of their Gramian
    out : rows × rank
    """
    rank = out.shape[1]
    size = rank + -rank % TILE
    arguments = _typed(matrix, ridge, alpha, fixed, spectrum, out)
    failed = np.zeros(len(out), np.bool_)

    def rows(start: int, stop: int) -> None:
        square = np.zeros((size, size), out.dtype)
        left, right = np.zeros((2, size, max(rank, EVENTS) + 16), out.dtype)
        _solve(*arguments, start, stop, square, left, right, np.zeros((2, size), out.dtype), failed)

    parallel.parallel_for(rows, len(out), ROWS, threads)
    if failed.any():
        raise NumericalError(f"{failed.sum():,} rows of the factors have a system that {out.dtype} cannot factor")


def improve(
    matrix: Csr,
    ridge: Float64,
    alpha: float,
    fixed: Float,
    spectrum: Float64,
    out: Float,
    threads: int = 1,
    *,
    steps: int = STEPS,
) -> None:
    """As `solve`, by a few steps of conjugate gradients that start from the values in `out`."""
    arguments = _typed(matrix, ridge, alpha, fixed, spectrum, out)

    def rows(start: int, stop: int) -> None:
        _improve(*arguments, start, stop, steps, np.zeros((4, out.shape[1]), out.dtype))

    parallel.parallel_for(rows, len(out), ROWS, threads)


def objective(
    matrix: Csr,
    users: Float,
    items: Float,
    *,
    l2: float,
    alpha: float,
    nu: float,
    by_item: Any = None,
    threads: int = 1,
) -> float:
    """The objective of any factors: (p·q)² is summed over all cells through Gramians, the rest over the events."""
    by_item = matrix.T.tocsr() if by_item is None else by_item
    indptr, indices, gains, _, fixed, _, rows_ = _typed(matrix, np.zeros(0), alpha, items, np.zeros(0), users)
    seen = np.zeros(len(users))

    def rows(start: int, stop: int) -> None:
        _seen(indptr, indices, gains, rows_, fixed, seen, start, stop)

    parallel.parallel_for(rows, len(users), 8 * ROWS, threads)
    total = seen.sum() + (gramian(users, threads) * gramian(items, threads)).sum()
    for side, factors in ((matrix, users), (by_item, items)):
        total += ridges(side, l2, alpha, nu) @ np.einsum("ij,ij->i", factors, factors, dtype=np.float64)
    return float(total)


def _typed(matrix: Csr, ridge: Float64, alpha: float, fixed: Float, spectrum: Float64, out: Float) -> tuple[Any, ...]:
    """The arguments of both kernels, always with the same types, so that each kernel is compiled once."""
    dtype = out.dtype
    with np.errstate(over="ignore"):  # an overflow becomes infinite, and the solve then fails
        gains = matrix.data.astype(dtype) * dtype.type(alpha)
        arrays = (
            matrix.indptr.astype(np.int64, copy=False),
            matrix.indices.astype(np.int32, copy=False),
            gains,
            ridge.astype(dtype, copy=False),
            np.ascontiguousarray(fixed),
            spectrum.astype(dtype, copy=False),
        )
    views = tuple(array.view() for array in arrays)
    for view in views:
        view.flags.writeable = False
    return *views, out


@fused
def _solve(
    indptr: Any,
    indices: Any,
    gains: Any,
    ridge: Any,
    fixed: Any,
    spectrum: Any,
    out: Any,
    start: int,
    stop: int,
    square: Any,
    left: Any,
    right: Any,
    lines: Any,
    failed: Any,
) -> None:
    rank = out.shape[1]
    for row in range(start, stop):
        first, last = indptr[row], indptr[row + 1]
        row_items, gain = indices[first:last], gains[first:last]
        for t in range(rank):
            lines[0, t] = spectrum[t] + ridge[row]
        if first == last:
            out[row] = 0
        elif last - first < rank and gain.min() >= SMALLEST:
            failed[row] = not _short(row_items, gain, fixed, lines[0], out[row], square, left, right, lines[1])
        else:
            failed[row] = not _long(row_items, gain, fixed, lines[0], out[row], square, left, right, lines[1])


@fused
def _short(
    items: Any, gains: Any, fixed: Any, diagonal: Any, out: Any, square: Any, left: Any, right: Any, vector: Any
) -> bool:
    """Solve through the system of the size of the history."""
    rank, events = len(out), len(items)
    size = events + -events % 4
    one = out.dtype.type(1)
    for p in range(size):
        square[p, :size] = 0
        square[p, p] = one
        vector[p] = 0
        for t in range(rank):
            left[p, t] = right[p, t] = 0
    for t in range(rank):
        diagonal[t] = one / diagonal[t]
    for p in range(events):
        square[p, p] = one / gains[p]
        vector[p] = one + one / gains[p]
        other = fixed[items[p]]
        for t in range(rank):
            left[p, t] = other[t]
            right[p, t] = other[t] * diagonal[t]
    add_products(square, left, right, size, rank)
    if not factor(square, size):
        return False
    substitute(square, size, vector)
    out[:] = 0
    for p in range(events):
        for t in range(rank):
            out[t] += vector[p] * right[p, t]
    return True


@fused
def _long(
    items: Any, gains: Any, fixed: Any, diagonal: Any, out: Any, square: Any, left: Any, right: Any, vector: Any
) -> bool:
    """Solve through A, of the size of the rank."""
    rank, events, size = len(out), len(items), len(square)
    one = out.dtype.type(1)
    for t in range(size):
        square[t] = 0
        square[t, t] = diagonal[t] if t < rank else one
        vector[t] = 0
    for begin in range(0, events, EVENTS):
        width = min(EVENTS, events - begin)
        padded = width + -width % 8
        for p in range(width):
            gain, other = gains[begin + p], fixed[items[begin + p]]
            for t in range(rank):
                left[t, p] = gain * other[t]
                right[t, p] = other[t]
                vector[t] += (one + gain) * other[t]
        for t in range(size):
            for p in range(width if t < rank else 0, padded):
                left[t, p] = right[t, p] = 0
        add_products(square, left, right, size, padded)
    if not factor(square, size):
        return False
    substitute(square, size, vector)
    out[:] = vector[:rank]
    return True


@fused
def _improve(
    indptr: Any,
    indices: Any,
    gains: Any,
    ridge: Any,
    fixed: Any,
    spectrum: Any,
    out: Any,
    start: int,
    stop: int,
    steps: int,
    lines: Any,
) -> None:
    rank = out.shape[1]
    residual, direction, product, diagonal = lines[0], lines[1], lines[2], lines[3]
    for row in range(start, stop):
        first, last = indptr[row], indptr[row + 1]
        row_items, gain, x = indices[first:last], gains[first:last], out[row]
        if first == last:
            x[:] = 0
            continue
        for t in range(rank):
            diagonal[t] = spectrum[t] + ridge[row]
        _times(row_items, gain, fixed, diagonal, x, residual, True)
        length = out.dtype.type(0)
        for t in range(rank):
            direction[t] = residual[t] / diagonal[t]
            length += residual[t] * direction[t]
        for _ in range(steps):
            if not length > 1e-30:
                break
            _times(row_items, gain, fixed, diagonal, direction, product, False)
            length = _step(x, residual, direction, product, diagonal, length)


@fused
def _times(items: Any, gains: Any, fixed: Any, diagonal: Any, x: Any, out: Any, residual: bool) -> None:
    """The product A·x, or, with `residual`, the residual b − A·x."""
    rank, zero, one = len(x), x.dtype.type(0), x.dtype.type(1)
    for t in range(rank):
        out[t] = -diagonal[t] * x[t] if residual else diagonal[t] * x[t]
    for p in range(len(items)):
        other = fixed[items[p]]
        product = zero
        for t in range(rank):
            product += other[t] * x[t]
        weight = one + gains[p] * (one - product) if residual else gains[p] * product
        for t in range(rank):
            out[t] += weight * other[t]


@fused
def _step(x: Any, residual: Any, direction: Any, product: Any, diagonal: Any, length: Any) -> Any:
    """One step of conjugate gradients; returns the new squared norm of the residual in D⁻¹."""
    rank = len(x)
    curvature = after = x.dtype.type(0)
    for t in range(rank):
        curvature += direction[t] * product[t]
    size = length / curvature
    for t in range(rank):
        x[t] += size * direction[t]
        residual[t] -= size * product[t]
        after += residual[t] * residual[t] / diagonal[t]
    for t in range(rank):
        direction[t] = residual[t] / diagonal[t] + (after / length) * direction[t]
    return after


@fused
def _seen(indptr: Any, indices: Any, gains: Any, users: Any, items: Any, out: Any, start: int, stop: int) -> None:
    """Σ c·(1 − p·q)² − (p·q)² over the events of each row."""
    for row in range(start, stop):
        mine, total = users[row], 0.0
        for p in range(indptr[row], indptr[row + 1]):
            other = items[indices[p]]
            product = users.dtype.type(0)
            for t in range(len(mine)):
                product += mine[t] * other[t]
            total += (1 + gains[p]) * (1 - product) ** 2 - product**2
        out[row] = total
