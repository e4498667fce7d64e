"""Parts of a log: a selection of events, of users and items, or of those with enough events."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.errors import DataError, ParameterError

if TYPE_CHECKING:
    from monogram.data.interactions import Interactions

Mask = NDArray[np.bool_]


def rows_of(matrix: Any) -> NDArray[np.int64]:
    """The row of each stored entry."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def ranks(matrix: Any, key: NDArray[Any]) -> NDArray[np.int32]:
    """The rank of each stored entry among those of its row, by a key; equal keys keep the order of the columns."""
    places = np.lexsort((key, rows_of(matrix)))
    positions = np.empty(len(places), np.int32)
    positions[places] = np.arange(len(places)) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    return positions


def timing(data: Interactions, places: Any) -> dict[str, Any]:
    """The times and the order of some events of a log, as fields of `Interactions`."""
    fields = {name: getattr(data, name) for name in ("times", "last_times", "order")}
    return {name: None if values is None else values[places] for name, values in fields.items()}


def events(data: Interactions, keep: Mask) -> Interactions:
    """The same users and items, with the events where `keep` is true."""
    matrix = data.matrix
    counts = np.concatenate([[0], np.cumsum(keep)])
    pointers = counts[matrix.indptr].astype(matrix.indptr.dtype)
    part = sp.csr_array((matrix.data[keep], matrix.indices[keep], pointers), shape=matrix.shape)
    return replace(data, matrix=part, notes=(), skipped=0, **timing(data, keep))


def part_of(data: Interactions, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Interactions:
    """The users and items at these indices, with their events."""
    matrix = data.matrix
    place = np.full(data.n_items, -1, np.int64)
    place[columns] = np.arange(len(columns))
    chosen = np.zeros(data.n_users, np.bool_)
    chosen[rows] = True
    keep = chosen[rows_of(matrix)] & (place[matrix.indices] >= 0)
    inside = events(data, keep)
    pointers = np.concatenate([[0], np.cumsum(np.diff(inside.matrix.indptr)[rows])])
    indices = place[inside.matrix.indices].astype(matrix.indices.dtype)
    part = sp.csr_array((inside.matrix.data, indices, pointers), shape=(len(rows), len(columns)))
    users, items = type(data.users)(data.users.ids(rows)), type(data.items)(data.items.ids(columns))
    return replace(inside, matrix=part, users=users, items=items)


def at_least(data: Interactions, users: int, items: int) -> Interactions:
    """Users and items with at least so many events; see `Interactions.at_least`."""
    least = (_number("users", users), _number("items", items))
    rows, columns = rows_of(data.matrix), data.matrix.indices
    keep, before = np.ones(data.n_events, np.bool_), -1
    while before != (before := int(keep.sum())):
        by_user = np.bincount(rows[keep], minlength=data.n_users)
        by_item = np.bincount(columns[keep], minlength=data.n_items)
        keep &= (by_user >= least[0])[rows] & (by_item >= least[1])[columns]
    if not before:
        raise DataError(
            f"no users with at least {users} events and items with at least {items} remain; lower the limits"
        )
    filtered = part_of(data, np.flatnonzero(by_user), np.flatnonzero(by_item))
    note = (
        f"at least {users} events per user and {items} per item: {data.n_users - filtered.n_users:,} users and "
        f"{data.n_items - filtered.n_items:,} items removed"
    )
    return replace(filtered, notes=(*data.notes, note))


def _number(name: str, value: Any) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ParameterError(f"{name} = {value!r}; expected a whole number of at least 0")
    return number
