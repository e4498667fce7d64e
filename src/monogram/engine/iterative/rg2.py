"""RG², the ranking-generalizable squared loss, by alternating least squares.

With R the log (m × N), |I_u| its row sums and |D| its sum, the target and the weights are

    T = N·diag(1/|I_u|)·R − 1·1ᵀ,  w_u = |I_u|/(2N|D|),

and the objective of both penalties is

    f(P, Q) = Σ_ui w_u(T_ui − P_u·Q_i)² + Σ_u w_u·ρ_u‖P_u‖² + b·Σ_i‖Q_i‖²

- "weighted" (P3 eqs. 33, 34): ρ_u = λN, b = λ·Σ_u w_u. Its optimum is the soft-thresholded SVD of diag(√w)·T.
- "plain" (P3 eq. 22): w_u·ρ_u = b = λ.

The weights do not depend on the item, so a half-step diagonalises one K × K Gramian for all rows: with
QᵀQ = E·diag(g)·Eᵀ and Q rotated to QE (a rotation of both factors leaves f unchanged), P_u = T_u·Q / (g + ρ_u); also
Q = (diag(w)T)ᵀP / (g + b) with g of Pᵀdiag(w)P. T is stored as sparse minus rank one: O(|D|K + (m+N)K²) an epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads scipy.linalg when a function of it is called
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import row_sums
from monogram.engine.gram.operators import multiply
from monogram.engine.linalg.products import SLAB, Factor, dot, inner, slabs
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.progress import Between, Stage, silent
from monogram.errors import NumericalError, ParameterError

PENALTIES = ("weighted", "plain")


@dataclass(frozen=True)
class Rg2Problem:
    """The objective f and the matrices of its solvers.

    Attributes
    ----------
    matrix : N·diag(1/|I_u|)·R as CSR
    by_item : its transpose times diag(w), which is Rᵀ/(2|D|), as CSR
    weights : w; 0 for a user without events
    user_ridge : ρ, one number, or one for each user (∞ where w = 0)
    item_ridge : b
    constant : Σ w_u·T_ui²
    events : |D|
    threads : of the sparse products
    """

    matrix: Csr
    by_item: Csr
    weights: Float64
    user_ridge: float | Float64
    item_ridge: float
    constant: float
    events: float
    threads: int = 1

    def times(self, items: Factor) -> Factor:
        """The product T·Q."""
        out = multiply(self.matrix, items, self.threads)
        out -= _sums(items).astype(out.dtype)
        return out

    def transpose_times(self, users: Factor) -> Factor:
        """The product (diag(w)·T)ᵀ·P."""
        out = multiply(self.by_item, users, self.threads)
        out -= _sums(users, self.weights).astype(out.dtype)
        return out

    @property
    def user_penalties(self) -> Float64:
        """The factor w_u·ρ_u of ‖P_u‖²."""
        if isinstance(self.user_ridge, float):
            return self.weights * self.user_ridge
        return np.full(len(self.weights), self.item_ridge)

    def penalty(self, left: Factor, right: Factor, gram: Float64) -> float:
        """The sum Σ w_u·ρ_u·(left_u·right_u), where gram is leftᵀdiag(w)·right: for left = right = P, P's penalty."""
        if isinstance(self.user_ridge, float):
            return self.user_ridge * float(np.trace(gram))
        return self.item_ridge * dot(left, right)

    def value(self, users: Factor, gram_users: Float64, gram_items: Float64, cross: float) -> float:
        """The objective from Pᵀdiag(w)P, QᵀQ and cross = Σ w_u·T_ui·(P_u·Q_i): the square, expanded."""
        fit = self.constant - 2.0 * cross + float(np.vdot(gram_users, gram_items))
        return fit + self.penalty(users, users, gram_users) + self.item_ridge * float(np.trace(gram_items))

    def objective(self, users: Factor, items: Factor) -> float:
        """The objective of any two factors."""
        cross = dot(users, self.times(items), self.weights)
        return self.value(users, inner(users, users, self.weights), inner(items, items), cross)


@dataclass(frozen=True)
class Record:
    """The course of an iteration.

    Attributes
    ----------
    objectives : at the start, then after each epoch
    converged : whether the stopping rule was met within the epochs
    """

    objectives: tuple[float, ...]
    converged: bool

    @property
    def epochs(self) -> int:
        """Epochs that ran."""
        return len(self.objectives) - 1


@dataclass(frozen=True)
class Rg2Solution:
    """Factors P and Q with P·Qᵀ ≈ T: P is optimal for Q, and Q is rotated so that QᵀQ = diag(spread)."""

    users: Factor
    items: Factor
    spread: Float64
    record: Record


def problem(
    matrix: Csr, l2: float, penalty: str = "weighted", *, dtype: str = "float32", threads: int = 1
) -> Rg2Problem:
    """Set up RG² for a log R (CSR, weights above 0) and λ = l2."""
    if penalty not in PENALTIES:
        raise ParameterError(f"penalty = {penalty!r}; expected 'weighted' or 'plain'")
    items, l2 = matrix.shape[1], float(l2)
    sums = row_sums(matrix)
    total = float(sums.sum())
    if not total > 0:
        raise NumericalError("the log has no events, so RG² has no target; expected a log with events")
    weights = sums / (2.0 * items * total)
    reach = np.divide(items, sums, out=np.zeros_like(sums), where=sums > 0)
    target = matrix.astype(np.float64)
    target.data *= np.repeat(reach, np.diff(matrix.indptr))
    # Σ w(Y − 1)² = Σ wY² − 2·Σ wY + N·Σ w, with Σ_i Y_ui = N and Σ w = 1/(2N)
    constant = float(np.repeat(weights, np.diff(matrix.indptr)) @ target.data**2) - 0.5
    by_item = (matrix.astype(np.float64) / (2.0 * total)).T.tocsr()
    if penalty == "weighted":
        ridges: tuple[float | Float64, float] = l2 * items, l2 * float(weights.sum())
    else:
        infinite = np.full_like(weights, np.inf)
        ridges = np.divide(l2, weights, out=infinite, where=weights > 0), l2
    return Rg2Problem(target.astype(dtype), by_item.astype(dtype), weights, *ridges, constant, total, threads)


def scaled_target(matrix: Csr) -> tuple[float, tuple[Float64, Float64]]:
    """The target T̃ = diag(√w)·T as sparse minus rank one: the factor of its sparse part, and (√w, 1).

    The sparse part is diag(√v)·R with the users' weights v_u = N/(2|D|)·|I_u|⁻¹: see `user_weights`, power 1.
    """
    items, sums = matrix.shape[1], row_sums(matrix)
    total = max(float(sums.sum()), 1e-300)
    return items / (2 * total), (np.sqrt(sums / (2 * items * total)), np.ones(items))


def als(
    problem: Rg2Problem,
    rank: int,
    *,
    epochs: int = 100,
    tolerance: float = 1e-6,
    seed: int = 0,
    start: Factor | None = None,
    stage: Stage = silent,
    between: Between | None = None,
) -> Rg2Solution:
    """Alternating least squares: each epoch the best Q for P, then the best P for Q.

    Between the two half-steps P and Q are replaced by P·A⁻ᵀ and Q·A with the A of the least penalty (P·Qᵀ does not
    change). The half-steps alone converge too, but for a small λ only in very many epochs.

    Parameters
    ----------
    problem : result of `problem`; the factors have its precision
    rank : K
    epochs : maximum number
    tolerance : stop when an epoch lowers the objective by at most this share; never if below 0
    seed : of the random initial Q
    start : initial Q, instead
    between : called after each epoch but the last
    """
    items = initial_items(problem, rank, seed, start)
    items, users, spread, gram, value = best_users(problem, items, inner(items, items))
    values, converged = [value], False
    while len(values) <= epochs and not converged:
        users, items, spread = half_step(problem.transpose_times, users, gram, problem.item_ridge)
        gram = inner(items, items)
        items, users, spread, gram, value = best_users(problem, items, gram, _balance(problem, users, spread, gram))
        converged = settled(values[-1] - value, value, tolerance)
        values.append(value)
        stage("epochs", 1.0)
        if between is not None and len(values) <= epochs and not converged:
            _report(between, Rg2Solution(users, items, spread, Record(tuple(values), converged)))
    return Rg2Solution(users, items, spread, Record(tuple(values), converged))


def _report(between: Between, state: Rg2Solution) -> None:
    between(state.record.epochs, lambda: state)


def fold_in(problem: Rg2Problem, solution: Rg2Solution) -> tuple[Factor, Factor, Float64, Float64, float, float]:
    """Factors that score any history: left, right, scale, base, length and ridge of `weights.Factors`.

    With s = 1ᵀQ and t = N·h/|h| − 1: under the weighted penalty p = t·Q/(g + λN), whose part without h is the base;
    under the plain penalty p = (N·hQ/|h| − s)/(g + 2λN|D|/|h|), which has no such part.
    """
    items, sums, number = solution.items, _sums(solution.items), len(solution.items)
    _, sound = _sound(solution.spread, problem.user_ridge, items.dtype)
    spread = np.where(sound, solution.spread, np.inf)
    if isinstance(problem.user_ridge, float):
        scale = 1.0 / (spread + problem.user_ridge)
        return items, items, scale, -(items @ (sums * scale)), float(number), 0.0
    left = number * items - sums.astype(items.dtype)
    return left, items, 1.0 / spread, np.zeros(number), 1.0, 2.0 * problem.item_ridge * number * problem.events


def half_step(
    apply: Callable[[Factor], Factor],
    fixed: Factor,
    gram: Float64,
    ridge: float | Float64,
    gauge: Float64 | None = None,
) -> tuple[Factor, Factor, Float64]:
    """The optimal factor for a fixed one: the fixed factor rotated, the optimal factor, and the diagonal Gramian.

    Parameters
    ----------
    apply : multiplies the fixed factor by the target (and the weights)
    gram : Gramian of the fixed factor
    ridge : one number, or one for each row of the optimal factor
    gauge : K × K; the fixed factor is multiplied by it first
    """
    spread, rotation = scipy.linalg.eigh(gram if gauge is None else gauge.T @ gram @ gauge, check_finite=False)
    rotation = rotation if gauge is None else gauge @ rotation
    rotated = fixed @ rotation.astype(fixed.dtype)
    best = apply(rotated)
    alive, sound = _sound(spread, ridge, fixed.dtype)
    rotated[:, ~alive] = 0
    _shrink(best, np.where(sound, spread, np.inf), ridge)
    return rotated, best, np.where(alive, spread, 0.0)


def settled(gain: float, value: float, tolerance: float) -> bool:
    """Whether the gain is at most this share of the objective; never for a tolerance below 0."""
    return tolerance >= 0 and gain <= tolerance * abs(value)


def _sums(block: Factor, weights: Float64 | None = None) -> Float64:
    """Σ_u w_u·block_u, in float64."""
    return np.asarray(np.sum([scaled.sum(axis=0) for _, scaled in slabs(block, block, weights)], axis=0))


def _sound(spread: Float64, ridge: float | Float64, dtype: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which directions of a fixed factor are nonzero, and which can be divided by.

    A direction below the first bound is rounding error of the largest one: it is set to 0 before it becomes a denormal
    number. Where the penalty is negligible, the second bound makes the inverse a pseudo-inverse.
    """
    accuracy, most = float(np.finfo(dtype).eps), float(spread[-1])
    alive = spread > max(most * accuracy**2, float(np.finfo(dtype).tiny))
    least = float(np.min(ridge))
    return alive, alive & (spread + least > len(spread) * accuracy * most)


def _shrink(block: Factor, spread: Float64, ridge: float | Float64) -> None:
    """Divide by g + ρ in place, for one ρ or one for each row; an infinite g or ρ gives 0."""
    if isinstance(ridge, float):
        block *= (1.0 / (spread + ridge)).astype(block.dtype)
        return
    for start in range(0, len(block), SLAB):
        rows = slice(start, start + SLAB)
        block[rows] /= spread + ridge[rows, None]


def _balance(problem: Rg2Problem, users: Factor, spread: Float64, gram_items: Float64) -> Float64 | None:
    """The A for which P·A⁻ᵀ and Q·A have the least penalty, where Pᵀdiag(w)P = diag(spread).

    With R·Rᵀ = Σ w_u·ρ_u·P_uᵀP_u and Rᵀ(b·QᵀQ)R = E·diag(m²)·Eᵀ it is R·E·diag(m^−½): both penalties become diag(m).
    Eigenvalues at the level of rounding errors are raised to that level.
    """
    if isinstance(problem.user_ridge, float):
        root = np.diag(_lifted(problem.user_ridge * spread))
    else:
        values, vectors = scipy.linalg.eigh(problem.item_ridge * inner(users, users), check_finite=False)
        root = vectors * _lifted(values)
    values, vectors = scipy.linalg.eigh(root.T @ (problem.item_ridge * gram_items) @ root, check_finite=False)
    sizes = _lifted(values)
    return np.asarray(root @ (vectors / np.sqrt(sizes))) if sizes.min() > 0.0 else None


def _lifted(values: Float64) -> Float64:
    """Square roots of eigenvalues, which are first raised to at least the level of rounding errors."""
    return np.asarray(np.sqrt(np.maximum(values, len(values) * float(np.finfo(np.float64).eps) * values.max())))


def best_users(
    problem: Rg2Problem, items: Factor, gram_items: Float64, gauge: Float64 | None = None
) -> tuple[Factor, Factor, Float64, Float64, float]:
    """Q rotated, the optimal P, diag QᵀQ, Pᵀdiag(w)P, and the objective."""
    items, users, spread = half_step(problem.times, items, gram_items, problem.user_ridge, gauge)
    gram = inner(users, users, problem.weights)
    # P is optimal: T_u·Q = P_u∘(g + ρ_u), so no further product with T is needed.
    cross = float(spread @ np.diagonal(gram)) + problem.penalty(users, users, gram)
    return items, users, spread, gram, problem.value(users, gram, np.diag(spread), cross)


def initial_items(problem: Rg2Problem, rank: int, seed: int, start: Factor | None) -> Factor:
    """The initial Q: `start`, or random."""
    items, dtype = problem.matrix.shape[1], problem.matrix.dtype
    if start is None:
        return np.asarray(np.random.default_rng(seed).standard_normal((items, rank)) / np.sqrt(rank), dtype)
    if start.shape != (items, rank):
        raise ParameterError(f"start has shape {start.shape}; expected {(items, rank)} for Q")
    return np.array(start, dtype)
