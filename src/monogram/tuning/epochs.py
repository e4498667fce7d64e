"""A setting watched while it is trained: measured after 1, 2, 4, 8, … epochs, and stopped where it falls behind."""

from __future__ import annotations

import math
from collections.abc import Callable

from monogram.models.context import Between
from monogram.weights import Weights


class Stopped(Exception):
    """Leaves a fit that is not worth its end; caught where settings are tried."""


class Watch:
    """What is seen of one setting while it is trained.

    Parameters
    ----------
    judge : receives the epochs done and the value they gave; whether to stop there

    Attributes
    ----------
    seen : (epochs done, value), in order; where the training came to its end, that too
    stopped : whether it was stopped before
    """

    def __init__(self, judge: Callable[[int, float], bool]) -> None:
        self._judge = judge
        self.seen: list[tuple[int, float]] = []
        self.stopped = False

    def between(self, value: Callable[[Weights], float]) -> Between:
        """What a fit calls between epochs; `value` measures weights."""

        def look(done: int, make: Callable[[], Weights]) -> None:
            if done.bit_count() == 1:  # a power of two
                self.stopped = self._note(done, value(make()))
                if self.stopped:
                    raise Stopped

        return look

    def end(self, done: int, value: float) -> None:
        """Note the value of the finished training."""
        self._note(done, value)

    def _note(self, done: int, value: float) -> bool:
        if not math.isfinite(value):
            return False
        self.seen.append((done, value))
        return self._judge(done, value)

    def words(self, epochs: int) -> str:
        """Where it was stopped, if it was."""
        if not self.stopped:
            return ""
        done, value = self.seen[-1]
        return f"stopped after {done} of {epochs} epochs at {value:.4f}"
