"""The trend of each item of a log: how many of its events are recent, compared with all items."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monogram.data.interactions import Interactions
from monogram.data.moments import range_of
from monogram.data.spans import Span, in_unit_of, parse_span
from monogram.engine.gram import user_weights
from monogram.engine.runtime.arrays import Float64, Indices
from monogram.errors import DataError, Message, Option, warn

EVENTS = Span(10.0)  # half-life where a log has an order only
SHARE = 0.01  # of the time from the first to the last event of a log: the half-life where it has times
PRIOR = 1.0  # recent events, as many as expected, that are added to those of each item
FEWEST = 3  # recent events of a log of `MANY` events, below which there is a warning
MANY = 1000
SLAB = 1 << 20  # events at a time, to bound the memory


def item_trends(log: Interactions, half_life: str | None) -> Float64:
    """The trend of each item: its recent events, Σ 2^(−age/half-life), divided by as many as its events lead to expect.

    Expected of n events are n times the mean of all events. `PRIOR` events are added to both numbers, so that the trend
    of an item with few events is near 1. The age of an event is measured from the latest event of the log or, where the
    half-life is a number of events, from the latest event of the same user.

    Parameters
    ----------
    half_life : a span; None: a hundredth of the time of the log, or `EVENTS` where it has an order only
    """
    recent, counts = np.zeros(log.n_items), np.zeros(log.n_items)
    for part, ages in _ages(log, half_life):
        items = log.matrix.indices[part]
        recent += np.bincount(items, 0.5**ages, log.n_items)
        counts += np.bincount(items, minlength=log.n_items)
    return np.asarray((recent + PRIOR) / (recent.sum() / counts.sum() * counts + PRIOR))


def item_factors(counts: Float64, item_power: float, trend: float, log: Interactions, half_life: str | None) -> Float64:
    """The factor of each item's scores: max(users, ½)^item_power times its trend to the power `trend`."""
    factors = user_weights.popularity(counts, item_power)
    return factors * item_trends(log, half_life) ** trend if trend else factors


def check_trend(log: Interactions, half_life: str | None) -> None:
    """Raise DataError where the ages that a trend needs cannot be measured on a log."""
    next(_ages(log, half_life))


def halvings(log: Interactions, span: Span, name: str) -> Float64:
    """The factor 2^(−age/span) of each event of a log, by its age in time; `name` is the parameter, for messages."""
    newest, unit = _newest_and_unit(log, span, name)
    return np.asarray(0.5 ** ((newest - np.asarray(log.latest)) / unit))


def _ages(log: Interactions, half_life: str | None) -> Iterator[tuple[slice, Float64]]:
    """The ages of the events in half-lives, in slabs; nothing is computed before the first."""
    span = None if half_life is None else parse_span(half_life, "trend_half_life")
    slabs = (slice(start, start + SLAB) for start in range(0, log.n_events, SLAB))
    if (span is None and log.latest is None) or (span is not None and span.in_events):
        log.require_order("trend needs the order of events")
        positions, length = log.positions, (span or EVENTS).amount
        ends = np.diff(log.matrix.indptr) - 1
        for slab in slabs:
            yield slab, (ends[_users(log, slab)] - positions[slab]) / length
        return
    newest, unit = _newest_and_unit(log, span, "trend_half_life")
    for slab in slabs:
        yield slab, (newest - log.latest[slab]) / unit  # type: ignore[index]


def _users(log: Interactions, slab: slice) -> Indices:
    """The users of some events."""
    events = np.arange(slab.start, min(slab.stop, log.n_events))
    return np.asarray(np.searchsorted(log.matrix.indptr, events, side="right") - 1)


def _newest_and_unit(log: Interactions, span: Span | None, name: str) -> tuple[float, float]:
    """The latest time of a log, and a half-life in its unit of time; a warning where hardly any event is recent."""
    times = log.latest
    if times is None:
        order = ", only an order of the events of each user" if log.has_order else ""
        raise DataError(
            Message(
                f"{name} = '{span}' needs times, but this log has none{order}; name the column of times when "
                "it is read, with ",
                Option("time"),
                f", or leave {name} out",
            )
        )
    newest, oldest = float(times.max()), float(times.min())
    unit = in_unit_of(span, times, log.unit_of_times) if span else SHARE * (newest - oldest)
    _warn_of_a_late_time(log, newest, unit)
    return newest, unit or 1.0


def _warn_of_a_late_time(log: Interactions, newest: float, unit: float) -> None:
    """Warn where the latest events are so far from all others that they alone decide what is recent."""
    assert log.latest is not None
    recent = int((log.latest >= newest - 5 * unit).sum())
    if recent < FEWEST and log.n_events >= MANY:
        warn(
            f"only {recent} of {log.n_events:,} events are recent: the times of the log are {range_of(log)}. Is its "
            "latest time right? If it is, a longer half-life takes in more events"
        )
