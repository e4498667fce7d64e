"""RG² for vectors that a symmetric linear encoder makes from parameters, such as propagation along a graph.

With parameters E = (E_users, E_items), vectors (P, Q) = encode(E), and the objective's square g(P, Q) of `rg2`,

    f(E) = g(encode(E)) + Σ_u w_u·ρ_u‖E_u‖² + b·Σ_i‖E_i‖².

All products with g, its gradient and its Gauss–Newton matrix go through K × K Gramians (P3, appendix D), and those in E
are products with the encoder on both sides. A step is found as in `rg2_newton`, with the diagonal blocks of the model
without encoder as the preconditioner; f along it is a polynomial of degree four, since encode is linear. Where encode
is the identity, f is the objective of `rg2`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from monogram.engine.iterative.rg2 import Rg2Problem
from monogram.engine.iterative.rg2_newton import GaussNewton, Pair, Rg2Point, lowest, pair_dot
from monogram.engine.linalg.products import dot, inner
from monogram.engine.runtime.arrays import Float64

Encode = Callable[[Pair], Pair]


@dataclass(frozen=True)
class EncodedPoint:
    """Parameters E, and the point (P, Q) that they are encoded to.

    Attributes
    ----------
    problem : the objective; its penalties are those of E
    encode : the encoder, linear and symmetric
    pair : E
    point : (P, Q) in the objective without penalties
    """

    problem: Rg2Problem
    encode: Encode
    pair: Pair
    point: Rg2Point

    @classmethod
    def at(cls, problem: Rg2Problem, encode: Encode, pair: Pair) -> Self:
        """The point of parameters."""
        plain = dataclasses.replace(problem, user_ridge=0.0, item_ridge=0.0)
        users, items = encode(pair)
        return cls(problem, encode, pair, Rg2Point.at(plain, users, items, plain.times(items)))

    @property
    def value(self) -> float:
        """The objective f."""
        return self.point.value + self._penalty(self.pair, self.pair)

    def gradient(self) -> Pair:
        """Half of the gradient of f."""
        return _sum(self.encode(self.point.gradient()), self._penalised(self.pair))

    def next(self) -> Self:
        """The lowest point along a Gauss–Newton step; this point where rounding errors allow no lower one."""
        slope = self.gradient()
        model = EncodedGaussNewton(self)
        divided = model.divided(slope)
        step = model.solved(slope, divided, pair_dot(slope, divided))
        length = lowest(self._along(step))
        if length == 0.0:
            return self
        moved = tuple(side + side.dtype.type(length) * change for side, change in zip(self.pair, step, strict=True))
        lower = self.at(self.problem, self.encode, moved)
        return lower if lower.value < self.value else self

    def _along(self, step: Pair) -> Float64:
        """The coefficients of f(E + α·step) − f(E) in α, constant first."""
        encoded = self.encode(step)
        out = self.point.along(encoded, self.point.problem.times(encoded[1]))
        out[1] += 2.0 * self._penalty(self.pair, step)
        out[2] += self._penalty(step, step)
        return out

    def _penalty(self, left: Pair, right: Pair) -> float:
        return dot(left[0], right[0], self.problem.user_penalties) + self.problem.item_ridge * dot(left[1], right[1])

    def _penalised(self, pair: Pair) -> Pair:
        """A pair times the penalties."""
        penalties = self.problem.user_penalties.astype(pair[0].dtype)[:, None]
        return pair[0] * penalties, pair[1] * pair[1].dtype.type(self.problem.item_ridge)


class EncodedGaussNewton(GaussNewton):
    """The Gauss–Newton matrix in E; the diagonal blocks are those of (P, Q) with the penalties."""

    def __init__(self, at: EncodedPoint) -> None:
        super().__init__(dataclasses.replace(at.point, problem=at.problem))
        self.at = at

    def times(self, step: Pair) -> Pair:
        """The matrix times a step."""
        users, items = self.at.encode(step)
        point, dtype = self.point, users.dtype
        left = users @ self.gram_items + point.users @ inner(items, point.items).astype(dtype)
        mixed = inner(users, point.users, point.problem.weights).astype(dtype)
        right = items @ point.gram_users.astype(dtype) + point.items @ mixed
        return _sum(self.at.encode((left * self.weights, right)), self.at._penalised(step))


def _sum(left: Pair, right: Pair) -> Pair:
    return left[0] + right[0], left[1] + right[1]


def identity(pair: Pair) -> Pair:
    """The encoder of plain factorisation."""
    return np.asarray(pair[0]), np.asarray(pair[1])
