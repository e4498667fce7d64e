"""Preconditioned conjugate gradients on a block of right-hand sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from monogram.engine.runtime.arrays import Float64


def conjugate_gradients(
    apply: Callable[[Float64], Float64],
    prepare: Callable[[Float64], Float64],
    right: Float64,
    start: Float64,
    *,
    steps: int,
    tolerance: float = 1e-10,
) -> tuple[Float64, bool]:
    """Preconditioned conjugate gradients on many right-hand sides at once, one a column; whether all converged."""
    goal = tolerance * np.linalg.norm(right, axis=0)
    solution, rest = start, right - apply(start)
    if (np.linalg.norm(rest, axis=0) <= goal).all():
        return solution, True
    ready = prepare(rest)
    direction, strength = ready, np.einsum("ij,ij->j", rest, ready)
    for _ in range(steps):
        image = apply(direction)
        curve = np.einsum("ij,ij->j", direction, image)
        step = np.divide(strength, curve, out=np.zeros_like(curve), where=curve > 0)
        solution = solution + step * direction
        rest = rest - step * image
        if (np.linalg.norm(rest, axis=0) <= goal).all():
            return solution, True
        ready = prepare(rest)
        before, strength = strength, np.einsum("ij,ij->j", rest, ready)
        ratio = np.divide(strength, before, out=np.zeros_like(before), where=before > 0)
        direction = ready + ratio * direction
    return solution, False
