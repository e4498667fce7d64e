"""Residual and error of an inverse, measured on a few probe columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.gram.accumulate import squares
from monogram.engine.gram.operators import Apply, gram_product
from monogram.engine.gram.probes import probe_items
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.inverse.protocols import ReadableInverse
from monogram.engine.linalg.conjugate_gradients import conjugate_gradients
from monogram.engine.runtime.arrays import Csr, Float64, Indices

ROUGH = 1e-3  # tolerance of that solve with a time kernel, whose products with S take ΣL² operations


def certificate(
    data: Csr,
    penalties: Float64,
    inverse: ReadableInverse,
    *,
    kernel: TimeKernel | None = None,
    threads: int = 1,
    also: Indices | None = None,
    fine: float = 1e-3,
    tolerance: float = 1e-10,
) -> tuple[float, float]:
    """Residual and error of the weights B = −(C − diag c)·diag(1/c) of an inverse C, on eight probe columns.

    The probes are spread over the items by popularity; the most popular item is one of them.

    Parameters
    ----------
    kernel : the time kernel on the entries of the data, optional
    threads : of products with a time kernel
    also : further items to probe
    fine : where the bound of the error exceeds `fine`, the error is estimated instead
    tolerance : of the linear solve of that estimate

    Returns
    -------
    residual : float
        Largest off-diagonal entry of R = (S + Λ)B − S, relative to max|S|.
    error : float
        Error of B relative to max|B|: the bound ‖R‖/min ℓ where it is at most `fine`, else the solution E of
        (S + Λ)·E = R by conjugate gradients. A small residual can hide a large error where S is large and a penalty
        is small.
    """
    diagonal = squares(data)
    live, chosen = diagonal > 0, probe_items(diagonal)
    if also is not None:
        chosen = np.union1d(chosen, also[live[also]])
    if not len(chosen):
        return 0.0, 0.0
    own = (chosen, np.arange(len(chosen)))
    product = gram_product(data, kernel, threads)
    slopes = -inverse.columns(chosen) / inverse.diagonal[chosen]
    slopes[own] = -1.0
    remainder = product(slopes) + penalties[:, None] * slopes  # S·(B − I) + Λ·B off the diagonal
    remainder[own] = slopes[own] = 0.0
    residual = float(np.abs(remainder).max() / diagonal.max())
    largest = max(float(np.abs(slopes).max()), 1e-30)
    with np.errstate(divide="ignore"):  # a penalty of 0 gives no bound
        error = float(np.linalg.norm(remainder, axis=0).max() / penalties[live].min()) / largest if residual else 0.0
    if error > fine:
        tolerance = tolerance if kernel is None else max(tolerance, ROUGH)
        error = float(np.abs(_error(product, penalties, diagonal, remainder, own, tolerance)).max()) / largest
    return residual, error


def _error(
    product: Apply, penalties: Float64, diagonal: Float64, remainder: Float64, own: Any, tolerance: float
) -> Float64:
    """Solve (S + Λ)·z = remainder roughly by conjugate gradients, with z = 0 on the diagonal entries of the probes."""

    def apply(block: Float64) -> Float64:
        out = product(block) + penalties[:, None] * block
        out[own] = 0.0
        return np.asarray(out)

    scale = 1 / (diagonal + penalties)[:, None]
    start = np.zeros_like(remainder)
    return conjugate_gradients(apply, lambda block: scale * block, remainder, start, steps=40, tolerance=tolerance)[0]
