"""Probe items: the few columns on which an inverse or a solution is checked."""

from __future__ import annotations

import numpy as np

from monogram.engine.runtime.arrays import Float64, Indices


def probe_items(diagonal: Float64, number: int = 8) -> Indices:
    """A few items with events, at even quantiles of popularity, the most popular one included."""
    live = np.flatnonzero(diagonal)
    order = live[np.argsort(diagonal[live], kind="stable")]
    return order[np.unique(np.linspace(0, len(order) - 1, number).astype(int))] if len(order) else order
