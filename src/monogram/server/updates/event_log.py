"""Stored events as a log that can be added to the log of a model, with times and an order where that log has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.moments import SECOND
from monogram.data.spans import NANOSECONDS, in_unit_of
from monogram.engine.runtime.arrays import Float64
from monogram.errors import DataError
from monogram.server.updates.events import UNKNOWN, LogChange

LARGEST = 2.0**62  # of a time, before and after 0


def as_log(events: Sequence[LogChange], log: Interactions) -> Interactions:
    """Events, in the order of their arrival, as a log with the merge rule and the kinds of ids of another log.

    Where that log has times, those of the events are converted into its unit (DataError where one of the units is not
    known), and an event without one has the time at which it was received; events of the same time are in the order of
    their arrival. Where the log has an order alone, all are in that order, whatever their times.
    """
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    rows = np.array([users.setdefault(event.user, len(users)) for event in events], np.int64)
    columns = np.array([items.setdefault(str(event.item), len(items)) for event in events], np.int64)
    pairs, places = np.unique(rows * len(items) + columns, return_inverse=True)
    weights = np.bincount(places, [event.weight for event in events], len(pairs))
    pointers = np.searchsorted(pairs, np.arange(len(users) + 1) * len(items))
    matrix = sp.csr_array((weights, pairs % len(items), pointers), shape=(len(users), len(items)))
    ids = [log.users.same_kind(id_) for id_ in users], [log.items.same_kind(id_) for id_ in items]
    return replace(Interactions.from_csr(matrix, *ids, merge=log.merge), **_timing(events, log, places, len(pairs)))


def _timing(events: Sequence[LogChange], log: Interactions, places: NDArray[Any], size: int) -> dict[str, Any]:
    """First and last times and the order of pairs, as fields of `Interactions`; `places` has the pair of each event."""
    if not log.has_order:
        return {}
    arrival = np.zeros(size, np.int32)
    np.maximum.at(arrival, places, np.arange(len(events), dtype=np.int32))
    if log.times is None:
        return {"order": arrival}
    times = _times(events, log)
    first, last = np.full(size, times.max()), np.full(size, times.min())
    np.minimum.at(first, places, times)
    np.maximum.at(last, places, times)
    order = np.empty(size, np.int32)
    order[np.lexsort((arrival, last))] = np.arange(size)
    return {"times": first, "last_times": last, "order": order, "time_unit": log.unit_of_times}


def _times(events: Sequence[LogChange], log: Interactions) -> NDArray[Any]:
    """The times of events in the unit and the type of a log's times."""
    assert log.times is not None
    given = np.array([np.nan if event.time is None else event.time for event in events], np.float64)
    given *= _factors(events, log)
    missing = np.flatnonzero(np.isnan(given))
    if len(missing):
        given[missing] = _received([events[place].received for place in missing.tolist()], log)
    given = np.clip(given, -LARGEST, LARGEST)
    return (given if log.times.dtype.kind == "f" else np.rint(given)).astype(log.times.dtype)


def _factors(events: Sequence[LogChange], log: Interactions) -> Float64:
    """What the time of each event is multiplied with, for the unit of a log's times."""
    wanted = log.unit_of_times or UNKNOWN
    units = [wanted if event.time is None or event.unit is None else event.unit for event in events]
    unclear = [place for place, unit in enumerate(units) if unit != wanted and UNKNOWN in (unit, wanted)]
    if unclear:
        first, unit = events[unclear[0]], units[unclear[0]]
        advice = (
            "Fit the model again on a log with dates, or with the time_unit of its numbers, and reload"
            if unit
            else "Serve a model whose log has the same numbers as times, or start with a new database of events"
        )
        raise DataError(
            f"{len(unclear):,} stored events, the first of them number {first.seq}, have times that are "
            f"{_in_words(unit)}, but the times of the model's log are {_in_words(wanted)}; the events stay stored and "
            f"were not added. {advice}"
        )
    factors = {unit: 1.0 if unit == wanted else NANOSECONDS[unit] / NANOSECONDS[wanted] for unit in set(units)}
    return np.array([factors[unit] for unit in units])


def _in_words(unit: str) -> str:
    return f"in the unit {unit}" if unit else "numbers of an unknown unit"


def _received(seconds: Sequence[float], log: Interactions) -> Float64 | float:
    """Times of arrival in the unit of a log's times; where that unit is not known, the latest time of the log."""
    latest = log.latest
    assert latest is not None
    try:
        return np.array(seconds) * in_unit_of(SECOND, latest, log.unit_of_times)
    except DataError:
        return float(latest.max())
