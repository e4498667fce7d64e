"""The validation part of a training: events cut from the log, on which the metric of early stopping is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from monogram.data import splits
from monogram.data.held_out import Split
from monogram.data.interactions import Interactions
from monogram.errors import DataError
from monogram.evaluation import metrics
from monogram.evaluation.metrics import BY_USER
from monogram.evaluation.protocol import measure_weights
from monogram.ranking import NO_RECENCY, Recency
from monogram.weights import Weights


@dataclass(frozen=True)
class ValidationPart:
    """The split of the log on which the metric is measured, and how it was cut, as a phrase."""

    split: Split
    how: str


def cut(log: Interactions, share: float, seed: int) -> ValidationPart:
    """Hold out a share of each user's events: the latest where the log has an order, else random ones.

    The latest are those of `splits.latest`, at least one of five or more; random ones at least one of two or more.
    """
    part, advice = f"{100 * share:g}% of each user's events", "patience=0 trains without a validation part"
    if not log.has_order:
        try:
            split = splits.holdout(log, share=share, seed=seed)
        except DataError as error:
            raise DataError(f"{error}; {advice}") from error
        return ValidationPart(split, f"a random {part} (the log has no order)")
    try:
        split = splits.latest(log, share=share)
        return ValidationPart(split, f"the latest {part} ({split.histories.n_users:,} users)")
    except DataError as error:
        raise DataError(f"{error}: of users with fewer than five events none is held out; {advice}") from error


def measure(split: Split, metric: str, threads: int, recency: Recency = NO_RECENCY) -> Callable[[Weights], float]:
    """The mean metric of weights on the held-out events, with histories weighted as in the lists of the model."""
    parsed = metrics.parse(metric)

    def value(weights: Weights) -> float:
        by_user, catalogue = measure_weights(weights, split.train, split, (parsed,), threads, recency)
        return float(by_user[:, 0].mean()) if parsed.name in BY_USER else catalogue[str(parsed)]

    return value
