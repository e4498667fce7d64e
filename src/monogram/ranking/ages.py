"""The ages of the events of histories, and the factors that follow from them: of users of the log, and of callers.

The age of an event is the number of events of the same history after it, or the time from it to the latest event of the
history, or to the time of asking. It is measured in the unit of a recency.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.moments import moment_in
from monogram.data.spans import in_unit_of, unix_unit
from monogram.engine.runtime.arrays import Float64, Indices
from monogram.errors import ParameterError
from monogram.ranking.events import EVENT_FORM
from monogram.ranking.ids import as_moment, short_repr
from monogram.ranking.recency import Recency

FEW = 256  # users up to whom the order of their events is computed without that of all events of the log
SMALLEST = float(np.finfo(np.float32).tiny)  # of a weight: a weight of 0 would be no event


@dataclass(frozen=True, eq=False)
class Aging:
    """The weighting of the events of histories by their age.

    Parameters
    ----------
    recency : the rule, which is active
    log : its times, or their order, are those of known users
    at : the time of asking, in the unit of the log's times; None: the latest event of each history
    """

    recency: Recency
    log: Interactions
    at: float | None = None

    @classmethod
    def of(cls, recency: Recency, log: Interactions, at: Any) -> Aging | None:
        """The weighting of a request; None where all events count the same, at any time of asking."""
        asked = None if at is None else _moment(at, log, "at = {}")
        if not recency.active:
            return None
        if asked is not None and recency.span.in_events:
            raise ParameterError(
                f"at = {short_repr(at)}, but the age of an event is a number of events ({recency.span}), at any time; "
                "leave out at, or use a model with half_life or recency_unit in time, such as '7d'"
            )
        return cls(recency, log, asked)

    def of_users(self, rows: Indices, places: Indices, ends: Indices) -> Float64:
        """The factors of events of the log.

        Parameters
        ----------
        rows : of the users in the log
        places : of their events in the arrays of the log, user by user
        ends : where the events of each user end in `places`
        """
        lengths = np.diff(ends, prepend=0)
        if self.recency.span.in_events:
            newest = np.repeat(lengths - 1, lengths)
            return self._factors((newest - self._positions(places, lengths)) / self.recency.span.amount)
        times = self._times[places]
        if self.at is not None:
            return self._factors((self.at - times) / self._unit)
        latest = np.maximum.reduceat(times, (ends - lengths)[lengths > 0]) if len(times) else times
        return self._factors((np.repeat(latest, lengths[lengths > 0]) - times) / self._unit)

    def _positions(self, places: Indices, lengths: Indices) -> NDArray[np.int32]:
        """The position of each event in its user's history."""
        log = self.log
        key = log.latest if log.order is None else log.order
        if len(lengths) > FEW or key is None:
            return log.positions[places]  # computed once; DataError for a log without order
        order = np.lexsort((key[places], np.repeat(np.arange(len(lengths)), lengths)))
        positions = np.empty(len(places), np.int32)
        positions[order] = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return positions

    def of_history(self, inverse: Indices, number: int, times: Any, position: int) -> Float64:
        """The factors of the items of a given history.

        Parameters
        ----------
        inverse : the item of each event, of `number` items; the events are in order, the oldest first
        times : of each event; None: not known
        position : of the history in the request
        """
        if times is not None:
            times = _moments(times, self.log, f"history {position} has the time {{}}")
        elif not self.recency.span.in_events and number:
            raise ParameterError(
                f"the age of an event is measured in time ({self.recency.span}), but history {position} has no times; "
                f"give its events as {EVENT_FORM}, or use a model whose recency counts events"
            )
        order = np.arange(len(inverse)) if times is None else np.argsort(times, kind="stable")
        last = np.empty(number, np.int64)  # the place of each item's last event
        last[inverse[order]] = np.arange(len(order))
        if self.recency.span.in_events:
            ages = np.empty(number)
            ages[np.argsort(last)] = np.arange(number)[::-1]
            return self._factors(ages / self.recency.span.amount)
        if times is None or not number:
            return np.ones(number)
        latest = times[order][last]
        reference = latest.max() if self.at is None else self.at
        return self._factors((reference - latest) / self._unit_of(times))

    def _factors(self, ages: Any) -> Float64:
        return self.recency.factors(ages)

    @property
    def _times(self) -> NDArray[Any]:
        latest = self.log.latest
        return self.log.on_time_axis(self.recency.span) if latest is None else latest  # DataError without times

    @cached_property
    def _unit(self) -> float:
        """The unit of age, in the unit of the log's times."""
        return in_unit_of(self.recency.span, self._times, self.log.unit_of_times)

    def _unit_of(self, times: NDArray[Any]) -> float:
        """The unit of age in that of given times: the log's, where it has times."""
        if self.log.latest is not None:
            return self._unit
        return in_unit_of(self.recency.span, times, unix_unit(times))


def weighted(weights: NDArray[np.float32], factors: Float64) -> NDArray[np.float32]:
    """Weights times factors; positive weights stay above 0, so that the items of a history stay the same."""
    return np.maximum(weights * factors, SMALLEST).astype(np.float32)


def _moments(values: Any, log: Interactions, subject: str) -> NDArray[Any]:
    """Times of a caller in the unit of the log's times; `subject` is what an error message says of one of them."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        values = np.array([_moment(value, log, subject) for value in values])
    elif len(values):
        for extreme in (values.min(), values.max()):
            _moment(extreme, log, subject)
    return np.asarray(values, np.float64 if values.dtype.kind == "f" else np.int64)


def _moment(value: Any, log: Interactions, subject: str) -> int | float:
    """A time of a caller, a date or a number, in the unit of the log's times."""
    return moment_in(log, as_moment(value), subject)
