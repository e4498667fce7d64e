"""Changes of a log: added and removed users, new events of known users, new items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.merge import Merged, merged
from monogram.data.parts import events, ranks, rows_of, timing
from monogram.data.spans import in_common_unit
from monogram.errors import DataError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Changed:
    """A log after a change.

    Attributes
    ----------
    log : the new log
    removed_rows : rows of the former log that are not in the new one, or moved to its end
    n_added : number of rows at the end of the new log that are new or changed
    """

    log: Interactions
    removed_rows: Indices
    n_added: int


def with_items(log: Interactions, ids: list[Any]) -> Interactions:
    """The same events, with items without events appended to the catalogue."""
    items = log.items.extended(ids)
    arrays = (log.matrix.data, log.matrix.indices, log.matrix.indptr)
    return replace(log, matrix=sp.csr_array(arrays, shape=(log.n_users, len(items))), items=items)


def without_users(log: Interactions, removed: Indices) -> Changed:
    """The log without some of its rows; the items stay the same."""
    stay = np.setdiff1d(np.arange(log.n_users), removed)
    matrix, times = _part(log, stay)
    if not matrix.nnz:
        raise DataError(
            f"without these {len(removed):,} users none of the log's {log.n_events:,} events is left to learn from; "
            "keep some users, or fit a new log"
        )
    return Changed(replace(log, matrix=matrix, users=log.users.part(stay), **times), removed, 0)


def exchanged(log: Interactions, removed: Indices, more: Interactions) -> Changed:
    """Remove rows and add another log in one change, which may replace every user."""
    if not len(removed):
        return with_users(log, more)
    then = with_users(_emptied(log, removed), more)  # a user who is removed and added again counts as added
    stay = np.setdiff1d(np.arange(log.n_users), then.removed_rows)
    left = np.flatnonzero(np.isin(stay, removed))
    last = without_users(then.log, left).log if len(left) else then.log
    return Changed(last, np.union1d(removed, then.removed_rows), then.n_added)


def _emptied(log: Interactions, rows: Indices) -> Interactions:
    """The log with the events of some rows removed; the rows stay."""
    return replace(events(log, ~np.isin(rows_of(log.matrix), rows)), notes=log.notes, skipped=log.skipped)


def with_users(log: Interactions, more: Interactions) -> Changed:
    """Both logs in one; every item with events in the second must be an item of the first (see `with_items`).

    New users are appended in the order of their log. New events of a known user are merged with the user's row by the
    rule of the first log, and the row moves to the end too. Times are kept where both logs have times, in the unit of
    the first, and the order of events where both have an order: new events come after the old ones of the same time,
    and without times after all old ones.
    """
    places = log.users.index(more.users)
    active = np.flatnonzero(
        (places < 0) | (np.diff(more.matrix.indptr) > 0)
    )  # known users without new events do not change
    places = places[active]
    old = np.flatnonzero(places >= 0)
    removed, stay = np.sort(places[old]), np.setdiff1d(np.arange(log.n_users), places[old])
    log, more = _with_common_times(log, more)
    (before, first), (after, then) = _part(log, places[old]), _part(more, active)
    rows = np.concatenate([old[rows_of(before)], rows_of(after)]).astype(np.int32)
    items = np.concatenate([before.indices, log.items.index(more.items)[after.indices]]).astype(np.int32)
    weights = np.concatenate([before.data, after.data])
    numbers = None
    if log.has_order:
        numbers = np.concatenate([_ranks(before, first), before.nnz + _ranks(after, then)])
    times, last_times = (_both(first, then, name) for name in ("times", "latest"))
    size, binary = len(active), log.merge == "binary"
    added = merged(rows, items, weights, times, size, binary, last_times=last_times, numbers=numbers)
    matrix, at = _part(log, stay)
    added_matrix = added.matrix(log.n_items)
    fields = _stacked((matrix, at), (added_matrix, _timing_of(added)))
    matrix = sp.csr_array(sp.vstack([matrix, added_matrix], format="csr"))
    users = log.users.part(stay).extended(more.users.ids(active))
    return Changed(replace(log, matrix=matrix, users=users, **fields), removed, len(active))


def _with_common_times(log: Interactions, more: Interactions) -> tuple[Interactions, Interactions]:
    """Both logs with times of one unit, both without times but with an order, or both without an order."""
    nothing: dict[str, Any] = {"times": None, "last_times": None, "order": None, "time_unit": None}
    if not (log.has_order and more.has_order):
        return replace(log, **nothing), replace(more, **nothing)
    if log.times is None or more.times is None:
        return replace(log, **nothing | {"order": _order(log)}), replace(more, **nothing | {"order": _order(more)})
    converted, unit = in_common_unit(more.times, more.time_unit, log.times, log.time_unit)
    last_times = more.last_times
    if last_times is not None:
        last_times = in_common_unit(last_times, more.unit_of_times, log.times, log.unit_of_times)[0]
    return replace(log, time_unit=unit), replace(more, times=converted, last_times=last_times, time_unit=unit)


def _order(log: Interactions) -> Any:
    return log.positions if log.order is None else log.order


def _timing_of(part: Merged) -> dict[str, Any]:
    return {"times": part.times, "last_times": part.last_times, "order": part.order}


def _latest(fields: dict[str, Any]) -> Any:
    return fields["times"] if fields["last_times"] is None else fields["last_times"]


def _ranks(matrix: Any, fields: dict[str, Any]) -> Any:
    """The position of each event in its user's history."""
    return ranks(matrix, _latest(fields) if fields["order"] is None else fields["order"])


def _both(first: dict[str, Any], second: dict[str, Any], name: str) -> Any:
    """The times, or the latest times, of the events of two logs; None where they have none."""
    values = [_latest(fields) if name == "latest" else fields[name] for fields in (first, second)]
    return None if values[0] is None else np.concatenate(values)


def _stacked(first: tuple[Any, dict[str, Any]], second: tuple[Any, dict[str, Any]]) -> dict[str, Any]:
    """The times and the order of two logs with different users, one below the other."""
    parts = (first, second)
    fields = dict.fromkeys(("times", "last_times", "order"))
    fields["times"] = _both(first[1], second[1], "times")
    if any(part["last_times"] is not None for _, part in parts):
        fields["last_times"] = _both(first[1], second[1], "latest")
    if any(part["order"] is not None for _, part in parts):
        orders = [_ranks(*part) if part[1]["order"] is None else part[1]["order"] for part in parts]
        fields["order"] = np.concatenate(orders)
    return fields


def _part(log: Interactions, rows: Indices) -> tuple[Any, dict[str, Any]]:
    """Some rows, in the order given, and the times and the order of their events."""
    matrix = log.matrix[rows]
    if not log.has_order:
        return matrix, timing(log, slice(None))
    places = sp.csr_array((np.arange(log.n_events), log.matrix.indices, log.matrix.indptr), shape=log.matrix.shape)
    return matrix, timing(log, places[rows].data)
