"""Rows of a log too large for memory: written to a temporary file in shards of users, and merged shard by shard.

The file has no name (or is unlinked at once), so that no file remains after a crash.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from monogram.data.merge import LogRows, Merged, MergedArrays, condensed, joined, keys_of, pairs, starts
from monogram.errors import StorageError

SHARD_BYTES = 2**25
_MOST_SHARDS = 4096  # with more shards, the writes to each become small
_DEFAULT_SHARDS = 256  # when the number of rows is not known in advance
MERGE_ROWS = 2**21  # rows of a shard that are read before they are merged


@dataclass(frozen=True)
class _Segment:
    """Position of rows in the file: `size` keys, then as many values of each field, unless its type is None."""

    start: int
    size: int
    types: tuple[Any, ...]


class SpillFile:
    """A temporary file of rows, in TMPDIR or the system's temporary folder.

    Parameters
    ----------
    need
        Bytes that may be written in total, for the message when the disk is full; 0 when unknown.
    """

    def __init__(self, need: int) -> None:
        self.need, self.end = need, 0
        self.folder = Path(os.environ.get("TMPDIR") or tempfile.gettempdir())
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115  # see close
        except OSError as error:
            raise self._disk_full(error) from error

    def close(self) -> None:
        """Close and thereby delete the file."""
        self._file.close()

    def write(self, rows: LogRows) -> _Segment:
        """Append rows; their position."""
        start, types = self.end, tuple(None if array is None else array.dtype for array in rows.fields)
        try:
            self._file.seek(start)
            for array in (rows.keys, *rows.fields):
                if array is not None:
                    self._put(np.ascontiguousarray(array).view(np.uint8).data)
        except OSError as error:
            raise self._disk_full(error) from error
        return _Segment(start, len(rows), types)

    def _put(self, content: memoryview) -> None:
        while content:
            written = self._file.write(content)
            self.end += written
            content = content[written:]

    def read(self, segment: _Segment) -> LogRows:
        """Read the rows at a position."""
        try:
            self._file.seek(segment.start)
            keys = self._get(segment.size, np.int64)
            return LogRows(
                keys, *(None if type_ is None else self._get(segment.size, type_) for type_ in segment.types)
            )
        except OSError as error:
            raise StorageError(
                f"the temporary file in {self.folder} cannot be read: {error.strerror or error}; try another TMPDIR."
            ) from error

    def _get(self, size: int, type_: Any) -> npt.NDArray[Any]:
        values = np.empty(size, dtype=type_)
        unread = values.view(np.uint8).data
        while unread:
            count = self._file.readinto(unread)  # type: ignore[attr-defined]  # unbuffered: a raw file
            if not count:
                raise OSError(errno.EIO, "the temporary file is truncated")
            unread = unread[count:]
        return values

    def _disk_full(self, error: OSError) -> StorageError:
        need = (
            f"up to {_megabytes(self.need)} are needed" if self.need else f"more than {_megabytes(self.end)} are needed"
        )
        try:
            free = f", {_megabytes(shutil.disk_usage(self.folder).free)} are free"
        except OSError:
            free = ""
        return StorageError(
            f"the log is too large to be merged in memory, and its rows cannot be written to {self.folder}: "
            f"{error.strerror or error} ({need}{free}). Free space there, or set TMPDIR to a folder with more space."
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


Watch = Callable[[Iterable[int], int], Iterator[int]]


class Spill:
    """Rows in shards of users: each block is merged when it is written, and each shard when all rows are written.

    Parameters
    ----------
    binary
        Whether every pair counts 1.
    width
        Bytes of a row in the file.
    expected
        Number of rows; None when unknown.
    """

    def __init__(self, binary: bool, width: int, expected: int | None) -> None:
        self.binary = binary
        wanted = _DEFAULT_SHARDS if expected is None else -(-expected * width // SHARD_BYTES)
        self._segments: list[list[_Segment]] = [[] for _ in range(min(max(1, wanted), _MOST_SHARDS))]
        self._file_of_rows = SpillFile(2 * width * (expected or 0))  # each row is written as read, and once merged

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file_of_rows.close()

    def add(self, rows: LogRows) -> None:
        """Write rows, at least one; their codes count ids in order of appearance."""
        rows = condensed(rows, self.binary)
        shards = (rows.users % len(self._segments)).astype(np.uint16)
        order = np.argsort(shards, kind="stable")
        ends = np.cumsum(np.bincount(shards, minlength=len(self._segments)))
        for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > start:
                self._segments[number].append(self._file_of_rows.write(rows.take(order[start:end])))

    def merged(
        self,
        users: npt.NDArray[np.int32],
        items: npt.NDArray[np.int32],
        times: Any,
        ordered: bool,
        watch: Watch,
    ) -> Merged:
        """All rows as CSR arrays.

        Parameters
        ----------
        users, items
            Index of each code.
        times
            Type of the times; None when there are none.
        ordered
            Whether the rows have numbers.
        watch
            Iterates over the numbers of the shards, and may show progress.
        """
        indptr = np.zeros(len(users) + 1, dtype=np.int64)
        parts = []
        for number in watch(range(len(self._segments)), len(self._segments)):
            if self._segments[number]:
                rows = self._pairs(number, users, items)
                first = starts(rows.users)
                indptr[rows.users[first] + 1] = np.diff(first, append=len(rows))
                parts.append(self._file_of_rows.write(rows))
        np.cumsum(indptr, out=indptr)
        return self._assembled(parts, indptr, times, ordered)

    def _pairs(self, number: int, users: npt.NDArray[np.int32], items: npt.NDArray[np.int32]) -> LogRows:
        rows = self._shard(number)
        keys = keys_of(users[rows.users], items[rows.items])
        return pairs(LogRows(keys, *rows.fields), self.binary)

    def _shard(self, number: int) -> LogRows:
        """Rows of a shard, merged while they are read, so that its repeats are never all in memory."""
        parts: list[LogRows] = []
        merged_rows = 0
        for segment in self._segments[number]:
            parts.append(self._file_of_rows.read(segment))
            if sum(map(len, parts)) > max(2 * merged_rows, MERGE_ROWS):
                parts = [condensed(joined(parts), self.binary)]
                merged_rows = len(parts[0])
        return joined(parts)

    def _assembled(self, parts: list[_Segment], indptr: npt.NDArray[np.int64], times: Any, ordered: bool) -> Merged:
        arrays = MergedArrays(len(indptr) - 1, int(indptr[-1]), self.binary, times, ordered)
        arrays.indptr[:] = indptr
        for part in parts:
            rows = self._file_of_rows.read(part)
            first = starts(rows.users)
            lengths = np.diff(first, append=len(rows))
            places = np.repeat(indptr[rows.users[first]] - first, lengths) + np.arange(len(rows))
            arrays.put(places, rows)
        return arrays.finish(int(indptr[-1]))
