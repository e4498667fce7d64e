"""A small interface to SQLite and PostgreSQL; the SQL statements are the same for both."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from monogram.errors import MissingExtraError, ParameterError, StorageError

Row = tuple[Any, ...]


class Database(Protocol):
    """A connection, used by one thread at a time. Statements have `?` as the placeholder of values."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and return its rows."""

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run a statement for each row."""

    def transaction(self) -> Any:
        """A context manager: committed durably at its end, or rolled back."""

    def lock(self) -> None:
        """Take the lock of the only writer; raise where another process has it."""

    def purge(self) -> None:
        """Remove deleted rows from the files, as far as the database can."""

    def close(self) -> None:
        """Close the connection."""


def connect(url: str) -> Database:
    """A connection to an SQLite file by its path, or to PostgreSQL by its URL."""
    if url.startswith(("postgresql://", "postgres://")):
        return Postgres(url)
    if "://" in url:
        raise ParameterError("events are stored in an SQLite file or at postgresql://…; the URL has another scheme")
    return Sqlite(url)


@contextmanager
def _storage() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"the events cannot be stored or read: {error}; check the disk and the folder") from error


class Sqlite:
    """SQLite with WAL and a full sync at each commit: commits survive a crash of the process or the machine."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock: Any = None
        with _storage():
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            for setting in ("journal_mode=WAL", "synchronous=FULL", "fullfsync=ON", "secure_delete=ON"):
                self._connection.execute(f"PRAGMA {setting}")

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """See `Database`."""
        with _storage():
            return self._connection.execute(sql, values).fetchall()

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """See `Database`."""
        with _storage():
            self._connection.executemany(sql, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Database`."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def lock(self) -> None:
        """See `Database`."""
        import fcntl

        try:
            self._lock = open(f"{self.path}.lock", "w")  # noqa: SIM115  (held as long as the connection)
        except OSError as error:
            raise StorageError(f"{self.path}.lock cannot be created: {error.strerror}; check the folder") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise StorageError(
                f"{self.path} is in use by another server; only one process stores events; stop that server first"
            ) from error

    def purge(self) -> None:
        """See `Database`: deleted bytes are overwritten (secure_delete), and the write-ahead log is truncated."""
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """See `Database`."""
        self._connection.close()
        if self._lock is not None:
            self._lock.close()


class Postgres:
    """PostgreSQL; a lost connection is opened again, and what was not committed is an error for its client."""

    LOCK = 0x6D6F6E6F  # "mono"

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtraError("events in PostgreSQL need psycopg: pip install 'monogram[postgres]'") from error
        self._psycopg, self._url, self._locked = psycopg, url, False
        self._connection: Any = None
        self._open()

    def _open(self) -> Any:
        if self._connection is None or self._connection.closed:
            with self._storage():
                self._connection = self._psycopg.connect(self._url, autocommit=True)
            self._connection.execute("SET synchronous_commit = on")
            if self._locked:
                self.lock()
        return self._connection

    @contextmanager
    def _storage(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            if isinstance(error, self._psycopg.OperationalError) and self._connection is not None:
                self._connection.close()
            # The message of psycopg may contain the address and the user of the database.
            raise StorageError(
                f"the database of events failed ({type(error).__name__}); check that it runs and accepts this server"
            ) from error

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """See `Database`."""
        connection = self._open()
        with self._storage():
            cursor = connection.execute(sql.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description is not None else []

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """See `Database`."""
        connection = self._open()
        with self._storage(), connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Database`."""
        connection = self._open()
        with self._storage(), connection.transaction():
            yield

    def lock(self) -> None:
        """See `Database`."""
        self._locked = True
        if self.run("SELECT pg_try_advisory_lock(?)", (self.LOCK,)) != [(True,)]:
            raise StorageError("the database of events is in use by another server; stop that one first")

    def purge(self) -> None:
        """See `Database`: PostgreSQL removes deleted rows by its automatic vacuum."""

    def close(self) -> None:
        """See `Database`."""
        self._connection.close()
