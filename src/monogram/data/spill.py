"""Rows that are too many for memory wait in a temporary file, sharded by user, and come back shard by shard.

The file has no name (or loses it at once), so that nothing is left behind however the process ends.
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

from monogram.data.merge import Merged, Rows, condensed, joined, keys_of, pairs, starts
from monogram.errors import StorageError

_SHARD = 2**25  # bytes of rows in a shard
_MOST = 4096  # shards; more of them would make the pieces of each small
_UNKNOWN = 256  # shards where the number of rows is not known before
_HELD = 2**21  # rows of a shard that may come together before they are merged


@dataclass(frozen=True)
class _Segment:
    """Where some rows are in the file: `size` keys, then as many weights, counts and times, where they have a type."""

    start: int
    size: int
    types: tuple[Any, ...]


class Scratch:
    """A temporary file of rows, in TMPDIR or the system's folder for such files.

    Parameters
    ----------
    need
        Bytes that may be written in the end, for the message when there is no room; 0 when unknown.
    """

    def __init__(self, need: int) -> None:
        self.need, self.end = need, 0
        self.folder = Path(os.environ.get("TMPDIR") or tempfile.gettempdir())
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115  # see close
        except OSError as error:
            raise self._no_room(error) from error

    def close(self) -> None:
        """Give the room back."""
        self._file.close()

    def write(self, rows: Rows) -> _Segment:
        """Put rows at the end."""
        rest = (rows.weights, rows.counts, rows.times)
        start, types = self.end, tuple(None if array is None else array.dtype for array in rest)
        try:
            self._file.seek(start)
            for array in (rows.keys, *rest):
                if array is not None:
                    self._put(np.ascontiguousarray(array).view(np.uint8).data)
        except OSError as error:
            raise self._no_room(error) from error
        return _Segment(start, len(rows), types)

    def _put(self, left: memoryview) -> None:
        while left:
            written = self._file.write(left)
            self.end += written
            left = left[written:]

    def read(self, segment: _Segment) -> Rows:
        """Rows as they were written."""
        try:
            self._file.seek(segment.start)
            keys, rest = self._get(segment.size, np.int64), segment.types
            return Rows(keys, *(None if type_ is None else self._get(segment.size, type_) for type_ in rest))
        except OSError as error:
            why = error.strerror or error
            raise StorageError(
                f"rows put aside in {self.folder} cannot be read back: {why}; try another TMPDIR."
            ) from error

    def _get(self, size: int, type_: Any) -> npt.NDArray[Any]:
        values = np.empty(size, dtype=type_)
        left = values.view(np.uint8).data
        while left:
            got = self._file.readinto(left)  # type: ignore[attr-defined]  # unbuffered: a raw file
            if not got:
                raise OSError(errno.EIO, "the temporary file is cut short")
            left = left[got:]
        return values

    def _no_room(self, error: OSError) -> StorageError:
        need = (
            f"up to {_megabytes(self.need)} are needed" if self.need else f"more than {_megabytes(self.end)} are needed"
        )
        try:
            free = f", {_megabytes(shutil.disk_usage(self.folder).free)} are free"
        except OSError:
            free = ""
        return StorageError(
            f"the log has more rows than may be held in memory, and they cannot be put aside in {self.folder}: "
            f"{error.strerror or error} ({need}{free}). Make room there, or set TMPDIR to a folder with more of it."
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


Watch = Callable[[Iterable[int], int], Iterator[int]]


class Spill:
    """Rows put aside in shards of users, merged as far as they came together, and merged for good at the end.

    Parameters
    ----------
    binary
        Whether every pair counts 1.
    width
        Bytes of a row that is put aside.
    expected
        How many rows may come; None when unknown.
    """

    def __init__(self, binary: bool, width: int, expected: int | None) -> None:
        self.binary = binary
        wanted = _UNKNOWN if expected is None else -(-expected * width // _SHARD)
        self._segments: list[list[_Segment]] = [[] for _ in range(min(max(1, wanted), _MOST))]
        self._scratch = Scratch(2 * width * (expected or 0))  # once as they come, once merged

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scratch.close()

    def add(self, rows: Rows) -> None:
        """Put rows aside, at least one; their codes are those of first sight."""
        rows = condensed(rows, self.binary)
        shards = (rows.users % len(self._segments)).astype(np.uint16)
        order = np.argsort(shards, kind="stable")
        ends = np.cumsum(np.bincount(shards, minlength=len(self._segments)))
        for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > start:
                self._segments[number].append(self._scratch.write(rows.take(order[start:end])))

    def merged(
        self,
        users: npt.NDArray[np.int32],
        items: npt.NDArray[np.int32],
        times: Any,
        watch: Watch,
    ) -> Merged:
        """All rows as CSR arrays.

        Parameters
        ----------
        users, items
            Index of each code.
        times
            Type of the times; None when there are none.
        watch
            Passes the numbers of the shards on, and shows how far it has come.
        """
        indptr = np.zeros(len(users) + 1, dtype=np.int64)
        parts = []
        for number in watch(range(len(self._segments)), len(self._segments)):
            if self._segments[number]:
                found = self._pairs(number, users, items)
                first = starts(found.users)
                indptr[found.users[first] + 1] = np.diff(first, append=len(found))
                parts.append(self._scratch.write(found))
        np.cumsum(indptr, out=indptr)
        return self._assembled(parts, indptr, times)

    def _pairs(self, number: int, users: npt.NDArray[np.int32], items: npt.NDArray[np.int32]) -> Rows:
        rows = self._shard(number)
        keys = keys_of(users[rows.users], items[rows.items])
        return pairs(Rows(keys, rows.weights, rows.counts, rows.times), self.binary)

    def _shard(self, number: int) -> Rows:
        """Rows of a shard, merged on the way so that its repeats are never all there."""
        held: list[Rows] = []
        settled = 0
        for segment in self._segments[number]:
            held.append(self._scratch.read(segment))
            if sum(map(len, held)) > max(2 * settled, _HELD):
                held = [condensed(joined(held), self.binary)]
                settled = len(held[0])
        return joined(held)

    def _assembled(self, parts: list[_Segment], indptr: npt.NDArray[np.int64], times: Any) -> Merged:
        size = int(indptr[-1])
        indices = np.empty(size, dtype=np.int32)
        data = None if self.binary else np.empty(size, dtype=np.float32)
        kept_times = None if times is None else np.empty(size, dtype=times)
        for part in parts:
            found = self._scratch.read(part)
            first = starts(found.users)
            lengths = np.diff(first, append=len(found))
            places = np.repeat(indptr[found.users[first]] - first, lengths) + np.arange(len(found))
            indices[places] = found.items
            for array, values in ((data, found.weights), (kept_times, found.times)):
                if array is not None:
                    array[places] = values
        return Merged(indptr, indices, data, kept_times)
