"""Histories as callers give them: lists of items, mappings from item to weight, or events with times; checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from monogram.data.interactions import Interactions
from monogram.data.spans import SECONDS
from monogram.engine.runtime.arrays import Float64
from monogram.errors import ParameterError
from monogram.ranking.ids import IdScalar, as_moment, as_python, id_list, is_matrix, short_repr, shorten
from monogram.ranking.recency import Recency

LARGEST = float(np.finfo(np.float32).max)
EVENT_FORM = '(item, time) or {"item": …, "time": …}'

# Item ids, oldest first; a weight for each, or None: every item counts 1; a time for each, or None.
History: TypeAlias = tuple[Sequence[Any], Float64 | None, Any]


def checked_histories(histories: Any, recency: Recency) -> list[History]:
    """The histories of a caller, each as ids, weights and times."""
    histories = as_python(histories)
    if is_matrix(histories):
        raise ParameterError(
            f"histories is a matrix ({type(histories).__name__}); expected a list of histories, each a list of item "
            "ids, or an Interactions: monogram.Interactions.from_csr(matrix, items=…)"
        )
    if isinstance(histories, str | Mapping) or not isinstance(histories, Iterable):
        raise ParameterError(
            f"histories = {short_repr(histories)}; expected a list of histories, each a list of item ids"
        )
    return [_checked(history, position, recency) for position, history in enumerate(histories)]


def histories_of(given: Interactions, recency: Recency, time_unit: str | None) -> list[History]:
    """The rows of an Interactions as histories, oldest first where the order counts.

    Parameters
    ----------
    time_unit : unit of the times that the caller's functions expect; None where it is not known
    """
    matrix, times = given.matrix, None
    if recency.active:
        positions = given.positions
        times = None if recency.span.in_events else given.latest
        units = given.unit_of_times, time_unit
        if times is not None and None not in units and units[0] != units[1]:
            times = times * (_seconds(units[0]) / _seconds(units[1]))
    histories: list[History] = []
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        places = np.arange(start, stop)
        if recency.active:
            places = places[np.argsort(positions[start:stop])]
        ids, weights = given.items.ids(matrix.indices[places]), matrix.data[places].astype(np.float64)
        histories.append((ids, weights, None if times is None else times[places]))
    return histories


def _seconds(unit: str | None) -> float:
    return 1e-9 if unit == "ns" else SECONDS[str(unit)]


def _checked(history: Any, position: int, recency: Recency) -> History:
    """The ids, weights and times of one history of a caller."""
    history = as_python(history)
    if isinstance(history, IdScalar) or not isinstance(history, Iterable) or is_matrix(history):
        raise ParameterError(
            f"history {position} is {short_repr(history)}; expected a list of item ids. For one history, write [[…]]"
        )
    if recency.active and isinstance(history, set | frozenset):
        raise ParameterError(
            f"history {position} is a set, which has no order, but the model weights events by their age; give a list, "
            "the oldest item first"
        )
    if isinstance(history, Mapping):
        return id_list(history, f"history {position}"), _weights(list(history.items()), position), None
    history = [as_python(entry) for entry in history]
    events = [isinstance(entry, Mapping | tuple) for entry in history]
    if not any(events):
        return id_list(history, f"history {position}"), None, None
    if not all(events):
        raise ParameterError(
            f"history {position} has items with times and items without; expected a time for each, as {EVENT_FORM}, or "
            "for none"
        )
    return _events([_event(entry, position) for entry in history], position)


def _event(entry: Any, position: int) -> tuple[Any, Any, Any]:
    """Item, time and weight of an event; the weight is None where the event has none."""
    if isinstance(entry, tuple):
        event = (*entry, None) if len(entry) == 2 else None
    else:
        complete = {"item", "time"} <= set(entry) <= {"item", "time", "weight"}
        event = (entry["item"], entry["time"], entry.get("weight")) if complete else None
    if event is None:
        raise ParameterError(
            f"history {position} holds {short_repr(entry)}; expected ids: strings, integers or UUIDs; or events with "
            f'times: {EVENT_FORM}, optionally with a "weight"'
        )
    return event


def _events(events: list[tuple[Any, Any, Any]], position: int) -> History:
    ids = id_list([item for item, _, _ in events], f"history {position}")
    weighted = [(id_, 1.0 if weight is None else weight) for id_, (_, _, weight) in zip(ids, events, strict=True)]
    weights = _weights(weighted, position) if any(weight is not None for _, _, weight in events) else None
    return ids, weights, [as_moment(time) for _, time, _ in events]


def _weights(weighted: Sequence[tuple[Any, Any]], position: int) -> Float64:
    weights = np.array([_number(value) for _, value in weighted], np.float64)
    for (item, value), weight in zip(weighted, weights, strict=True):
        if not 0 <= weight <= LARGEST:
            raise ParameterError(
                f"history {position} gives {shorten(item)} the weight {short_repr(value)}; "
                "expected a finite number of at least 0"
            )
    return weights


def _number(value: Any) -> float:
    """The value as a float; NaN where it is not a number."""
    try:
        return float(as_python(value))
    except (TypeError, ValueError, OverflowError):
        return np.nan
