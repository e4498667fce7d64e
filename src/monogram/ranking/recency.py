"""Recency: how much an event of a history counts, by its age at the time of asking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monogram.data.spans import EVENT, Span, parse_span
from monogram.engine.runtime.arrays import Float64
from monogram.errors import ParameterError


@dataclass(frozen=True)
class Recency:
    """The factor of an event of a history: (1 + age)^(−power), or 2^(−age/half_life); 1 for the latest event.

    Parameters
    ----------
    power : 0: all events count the same
    unit : of the age; by default events: the latest event of the history has age 0, the one before it age 1
    half_life : the age at which an event counts half; None: `power` applies
    """

    power: float = 0.0
    unit: Span = EVENT
    half_life: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", parse_span(self.unit, "recency_unit"))
        if self.half_life is not None:
            object.__setattr__(self, "half_life", parse_span(self.half_life, "half_life"))
            if self.power:
                raise ParameterError(
                    f"recency = {self.power:g} and half_life = '{self.half_life}' were both given; expected one of them"
                )

    @property
    def active(self) -> bool:
        """Whether events count differently."""
        return self.power != 0 or self.half_life is not None

    @property
    def span(self) -> Span:
        """The unit of the ages that `factors` takes."""
        return self.unit if self.half_life is None else self.half_life

    @property
    def setting(self) -> str:
        """The parameter that sets the rule, and its value, for a message."""
        if self.half_life is not None:
            return f"half_life = '{self.half_life}'"
        return f"recency = {self.power:g} in units of {self.unit}"

    def factors(self, ages: Float64) -> Float64:
        """The factor at ages, in units of `span`; an age below 0 counts as 0."""
        ages = np.maximum(ages, 0.0)
        return np.asarray((1.0 + ages) ** -self.power if self.half_life is None else 0.5**ages)


NO_RECENCY = Recency()
