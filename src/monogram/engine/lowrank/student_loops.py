"""Loops that lower the exact objective f(U, V) of a student (see `students`), each with a record by epoch.

Nothing of size n² exists beside C: every step is a product of S, A or C with n × k blocks, and vector work by row. In
the V steps U is first made orthonormal in A (UᵀAU = I), in the U steps V is made orthonormal: the product UVᵀ stays.
Write u_i, v_i for rows, a_i for those of AU, D = diag(UVᵀ), and K = VVᵀ for an orthonormal V.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from monogram.engine.linalg.conjugate_gradients import conjugate_gradients
from monogram.engine.lowrank.students import StudentProblem, objective, rows
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import Between, Stage, silent

STEPS = 10  # of conjugate gradients in a U step of `alternating`
TOLERANCE = 1e-5  # a loop ends when an epoch changes the objective by less, relative
PROXIMAL = 1e-9  # holds v_i where it is along what the others cannot decide
DEPENDENT = 1e-13  # directions of U below this share of the largest are rounding

NONE = np.empty(0)


class LoopState(NamedTuple):
    """The factors of a student, with what ADMM keeps beside them."""

    left: Float64
    right: Float64
    split: Float64 = NONE
    dual: Float64 = NONE


class Descent(NamedTuple):
    """The best factors a loop met, and the objective at its start and after each epoch."""

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
    """V exactly, then U by conjugate gradients, in turns; the objective never rises.

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
    """The objective with diag(UVᵀ) = 0 as a constraint; U and V exactly, in turns.

    U given V: U = (I − C·diag(g))·V with (C∘K)g = diag(K). V given U (UᵀAU = I): V = SU − η∘U,
    η = diag(USUᵀ)/diag(UUᵀ). The constraint ties U to V, so the last small part of the way is slow.
    """

    def epoch(now: LoopState) -> LoopState:
        return LoopState(*_bare_right(problem, _bare_left(problem, np.linalg.qr(now.right)[0])))

    start = epoch(LoopState(left, right))  # the first point that keeps the constraint
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
    The objective may rise on the way: the best is kept.
    """
    omega = problem.diagonal

    def epoch(now: LoopState) -> LoopState:
        split, pull = now.split[:, None], (omega * (now.split - now.dual))[:, None]
        basis, image, _ = _orthonormal(problem, now.left)
        target = image - problem.penalties[:, None] * basis + split * image + pull * basis
        sizes = omega * rows(basis, target) / (1 + omega * rows(basis, basis))
        right = np.linalg.qr(target - sizes[:, None] * basis)[0]
        free = right + split * right + problem.inverse_times((pull - problem.penalties[:, None]) * right)
        force = _constrained(problem, right, rows(free, right), 1 / omega)
        left = free - problem.inverse_times(force[:, None] * right)
        own = rows(left, right)
        along = rows(problem.system_times(left), right) - problem.d
        moved = (along + omega * (own + now.dual)) / (problem.diagonal + omega)
        return LoopState(left, right, moved, now.dual + own - moved)

    own = rows(left, right)
    # A dual at which the start, were it an optimum, would stay: from g = 0 the objective rises for many epochs.
    dual = (problem.diagonal * own - rows(problem.system_times(left), right) + problem.d) / omega
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
    """Run epochs until the objective stands still; `between` is called after each but the last."""
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
    basis, image, turn = left, problem.system_times(left), np.eye(left.shape[1])
    for _ in range(2):  # the second time repairs what rounding left of the first
        values, vectors = np.linalg.eigh(basis.T @ image)
        kept = values > DEPENDENT * max(float(values[-1]), 0.0)
        roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
        basis, image = basis @ (vectors / roots), image @ (vectors / roots)
        turn = (roots[:, None] * vectors.T) @ turn
    return basis, image, turn


def _best_right(problem: StudentProblem, left: Float64, right: Float64) -> tuple[Float64, Float64]:
    """V given U: every item's k × k system differs from G = I by rank two, so it is solved by 2 × 2 ones."""
    u, a, turn = _orthonormal(problem, left)
    v = right @ turn.T
    across, along = rows(u, v), rows(a, v)
    fall = v - u * (along - problem.diagonal * across)[:, None] - a * across[:, None]  # the gradient, halved
    fall -= a - problem.diagonal[:, None] * u  # Uᵀs_i − d_i u_i = a_i − (ℓ_i + d_i)u_i
    base = 1 + PROXIMAL
    p, r, t = rows(u, u), rows(u, a) - base, rows(a, a) - base * problem.diagonal
    down, aside, core = rows(u, fall), rows(a, fall), p * t - r**2
    fall -= u * ((t * down - r * aside) / core)[:, None] + a * ((p * aside - r * down) / core)[:, None]
    return u, v - fall / base


def _improve_left(problem: StudentProblem, left: Float64, right: Float64) -> tuple[Float64, Float64]:
    """U given V, by conjugate gradients from where it is: each step lowers the objective."""
    v, turn = np.linalg.qr(right)
    shape = left.shape

    def apply(flat: Float64) -> Float64:
        u = flat.reshape(shape)
        own = rows(u, v)
        image = problem.system_times(u)
        diagonal = rows(image, v) - problem.diagonal * own
        return np.asarray((image - problem.system_times(own[:, None] * v) - diagonal[:, None] * v).reshape(-1, 1))

    def prepare(flat: Float64) -> Float64:
        return problem.inverse_times(flat.reshape(shape)).reshape(-1, 1)

    target = problem.gram_times(v) - problem.d[:, None] * v
    start = (left @ turn.T).reshape(-1, 1)
    found, _ = conjugate_gradients(apply, prepare, target.reshape(-1, 1), start, steps=STEPS, tolerance=1e-8)
    return found.reshape(shape), v


def _bare_left(problem: StudentProblem, right: Float64) -> Float64:
    """The best U for an orthonormal V with diag(UVᵀ) = 0."""
    pull = _constrained(problem, right, rows(right, right), np.zeros(len(right)))
    return right - problem.inverse_times(pull[:, None] * right)


def _bare_right(problem: StudentProblem, left: Float64) -> tuple[Float64, Float64]:
    """U made orthonormal in A, and the best V for it with diag(UVᵀ) = 0."""
    basis, image, _ = _orthonormal(problem, left)
    target = image - problem.penalties[:, None] * basis
    sizes = rows(basis, basis)
    shift = np.divide(rows(basis, target), sizes, out=np.zeros_like(sizes), where=sizes > 0)
    return basis, target - shift[:, None] * basis


def _constrained(problem: StudentProblem, right: Float64, target: Float64, ridge: Float64) -> Float64:
    """Solve (diag(ridge) + C∘K)t = target for an orthonormal V: (C∘K)t = diag(C(t∘V)Vᵀ), so K is never formed."""
    sizes = ridge + problem.inverse.diagonal * rows(right, right)
    scale = np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > 0)[:, None]

    def apply(column: Float64) -> Float64:
        return np.asarray(ridge[:, None] * column + rows(problem.inverse_times(column * right), right)[:, None])

    fine = 1e-6 if problem.inverse.dtype == np.float32 else 1e-12
    start = scale * target[:, None]
    return conjugate_gradients(apply, lambda rest: scale * rest, target[:, None], start, steps=100, tolerance=fine)[0][
        :, 0
    ]
