"""A log that goes on: users come, go, or do more; items join the catalogue."""

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
    """A log after a change: the rows of the former log that went, and how many at the end of the new one came."""

    log: Interactions
    gone: Indices
    come: int


def with_items(log: Interactions, ids: list[Any]) -> Interactions:
    """The same events, and items nobody used yet after the others."""
    items = log.items.extended(ids)
    arrays = (log.matrix.data, log.matrix.indices, log.matrix.indptr)
    return replace(log, matrix=sp.csr_array(arrays, shape=(log.n_users, len(items))), items=items)


def without_users(log: Interactions, gone: Indices) -> Changed:
    """The log as if some of its rows had never been in it; the catalogue stays."""
    stay = np.setdiff1d(np.arange(log.n_users), gone)
    matrix, times = _part(log, stay)
    if not matrix.nnz:
        raise DataError(
            f"without these {len(gone):,} users none of the log's {log.n_events:,} events is left to learn from; "
            "keep some users, or fit a new log"
        )
    return Changed(replace(log, matrix=matrix, users=log.users.part(stay), times=times), gone, 0)


def exchanged(log: Interactions, gone: Indices, more: Interactions) -> Changed:
    """First some rows go, then another log comes, as one change: nobody need be left between the two."""
    if not len(gone):
        return with_users(log, more)
    then = with_users(_emptied(log, gone), more)  # who goes and comes again is among those who came
    stay = np.setdiff1d(np.arange(log.n_users), then.gone)
    left = np.flatnonzero(np.isin(stay, gone))
    last = without_users(then.log, left).log if len(left) else then.log
    return Changed(last, np.union1d(gone, then.gone), then.come)


def _emptied(log: Interactions, rows: Indices) -> Interactions:
    """The log with some rows that have no events."""
    matrix = log.matrix
    keep = ~np.isin(rows_of(matrix), rows)
    counts = np.diff(matrix.indptr)
    counts[rows] = 0
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(matrix.indptr.dtype)
    arrays = (matrix.data[keep], matrix.indices[keep], pointers)
    times = None if log.times is None else log.times[keep]
    return replace(log, matrix=sp.csr_array(arrays, shape=matrix.shape), times=times)


def with_users(log: Interactions, more: Interactions) -> Changed:
    """Both logs in one; the items used in the second must be known to the first (see `with_items`).

    New users come after the others, in the order of their log. What is new of a known user is merged with their row as
    the first log merges, and the row moves to the end with them. Times stay where both logs have them.
    """
    places = log.users.index(more.users)
    active = np.flatnonzero((places < 0) | (np.diff(more.matrix.indptr) > 0))  # nothing new of a known user: no change
    places = places[active]
    old = np.flatnonzero(places >= 0)
    gone, stay = np.sort(places[old]), np.setdiff1d(np.arange(log.n_users), places[old])
    timed = log.times is not None and more.times is not None
    before, first = _part(log, places[old])
    after, then = _part(more, active)
    rows = np.concatenate([old[rows_of(before)], rows_of(after)]).astype(np.int32)
    items = np.concatenate([before.indices, log.items.index(more.items)[after.indices]]).astype(np.int32)
    weights = np.concatenate([before.data, after.data])
    found = merged(
        rows,
        items,
        weights,
        np.concatenate([first, then]) if timed else None,
        len(active),
        log.merge == "binary",
    )
    matrix, times = _part(log, stay)
    matrix = sp.csr_array(sp.vstack([matrix, found.matrix(log.n_items)], format="csr"))
    users = log.users.part(stay).extended(more.users.ids(active))
    both = np.concatenate([times, found.times]) if timed else None
    return Changed(replace(log, matrix=matrix, users=users, times=both), gone, len(active))


def _part(log: Interactions, rows: Indices) -> tuple[Any, Any]:
    """Some rows, in their order, and the times of their events."""
    matrix = log.matrix[rows]
    if log.times is None:
        return matrix, None
    places = sp.csr_array((np.arange(log.n_events), log.matrix.indices, log.matrix.indptr), shape=log.matrix.shape)
    return matrix, log.times[places[rows].data]
