"""Leading eigenpairs of symmetric positive operators.

`leading` takes any operator that multiplies a block of columns. Small ones, and those of which a third or more is
wanted, are formed and solved densely. The others go through block Lanczos with full orthogonalisation and thick
restarts: each vector of the basis costs one product, the rest is dense products of thin blocks, and nothing of size n²
exists. Residuals are measured with the operator at the end, and a pair that has not converged is an error.

`of_data` is the spectrum of AᵀA for sparse data, through the smaller side: with AAᵀ·u = σ²u, v = Aᵀu/σ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from monogram.engine.inverse import Stage, silent
from monogram.engine.operator import Operator
from monogram.errors import NumericalError

Float = NDArray[np.float64]
Apply = Callable[[NDArray[Any]], NDArray[Any]]
TOLERANCE = {"float32": 1e-4, "float64": 1e-8}  # of ‖Av − θv‖/θ
SMALL = 1000  # a matrix of this size is solved densely
RESTARTS = 60
SLAB = 4096  # rows of a basis rotated at once


@dataclass(frozen=True)
class Pairs:
    """Eigenpairs, largest first; those that are zero to rounding are left out.

    Attributes
    ----------
    values : θ
    vectors : one a column
    residuals : ‖Av − θv‖ of each, measured
    method : "dense" or "lanczos"
    products : columns the operator was applied to
    complete : whether these are all pairs that are not zero
    """

    values: Float
    vectors: NDArray[Any]
    residuals: Float
    method: str
    products: int
    complete: bool

    @property
    def residual(self) -> float:
        """The largest ‖Av − θv‖/θ."""
        return float((self.residuals / self.values).max(initial=0.0))


def method(size: int, rank: int) -> str:
    """How `leading` goes about it."""
    return "dense" if size <= SMALL or 3 * rank >= size else "lanczos"


def widths(size: int, rank: int) -> tuple[int, int]:
    """Columns of a block, and of the whole basis, of a Lanczos run."""
    block = int(np.clip(rank // 8, 8, 64))
    most = max(2 * rank, rank + 8 * block)
    return block, min(most, size - block) // block * block


def leading(
    apply: Apply,
    size: int,
    rank: int,
    *,
    dense: Callable[[], Float] | None = None,
    dtype: str = "float32",
    tolerance: float | None = None,
    seed: int = 0,
    stage: Stage = silent,
) -> Pairs:
    """The leading `rank` eigenpairs of a symmetric positive semi-definite operator.

    Parameters
    ----------
    apply : multiplies a block (size × any) by the operator
    size : its side
    dense : gives the operator as an array whose lower triangle counts; by default apply(I)
    dtype : of the basis; the projected problem is always float64
    tolerance : largest ‖Av − θv‖/θ; by default 1e-4 in float32, 1e-8 in float64
    """
    rank = min(rank, size)
    tolerance = TOLERANCE[np.dtype(dtype).name] if tolerance is None else tolerance
    if method(size, rank) == "dense":
        array = apply(np.eye(size)) if dense is None else dense()
        values, vectors = scipy.linalg.eigh(
            array, lower=True, overwrite_a=True, subset_by_index=[size - rank, size - 1], check_finite=False
        )
        stage("spectrum", float(size) ** 3)
        values, vectors, used, dtype = values[::-1], vectors[:, ::-1], size, "float64"
    else:
        values, vectors, used = _lanczos(apply, size, rank, np.dtype(dtype), tolerance, seed, stage)
    found = _finish(apply, values, vectors, method(size, rank), used, rank == size, float(np.finfo(dtype).eps))
    if found.residual > tolerance:
        raise NumericalError(_advice(found, tolerance, np.dtype(dtype).name))
    return found


def of_data(
    data: Operator,
    rank: int,
    *,
    side: str = "auto",
    dtype: str = "float32",
    tolerance: float | None = None,
    seed: int = 0,
    stage: Stage = silent,
) -> Pairs:
    """The leading eigenpairs of AᵀA, by the "items" (n × n) or the "users" (m × m), or whichever are fewer."""
    users, items = data.shape
    if side == "auto":
        side = "users" if users < items else "items"
    apply, size = (data.items, items) if side == "items" else (data.users, users)
    tight = TOLERANCE[np.dtype(dtype).name] if tolerance is None else tolerance
    found = leading(
        apply,
        size,
        rank,
        dense=lambda: data.dense(side),
        dtype=dtype,
        tolerance=tight if side == "items" else tight / 2,
        seed=seed,
        stage=stage,
    )
    if side == "items":
        return found
    vectors = _turned(data, found)
    right = _finish(data.items, found.values, vectors, found.method, found.products, found.complete, 0.0)
    if right.residual > tight:
        raise NumericalError(_advice(right, tight, np.dtype(dtype).name))
    return right


def _turned(data: Operator, found: Pairs) -> NDArray[Any]:
    """v = Aᵀu/σ, a slab of columns at a time."""
    out = np.empty((data.shape[1], len(found.values)), found.vectors.dtype)
    for start in range(0, len(found.values), 64):
        part = slice(start, start + 64)
        out[:, part] = data.back(found.vectors[:, part]) / np.sqrt(found.values[part]).astype(out.dtype)
    return out


def _finish(
    apply: Apply, values: Float, vectors: NDArray[Any], how: str, used: int, complete: bool, epsilon: float
) -> Pairs:
    """Leave zeros out, and measure the residuals of the rest."""
    zero = 50 * epsilon * max(float(values[0]), 0.0) if len(values) else 0.0
    kept = int((values > zero).sum())
    residuals = np.empty(kept)
    for start in range(0, kept, 64):
        part = slice(start, min(start + 64, kept))
        block = np.ascontiguousarray(vectors[:, part])
        rest = apply(block).astype(np.float64) - block * values[part]
        residuals[part] = np.linalg.norm(rest, axis=0)
    complete = complete or kept < len(values)
    return Pairs(values[:kept].astype(np.float64), vectors[:, :kept], residuals, how, used + kept, complete)


def _advice(found: Pairs, tolerance: float, dtype: str) -> str:
    bad = int((found.residuals / found.values > tolerance).sum())
    other = "use dtype='float64'" if dtype == "float32" else "raise the tolerance"
    return (
        f"{bad} of {len(found.values)} eigenpairs have not converged: the largest ‖Av − σ²v‖/σ² is "
        f"{found.residual:.1e}, expected at most {tolerance:g}; ask for a lower rank, or {other}"
    )


def _lanczos(
    apply: Apply, size: int, rank: int, dtype: np.dtype[Any], tolerance: float, seed: int, stage: Stage
) -> tuple[Float, NDArray[Any], int]:
    """Block Lanczos with thick restarts: values, vectors, and the number of products."""
    rng = np.random.default_rng(seed)
    block, most = widths(size, rank)
    basis = np.empty((size, most + block), dtype, order="F")
    projected = np.zeros((most + block, most + block))
    basis[:, :block] = np.linalg.qr(rng.standard_normal((size, block)))[0]
    done, have, used = 0, block, 0
    for _ in range(RESTARTS):
        while True:
            rest = apply(basis[:, done:have])
            used += have - done
            stage("spectrum", float(have - done))
            projected[:have, done:have] = _orthogonalise(basis[:, :have], rest)
            scale = float(np.abs(np.diagonal(projected)[:have]).max())
            following, coupling = _next(basis[:, :have], rest, scale, rng)
            last, done = have - done, have
            if done + block > most:
                break
            basis[:, done : done + block] = following
            have = done + block
        values, turns = _ritz(projected[:done, :done], rank)
        residuals = np.linalg.norm(coupling @ turns[done - last :], axis=0)
        floor = np.finfo(dtype).eps * values[0]
        wrong = residuals[:rank] > 0.5 * tolerance * values[:rank] + floor
        kept = rank if not wrong.any() else min(turns.shape[1], rank + (done - rank) // 2)
        _rotate(basis, done, turns[:, :kept])
        if not wrong.any():
            return values[:rank], basis[:, :rank], used
        projected[:] = 0.0
        np.einsum("ii->i", projected)[:kept] = values[:kept]
        basis[:, kept : kept + block] = following
        done, have = kept, kept + block
    raise NumericalError(
        f"after {used} products {int(wrong.sum())} of {rank} eigenpairs have not converged (the largest "
        f"‖Av − σ²v‖/σ² is about {float((residuals[:rank] / values[:rank]).max()):.1e}, expected {tolerance:g}); "
        "ask for a lower rank, or use dtype='float64'"
    )


def _ritz(projected: Float, rank: int) -> tuple[Float, Float]:
    """Eigenpairs of the projected problem, largest first: the wanted ones and half of the rest."""
    done = len(projected)
    kept = min(done, rank + (done - rank) // 2)
    values, turns = scipy.linalg.eigh(
        projected, subset_by_index=[done - kept, done - 1], check_finite=False, lower=False
    )
    return values[::-1], turns[:, ::-1]


def _orthogonalise(basis: NDArray[Any], block: NDArray[Any]) -> Float:
    """Take the basis out of a block, twice, in place; the coefficients come back."""
    total = np.zeros((basis.shape[1], block.shape[1]))
    for _ in range(2):
        part = basis.T @ block
        block -= basis @ part
        total += part
    return total


def _next(
    basis: NDArray[Any], rest: NDArray[Any], scale: float, rng: np.random.Generator
) -> tuple[NDArray[Any], Float]:
    """An orthonormal block that spans the rest, and rest = block·coupling.

    A direction the rest does not have (an invariant space was found) is replaced by a random one, coupled to nothing.
    """
    vectors, coupling = np.linalg.qr(rest.astype(np.float64))
    weak = np.abs(np.diagonal(coupling)) <= 100 * np.finfo(basis.dtype).eps * scale
    if weak.any():
        coupling[weak] = 0.0
        vectors[:, weak] = rng.standard_normal((len(vectors), int(weak.sum())))
    if np.abs(np.diagonal(coupling)).min() < 1e-2 * scale:  # what is left may not be orthogonal to rounding
        clean = vectors.astype(basis.dtype)
        for _ in range(2):
            _orthogonalise(basis, clean)
            clean = np.linalg.qr(clean.astype(np.float64))[0].astype(basis.dtype)
        signs = np.sign(np.einsum("ij,ij->j", clean, vectors))
        vectors = clean * np.where(signs == 0, 1, signs)
    return vectors.astype(basis.dtype), coupling


def _rotate(basis: NDArray[Any], done: int, turns: Float) -> None:
    """The first columns of the basis become basis·turns, in place."""
    turns = turns.astype(basis.dtype)
    for start in range(0, len(basis), SLAB):
        part = slice(start, start + SLAB)
        basis[part, : turns.shape[1]] = basis[part, :done] @ turns
