"""The weight of a history's own items, for sessions, music and groceries, where items are used again."""

from __future__ import annotations

from dataclasses import dataclass

from monogram.models.heads import Repeated
from monogram.models.parameters import param
from monogram.weights.common import Head


@dataclass(kw_only=True, eq=False)
class RepeatParameter:
    """A parameter that raises the score of each item of a history by a multiple of its weight in the history."""

    repeat: float = param(
        0.0, "weight of a history's own items, for lists with exclude_seen=False", low=0, high=1e6, seldom=True
    )

    def with_repeat(self, head: Head) -> Head:
        """The head with `repeat` added to the diagonal of the weights."""
        return Repeated(head, self.repeat) if self.repeat else head
