"""Settings that follow from the train part of a data set, for rows with one weight for each direction (P1, table 3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.data.interactions import Interactions
from monogram.engine.runtime.arrays import Float64
from monogram.models.spectrum import Spectrum
from monogram.reproduce.paper import Settings

LEAST = 1e-6  # of a filter, so that its penalty is finite


def weighted_lrr(log: Interactions, settings: Settings) -> dict[str, Any]:
    """Parameters of `LRR`: a penalty for each direction, from the filter of `leave_own_out`.

    Parameters
    ----------
    settings : `rank`, and `l2` of `leave_own_out`
    """
    sigma, l2 = _directions(log, settings)
    return {"rank": len(sigma), "l2": tuple(map(float, l2))}


def sorted_vlae(log: Interactions, settings: Settings) -> dict[str, Any]:
    """Parameters of `VLAE`: the penalties of `weighted_lrr` mapped to weights; VLAE then sorts them.

    Parameters
    ----------
    settings : as for `weighted_lrr`
    """
    sigma, l2 = _directions(log, settings)
    return {"rank": len(sigma), "weights": tuple(map(float, lrr_as_vlae(sigma, l2)))}


def lrr_as_vlae(sigma: Float64, l2: Float64) -> Float64:
    """The weights with which VLAE, unsorted, has the filter of LRR: λ_i = σ_i·l2_i/(σ_i² + l2_i) (proposition 1)."""
    return np.asarray(sigma * l2 / (sigma**2 + l2))


def leave_own_out(vectors: Float64, sigma: Float64, counts: Float64, l2: float) -> Float64:
    """The filter f that minimises ‖X − X·(W − diag W)‖² + l2·‖W − diag W‖² over W = V·diag(f)·Vᵀ.

    That is the objective of EDLAE (Steck 2020, eq. 10) on the directions V: no event predicts itself. It is quadratic
    in f: with Q = V∘V and M = QᵀQ, (diag(σ²) − M∘(σ_i² + σ_j²) + Qᵀ·diag(d)·Q + l2·(I − M))·f = σ² − Qᵀd.

    Parameters
    ----------
    vectors, sigma : V and σ, singular pairs of X
    counts : d, the diagonal of XᵀX
    """
    squares = vectors**2
    overlap = squares.T @ squares
    energy = sigma**2
    quadratic = (
        np.diag(energy + l2) - overlap * (energy[:, None] + energy + l2) + squares.T @ (counts[:, None] * squares)
    )
    return np.asarray(np.linalg.solve(quadratic, energy - squares.T @ counts))


def _directions(log: Interactions, settings: Settings) -> tuple[Float64, Float64]:
    """The singular values, and the penalty of LRR for each, from a filter cut to what LRR and VLAE can have."""
    spectrum = Spectrum(log, int(settings["rank"]))
    sigma = np.asarray(spectrum.values, np.float64)
    counts = np.asarray(log.matrix.power(2).sum(axis=0), np.float64).ravel()
    filters = leave_own_out(spectrum.vectors.astype(np.float64), sigma, counts, float(settings["l2"]))
    return sigma, np.asarray(sigma**2 * (1 / np.clip(filters, LEAST, 1.0) - 1))
