"""Changes of a log: added and removed users, new events of known users, new items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.merge import merged
from monogram.data.parts import rows_of
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
    return Changed(replace(log, matrix=matrix, users=log.users.part(stay), times=times), removed, 0)


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
    matrix = log.matrix
    keep = ~np.isin(rows_of(matrix), rows)
    counts = np.diff(matrix.indptr)
    counts[rows] = 0
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(matrix.indptr.dtype)
    arrays = (matrix.data[keep], matrix.indices[keep], pointers)
    times = None if log.times is None else log.times[keep]
    return replace(log, matrix=sp.csr_array(arrays, shape=matrix.shape), times=times)


def with_users(log: Interactions, more: Interactions) -> Changed:
    """Both logs in one; every item with events in the second must be an item of the first (see `with_items`).

    New users are appended in the order of their log. New events of a known user are merged with the user's row by the
    rule of the first log, and the row moves to the end too. Times are kept where both logs have times.
    """
    places = log.users.index(more.users)
    active = np.flatnonzero(
        (places < 0) | (np.diff(more.matrix.indptr) > 0)
    )  # known users without new events do not change
    places = places[active]
    old = np.flatnonzero(places >= 0)
    removed, stay = np.sort(places[old]), np.setdiff1d(np.arange(log.n_users), places[old])
    timed = log.times is not None and more.times is not None
    before, first = _part(log, places[old])
    after, then = _part(more, active)
    rows = np.concatenate([old[rows_of(before)], rows_of(after)]).astype(np.int32)
    items = np.concatenate([before.indices, log.items.index(more.items)[after.indices]]).astype(np.int32)
    weights = np.concatenate([before.data, after.data])
    added = merged(
        rows,
        items,
        weights,
        np.concatenate([first, then]) if timed else None,
        len(active),
        log.merge == "binary",
    )
    matrix, times = _part(log, stay)
    matrix = sp.csr_array(sp.vstack([matrix, added.matrix(log.n_items)], format="csr"))
    users = log.users.part(stay).extended(more.users.ids(active))
    all_times = np.concatenate([times, added.times]) if timed else None
    return Changed(replace(log, matrix=matrix, users=users, times=all_times), removed, len(active))


def _part(log: Interactions, rows: Indices) -> tuple[Any, Any]:
    """Some rows, in the order given, and the times of their events."""
    matrix = log.matrix[rows]
    if log.times is None:
        return matrix, None
    places = sp.csr_array((np.arange(log.n_events), log.matrix.indices, log.matrix.indptr), shape=log.matrix.shape)
    return matrix, log.times[places[rows].data]
