"""Leading eigenpairs of symmetric positive operators.

`leading` takes any operator that multiplies a block of columns. Small ones, and those of which a third or more is
wanted, are formed and solved densely. The others go through block Lanczos with full orthogonalisation and thick
restarts: each vector of the basis costs one product, the rest is dense products of thin blocks, and nothing of size n²
exists. Residuals are measured with the operator at the end, and a pair that has not converged is an error.

`of_data` is the spectrum of AᵀA for sparse data, through the smaller side: with AAᵀ·u = σ²u, v = Aᵀu/σ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from monogram.engine.gram.operators import Operator
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import Stage, silent
from monogram.errors import NumericalError

Apply = Callable[[NDArray[Any]], NDArray[Any]]
TOLERANCE = {"float32": 1e-4, "float64": 1e-8}  # of ‖Av − θv‖/θ
SMALL = 1000  # a matrix of this size is solved densely
SMALLEST = 1e-4  # of the largest value: what smaller ones are measured against
RESTARTS = 100
IDLE = 8  # restarts without progress, after which nothing more is to be hoped for
SLAB = 64  # columns worked on in float64 at once
ROWS = 4096  # rows of a basis rotated at once
TRACE = 1e-3  # of what is random beside a given start: no direction is left out for ever


class ConvergenceError(NumericalError):
    """Eigenpairs have not converged to the tolerance."""


@dataclass(frozen=True)
class EigenPairs:
    """Eigenpairs, largest first; those that are zero to rounding are left out.

    Attributes
    ----------
    values : θ
    vectors : one a column
    residuals : ‖Av − θv‖/θ of each, measured; a θ below 1e-4 of the largest counts as that much, since what is left of
        so small a pair is the rounding of the first
    method : "dense" or "lanczos"
    products : columns the operator was applied to
    complete : whether these are all pairs that are not zero
    """

    values: Float64
    vectors: NDArray[Any]
    residuals: Float64
    method: str
    products: int
    complete: bool

    @property
    def residual(self) -> float:
        """The largest of the residuals."""
        return float(self.residuals.max(initial=0.0))


def method(size: int, rank: int) -> str:
    """How `leading` goes about it."""
    return "dense" if size <= SMALL or 3 * rank >= size else "lanczos"


def widths(size: int, rank: int) -> tuple[int, int]:
    """Columns of a block, and of the whole basis, of a Lanczos run."""
    block = int(np.clip(rank // 8, 8, 64))
    most = max(5 * rank // 2, rank + 8 * block)
    return block, min(most, size - block) // block * block


def leading(
    apply: Apply,
    size: int,
    rank: int,
    *,
    dense: Callable[[], Float64] | None = None,
    dtype: str = "float32",
    measured: str = "float64",
    tolerance: float | None = None,
    seed: int = 0,
    stage: Stage = silent,
) -> EigenPairs:
    """The leading `rank` eigenpairs of a symmetric positive semi-definite operator.

    Parameters
    ----------
    apply : multiplies a block (size × any) by the operator
    size : its side
    dense : gives the operator as an array whose lower triangle counts; by default apply(I)
    dtype : of the basis and of the vectors; the projected problem is always float64
    measured : the precision in which residuals are measured: float32 where the operator itself has no more
    tolerance : largest residual; by default 1e-4 in float32, 1e-8 in float64
    """
    settings = _Settings(method(size, rank), dtype, measured, TOLERANCE[dtype] if tolerance is None else tolerance)
    values, vectors, used = _pairs(apply, size, min(rank, size), dense, settings, seed, stage)
    return _finish(apply, values, vectors, used, rank >= size, settings)


def of_data(
    data: Operator,
    rank: int,
    *,
    side: str = "auto",
    dtype: str = "float32",
    tolerance: float | None = None,
    seed: int = 0,
    start: NDArray[Any] | None = None,
    stage: Stage = silent,
) -> EigenPairs:
    """The leading eigenpairs of AᵀA, by the "items" (n × n) or the "users" (m × m), or whichever are fewer.

    `start` are vectors (n × any) near the wanted ones, such as those of the data before a change.
    """
    users, items = data.shape
    if side == "auto":
        side = "users" if users < items else "items"
    apply, size = (data.item_gram_times, items) if side == "items" else (data.user_gram_times, users)
    settings = _Settings(method(size, rank), dtype, "float64", TOLERANCE[dtype] if tolerance is None else tolerance)
    if start is not None and side == "users":
        start = data.times(start)
    values, vectors, used = _pairs(apply, size, min(rank, size), lambda: data.dense(side), settings, seed, stage, start)
    whole = rank >= min(users, items)
    if side == "users":
        kept = settings.not_zero(values)
        whole, values = whole or kept < len(values), values[:kept]
        vectors = _turned(data, values, vectors)
    return _finish(data.item_gram_times, values, vectors, used, whole, settings)


@dataclass(frozen=True)
class _Settings:
    """The method, the precision of the vectors and of their measurement, and the largest residual."""

    method: str
    dtype: str
    measured: str
    tolerance: float

    def not_zero(self, values: Float64) -> int:
        """How many values are above the rounding of the largest, in the precision they were computed in."""
        if not len(values):
            return 0
        rounding = len(values) * np.finfo("float64").eps if self.method == "dense" else 10 * np.finfo(self.dtype).eps
        return int((values > rounding * max(float(values[0]), 0.0)).sum())


def _pairs(
    apply: Apply,
    size: int,
    rank: int,
    dense: Callable[[], Float64] | None,
    settings: _Settings,
    seed: int,
    stage: Stage,
    start: NDArray[Any] | None = None,
) -> tuple[Float64, NDArray[Any], int]:
    """Values, vectors, and the number of products; not measured yet."""
    if settings.method == "lanczos":
        return _lanczos(apply, size, rank, settings, seed, stage, start)
    array = _formed(apply, size) if dense is None else dense()
    wanted = [size - rank, size - 1]
    values, vectors = scipy.linalg.eigh(array, lower=True, overwrite_a=True, subset_by_index=wanted, check_finite=False)
    stage("spectrum", float(size) ** 3)
    return values[::-1], vectors[:, ::-1], size


def _turned(data: Operator, values: Float64, vectors: NDArray[Any]) -> NDArray[Any]:
    """v = Aᵀu/σ, a slab of columns at a time."""
    out = np.empty((data.shape[1], len(values)), vectors.dtype)
    for start in range(0, len(values), SLAB):
        part = slice(start, min(start + SLAB, len(values)))
        out[:, part] = data.transpose_times(vectors[:, part]) / np.sqrt(values[part]).astype(out.dtype)
    return out


def _formed(apply: Apply, size: int) -> Float64:
    """The operator as an array, a slab of columns at a time."""
    out = np.empty((size, size), order="F")
    for start in range(0, size, SLAB):
        stop = min(start + SLAB, size)
        out[:, start:stop] = apply(np.eye(size, stop - start, -start))
    return out


def _finish(
    apply: Apply, values: Float64, vectors: NDArray[Any], used: int, whole: bool, settings: _Settings
) -> EigenPairs:
    """Leave zeros out, measure the rest, and where float32 was too coarse for that, solve within their space again."""
    kept = settings.not_zero(values)
    whole, vectors = whole or kept < len(values), np.ascontiguousarray(vectors[:, :kept])
    found = EigenPairs(values[:kept].astype(np.float64), vectors, np.empty(0), settings.method, used, whole)
    found = replace(found, residuals=_residuals(apply, found, settings.measured))
    if not found.residual <= settings.tolerance:
        found = _again(apply, found, settings)
        found = replace(found, residuals=_residuals(apply, found, settings.measured))
    if not found.residual <= settings.tolerance:
        bad = int((~(found.residuals <= settings.tolerance)).sum())
        raise ConvergenceError(_refusal(bad, len(found.values), found.residual, settings))
    return replace(found, vectors=found.vectors.astype(settings.dtype, copy=False))


def _residuals(apply: Apply, found: EigenPairs, dtype: str) -> Float64:
    out = np.empty(len(found.values))
    for start in range(0, len(out), SLAB):
        part = slice(start, min(start + SLAB, len(out)))
        block = found.vectors[:, part].astype(dtype)
        out[part] = np.linalg.norm(apply(block) - block * found.values[part], axis=0)
    return out / _sizes(found.values)


def _sizes(values: Float64) -> Float64:
    """What a residual is measured against."""
    return np.asarray(np.maximum(values, SMALLEST * values[:1].sum()))


def _again(apply: Apply, found: EigenPairs, settings: _Settings) -> EigenPairs:
    """Rayleigh–Ritz in float64 within the space that was found.

    In float32 a vector keeps a trace of the first ones, at the level of rounding; the operator multiplies it by their
    large values.
    """
    vectors, rank = found.vectors, len(found.values)
    size, gram, image = len(vectors), np.zeros((rank, rank)), np.zeros((rank, rank))
    for start in range(0, rank, SLAB):
        part = slice(start, min(start + SLAB, rank))
        block = vectors[:, part].astype(np.float64)
        product = apply(block)
        for row in range(0, size, ROWS):
            rows = slice(row, row + ROWS)
            slab = vectors[rows].astype(np.float64)
            gram[:, part] += slab.T @ block[rows]
            image[:, part] += slab.T @ product[rows]
    values, turns = scipy.linalg.eigh((image + image.T) / 2, (gram + gram.T) / 2, check_finite=False)
    values, turns = values[::-1], turns[:, ::-1]
    for row in range(0, size, ROWS):
        rows = slice(row, row + ROWS)
        vectors[rows] = vectors[rows].astype(np.float64) @ turns
    kept = settings.not_zero(values)
    whole = found.complete or kept < rank
    return replace(found, values=values[:kept], vectors=np.ascontiguousarray(vectors[:, :kept]), complete=whole)


def _refusal(bad: int, rank: int, residual: float, settings: _Settings) -> str:
    return (
        f"{bad} of {rank} eigenpairs have not converged: the largest ‖Av − σ²v‖/σ² is {residual:.1e}, expected at most "
        f"{settings.tolerance:g}"
    )


def _lanczos(
    apply: Apply, size: int, rank: int, settings: _Settings, seed: int, stage: Stage, start: NDArray[Any] | None = None
) -> tuple[Float64, NDArray[Any], int]:
    """Block Lanczos with thick restarts: values, vectors, and the number of products."""
    rng, dtype = np.random.default_rng(seed), np.dtype(settings.dtype)
    block, most = widths(size, rank)
    basis = np.empty((size, most + block), dtype, order="F")
    projected = np.zeros((most + block, most + block))
    basis[:, :block] = _first(rng, size, block, start)
    done, have, used, lowest, idle = 0, block, 0, np.inf, 0
    for _ in range(RESTARTS):
        middle = np.inf if start is None else max(rank, (done + most) / 2)
        while True:
            rest = apply(basis[:, done:have])
            used += have - done
            stage("spectrum", float(have - done))
            size_before = float(np.linalg.norm(rest, axis=0).max())
            if not np.isfinite(size_before):
                raise NumericalError("a product with the data is not finite")
            projected[:have, done:have] = _orthogonalise(basis[:, :have], rest)
            following, coupling = _next(basis[:, :have], rest, size_before, rng)
            last, done = have - done, have
            if done + block > most:
                break
            if done - last < middle <= done and not _ritz(projected[:done, :done], coupling, rank, settings)[3].any():
                break  # a near start may arrive between restarts
            basis[:, done : done + block] = following
            have = done + block
        values, turns, residuals, wrong = _ritz(projected[:done, :done], coupling, rank, settings)
        kept = rank if not wrong.any() else min(turns.shape[1], rank + (done - rank) // 2)
        _rotate(basis, done, turns[:, :kept])
        if not wrong.any():
            return values[:rank], basis[:, :rank], used
        worst = float((residuals[:rank] / np.maximum(_sizes(values[:rank]), 1e-300)).max())
        lowest, idle = (worst, 0) if worst < 0.9 * lowest else (lowest, idle + 1)
        if idle == IDLE:
            break
        projected[:] = 0.0
        np.einsum("ii->i", projected)[:kept] = values[:kept]
        basis[:, kept : kept + block] = following
        done, have = kept, kept + block
    raise ConvergenceError(_refusal(int(wrong.sum()), rank, worst, settings))


def _first(rng: np.random.Generator, size: int, block: int, start: NDArray[Any] | None) -> Float64:
    """The block to begin with: random, or random sums of vectors near the wanted ones, with a trace of all others."""
    found = rng.standard_normal((size, block))
    if start is not None and start.any():
        unit = start.astype(np.float64) / np.maximum(np.linalg.norm(start, axis=0), 1e-300)
        found *= TRACE * np.sqrt(unit.shape[1] / size)
        found += unit @ rng.standard_normal((unit.shape[1], block))
    return np.asarray(np.linalg.qr(found)[0])


def _ritz(
    projected: Float64, coupling: Float64, rank: int, settings: _Settings
) -> tuple[Float64, Float64, Float64, NDArray[np.bool_]]:
    """Eigenpairs of the projected problem, largest first: the wanted ones and half of the rest.

    With them the residuals, which the coupling to what follows leaves, and which wanted ones have not arrived.
    """
    done = len(projected)
    kept = min(done, rank + (done - rank) // 2)
    values, turns = scipy.linalg.eigh(
        projected, subset_by_index=[done - kept, done - 1], check_finite=False, lower=False
    )
    values, turns = values[::-1], turns[:, ::-1]
    residuals = np.linalg.norm(coupling @ turns[done - coupling.shape[1] :], axis=0)
    goal = 0.5 * settings.tolerance * _sizes(values[:rank])
    goal[settings.not_zero(values[:rank]) :] = 10 * np.finfo(settings.dtype).eps * values[0]
    return values, turns, residuals, ~(residuals[:rank] <= goal)


def _orthogonalise(basis: NDArray[Any], block: NDArray[Any]) -> Float64:
    """Take the basis out of a block, twice, in place; the coefficients come back."""
    total = np.zeros((basis.shape[1], block.shape[1]))
    for _ in range(2):
        part = basis.T @ block
        block -= basis @ part
        total += part
    return total


def _next(
    basis: NDArray[Any], rest: NDArray[Any], scale: float, rng: np.random.Generator
) -> tuple[NDArray[Any], Float64]:
    """An orthonormal block that spans the rest, and rest = block·coupling.

    `scale` is the size of the product before the basis was taken out of it. What is left of a direction at the level of
    its rounding (an invariant space was found) is replaced by a random direction, coupled to nothing.
    """
    vectors, coupling = _triangular(rest.astype(np.float64))
    sizes, rounding = np.abs(np.diagonal(coupling)), float(np.finfo(basis.dtype).eps) * scale
    if sizes.min() <= 100 * rounding:
        weak = sizes <= 100 * rounding
        coupling[weak] = 0.0
        vectors[:, weak] = rng.standard_normal((len(vectors), int(weak.sum())))
    if sizes.min() <= 1e4 * rounding:  # what is left may not be orthogonal to the basis
        clean = vectors.astype(basis.dtype)
        for _ in range(2):
            _orthogonalise(basis, clean)
            clean = _triangular(clean.astype(np.float64))[0].astype(basis.dtype)
        vectors = clean
    return vectors.astype(basis.dtype), coupling


def _triangular(block: Float64) -> tuple[Float64, Float64]:
    """Orthonormal columns times an upper triangle: by Cholesky, twice; by Householder where that is too coarse."""
    total = np.eye(block.shape[1])
    out = block
    for _ in range(2):
        try:
            upper = scipy.linalg.cholesky(out.T @ out, check_finite=False)
        except scipy.linalg.LinAlgError:
            break
        if np.diagonal(upper).min() < 1e-6 * np.diagonal(upper).max():
            break
        out = out @ scipy.linalg.solve_triangular(upper, np.eye(len(upper)), check_finite=False)
        total = upper @ total
    else:
        return out, total
    vectors, upper = np.linalg.qr(block)
    signs = np.where(np.diagonal(upper) < 0, -1.0, 1.0)  # as Cholesky has them
    return vectors * signs, signs[:, None] * upper


def _rotate(basis: NDArray[Any], done: int, turns: Float64) -> None:
    """The first columns of the basis become basis·turns, in place."""
    turns = turns.astype(basis.dtype)
    for start in range(0, len(basis), ROWS):
        part = slice(start, start + ROWS)
        basis[part, : turns.shape[1]] = basis[part, :done] @ turns
