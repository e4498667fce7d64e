"""The validation part of a training: events cut from the log, on which the metric of early stopping is measured."""

from __future__ import annotations

from collections.abc import Callable

from monogram.data import splits
from monogram.data.held_out import Split
from monogram.data.interactions import Interactions
from monogram.errors import DataError
from monogram.evaluation import metrics
from monogram.evaluation.metrics import BY_USER
from monogram.evaluation.protocol import measure_weights
from monogram.weights import Weights


def cut(log: Interactions, share: float, seed: int) -> Split:
    """Hold out a random share of each user's events, at least one of two or more."""
    try:
        return splits.holdout(log, share=share, seed=seed)
    except DataError as error:
        raise DataError(f"{error}; patience=0 trains without a validation part") from error


def measure(split: Split, metric: str, threads: int) -> Callable[[Weights], float]:
    """The mean metric of weights on the held-out events."""
    parsed = metrics.parse(metric)

    def value(weights: Weights) -> float:
        by_user, catalogue = measure_weights(weights, split.train, split, (parsed,), threads)
        return float(by_user[:, 0].mean()) if parsed.name in BY_USER else catalogue[str(parsed)]

    return value
