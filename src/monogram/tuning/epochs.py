"""Observe the training of a setting: measure it after 1, 2, 4, 8, … epochs, and stop it early."""

from __future__ import annotations

import math
from collections.abc import Callable

from monogram.models.context import Between
from monogram.weights import Weights


class StoppedEarly(Exception):
    """Raised inside a fit to stop its training early; caught where settings are tried."""


class EpochObserver:
    """Measures one setting during its training.

    Parameters
    ----------
    should_stop : receives the number of epochs and the metric after them; whether to stop there

    Attributes
    ----------
    values : (epochs, metric) in order, the end of the training included
    stopped : whether the training was stopped early
    """

    def __init__(self, should_stop: Callable[[int, float], bool]) -> None:
        self._should_stop = should_stop
        self.values: list[tuple[int, float]] = []
        self.stopped = False

    def between(self, metric: Callable[[Weights], float]) -> Between:
        """The function that a fit calls between epochs; `metric` measures weights."""

        def observe(epochs: int, weights: Callable[[], Weights]) -> None:
            if epochs.bit_count() == 1:  # a power of two
                self.stopped = self._record(epochs, metric(weights()))
                if self.stopped:
                    raise StoppedEarly

        return observe

    def finish(self, epochs: int, value: float) -> None:
        """Record the metric at the end of the training."""
        self._record(epochs, value)

    def _record(self, epochs: int, value: float) -> bool:
        if not math.isfinite(value):
            return False
        self.values.append((epochs, value))
        return self._should_stop(epochs, value)

    def note(self, most_epochs: int) -> str:
        """Where the training was stopped; empty where it was not."""
        if not self.stopped:
            return ""
        epochs, value = self.values[-1]
        return f"stopped after {epochs} of {most_epochs} epochs at {value:.4f}"
