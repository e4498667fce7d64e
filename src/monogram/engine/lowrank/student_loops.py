"""Iterative minimisation of the exact objective f(U, V) of a student (see `students`), with a record by epoch.

C is the only n × n array: every step consists of products of S, A or C with n × k blocks, and of vector operations by
row. The V steps first make U orthonormal in A (UᵀAU = I), the U steps make V orthonormal; UVᵀ does not change. Write
u_i, v_i for rows of U and V, a_i for rows of AU, D = diag(UVᵀ), and K = VVᵀ for an orthonormal V.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from monogram.engine.linalg.conjugate_gradients import conjugate_gradients
from monogram.engine.lowrank.students import StudentProblem, objective, row_products
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import Between, Stage, silent

STEPS = 10  # conjugate gradient steps in a U step of `alternating`
TOLERANCE = 1e-5  # a loop ends when an epoch changes the objective by less, relative
PROXIMAL = 1e-9  # proximal term that keeps v_i in undetermined directions
DEPENDENT = 1e-13  # directions of U below this share of the largest are rounding errors

NONE = np.empty(0)


class LoopState(NamedTuple):
    """The factors of a student, and the split variable and dual of ADMM."""

    left: Float64
    right: Float64
    split: Float64 = NONE
    dual: Float64 = NONE


class Descent(NamedTuple):
    """The best factors of a loop, and the objective at the start and after each epoch."""

    left: Float64
    right: Float64
    record: list[float]


def alternating(
    problem: StudentProblem,
    left: Float64,
    right: Float64,
    *,
    epochs: int,
    tolerance: float = TOLERANCE,
    stage: Stage = silent,
    between: Between | None = None,
) -> Descent:
    """Alternate between V (exactly) and U (conjugate gradients); the objective never increases.

    V given U, each item: (G − u_i a_iᵀ − a_i u_iᵀ + A_ii u_i u_iᵀ) v_i = Uᵀs_i − d_i u_i, G = UᵀAU and s_i = S_{·i}.
    U given V: offdiag(A·offdiag(UVᵀ))·V = offdiag(S)·V, preconditioned by C(·)(VᵀV)⁻¹.
    """

    def epoch(now: LoopState) -> LoopState:
        return LoopState(*_improve_left(problem, *_best_right(problem, now.left, now.right)))

    return _descend(problem, LoopState(left, right), epoch, epochs, tolerance, stage, between)


def zero_diagonal(
    problem: StudentProblem,
    left: Float64,
    right: Float64,
    *,
    epochs: int,
    tolerance: float = TOLERANCE,
    stage: Stage = silent,
    between: Between | None = None,
) -> Descent:
    """Minimise under the constraint diag(UVᵀ) = 0 by alternating exact steps for U and V.

    U given V: U = (I − C·diag(g))·V with (C∘K)g = diag(K). V given U (UᵀAU = I): V = SU − η∘U,
    η = diag(USUᵀ)/diag(UUᵀ). The constraint couples U and V, so the final convergence is slow.
    """

    def epoch(now: LoopState) -> LoopState:
        return LoopState(*_right_without_diagonal(problem, _left_without_diagonal(problem, np.linalg.qr(now.right)[0])))

    start = epoch(LoopState(left, right))  # the first point that satisfies the constraint
    return _descend(problem, start, epoch, epochs, tolerance, stage, between)


def admm(
    problem: StudentProblem,
    left: Float64,
    right: Float64,
    *,
    epochs: int,
    tolerance: float = TOLERANCE,
    stage: Stage = silent,
    between: Between | None = None,
) -> Descent:
    """ADMM with the split diag(UVᵀ) = β, a penalty ω on it alone, and a scaled dual g.

    v_i = (G + ω_i u_i u_iᵀ)⁻¹(Uᵀ(s_i + β_i A_{·i}) + ω_i u_i(β_i − g_i)); U = U° − C(t∘V) with
    U° = C(S + A·diag β + diag(ω∘(β − g)))V and (diag(1/ω) + C∘K)t = diag(U°Vᵀ);
    β = (diag(AUVᵀ) − d + ω∘(D + g))/(diag A + ω); g ← g + D − β. Here ω = diag A, which follows the scale of each item.
    The objective may increase in between; the best factors are returned.
    """
    omega = problem.diagonal

    def epoch(now: LoopState) -> LoopState:
        split, pull = now.split[:, None], (omega * (now.split - now.dual))[:, None]
        basis, image, _ = _orthonormal(problem, now.left)
        target = image - problem.penalties[:, None] * basis + split * image + pull * basis
        sizes = omega * row_products(basis, target) / (1 + omega * row_products(basis, basis))
        right = np.linalg.qr(target - sizes[:, None] * basis)[0]
        free = right + split * right + problem.inverse_times((pull - problem.penalties[:, None]) * right)
        force = _constrained(problem, right, row_products(free, right), 1 / omega)
        left = free - problem.inverse_times(force[:, None] * right)
        own = row_products(left, right)
        along = row_products(problem.system_times(left), right) - problem.d
        moved = (along + omega * (own + now.dual)) / (problem.diagonal + omega)
        return LoopState(left, right, moved, now.dual + own - moved)

    own = row_products(left, right)
    # The dual that keeps an optimal start in place: from g = 0 the objective increases for many epochs.
    dual = (problem.diagonal * own - row_products(problem.system_times(left), right) + problem.d) / omega
    return _descend(problem, LoopState(left, right, own, dual), epoch, epochs, tolerance, stage, between)


def _descend(
    problem: StudentProblem,
    start: LoopState,
    epoch: Callable[[LoopState], LoopState],
    epochs: int,
    tolerance: float,
    stage: Stage,
    between: Between | None,
) -> Descent:
    """Run epochs until the objective stops changing; `between` is called after each epoch but the last."""
    now = best = start
    record = [objective(problem, start.left, start.right)]
    for number in range(1, epochs + 1):
        now = epoch(now)
        record.append(objective(problem, now.left, now.right))
        stage("epochs", 1.0)
        if record[-1] <= min(record):
            best = now
        if abs(record[-2] - record[-1]) <= tolerance * abs(record[-1]):
            break
        if between is not None and number < epochs:
            between(number, partial(Descent, best.left, best.right, record))
    return Descent(best.left, best.right, record)


def _orthonormal(problem: StudentProblem, left: Float64) -> tuple[Float64, Float64, Float64]:
    """A basis of the span of U with UᵀAU = I, its product with A, and the R with U = basis·R."""
    basis, image, rotation = left, problem.system_times(left), np.eye(left.shape[1])
    for _ in range(2):  # the second pass removes the rounding errors of the first
        values, vectors = np.linalg.eigh(basis.T @ image)
        independent = values > DEPENDENT * max(float(values[-1]), 0.0)
        roots, vectors = np.sqrt(values[independent]), vectors[:, independent]
        basis, image = basis @ (vectors / roots), image @ (vectors / roots)
        rotation = (roots[:, None] * vectors.T) @ rotation
    return basis, image, rotation


def _best_right(problem: StudentProblem, left: Float64, right: Float64) -> tuple[Float64, Float64]:
    """V given U: every item's k × k system differs from G = I by rank two, so it is solved through 2 × 2 systems."""
    u, a, rotation = _orthonormal(problem, left)
    v = right @ rotation.T
    across, along = row_products(u, v), row_products(a, v)
    fall = v - u * (along - problem.diagonal * across)[:, None] - a * across[:, None]  # the gradient, halved
    fall -= a - problem.diagonal[:, None] * u  # Uᵀs_i − d_i u_i = a_i − (ℓ_i + d_i)u_i
    base = 1 + PROXIMAL
    p, r, t = row_products(u, u), row_products(u, a) - base, row_products(a, a) - base * problem.diagonal
    down, aside, core = row_products(u, fall), row_products(a, fall), p * t - r**2
    fall -= u * ((t * down - r * aside) / core)[:, None] + a * ((p * aside - r * down) / core)[:, None]
    return u, v - fall / base


def _improve_left(problem: StudentProblem, left: Float64, right: Float64) -> tuple[Float64, Float64]:
    """U given V, by conjugate gradients from the current U: each step lowers the objective."""
    v, rotation = np.linalg.qr(right)
    shape = left.shape

    def apply(flat: Float64) -> Float64:
        u = flat.reshape(shape)
        own = row_products(u, v)
        image = problem.system_times(u)
        diagonal = row_products(image, v) - problem.diagonal * own
        return np.asarray((image - problem.system_times(own[:, None] * v) - diagonal[:, None] * v).reshape(-1, 1))

    def precondition(flat: Float64) -> Float64:
        return problem.inverse_times(flat.reshape(shape)).reshape(-1, 1)

    target = problem.gram_times(v) - problem.d[:, None] * v
    start = (left @ rotation.T).reshape(-1, 1)
    solution, _ = conjugate_gradients(apply, precondition, target.reshape(-1, 1), start, steps=STEPS, tolerance=1e-8)
    return solution.reshape(shape), v


def _left_without_diagonal(problem: StudentProblem, right: Float64) -> Float64:
    """The best U for an orthonormal V with diag(UVᵀ) = 0."""
    pull = _constrained(problem, right, row_products(right, right), np.zeros(len(right)))
    return right - problem.inverse_times(pull[:, None] * right)


def _right_without_diagonal(problem: StudentProblem, left: Float64) -> tuple[Float64, Float64]:
    """U made orthonormal in A, and the best V for it with diag(UVᵀ) = 0."""
    basis, image, _ = _orthonormal(problem, left)
    target = image - problem.penalties[:, None] * basis
    sizes = row_products(basis, basis)
    shift = np.divide(row_products(basis, target), sizes, out=np.zeros_like(sizes), where=sizes > 0)
    return basis, target - shift[:, None] * basis


def _constrained(problem: StudentProblem, right: Float64, target: Float64, ridge: Float64) -> Float64:
    """Solve (diag(ridge) + C∘K)t = target for an orthonormal V: (C∘K)t = diag(C(t∘V)Vᵀ), so K is never formed."""
    sizes = ridge + problem.inverse.diagonal * row_products(right, right)
    scale = np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > 0)[:, None]

    def apply(column: Float64) -> Float64:
        return np.asarray(ridge[:, None] * column + row_products(problem.inverse_times(column * right), right)[:, None])

    fine = 1e-6 if problem.inverse.dtype == np.float32 else 1e-12
    start = scale * target[:, None]
    return conjugate_gradients(
        apply, lambda residual: scale * residual, target[:, None], start, steps=100, tolerance=fine
    )[0][:, 0]
