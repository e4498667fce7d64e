"""RG² by Gauss–Newton steps with conjugate gradients (P3, appendix D).

With half-gradients g_P = w∘(P·QᵀQ − T·Q + ρ∘P) and g_Q = Q·Pᵀdiag(w)P − (diag(w)T)ᵀP + b·Q, a step (X, Y) solves

    w∘(X·QᵀQ + P·YᵀQ + ρ∘X) = −g_P,    Y·Pᵀdiag(w)P + Q·Xᵀdiag(w)P + b·Y = −g_Q

roughly, by conjugate gradients preconditioned with the diagonal blocks: all products go through K × K Gramians. The
length of the step minimises f along it, which is a polynomial of degree four, so f never rises.

The neglected part of the Hessian is the residual's. Near the optimum of the weighted penalty that leaves a rate of
σ_{K+1}/σ_K an epoch (σ of diag(√w)·T), where alternating least squares has its square: this solver is for comparison
with the paper, and a ground for encoders that have no half-step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg

from monogram.engine.iterative.rg2 import Record, Rg2Problem, Rg2Solution, best_users, settled, started
from monogram.engine.linalg.products import Factor, dot, inner
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import Between, Stage, silent

INNER = 30  # steps of conjugate gradients
FORCING = 0.3  # they stop at this share of the gradient, in the preconditioner's norm
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
    """Gauss–Newton steps on (P, Q) jointly, closed by the best P for the last Q.

    Parameters
    ----------
    problem : what `rg2.problem` gave
    rank : K
    epochs : at most so many steps
    tolerance : stop when ‖∇f/2‖² ≤ tolerance·f in the norm of the inverse diagonal blocks of the Hessian; that is what
        the best P for Q, and the best Q for P, would take off f, each by itself
    seed : of the random Q it starts from
    start : (P, Q) to start from instead
    between : called after each step but the last
    """
    point = _Point.begin(problem, rank, seed, start)
    values, converged = [point.value], False
    while len(values) <= epochs and not converged:
        slope = point.gradient()
        model = _Model(point)
        divided = model.divided(slope)
        size = _dot(slope, divided)
        converged = settled(size, point.value, tolerance)
        if not converged:
            following = point.moved(model.solved(slope, divided, size))
            converged = following is point  # rounding leaves nothing to gain
            point = following
            values.append(point.value)
            stage("epochs", 1.0)
            if between is not None and len(values) <= epochs and not converged:
                between(len(values) - 1, partial(_closed, point, values, converged))
    return _closed(point, values, converged)


def _closed(point: _Point, values: list[float], converged: bool) -> Rg2Solution:
    """The best P for the Q of a point."""
    items, users, spread, _, value = best_users(point.problem, point.items, point.gram_items)
    return Rg2Solution(users, items, spread, Record((*values[:-1], value), converged))


@dataclass(frozen=True)
class _Point:
    """P and Q, and the products that f, its gradient and its curvature are made of."""

    problem: Rg2Problem
    users: Factor
    items: Factor
    seen: Factor  # T·Q
    used: Factor  # (diag(w)T)ᵀP
    gram_users: Float64
    gram_items: Float64
    value: float

    @classmethod
    def at(cls, problem: Rg2Problem, users: Factor, items: Factor, seen: Factor) -> _Point:
        used = problem.transpose_times(users)
        grams = inner(users, users, problem.weights), inner(items, items)
        return cls(problem, users, items, seen, used, *grams, problem.value(users, *grams, dot(used, items)))

    @classmethod
    def begin(cls, problem: Rg2Problem, rank: int, seed: int, start: Pair | None) -> _Point:
        items = started(problem, rank, seed, None if start is None else start[1])
        if start is None:
            items, users, *_ = best_users(problem, items, inner(items, items))
        else:
            users = start[0].astype(items.dtype)
        return cls.at(problem, users, items, problem.times(items))

    def gradient(self) -> Pair:
        """Half of it."""
        dtype = self.users.dtype
        users = (self.users @ self.gram_items.astype(dtype) - self.seen) * self.problem.weights.astype(dtype)[:, None]
        users += self.users * self.problem.user_penalties.astype(dtype)[:, None]
        items = self.items @ _ridged(self.gram_users, self.problem.item_ridge).astype(dtype) - self.used
        return users, items

    def moved(self, step: Pair) -> _Point:
        """The lowest point along a step; this one if rounding lets none be lower."""
        seen = self.problem.times(step[1])
        length = _lowest(self._along(step, seen))
        if length == 0.0:
            return self
        users, items = (one + one.dtype.type(length) * by for one, by in zip(self._pair, step, strict=True))
        found = self.at(self.problem, users, items, self.seen + seen.dtype.type(length) * seen)
        return found if found.value < self.value else self

    @property
    def _pair(self) -> Pair:
        return self.users, self.items

    def _along(self, step: Pair, seen: Factor) -> Float64:
        """The polynomial f(P + αX, Q + αY) − f(P, Q) in α, constant first; `seen` is T·Y."""
        problem, (users, items), weights = self.problem, step, self.problem.weights
        mixed_users, mixed_items = inner(self.users, users, weights), inner(self.items, items)
        own_users, own_items = inner(users, users, weights), inner(items, items)
        out = np.zeros(5)
        for i, left in enumerate((self.gram_users, mixed_users + mixed_users.T, own_users)):
            for j, right in enumerate((self.gram_items, mixed_items + mixed_items.T, own_items)):
                out[i + j] += np.vdot(left, right)
        out[1] -= 2.0 * (dot(users, self.seen, weights) + dot(self.used, items))
        out[2] -= 2.0 * dot(users, seen, weights)
        penalties = problem.penalty(self.users, users, mixed_users), problem.penalty(users, users, own_users)
        out[1] += 2.0 * (penalties[0] + problem.item_ridge * float(np.trace(mixed_items)))
        out[2] += penalties[1] + problem.item_ridge * float(np.trace(own_items))
        out[0] = 0.0
        return out


class _Model:
    """The Gauss–Newton matrix at a point, and its diagonal blocks inverted."""

    def __init__(self, point: _Point) -> None:
        self.point, dtype = point, point.users.dtype
        self.weights = point.problem.weights.astype(dtype)[:, None]
        self.penalties = point.problem.user_penalties.astype(dtype)[:, None]
        self.gram_items = point.gram_items.astype(dtype)
        self.block_items = _ridged(point.gram_users, point.problem.item_ridge).astype(dtype)
        spread, turn = scipy.linalg.eigh(point.gram_items, check_finite=False)
        self.turn, self.spread = turn.astype(dtype), np.maximum(spread, 0.0).astype(dtype)
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
        """A step divided by the diagonal blocks; 0 where they are 0."""
        users = step[0] @ self.turn
        below = self.weights * self.spread + self.penalties
        least = len(self.spread) * np.finfo(below.dtype).eps * below.max(axis=1, keepdims=True)
        users = np.divide(users, below, out=np.zeros_like(users), where=below > least)
        return users @ self.turn.T, step[1] @ self.inverse

    def solved(self, slope: Pair, divided: Pair, size: float) -> Pair:
        """The step: conjugate gradients for matrix·step = −slope, from 0; size is slope·divided."""
        rest = -slope[0], -slope[1]
        step = np.zeros_like(rest[0]), np.zeros_like(rest[1])
        along, now = (-divided[0], -divided[1]), size
        for _ in range(INNER):
            ahead = self.times(along)
            bend = _dot(along, ahead)
            if not bend > 0.0:
                break
            by = slope[0].dtype.type(now / bend)
            for k in (0, 1):
                step[k][...] += by * along[k]
                rest[k][...] -= by * ahead[k]
            divided = self.divided(rest)
            before, now = now, _dot(rest, divided)
            if now <= FORCING**2 * size:
                break
            turn = by.dtype.type(now / before)
            along = divided[0] + turn * along[0], divided[1] + turn * along[1]
        return step


def _dot(left: Pair, right: Pair) -> float:
    """In the precision of the factors, which does for a direction; what f is made of goes through `products.dot`."""
    return sum(
        float(np.vdot(one[start : start + ROWS], other[start : start + ROWS]))
        for one, other in zip(left, right, strict=True)
        for start in range(0, len(one), ROWS)
    )


def _ridged(gram: Float64, ridge: float) -> Float64:
    return gram + ridge * np.eye(len(gram))


def _lowest(polynomial: Float64) -> float:
    """Where a polynomial of degree four (constant first) is lowest on α ≥ 0, as far as rounding lets it be found."""
    slope = np.trim_zeros(polynomial[1:] * np.arange(1, 5), "b")
    roots = np.polynomial.polynomial.polyroots(slope) if len(slope) > 1 else np.zeros(0)
    places = [0.0, *(float(root.real) for root in roots if abs(root.imag) <= 1e-9 * abs(root))]
    if polynomial[2] > 0.0:  # near the optimum the higher terms vanish, and the roots with them
        places.append(-polynomial[1] / (2.0 * polynomial[2]))
    return min((p for p in places if p >= 0.0), key=lambda p: float(np.polynomial.polynomial.polyval(p, polynomial)))
