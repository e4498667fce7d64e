"""Events and wishes to be forgotten, stored durably, in one order.

Every row has a number. A row without an item is the wish to forget a user: the user's rows before it are deleted in the
same transaction, and the wish stays, so that a model fitted later on an older log forgets the user too. The last row is
never deleted (a wish comes after what it deletes), so a number is never given twice.

One thread writes. What several requests bring while it is busy is one transaction: one sync to the disk for all, and
each is answered after it.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from monogram.server.updates.database import Database, Row, connect

MAX_BATCHED = 100  # requests in one transaction, at most
NO_LIMIT = 2**62  # changes: no limit
TABLES = (
    "CREATE TABLE IF NOT EXISTS monogram_store (id TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS monogram_events (seq BIGINT PRIMARY KEY, user_id TEXT NOT NULL, item TEXT, "
    "weight DOUBLE PRECISION, time DOUBLE PRECISION, received DOUBLE PRECISION NOT NULL)",
    "CREATE INDEX IF NOT EXISTS monogram_events_user ON monogram_events (user_id)",
)


@dataclass(frozen=True)
class Change:
    """An event, or, without an item, the wish to forget the user; the number is given when it is stored."""

    user: str
    item: str | None = None
    weight: float = 1.0
    time: float | None = None
    seq: int = 0


class EventStore:
    """The table of events. One connection writes, another reads: each for one thread."""

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
        if not self._writes.run("SELECT id FROM monogram_store"):
            self._writes.run("INSERT INTO monogram_store (id) VALUES (?)", (secrets.token_hex(16),))
        self.id: str = self._writes.run("SELECT id FROM monogram_store")[0][0]
        self.last = self._last()

    def _last(self) -> int:
        return int(self._writes.run("SELECT COALESCE(MAX(seq), 0) FROM monogram_events")[0][0])

    def write(self, requests: Sequence[Sequence[Change]]) -> list[int]:
        """Store the changes of several requests in one transaction; the last number of each, once all are durable."""
        numbers, forgotten, now = [], False, time.time()
        with self._writes.transaction():
            last = self._last()
            for changes in requests:
                rows = []
                for change in changes:
                    last += 1
                    rows.append((last, change.user, change.item, change.weight, change.time, now))
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
                "INSERT INTO monogram_events (seq, user_id, item, weight, time, received) VALUES (?, ?, ?, ?, ?, ?)",
                rows,
            )

    def _delete(self, user: str, before: int) -> None:
        self._writes.run("DELETE FROM monogram_events WHERE user_id = ? AND seq < ?", (user, before))

    def since(self, seq: int, most: int = 100_000) -> list[Change]:
        """The changes after a number, in their order, up to so many."""
        rows = self._reads.run(
            "SELECT user_id, item, weight, time, seq FROM monogram_events WHERE seq > ? ORDER BY seq LIMIT ?",
            (seq, most),
        )
        return [Change(*row) for row in rows]

    def close(self) -> None:
        """Let go of the database."""
        self._reads.close()
        self._writes.close()


Waiting = tuple[Sequence[Change], "Future[int]"]


class EventWriter:
    """The thread that stores."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def submit(self, changes: Sequence[Change]) -> Future[int]:
        """Store changes; the future has their last number once they are durable."""
        future: Future[int] = Future()
        self._queue.put((changes, future))
        return future

    def stop(self) -> None:
        """Store what was submitted, and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            first = self._queue.get()
            taken = [] if first is None else [first]
            going = first is not None
            while going and len(taken) < MAX_BATCHED and not self._queue.empty():
                more = self._queue.get()
                going = more is not None
                taken += [] if more is None else [more]
            if taken:
                self._store(taken)

    def _store(self, taken: list[Waiting]) -> None:
        try:
            numbers = self.store.write([changes for changes, _ in taken])
        except Exception as error:  # each client is told
            for _, future in taken:
                future.set_exception(error)
            return
        for (_, future), number in zip(taken, numbers, strict=True):
            future.set_result(number)
