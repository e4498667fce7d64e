"""RG² by Gauss–Newton steps with conjugate gradients (P3, appendix D).

With half-gradients g_P = w∘(P·QᵀQ − T·Q + ρ∘P) and g_Q = Q·Pᵀdiag(w)P − (diag(w)T)ᵀP + b·Q, a step (X, Y) solves

    w∘(X·QᵀQ + P·YᵀQ + ρ∘X) = −g_P,    Y·Pᵀdiag(w)P + Q·Xᵀdiag(w)P + b·Y = −g_Q

approximately, by conjugate gradients preconditioned with the diagonal blocks; all products go through K × K Gramians.
The step length minimises f along the step, a polynomial of degree four, so f never increases.

Gauss–Newton neglects the residual term of the Hessian. Near the optimum of the weighted penalty the convergence rate is
σ_{K+1}/σ_K per epoch (σ of diag(√w)·T), while alternating least squares has its square. This solver serves comparison
with the paper, and encoders without a closed half-step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy  # loads scipy.linalg when a function of it is called

from monogram.engine.iterative.rg2 import Record, Rg2Problem, Rg2Solution, best_users, initial_items, settled
from monogram.engine.linalg.products import Factor, dot, inner
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import Between, Stage, silent

INNER = 30  # steps of conjugate gradients
FORCING = 0.3  # conjugate gradients stop at this share of the gradient, in the norm of the preconditioner
ROWS = 1024  # summed at once in the precision of the factors
Pair = tuple[Factor, Factor]


def newton_cg(
    problem: Rg2Problem,
    rank: int,
    *,
    epochs: int = 100,
    tolerance: float = 1e-6,
    seed: int = 0,
    start: Pair | None = None,
    stage: Stage = silent,
    between: Between | None = None,
) -> Rg2Solution:
    """Gauss–Newton steps on (P, Q) jointly; the result has the optimal P for the last Q.

    Parameters
    ----------
    problem : result of `rg2.problem`
    rank : K
    epochs : maximum number of steps
    tolerance : stop when ‖∇f/2‖² ≤ tolerance·f in the norm of the inverse diagonal blocks of the Hessian; that is
        the reduction of f by the optimal P for Q, plus that by the optimal Q for P
    seed : of the random initial Q
    start : initial (P, Q), instead
    between : called after each step but the last
    """
    point = Rg2Point.begin(problem, rank, seed, start)
    values, converged = [point.value], False
    while len(values) <= epochs and not converged:
        slope = point.gradient()
        model = GaussNewton(point)
        divided = model.divided(slope)
        size = pair_dot(slope, divided)
        converged = settled(size, point.value, tolerance)
        if not converged:
            following = point.moved(model.solved(slope, divided, size))
            converged = following is point  # no further gain beyond rounding errors
            point = following
            values.append(point.value)
            stage("epochs", 1.0)
            if between is not None and len(values) <= epochs and not converged:
                between(len(values) - 1, partial(_finished, point, values, converged))
    return _finished(point, values, converged)


def _finished(point: Rg2Point, values: list[float], converged: bool) -> Rg2Solution:
    """The solution with the optimal P for the Q of a point."""
    items, users, spread, _, value = best_users(point.problem, point.items, point.gram_items)
    return Rg2Solution(users, items, spread, Record((*values[:-1], value), converged))


@dataclass(frozen=True)
class Rg2Point:
    """P and Q, and the products from which f, its gradient and its Gauss–Newton matrix are computed."""

    problem: Rg2Problem
    users: Factor
    items: Factor
    target_items: Factor  # T·Q
    target_users: Factor  # (diag(w)T)ᵀP
    gram_users: Float64
    gram_items: Float64
    value: float

    @classmethod
    def at(cls, problem: Rg2Problem, users: Factor, items: Factor, target_items: Factor) -> Rg2Point:
        """The point of two factors; `target_items` is T·Q."""
        target_users = problem.transpose_times(users)
        grams = inner(users, users, problem.weights), inner(items, items)
        value = problem.value(users, *grams, dot(target_users, items))
        return cls(problem, users, items, target_items, target_users, *grams, value)

    @classmethod
    def begin(cls, problem: Rg2Problem, rank: int, seed: int, start: Pair | None) -> Rg2Point:
        """The first point: the start, or random items and the optimal users for them."""
        items = initial_items(problem, rank, seed, None if start is None else start[1])
        if start is None:
            items, users, *_ = best_users(problem, items, inner(items, items))
        else:
            users = start[0].astype(items.dtype)
        return cls.at(problem, users, items, problem.times(items))

    def gradient(self) -> Pair:
        """Half of the gradient of f."""
        dtype = self.users.dtype
        users = (self.users @ self.gram_items.astype(dtype) - self.target_items) * self.problem.weights.astype(dtype)[
            :, None
        ]
        users += self.users * self.problem.user_penalties.astype(dtype)[:, None]
        items = self.items @ _ridged(self.gram_users, self.problem.item_ridge).astype(dtype) - self.target_users
        return users, items

    def moved(self, step: Pair) -> Rg2Point:
        """The lowest point along a step; this point where rounding errors allow no lower one."""
        image = self.problem.times(step[1])
        length = lowest(self.along(step, image))
        if length == 0.0:
            return self
        users, items = (side + side.dtype.type(length) * change for side, change in zip(self._pair, step, strict=True))
        lower = self.at(self.problem, users, items, self.target_items + image.dtype.type(length) * image)
        return lower if lower.value < self.value else self

    @property
    def _pair(self) -> Pair:
        return self.users, self.items

    def along(self, step: Pair, image: Factor) -> Float64:
        """The coefficients of the polynomial f(P + αX, Q + αY) − f(P, Q) in α, constant first; `image` is T·Y."""
        problem, (users, items), weights = self.problem, step, self.problem.weights
        mixed_users, mixed_items = inner(self.users, users, weights), inner(self.items, items)
        own_users, own_items = inner(users, users, weights), inner(items, items)
        out = np.zeros(5)
        for i, left in enumerate((self.gram_users, mixed_users + mixed_users.T, own_users)):
            for j, right in enumerate((self.gram_items, mixed_items + mixed_items.T, own_items)):
                out[i + j] += np.vdot(left, right)
        out[1] -= 2.0 * (dot(users, self.target_items, weights) + dot(self.target_users, items))
        out[2] -= 2.0 * dot(users, image, weights)
        penalties = problem.penalty(self.users, users, mixed_users), problem.penalty(users, users, own_users)
        out[1] += 2.0 * (penalties[0] + problem.item_ridge * float(np.trace(mixed_items)))
        out[2] += penalties[1] + problem.item_ridge * float(np.trace(own_items))
        out[0] = 0.0
        return out


class GaussNewton:
    """The Gauss–Newton matrix at a point, and the inverse of its diagonal blocks."""

    def __init__(self, point: Rg2Point) -> None:
        self.point, dtype = point, point.users.dtype
        self.weights = point.problem.weights.astype(dtype)[:, None]
        self.penalties = point.problem.user_penalties.astype(dtype)[:, None]
        self.gram_items = point.gram_items.astype(dtype)
        self.block_items = _ridged(point.gram_users, point.problem.item_ridge).astype(dtype)
        spread, rotation = scipy.linalg.eigh(point.gram_items, check_finite=False)
        self.rotation, self.spread = rotation.astype(dtype), np.maximum(spread, 0.0).astype(dtype)
        self.inverse = scipy.linalg.pinvh(
            _ridged(point.gram_users, point.problem.item_ridge), rtol=len(spread) * float(np.finfo(dtype).eps)
        ).astype(dtype)

    def times(self, step: Pair) -> Pair:
        """The Gauss–Newton matrix times a step."""
        (users, items), point = step, self.point
        dtype = users.dtype
        weighted = users @ self.gram_items + point.users @ inner(items, point.items).astype(dtype)
        weighted *= self.weights
        weighted += users * self.penalties
        mixed = inner(users, point.users, point.problem.weights).astype(dtype)
        return weighted, items @ self.block_items + point.items @ mixed

    def divided(self, step: Pair) -> Pair:
        """A step multiplied by the (pseudo-)inverse of the diagonal blocks."""
        users = step[0] @ self.rotation
        divisors = self.weights * self.spread + self.penalties
        least = len(self.spread) * np.finfo(divisors.dtype).eps * divisors.max(axis=1, keepdims=True)
        users = np.divide(users, divisors, out=np.zeros_like(users), where=divisors > least)
        return users @ self.rotation.T, step[1] @ self.inverse

    def solved(self, slope: Pair, divided: Pair, size: float) -> Pair:
        """The step: matrix·step = −slope by conjugate gradients from 0; `size` is slope·divided."""
        residual = -slope[0], -slope[1]
        step = np.zeros_like(residual[0]), np.zeros_like(residual[1])
        direction, strength = (-divided[0], -divided[1]), size
        for _ in range(INNER):
            image = self.times(direction)
            curvature = pair_dot(direction, image)
            if not curvature > 0.0:
                break
            length = slope[0].dtype.type(strength / curvature)
            for k in (0, 1):
                step[k][...] += length * direction[k]
                residual[k][...] -= length * image[k]
            divided = self.divided(residual)
            before, strength = strength, pair_dot(residual, divided)
            if strength <= FORCING**2 * size:
                break
            ratio = length.dtype.type(strength / before)
            direction = divided[0] + ratio * direction[0], divided[1] + ratio * direction[1]
        return step


def pair_dot(left: Pair, right: Pair) -> float:
    """The inner product in the precision of the factors, enough for a direction; f itself uses `products.dot`."""
    return sum(
        float(np.vdot(first[start : start + ROWS], second[start : start + ROWS]))
        for first, second in zip(left, right, strict=True)
        for start in range(0, len(first), ROWS)
    )


def _ridged(gram: Float64, ridge: float) -> Float64:
    return gram + ridge * np.eye(len(gram))


def lowest(polynomial: Float64) -> float:
    """The α ≥ 0 at which a polynomial of degree four (constant first) is lowest, up to rounding errors."""
    slope = np.trim_zeros(polynomial[1:] * np.arange(1, 5), "b")
    roots = np.polynomial.polynomial.polyroots(slope) if len(slope) > 1 else np.zeros(0)
    places = [0.0, *(float(root.real) for root in roots if abs(root.imag) <= 1e-9 * abs(root))]
    if polynomial[2] > 0.0:  # near the optimum the higher terms vanish, and the roots are inaccurate
        places.append(-polynomial[1] / (2.0 * polynomial[2]))
    return min((p for p in places if p >= 0.0), key=lambda p: float(np.polynomial.polynomial.polyval(p, polynomial)))
