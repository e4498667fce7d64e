"""The split of session papers: every prefix of a test session predicts its next item."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.archive import Archive, is_sessions
from monogram.data.columns import ORDER
from monogram.data.held_out import Split
from monogram.data.interactions import Interactions
from monogram.data.options import check_part, check_repeats, check_share
from monogram.data.parts import events as events_where
from monogram.data.parts import part_of, rows_of
from monogram.data.readers import as_interactions, read
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError, ParameterError, warn

VALIDATION = 0.1  # of the training sessions

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class _Events:
    """The events of sessions, by session, in each the oldest first; `places` are their entries in the merged log."""

    sessions: Indices
    items: Indices
    places: Indices | None = None

    def take(self, mask: NDArray[np.bool_]) -> _Events:
        return _Events(self.sessions[mask], self.items[mask], None if self.places is None else self.places[mask])


def sessions(
    log: Any, n_train: int | None = None, share: float = 0.2, part: str = "test", repeats: bool = True
) -> Split:
    """Hold out the latest sessions; every prefix of a test session predicts its next item.

    Each user of the log is one session. `histories` has a row for each session and prefix, in order, with repeats of an
    item at their last place; `targets` has the next item, whether seen or not. Items of the history are not left out of
    the lists, unless `repeats` is false.

    Parameters
    ----------
    log : a log with times or an order, or the npz file of one
        Of an npz file of sessions (arrays `user`, `item`, `n_train_users`) the rows are used, with their repeats. In an
        Interactions, repeats of an item within a session are one event, at the last place.
    n_train : number of training sessions, the first ones by their last time, without times in the order of their
        ids (numbers; texts warn); by default `n_train_users` of an npz file, else all but the last `share`
    share : share of the sessions that are held out
    part : "validation" holds out the latest tenth of the training sessions in place of the test sessions
    repeats : whether a prefix may predict an item that it contains; if not, such a prefix predicts nothing, and the
        items of a history are left out of its list
    """
    check_share(share)
    check_part(part)
    check_repeats(repeats)
    data = _read_sessions(log)
    events, stored = _rows_of_file(log, data)
    if events is None:
        events = _events(data)
    by_time = _by_time(data)
    train = _n_train(n_train, stored, share, data.n_users)
    if part == "validation":
        by_time = by_time[:train]
        train -= max(1, int(VALIDATION * train))
    if train < 1:
        raise DataError("sessions leaves no session to learn from in this log")
    training, testing = np.sort(by_time[:train]), np.sort(by_time[train:])
    return _split(data, events, training, testing, repeats)


def validation_sessions(split: Split) -> Split:
    """The latest tenth of the training sessions of a split by `sessions`, held out as its test sessions were.

    Equal to `sessions(log, part="validation")` of the log that was split.
    """
    data = split.train
    events = _events(data) if split.sequence is None else _Events(*split.sequence)
    by_time, train = _by_time(data), data.n_users - max(1, int(VALIDATION * data.n_users))
    if train < 1:
        raise DataError("sessions leaves no session to learn from in this log")
    return _split(data, events, np.sort(by_time[:train]), np.sort(by_time[train:]), not split.exclude_seen)


def _n_train(given: Any, stored: int | None, share: float, number: int) -> int:
    if given is None:
        given = stored if stored is not None else number - max(1, int(share * number))
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if not whole or not 0 < given < number:
        raise ParameterError(f"n_train = {given!r}; expected a number of sessions between 1 and {number - 1:,}")
    return int(given)


def _read_sessions(log: Any) -> Interactions:
    """The log; an npz file of sessions is in order, also where the items of every session are sorted."""
    data = as_interactions(log)
    if data.has_order or not isinstance(log, str | Path) or Path(log).suffix.lower() != ".npz":
        return data
    with Archive(Path(log).expanduser()) as archive:
        rows = is_sessions(archive)
    return read(log, time=ORDER, quiet=True) if rows else data


def _rows_of_file(log: Any, data: Interactions) -> tuple[_Events | None, int | None]:
    """The rows of an npz file of sessions, with repeats, and its number of training sessions."""
    if not isinstance(log, str | Path) or Path(log).suffix.lower() != ".npz":
        return None, None
    with Archive(Path(log).expanduser()) as archive:
        stored = archive.number("n_train_users") if "n_train_users" in archive.names else None
        if not {"user", "item"} <= set(archive.names) or data.order is None:
            return None, stored
        users, items = archive.get("user", "iu"), archive.get("item", "iu")
    order = np.argsort(users, kind="stable")
    return _Events(users[order].astype(np.int64), items[order].astype(np.int64)), stored


def _events(data: Interactions) -> _Events:
    """The events of a log in their order."""
    rows = rows_of(data.matrix)
    places = np.empty(data.n_events, np.int64)
    places[data.matrix.indptr[rows] + data.positions] = np.arange(data.n_events)
    return _Events(rows, data.matrix.indices[places].astype(np.int64), places)


def _by_time(data: Interactions) -> Indices:
    """The sessions by their last time, without times as they stand; the oldest first."""
    if data.latest is None:
        if isinstance(data.users[0], str):
            warn(
                "the log has no times, so its latest sessions are the last ones in the order of their ids, which are "
                f"texts: {data.users[0]!r} is taken as the oldest, {data.users[-1]!r} as the latest; name a column of "
                "times when the log is read, or number the sessions"
            )
        return np.arange(data.n_users)
    ends = np.full(data.n_users, -np.inf)
    np.maximum.at(ends, rows_of(data.matrix), data.latest)
    return np.argsort(ends, kind="stable")


def _split(data: Interactions, events: _Events, training: Indices, testing: Indices, repeats: bool) -> Split:
    every = np.arange(data.n_items)
    train = part_of(data, training, every)
    chosen = np.zeros(data.n_users, np.bool_)
    chosen[testing] = True
    held_out = events.take(chosen[events.sessions])
    lengths = np.bincount(held_out.sessions, minlength=data.n_users)
    if not train.n_events or not (lengths > 1).any():
        raise DataError(
            "sessions needs training sessions with events, and test sessions with two events or more: "
            f"{train.n_events:,} training events, {int((lengths > 1).sum()):,} such test sessions"
        )
    rows = np.concatenate([[0], np.cumsum(np.maximum(lengths - 1, 0))])  # the first prefix of each session
    starts = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.arange(len(held_out.sessions)) - starts[held_out.sessions]
    ids = _ids(data.users, np.maximum(lengths - 1, 0))
    histories = _prefixes(data, held_out, positions, lengths, rows, ids)
    targets = _targets(data, held_out.take(positions > 0), ids)
    if not repeats:
        targets = _unseen(targets, histories)
    sequence: tuple[Indices, Indices] | None = None
    if events.places is None:
        learned = events.take(np.isin(events.sessions, training))
        sequence = np.searchsorted(training, learned.sessions).astype(np.int64), learned.items
    return Split("sessions", train, histories, targets, exclude_seen=not repeats, sequence=sequence)


def _unseen(targets: Interactions, histories: Interactions) -> Interactions:
    """The targets that are not in their history."""
    asked, seen = (rows_of(log.matrix) * log.n_items + log.matrix.indices for log in (targets, histories))
    fresh = ~np.isin(asked, seen)
    if not fresh.any():
        raise DataError("sessions without repeats leaves nothing to predict: every next item is in its history")
    return events_where(targets, fresh)


def _ids(sessions: Vocabulary, counts: Indices) -> Vocabulary:
    """An id for each prefix: the session and the length of the prefix."""
    rows = np.repeat(np.arange(len(counts)), counts)
    lengths = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    names = np.unique(rows, return_inverse=True)
    texts = pa.array([str(session) for session in sessions.ids(names[0])], pa.string()).take(pa.array(names[1]))
    return Vocabulary(pc.binary_join_element_wise(texts, pa.array(lengths).cast(pa.string()), " / "))


def _prefixes(
    data: Interactions, events: _Events, positions: Indices, lengths: Indices, rows: Indices, ids: Vocabulary
) -> Interactions:
    """A row for each prefix; an item is in the prefixes that end before it occurs again, and each event once."""
    ends = lengths[events.sessions] - 1  # the longest prefix
    again = np.lexsort((positions, events.items, events.sessions))
    same = (np.diff(events.sessions[again]) == 0) & (np.diff(events.items[again]) == 0)
    following = again[1:][same]
    ends[again[:-1][same]] = np.minimum(ends[again[:-1][same]], positions[following])
    counts = ends - positions
    event = np.repeat(np.arange(len(counts)), counts)
    row = np.repeat(rows[events.sessions] + positions - np.cumsum(counts) + counts, counts) + np.arange(len(event))
    order = np.argsort(row * data.n_items + events.items[event])
    event, row = event[order], row[order]
    pointers = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(ids)))])
    return _log(data, events, event, pointers, ids, positions[event].astype(np.int32))


def _targets(data: Interactions, events: _Events, ids: Vocabulary) -> Interactions:
    """The next item of each prefix."""
    number = len(events.items)
    return _log(data, events, np.arange(number), np.arange(number + 1), ids, None)


def _log(
    data: Interactions, events: _Events, chosen: Indices, pointers: Indices, ids: Vocabulary, order: Any
) -> Interactions:
    """Some events as a log, with the weights and times of the merged log where they are events of it."""
    weights, times = np.ones(len(chosen), np.float32), None
    if events.places is not None:
        weights = data.matrix.data[events.places[chosen]]
        times = None if data.latest is None else data.latest[events.places[chosen]]
    matrix = sp.csr_array((weights, events.items[chosen], pointers), shape=(len(ids), data.n_items))
    return replace(data, matrix=matrix, users=ids, times=times, last_times=None, order=order, notes=(), skipped=0)
