"""Durable, ordered storage of events and of requests to forget a user.

Every row has a number. A row without an item is a request to forget a user: the earlier rows of the user are deleted in
the same transaction, and the request stays, so that a model fitted later on an older log forgets the user too. The last
row is never deleted (a request comes after the rows it deletes), so that no number is used twice.

One thread writes. Changes of several requests that arrive while it writes become one transaction, with one sync to the
disk; each request is acknowledged after it.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from monogram.errors import StorageError
from monogram.server.updates.database import Database, Row, connect

MAX_BATCHED = 100  # most requests in one transaction
UNKNOWN = ""  # the unit of a time that is a number without a known unit
NO_LIMIT = 2**62  # of the number of changes to read
TABLES = (
    "CREATE TABLE IF NOT EXISTS monogram_store (id TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS monogram_events (seq BIGINT PRIMARY KEY, user_id TEXT NOT NULL, item TEXT, "
    "weight DOUBLE PRECISION, time DOUBLE PRECISION, received DOUBLE PRECISION NOT NULL)",
    "CREATE INDEX IF NOT EXISTS monogram_events_user ON monogram_events (user_id)",
)


@dataclass(frozen=True)
class LogChange:
    """An event or, without an item, a request to forget the user.

    Parameters
    ----------
    time : of the event, in the unit `unit`; None where the client gave none
    seq, received : its number, and seconds since 1970 on arrival; both are set when it is stored
    unit : of the time: "s", "d" and so on, or `UNKNOWN` where the model's log did not say its unit
        None in an event that an earlier version stored: the unit of the log to which it is added.
    """

    user: str
    item: str | None = None
    weight: float = 1.0
    time: float | None = None
    seq: int = 0
    received: float = 0.0
    unit: str | None = None


class EventStore:
    """The table of events. One connection writes and another reads, each from one thread."""

    def __init__(self, url: str) -> None:
        self._writes: Database = connect(url)
        try:
            self._writes.lock()
        except BaseException:
            self._writes.close()
            raise
        self._reads: Database = connect(url)
        for statement in TABLES:
            self._writes.run(statement)
        self._add_units()
        if not self._writes.run("SELECT id FROM monogram_store"):
            self._writes.run("INSERT INTO monogram_store (id) VALUES (?)", (secrets.token_hex(16),))
        self.id: str = self._writes.run("SELECT id FROM monogram_store")[0][0]
        self.last = self._last()

    def _add_units(self) -> None:
        """Add the column of units to a table that an earlier version created."""
        try:
            self._writes.run("SELECT unit FROM monogram_events LIMIT 0")
        except StorageError:
            self._writes.run("ALTER TABLE monogram_events ADD COLUMN unit TEXT")

    def _last(self) -> int:
        return int(self._writes.run("SELECT COALESCE(MAX(seq), 0) FROM monogram_events")[0][0])

    def write(self, requests: Sequence[Sequence[LogChange]]) -> list[int]:
        """Store the changes of several requests in one transaction; the last number of each request."""
        numbers, forgotten, now = [], False, time.time()
        with self._writes.transaction():
            last = self._last()
            for changes in requests:
                rows = []
                for change in changes:
                    last += 1
                    rows.append((last, change.user, change.item, change.weight, change.time, now, change.unit))
                    if change.item is None:
                        self._insert(rows)
                        self._delete(change.user, last)
                        rows, forgotten = [], True
                self._insert(rows)
                numbers.append(last)
        self.last = last
        if forgotten:
            self._writes.purge()
        return numbers

    def _insert(self, rows: Sequence[Row]) -> None:
        if rows:
            self._writes.run_many(
                "INSERT INTO monogram_events (seq, user_id, item, weight, time, received, unit) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

    def _delete(self, user: str, before: int) -> None:
        self._writes.run("DELETE FROM monogram_events WHERE user_id = ? AND seq < ?", (user, before))

    def since(self, seq: int, most: int = 100_000) -> list[LogChange]:
        """The changes after a number, in order; at most `most` of them."""
        rows = self._reads.run(
            "SELECT user_id, item, weight, time, seq, received, unit FROM monogram_events WHERE seq > ? "
            "ORDER BY seq LIMIT ?",
            (seq, most),
        )
        return [LogChange(*row) for row in rows]

    def close(self) -> None:
        """Close the connections."""
        self._reads.close()
        self._writes.close()


Submitted = tuple[Sequence[LogChange], "Future[int]"]


class EventWriter:
    """The thread that stores changes."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self._queue: queue.SimpleQueue[Submitted | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def submit(self, changes: Sequence[LogChange]) -> Future[int]:
        """Store changes; the future has the number of the last one once they are durable."""
        future: Future[int] = Future()
        self._queue.put((changes, future))
        return future

    def stop(self) -> None:
        """Store the submitted changes, and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        running = True
        while running:
            first = self._queue.get()
            batch = [] if first is None else [first]
            running = first is not None
            while running and len(batch) < MAX_BATCHED and not self._queue.empty():
                more = self._queue.get()
                running = more is not None
                batch += [] if more is None else [more]
            if batch:
                self._store(batch)

    def _store(self, batch: list[Submitted]) -> None:
        try:
            numbers = self.store.write([changes for changes, _ in batch])
        except Exception as error:  # every client gets the error
            for _, future in batch:
                future.set_exception(error)
            return
        for (_, future), number in zip(batch, numbers, strict=True):
            future.set_result(number)
