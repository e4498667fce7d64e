"""Preconditioned conjugate gradients on a block of right-hand sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from monogram.engine.runtime.arrays import Float64


def conjugate_gradients(
    apply: Callable[[Float64], Float64],
    precondition: Callable[[Float64], Float64],
    right: Float64,
    start: Float64,
    *,
    steps: int,
    tolerance: float = 1e-10,
) -> tuple[Float64, bool]:
    """Solve A·X = right by preconditioned conjugate gradients, one right-hand side in each column.

    Parameters
    ----------
    apply : multiplies a block by A, symmetric and positive definite
    precondition : multiplies a block by an approximation of A⁻¹
    right, start : right-hand sides, and the first approximation
    steps : at most
    tolerance : of the residual of a column, relative to its right-hand side

    Returns
    -------
    solution : the columns of X
    converged : whether all columns reached the tolerance
    """
    goal = tolerance * np.linalg.norm(right, axis=0)
    solution, residual = start, right - apply(start)
    if (np.linalg.norm(residual, axis=0) <= goal).all():
        return solution, True
    preconditioned = precondition(residual)
    direction, strength = preconditioned, np.einsum("ij,ij->j", residual, preconditioned)
    for _ in range(steps):
        image = apply(direction)
        curvature = np.einsum("ij,ij->j", direction, image)
        step = np.divide(strength, curvature, out=np.zeros_like(curvature), where=curvature > 0)
        solution = solution + step * direction
        residual = residual - step * image
        if (np.linalg.norm(residual, axis=0) <= goal).all():
            return solution, True
        preconditioned = precondition(residual)
        before, strength = strength, np.einsum("ij,ij->j", residual, preconditioned)
        ratio = np.divide(strength, before, out=np.zeros_like(before), where=before > 0)
        direction = preconditioned + ratio * direction
    return solution, False
