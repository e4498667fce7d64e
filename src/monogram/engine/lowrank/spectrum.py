"""Leading eigenpairs of symmetric positive operators.

`leading` takes any operator that multiplies a block of columns. Small operators, and those of which at least a third of
the pairs is requested, are formed and solved densely. The others use block Lanczos with full orthogonalisation and
thick restarts: each vector of the basis costs one product with the operator, and no n × n array exists. Residuals are
measured with the operator at the end, and a pair that has not converged is an error.

`of_data` is the spectrum of AᵀA for sparse data, through the smaller side: with AAᵀ·u = σ²u, v = Aᵀu/σ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy  # loads scipy.linalg when a function of it is called
from numpy.typing import NDArray

from monogram.engine.gram.operators import Operator
from monogram.engine.runtime.arrays import Float, Float64
from monogram.engine.runtime.progress import Stage, silent
from monogram.errors import NumericalError

Apply = Callable[[Float], Float]
TOLERANCE = {"float32": 1e-4, "float64": 1e-8}  # of ‖Av − θv‖/θ
SMALL = 1000  # operators up to this size are solved densely
SMALLEST = 1e-4  # share of the largest value; smaller values are measured against it
RESTARTS = 100
IDLE = 8  # restarts without progress before giving up
SLAB = 64  # columns processed in float64 at once
ROWS = 4096  # rows of a basis rotated at once
TRACE = 1e-3  # share of random directions added to a given start, so that no direction is excluded


class ConvergenceError(NumericalError):
    """Eigenpairs have not converged to the tolerance."""


@dataclass(frozen=True)
class EigenPairs:
    """Eigenpairs, largest first, without those that are zero up to rounding errors.

    Attributes
    ----------
    values : θ
    vectors : one in each column
    residuals : measured ‖Av − θv‖/θ of each pair; a θ below 1e-4 of the largest counts as 1e-4 of it, because rounding
        errors of the first pair dominate such small ones
    method : "dense" or "lanczos"
    products : number of columns the operator was applied to
    complete : whether these are all nonzero pairs
    """

    values: Float64
    vectors: Float
    residuals: Float64
    method: str
    products: int
    complete: bool

    @property
    def residual(self) -> float:
        """The largest of the residuals."""
        return float(self.residuals.max(initial=0.0))


def method(size: int, rank: int) -> str:
    """The method of `leading`: "dense" or "lanczos"."""
    return "dense" if size <= SMALL or 3 * rank >= size else "lanczos"


def widths(size: int, rank: int) -> tuple[int, int]:
    """Number of columns of a Lanczos block, and of the whole basis."""
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
    dense : returns the operator as an array (lower triangle); by default apply(I)
    dtype : of the basis and of the vectors; the projected problem is always float64
    measured : precision in which residuals are measured: float32 where the operator itself has no more
    tolerance : largest residual; by default 1e-4 in float32, 1e-8 in float64
    """
    settings = _Settings(method(size, rank), dtype, measured, TOLERANCE[dtype] if tolerance is None else tolerance)
    values, vectors, products = _pairs(apply, size, min(rank, size), dense, settings, seed, stage)
    return _finish(apply, values, vectors, products, rank >= size, settings)


def of_data(
    data: Operator,
    rank: int,
    *,
    side: str = "auto",
    dtype: str = "float32",
    tolerance: float | None = None,
    seed: int = 0,
    start: Float | None = None,
    stage: Stage = silent,
) -> EigenPairs:
    """The leading eigenpairs of AᵀA, through the side "items" (n × n), "users" (m × m), or the smaller one.

    `start` are vectors (n × any) near the eigenvectors, such as those of the data before a change.
    """
    users, items = data.shape
    if side == "auto":
        side = "users" if users < items else "items"
    apply, size = (data.item_gram_times, items) if side == "items" else (data.user_gram_times, users)
    settings = _Settings(method(size, rank), dtype, "float64", TOLERANCE[dtype] if tolerance is None else tolerance)
    if start is not None and side == "users":
        start = data.times(start)
    values, vectors, products = _pairs(
        apply, size, min(rank, size), lambda: data.dense(side), settings, seed, stage, start
    )
    whole = rank >= (min(users, items) if data.kernel is None else items)  # the events may span more than the users
    if side == "users":
        nonzero = settings.not_zero(values)
        whole, values = whole or nonzero < len(values), values[:nonzero]
        vectors = _right_vectors(data, values, vectors)
    return _finish(data.item_gram_times, values, vectors, products, whole, settings)


@dataclass(frozen=True)
class _Settings:
    """The method, the precision of the vectors and of the measurement, and the largest allowed residual."""

    method: str
    dtype: str
    measured: str
    tolerance: float

    def not_zero(self, values: Float64) -> int:
        """The number of values above the rounding error of the largest one."""
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
    start: Float | None = None,
) -> tuple[Float64, Float, int]:
    """Values, vectors, and the number of products; residuals are not measured here."""
    if settings.method == "lanczos":
        return _lanczos(apply, size, rank, settings, seed, stage, start)
    array = _formed(apply, size) if dense is None else dense()
    wanted = [size - rank, size - 1]
    values, vectors = scipy.linalg.eigh(array, lower=True, overwrite_a=True, subset_by_index=wanted, check_finite=False)
    stage("spectrum", float(size) ** 3)
    return values[::-1], vectors[:, ::-1], size


def _right_vectors(data: Operator, values: Float64, vectors: Float) -> Float:
    """v = Aᵀu/σ, in slabs of columns."""
    out = np.empty((data.shape[1], len(values)), vectors.dtype)
    for start in range(0, len(values), SLAB):
        part = slice(start, min(start + SLAB, len(values)))
        out[:, part] = data.transpose_times(vectors[:, part]) / np.sqrt(values[part]).astype(out.dtype)
    return out


def _formed(apply: Apply, size: int) -> Float64:
    """The operator as an array, in slabs of columns."""
    out = np.empty((size, size), order="F")
    for start in range(0, size, SLAB):
        stop = min(start + SLAB, size)
        out[:, start:stop] = apply(np.eye(size, stop - start, -start))
    return out


def _finish(
    apply: Apply, values: Float64, vectors: Float, products: int, whole: bool, settings: _Settings
) -> EigenPairs:
    """Drop zero pairs, measure the residuals, and refine the pairs in float64 where they miss the tolerance."""
    nonzero = settings.not_zero(values)
    whole, vectors = whole or nonzero < len(values), np.ascontiguousarray(vectors[:, :nonzero])
    pairs = EigenPairs(values[:nonzero].astype(np.float64), vectors, np.empty(0), settings.method, products, whole)
    pairs = replace(pairs, residuals=_residuals(apply, pairs, settings.measured))
    if not pairs.residual <= settings.tolerance:
        pairs = _refined(apply, pairs, settings)
        pairs = replace(pairs, residuals=_residuals(apply, pairs, settings.measured))
    if not pairs.residual <= settings.tolerance:
        missed = int((~(pairs.residuals <= settings.tolerance)).sum())
        raise ConvergenceError(_refusal(missed, len(pairs.values), pairs.residual, settings))
    return replace(pairs, vectors=pairs.vectors.astype(settings.dtype, copy=False))


def _residuals(apply: Apply, pairs: EigenPairs, dtype: str) -> Float64:
    out = np.empty(len(pairs.values))
    for start in range(0, len(out), SLAB):
        part = slice(start, min(start + SLAB, len(out)))
        block = pairs.vectors[:, part].astype(dtype)
        out[part] = np.linalg.norm(apply(block) - block * pairs.values[part], axis=0)
    return out / _sizes(pairs.values)


def _sizes(values: Float64) -> Float64:
    """The values that residuals are divided by."""
    return np.asarray(np.maximum(values, SMALLEST * values[:1].sum()))


def _refined(apply: Apply, pairs: EigenPairs, settings: _Settings) -> EigenPairs:
    """Rayleigh–Ritz in float64 within the span of the vectors.

    A float32 vector contains rounding errors along the first vectors, which the operator amplifies by their large
    eigenvalues.
    """
    vectors, rank = pairs.vectors, len(pairs.values)
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
    values, rotation = scipy.linalg.eigh((image + image.T) / 2, (gram + gram.T) / 2, check_finite=False)
    values, rotation = values[::-1], rotation[:, ::-1]
    for row in range(0, size, ROWS):
        rows = slice(row, row + ROWS)
        vectors[rows] = vectors[rows].astype(np.float64) @ rotation
    nonzero = settings.not_zero(values)
    whole = pairs.complete or nonzero < rank
    return replace(pairs, values=values[:nonzero], vectors=np.ascontiguousarray(vectors[:, :nonzero]), complete=whole)


def _refusal(missed: int, rank: int, residual: float, settings: _Settings) -> str:
    return (
        f"{missed} of {rank} eigenpairs have not converged: the largest ‖Av − σ²v‖/σ² is {residual:.1e}, "
        f"expected at most {settings.tolerance:g}"
    )


def _lanczos(
    apply: Apply, size: int, rank: int, settings: _Settings, seed: int, stage: Stage, start: Float | None = None
) -> tuple[Float64, Float, int]:
    """Block Lanczos with thick restarts: values, vectors, and the number of products."""
    rng, dtype = np.random.default_rng(seed), np.dtype(settings.dtype)
    block, most = widths(size, rank)
    basis = np.empty((size, most + block), dtype, order="F")
    projected = np.zeros((most + block, most + block))
    basis[:, :block] = _first(rng, size, block, start)
    done, have, products, lowest, idle = 0, block, 0, np.inf, 0
    for _ in range(RESTARTS):
        middle = np.inf if start is None else max(rank, (done + most) / 2)
        while True:
            remainder = apply(basis[:, done:have])
            products += have - done
            stage("spectrum", float(have - done))
            size_before = float(np.linalg.norm(remainder, axis=0).max())
            if not np.isfinite(size_before):
                raise NumericalError("a product with the data is not finite")
            projected[:have, done:have] = _orthogonalise(basis[:, :have], remainder)
            following, coupling = _next(basis[:, :have], remainder, size_before, rng)
            last, done = have - done, have
            if done + block > most:
                break
            halfway = done - last < middle <= done
            if halfway and not _ritz(projected[:done, :done], coupling, rank, settings)[3].any():
                break  # with a near start the pairs may converge between restarts
            basis[:, done : done + block] = following
            have = done + block
        values, rotation, residuals, wrong = _ritz(projected[:done, :done], coupling, rank, settings)
        retained = rank if not wrong.any() else min(rotation.shape[1], rank + (done - rank) // 2)
        _rotate(basis, done, rotation[:, :retained])
        if not wrong.any():
            return values[:rank], basis[:, :rank], products
        worst = float((residuals[:rank] / np.maximum(_sizes(values[:rank]), 1e-300)).max())
        lowest, idle = (worst, 0) if worst < 0.9 * lowest else (lowest, idle + 1)
        if idle == IDLE:
            break
        projected[:] = 0.0
        np.einsum("ii->i", projected)[:retained] = values[:retained]
        basis[:, retained : retained + block] = following
        done, have = retained, retained + block
    raise ConvergenceError(_refusal(int(wrong.sum()), rank, worst, settings))


def _first(rng: np.random.Generator, size: int, block: int, start: Float | None) -> Float64:
    """The first block: random, or random combinations of the start vectors plus a small random part."""
    first = rng.standard_normal((size, block))
    if start is not None and start.any():
        unit = start.astype(np.float64) / np.maximum(np.linalg.norm(start, axis=0), 1e-300)
        first *= TRACE * np.sqrt(unit.shape[1] / size)
        first += unit @ rng.standard_normal((unit.shape[1], block))
    return np.asarray(np.linalg.qr(first)[0])


def _ritz(
    projected: Float64, coupling: Float64, rank: int, settings: _Settings
) -> tuple[Float64, Float64, Float64, NDArray[np.bool_]]:
    """Ritz pairs of the projected problem, largest first: the requested ones and half of the others.

    Also their residuals, from the coupling to the next block, and which requested pairs have not converged.
    """
    done = len(projected)
    retained = min(done, rank + (done - rank) // 2)
    values, rotation = scipy.linalg.eigh(
        projected, subset_by_index=[done - retained, done - 1], check_finite=False, lower=False
    )
    values, rotation = values[::-1], rotation[:, ::-1]
    residuals = np.linalg.norm(coupling @ rotation[done - coupling.shape[1] :], axis=0)
    goal = 0.5 * settings.tolerance * _sizes(values[:rank])
    goal[settings.not_zero(values[:rank]) :] = 10 * np.finfo(settings.dtype).eps * values[0]
    return values, rotation, residuals, ~(residuals[:rank] <= goal)


def _orthogonalise(basis: Float, block: Float) -> Float64:
    """Orthogonalise a block against the basis, twice, in place; return the coefficients."""
    total = np.zeros((basis.shape[1], block.shape[1]))
    for _ in range(2):
        part = basis.T @ block
        block -= basis @ part
        total += part
    return total


def _next(basis: Float, remainder: Float, scale: float, rng: np.random.Generator) -> tuple[Float, Float64]:
    """An orthonormal basis of the remainder, and the coupling with remainder = block·coupling.

    `scale` is the norm of the product before orthogonalisation. A direction at the level of rounding errors (the basis
    spans an invariant subspace) is replaced by a random direction with zero coupling.
    """
    vectors, coupling = _triangular(remainder.astype(np.float64))
    sizes, rounding = np.abs(np.diagonal(coupling)), float(np.finfo(basis.dtype).eps) * scale
    if sizes.min() <= 100 * rounding:
        weak = sizes <= 100 * rounding
        coupling[weak] = 0.0
        vectors[:, weak] = rng.standard_normal((len(vectors), int(weak.sum())))
    if sizes.min() <= 1e4 * rounding:  # the block may not be orthogonal to the basis
        clean: Float = vectors.astype(basis.dtype)
        for _ in range(2):
            _orthogonalise(basis, clean)
            clean = _triangular(clean.astype(np.float64))[0].astype(basis.dtype)
        return clean, coupling
    return vectors.astype(basis.dtype), coupling


def _triangular(block: Float64) -> tuple[Float64, Float64]:
    """QR factorisation: Cholesky QR, twice; Householder where the block is ill-conditioned."""
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
    signs = np.where(np.diagonal(upper) < 0, -1.0, 1.0)  # a positive diagonal, as Cholesky gives
    return vectors * signs, signs[:, None] * upper


def _rotate(basis: Float, done: int, rotation: Float) -> None:
    """Replace the first columns of the basis by basis·rotation, in place."""
    rotation = rotation.astype(basis.dtype)
    for start in range(0, len(basis), ROWS):
        part = slice(start, start + ROWS)
        basis[part, : rotation.shape[1]] = basis[part, :done] @ rotation
