"""The lower tiles of a large square matrix in one file, with a journal: a fit resumes after a crash at any moment.

A tile is never overwritten. Its new value is written to a free slot of the file and flushed to the disk; then a line of
the journal records the slot, and is flushed; only then is the former slot free. A crash can leave an incomplete last
line, which is dropped, and a slot without a line, which counts as free.

Files are read and written by position, not memory-mapped: memory use is that of the buffers alone, and a full disk
raises an error that can be caught, while a fault in a mapped page would end the process.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime.memory import show
from monogram.errors import StorageError

FORMAT = 1
JOURNAL, TILES, WEIGHTS, LOCK = "journal.jsonl", "tiles", "weights", "lock"
NOTHING = "no journal"
Key = tuple[int, int]


class FolderError(StorageError):
    """A folder cannot hold the files of a fit on disk."""


class FreeSpaceError(FolderError):
    """The disk of a folder has too little free space for the files of a fit."""


@contextlib.contextmanager
def storage_errors(folder: Path, needed: int) -> Iterator[None]:
    """Convert an OSError inside the block to a StorageError that names the folder, the space needed and what to do."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"the fit on disk stopped: {error.strerror or error}. It needs {show(needed)} in {folder} in all. The "
            "finished part is kept there; the same fit resumes from it once the folder has space and can be written to"
        ) from error


def put(file: BinaryIO, position: int, values: NDArray[Any]) -> None:
    """Write a contiguous array (of either order) at a position."""
    raw = values.reshape(-1, order="A").data.cast("B")
    file.seek(position)
    while len(raw):
        raw = raw[file.write(raw) :]


def get(file: BinaryIO, position: int, out: NDArray[Any]) -> None:
    """Fill a contiguous vector with the bytes at a position."""
    raw = out.data.cast("B")
    file.seek(position)
    while len(raw):
        count = file.readinto(raw)  # type: ignore[attr-defined]
        if not count:
            raise StorageError(f"{file.name} was cut short while it was in use; remove it and start the fit again")
        raw = raw[count:]


class TileJournal:
    """Lines of JSON, each on the disk before `add` returns. The first line identifies the fit."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about = path, about
        self.entries: list[dict[str, Any]] = []

    def read(self) -> str:
        """Read the entries. Return why the journal cannot be used, or ""; an incomplete last line is dropped."""
        raw = self.path.read_bytes() if self.path.exists() else b""
        whole = raw[: raw.rfind(b"\n") + 1]
        if not whole:
            return NOTHING
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
        except ValueError:
            return "one of its lines cannot be read"
        if lines[0] != self.about or not all(isinstance(line, dict) for line in lines):
            return "it belongs to another fit or another version"
        if len(whole) < len(raw):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
        self.entries = lines[1:]
        return ""

    def begin(self) -> None:
        """Start an empty journal."""
        self.entries = []
        with self.path.open("wb") as file:
            _line(file, self.about)
        _sync_folder(self.path.parent)

    def add(self, entry: dict[str, Any]) -> None:
        """Append one line."""
        with self.path.open("ab") as file:
            _line(file, entry)
        self.entries.append(entry)


def _line(file: BinaryIO, entry: dict[str, Any]) -> None:
    file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every system can open a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def slots(n: int, tile: int) -> int:
    """Slots in the file of tiles: the lower triangle, and one more for the tile that is being written."""
    count = -(-n // tile)
    return count * (count + 1) // 2 + 1


def disk_bytes(n: int, tile: int, itemsize: int) -> int:
    """Bytes of the files on disk: the tiles, and the n × n weights."""
    return (slots(n, tile) * tile * tile + n * n) * itemsize


def ignore(_: str) -> None:
    """Ignore the reason of a restart."""


class Tiles:
    """The tiles of an n × n matrix, in a folder.

    Parameters
    ----------
    folder : Path
        The folder of this matrix alone.
    about : the first line of the journal: the fingerprint of the problem, and `n`, `tile`, `dtype`
    restarted : receives the reason where a journal exists but cannot be resumed from
    """

    def __init__(self, folder: Path, about: dict[str, Any], restarted: Callable[[str], None] = ignore) -> None:
        self._restarted = restarted
        self.folder, self.n, self.tile = folder, int(about["n"]), int(about["tile"])
        self.dtype: np.dtype[Any] = np.dtype(about["dtype"])
        self.count = -(-self.n // self.tile)
        self.needed = disk_bytes(self.n, self.tile, self.dtype.itemsize)
        self.journal = TileJournal(folder / JOURNAL, {"format": FORMAT} | about)
        self._lock = threading.Lock()
        with storage_errors(folder, self.needed):
            self._open()

    def _open(self) -> None:
        sizes = {TILES: slots(self.n, self.tile) * self._slot, WEIGHTS: self.n**2 * self.dtype.itemsize}
        trouble = self.journal.read()
        if not trouble and any(_length(self.folder / name) != size for name, size in sizes.items()):
            trouble = "a file beside it has the wrong length"
        if not trouble:
            trouble = self._replay()
        if trouble:
            if trouble != NOTHING:
                self._restarted(f"the journal in {self.folder} cannot be resumed from ({trouble})")
            self._begin(sizes)
        self._reader, self._writer = (self._file(TILES) for _ in range(2))
        self.weights = self._file(WEIGHTS)

    def _file(self, name: str) -> Any:
        return (self.folder / name).open("r+b", buffering=0)

    def _begin(self, sizes: dict[str, int]) -> None:
        """Reserve the space on disk, then start the journal, so that a journal never refers to missing files."""
        (self.folder / JOURNAL).unlink(missing_ok=True)
        for name in sizes:
            (self.folder / name).unlink(missing_ok=True)
        free = shutil.disk_usage(self.folder).free
        if free < self.needed:
            raise FreeSpaceError(
                f"the fit on disk needs {show(self.needed)} in {self.folder}, which has {show(free)} free; nothing was "
                "written"
            )
        for name, size in sizes.items():
            with (self.folder / name).open("wb") as file:
                reserve(file, size)
        self.place: dict[Key, int] = {}
        self.stage: dict[Key, str] = {}
        self._free = list(range(slots(self.n, self.tile)))
        self.journal.begin()

    def _replay(self) -> str:
        """Replay the journal. Return what is wrong with it, or ""."""
        self.place, self.stage = {}, {}
        for entry in self.journal.entries:
            try:
                pairs = [(tuple(key), int(slot)) for key, slot in entry.get("tiles", ())]
                self.place |= pairs
                self.stage |= {key: str(entry["stage"]) for key, _ in pairs}
            except (KeyError, TypeError, ValueError):
                return "one of its lines cannot be read"
        taken = set(self.place.values())
        if len(taken) < len(self.place) or not taken <= set(range(slots(self.n, self.tile))):
            return "it refers to slots that do not exist"
        self._free = sorted(set(range(slots(self.n, self.tile))) - taken)
        return ""

    @property
    def _slot(self) -> int:
        return self.tile * self.tile * self.dtype.itemsize

    def span(self, index: int) -> slice:
        """The rows of the matrix that a row of tiles covers."""
        return slice(index * self.tile, min(self.n, (index + 1) * self.tile))

    def shape(self, key: Key) -> Key:
        """Rows and columns of a tile; the last tiles are smaller."""
        rows, columns = (len(range(self.n)[self.span(index)]) for index in key)
        return rows, columns

    def read(self, key: Key, buffer: NDArray[Any], columns: slice = slice(None)) -> NDArray[Any]:
        """Read a tile, or some of its columns, in Fortran order into the beginning of a buffer."""
        rows, width = self.shape(key)
        first, last, _ = columns.indices(width)
        out = buffer[: rows * (last - first)]
        with storage_errors(self.folder, self.needed), self._lock:
            get(self._reader, self.place[key] * self._slot + rows * first * self.dtype.itemsize, out)
        return out.reshape((rows, last - first), order="F")

    def write(self, key: Key, stage: str, values: NDArray[Any]) -> None:
        """Store the new value of a tile; it is on the disk when this returns."""
        with storage_errors(self.folder, self.needed):
            slot = self._free[0]
            put(self._writer, slot * self._slot, values)
            os.fsync(self._writer.fileno())
            self._mark(stage, {key: slot})

    def write_columns(self, keys: list[Key], first: int, panel: NDArray[Any], buffer: NDArray[Any]) -> None:
        """Write some columns of a column of new tiles, from column `first` on; `mark` records them when complete."""
        with storage_errors(self.folder, self.needed):
            top = self.span(keys[0][0]).start
            for key, slot in zip(keys, self._free, strict=False):
                rows = self.span(key[0])
                part = buffer[: (rows.stop - rows.start) * panel.shape[1]].reshape((-1, panel.shape[1]), order="F")
                part[...] = panel[rows.start - top : rows.stop - top]
                put(self._writer, slot * self._slot + len(part) * first * self.dtype.itemsize, part)

    def mark(self, stage: str, keys: list[Key]) -> None:
        """Record the tiles that `write_columns` has completed."""
        with storage_errors(self.folder, self.needed):
            os.fsync(self._writer.fileno())
            self._mark(stage, dict(zip(keys, self._free, strict=False)))

    def _mark(self, stage: str, placed: dict[Key, int]) -> None:
        self.journal.add({"stage": stage, "tiles": [[list(key), slot] for key, slot in placed.items()]})
        freed = [self.place[key] for key in placed if key in self.place]
        self._free = sorted({*self._free, *freed} - set(placed.values()))
        self.place |= placed
        self.stage |= dict.fromkeys(placed, stage)

    def close(self) -> None:
        """Close the files without removing them."""
        for file in (self._reader, self._writer, self.weights):
            file.close()


def reserve(file: BinaryIO, size: int) -> None:
    """Give a new file its size, and reserve the space on disk where the system supports that."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    file.truncate(size)
    os.fsync(file.fileno())


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1
