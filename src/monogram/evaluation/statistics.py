"""Bootstrap intervals of means over users, and paired differences between models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monogram.engine.runtime.arrays import Float64

RESAMPLES = 1000


@dataclass(frozen=True)
class Difference:
    """The mean of a − b over the same users, with its 95% bootstrap interval and p-value.

    Attributes
    ----------
    value : the mean
    low, high : the 95% interval
    p : two-sided: twice the smaller share of resampled means on either side of 0
    """

    value: float
    low: float
    high: float
    p: float


def bootstrap(values: Float64, *, seed: int = 0, resamples: int = RESAMPLES) -> Float64:
    """Means of resampled users: resamples × columns, the same users for every column."""
    rng, users = np.random.default_rng(seed), len(values)
    means = np.empty((resamples, values.shape[1]))
    for k in range(resamples):  # one resample at a time needs no more memory than the values
        counts = np.bincount(rng.integers(0, users, users, dtype=np.int32), minlength=users)
        means[k] = counts @ values / users
    return means


def interval(means: Float64) -> tuple[Float64, Float64]:
    """The 95% interval of each column of resampled means."""
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return low, high


def paired(first: Float64, second: Float64, *, seed: int = 0, resamples: int = RESAMPLES) -> Difference:
    """Compare two models by their values on the same users."""
    differences = (first - second)[:, None]
    means = bootstrap(differences, seed=seed, resamples=resamples)
    low, high = interval(means)
    side = (min((means <= 0).sum(), (means >= 0).sum()) + 1) / (resamples + 1)
    return Difference(float(differences.mean()), float(low[0]), float(high[0]), float(min(1.0, 2 * side)))
