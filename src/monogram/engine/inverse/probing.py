"""c = diag C without forming C: solved for popular items, estimated by random probes (with standard errors) for others.

A solved item has c_j = (C·e_j)_j. For the others, probes v of random signs: E[v_j·(C(s∘v))_j/s_j] = c_j, with the
relative variance Σ_{i≠j} (C_ij·s_i/(s_j·c_j))². Three choices reduce the variance: the scale s² = diag(S + Λ); probes
that are 0 on the solved items; and a control variate, the first-order term −D⁻¹(S − diag d)D⁻¹ of C with
D = diag(S + Λ), whose diagonal is known to be 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.inverse import matrix_free
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.progress import Stage, silent

Indices = NDArray[np.integer[Any]]

ERROR = {"float32": 1e-7, "float64": 1e-12}  # bound of the relative error of a solved c
COARSE = 1e-4  # tolerance of a probe: far below its noise
EXACT = 256  # most popular items, whose c is solved for exactly
PROBES = 128


def fitted(items: int, diagonal: bool) -> int:
    """Number of columns that a fit solves for: the certificate, and the diagonal."""
    return min(items, 8) + (min(items, EXACT + PROBES) if diagonal else 0)


@dataclass(frozen=True)
class Diagonal:
    """c = diag C, and the standard error of each entry: 0 where it was solved for."""

    values: Float64
    errors: Float64

    @property
    def deviation(self) -> float:
        """The largest standard error, relative."""
        return float((self.errors / self.values).max(initial=0.0))


def exact_diagonal(
    system: matrix_free.System, items: Indices, threads: int, stage: Stage = silent
) -> tuple[Float64, bool]:
    """c of some items from their columns of C, to the relative error ERROR; and whether all solves converged.

    With r = e_j − (S + Λ)z, c_j = z_j + zᵀr + rᵀCr, and rᵀCr ≤ ‖r‖²/min ℓ: half the digits of z are enough.
    """
    out, converged = np.empty(len(items)), True
    error, least = ERROR[system.dtype], system.penalties.min()
    for start in range(0, len(items), system.width):
        batch = np.asarray(items[start : start + system.width])
        tolerance = np.sqrt(error * least / system.diagonal[batch])
        solved = matrix_free.solve(
            system, matrix_free.units(batch, len(system.penalties)), tolerance=tolerance, threads=threads
        )
        out[start : start + len(batch)] = solved.columns[batch, np.arange(len(batch))] + solved.products
        converged &= solved.converged
        del solved  # else it would stay in memory beside the next one
        stage("diagonal", len(batch))
    return np.clip(out, 1 / system.diagonal[items], 1 / system.penalties[items]), converged


def diagonal(
    system: matrix_free.System,
    *,
    exact: int | None = None,
    number: int | None = None,
    seed: int = 0,
    threads: int = 1,
    stage: Stage = silent,
) -> Diagonal:
    """c: solved for the `exact` (EXACT) most popular items, estimated by `number` (PROBES) probes for the others.

    Where there are at most as many items as columns to solve, all are solved for.
    """
    exact, number = EXACT if exact is None else exact, PROBES if number is None else max(3, number)
    values, errors = 1 / system.penalties, np.zeros(len(system.penalties))  # an item without events: 1/ℓ
    live = np.flatnonzero(system.d)
    order = live[np.argsort(-system.d[live], kind="stable")]
    first = order if len(order) <= exact + number else order[:exact]
    values[first] = exact_diagonal(system, first, threads, stage)[0]
    others = np.sort(order[len(first) :])
    if len(others):
        values[others], errors[others] = _estimate(system, others, number, seed, threads, stage)
    return Diagonal(values, errors)


def _estimate(
    system: matrix_free.System, items: Indices, number: int, seed: int, threads: int, stage: Stage
) -> tuple[Float64, Float64]:
    """Means of v_j·(C(s∘v))_j/s_j over the probes, corrected by the control variate, and their standard errors."""
    rng = np.random.default_rng(seed)
    scale = np.sqrt(system.diagonal[items])
    moments = _Moments(len(items))
    for start in range(0, number, system.width):
        size = min(system.width, number - start)
        signs = rng.integers(0, 2, (size, len(items)), dtype=np.int8) * 2 - 1
        right = matrix_free.ScaledSigns(signs, scale, items, (size, len(system.penalties)))
        columns = matrix_free.solve(system, right, tolerance=COARSE, threads=threads).columns
        for first in range(0, size, matrix_free.SLAB):
            slab = slice(first, min(first + matrix_free.SLAB, size))
            first_order = _off_diagonal_products(system, items, signs[slab].T / scale[:, None], threads)
            sign = signs[slab].T / scale[:, None]
            moments.add(sign * columns[items, slab], sign * first_order / system.diagonal[items][:, None])
        del columns  # else they would stay in memory beside the next ones
        stage("diagonal", size)
    mean, errors = moments.estimate()
    return np.clip(mean, 1 / system.diagonal[items], 1 / system.penalties[items]), errors


def _off_diagonal_products(system: matrix_free.System, items: Indices, block: Float64, threads: int) -> Float64:
    """The rows of some items of (S − diag d)·block, for a block that is 0 on all other items."""
    whole = np.zeros((len(system.penalties), block.shape[1]))
    whole[items] = block
    return np.asarray(system.apply(whole, threads)[0][items] - system.diagonal[items][:, None] * block)


class _Moments:
    """Running means and covariances of samples and of a control variate with mean 0 (Welford's algorithm)."""

    def __init__(self, size: int) -> None:
        self.number = 0
        self.mean, self.control_mean = np.zeros(size), np.zeros(size)
        self.squares, self.products, self.control_squares = (np.zeros(size) for _ in range(3))  # sums, centred

    def add(self, samples: Float64, controls: Float64) -> None:
        """Add columns of samples, one at a time, with their control variates."""
        for sample, control in zip(samples.T, controls.T, strict=True):
            self.number += 1
            step, control_step = sample - self.mean, control - self.control_mean
            self.mean += step / self.number
            self.control_mean += control_step / self.number
            self.squares += step * (sample - self.mean)
            self.products += step * (control - self.control_mean)
            self.control_squares += control_step * (control - self.control_mean)

    def estimate(self) -> tuple[Float64, Float64]:
        """The mean corrected by regression on the control variate, and its standard error."""
        varies = self.control_squares > 0
        slope = np.divide(self.products, self.control_squares, out=np.zeros_like(self.products), where=varies)
        remaining = np.maximum(self.squares - slope * self.products, 0.0)
        return self.mean - slope * self.control_mean, np.sqrt(remaining / (self.number * (self.number - 2)))


def warm(matrix: Csr, dtype: str, kernel: TimeKernel | None = None) -> None:
    """Compile the kernels of a fit on very small data."""
    system = matrix_free.System(matrix, np.ones(matrix.shape[1]), dtype, kernel)
    _estimate(system, np.arange(matrix.shape[1]), 3, 0, 1, silent)
    matrix_free.certificate(system, tolerance=0.1)
