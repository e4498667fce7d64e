"""An inverse stored on disk, and its folder. `tiled_cholesky` computes it, `tile_store` reads and writes the files."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import shutil
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.inverse.tile_store import (
    JOURNAL,
    LOCK,
    TILES,
    WEIGHTS,
    FolderError,
    Tiles,
    ignore,
    put,
    storage_errors,
)
from monogram.engine.inverse.tiled_cholesky import HELD, TiledSolver, fingerprint, tile_size
from monogram.engine.linalg.triangular import mirror_below
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import Stage, silent
from monogram.errors import NumericalError, StorageError

SLAB = 1 << 20  # values read at once


def _lock(descriptor: int) -> bool:
    """Whether the file could be locked; the system releases the lock when the process ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            raise  # a file system without locks, not a lock held by another process
        return False
    return True


class ScratchFolder:
    """The folder of one fit inside the scratch folder, locked by one process at a time.

    Its name contains the fingerprint of the fit, so that a later fit finds and resumes it. Where another process, or a
    model still in use, holds the lock, the next numbered folder is used.
    """

    def __init__(self, base: Path, mark: str) -> None:
        if not base.is_dir():
            raise StorageError(f"there is no folder {base} for the files of a fit on disk; make it first")
        self.tiles: Tiles | None = None
        self.keep_files = False
        name = f"monogram-{mark[:16]}"
        begun = sorted(journal.parent for journal in base.glob(f"{name}*/{JOURNAL}"))
        numbered = (base / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
        for self.folder in itertools.chain(begun, numbered):
            try:
                if self._acquire():
                    return
            except OSError as error:
                raise FolderError(f"the fit on disk cannot write to {base}: {error.strerror or error}") from error

    def _acquire(self) -> bool:
        """Create and lock the folder; whether that succeeded."""
        self.folder.mkdir(exist_ok=True)
        self._descriptor = os.open(self.folder / LOCK, os.O_CREAT | os.O_RDWR, 0o666)
        if (
            _lock(self._descriptor) and (self.folder / LOCK).exists()
        ):  # another process may have removed it after it was opened
            return True
        os.close(self._descriptor)
        return False

    def tile(self, mark: str, dtype: np.dtype[Any]) -> int | None:
        """The side of the tiles of an unfinished fit in this folder; None without one."""
        try:
            with (self.folder / JOURNAL).open("rb") as file:
                about = json.loads(file.readline())
            same = about["mark"] == mark and about["dtype"] == dtype.name
            return int(about["tile"]) if same and int(about["tile"]) > 0 else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def release(self) -> None:
        """Close the files and unlock the folder; files that a fit can resume from stay."""
        if self._descriptor < 0:
            return
        if self.tiles is not None:
            self.tiles.close()
        if not (self.folder / JOURNAL).exists():
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def remove(self) -> None:
        """Close and remove the files: the journal first, so that a partial deletion cannot be resumed from."""
        if self._descriptor >= 0:
            (self.folder / JOURNAL).unlink(missing_ok=True)
            self.release()

    def end(self) -> None:
        """Called when the weights are garbage-collected: remove the files, unless `keep_files` is set."""
        if self.keep_files:
            self.release()
        else:
            self.remove()


def free(folder: Path) -> int:
    """Bytes that a fit can use in a folder: the free space, and the files of stopped fits."""
    try:
        stopped = sum(file.stat().st_size for file in folder.glob("monogram-*/*") if file.name in (TILES, WEIGHTS))
        return shutil.disk_usage(folder).free + stopped
    except OSError as error:
        raise FolderError(f"{folder} cannot hold the files of a fit on disk: {error.strerror or error}") from error


def disk_inverse(
    matrix: Any,
    penalties: Float64,
    *,
    folder: Path,
    budget: int,
    kernel: TimeKernel | None = None,
    dtype: Any = np.float32,
    threads: int = 1,
    stage: Stage = silent,
    restarted: Callable[[str], None] = ignore,
) -> DiskInverse:
    """C of an m × n matrix by tiles in a folder, with `budget` bytes of memory; resumes an interrupted fit.

    Parameters
    ----------
    matrix : CSR, m × n
    penalties : ℓ, one for each item
    folder : Path
        It must exist; a subfolder for this fit is created in it.
    budget : int
        Five tiles must fit in it. An interrupted fit keeps its tile size if that fits.
    kernel : the time kernel on the entries of the matrix, optional
    restarted : callable
        Receives the reason where files of the same fit exist but cannot be resumed from.
    """
    dtype, n = np.dtype(dtype), matrix.shape[1]
    mark = fingerprint(matrix, penalties, dtype, kernel)
    scratch = ScratchFolder(folder, mark)
    tile = tile_size(n, budget, dtype.itemsize)
    begun = scratch.tile(mark, dtype)
    if begun is not None and begun <= max(tile, int((budget / (HELD * dtype.itemsize)) ** 0.5)):
        tile = begun
    try:
        tiles = Tiles(scratch.folder, {"mark": mark, "n": n, "tile": tile, "dtype": dtype.name}, restarted)
        scratch.tiles = tiles
        TiledSolver(tiles, stage, threads).run(matrix, penalties, kernel)
        return DiskInverse(tiles, scratch, stage)
    except NumericalError:
        scratch.remove()
        raise
    except BaseException:
        scratch.release()
        raise


class DiskInverse:
    """C in the lower tiles of a file."""

    solver = "disk"

    def __init__(self, tiles: Tiles, scratch: ScratchFolder, stage: Stage = silent) -> None:
        self.tiles, self.scratch, self._stage = tiles, scratch, stage
        self._finalizer = weakref.finalize(self, scratch.release)
        self.diagonal: Float64 = np.empty(tiles.n)
        for index in range(tiles.count):
            start = tiles.span(index).start
            for first, part in self._slabs((index, index)):
                own = np.arange(part.shape[1])
                self.diagonal[start + first + own] = part[first + own, own]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the tiles."""
        return self.tiles.dtype

    def _slabs(self, key: tuple[int, int]) -> Any:
        """Read a tile in slabs: the index of the first column, and the columns."""
        rows, columns = self.tiles.shape(key)
        wide = max(1, SLAB // rows)
        buffer = np.empty(rows * min(wide, columns), self.tiles.dtype)
        for first in range(0, columns, wide):
            yield first, self.tiles.read(key, buffer, slice(first, first + wide))

    def columns(self, items: NDArray[np.integer[Any]]) -> Float64:
        """Columns C[:, items], in float64."""
        tiles, items = self.tiles, np.asarray(items)
        out = np.empty((tiles.n, len(items)))
        owner, own = items // tiles.tile, items % tiles.tile
        for index in np.unique(owner).tolist():
            places = np.flatnonzero(owner == index)
            for j in range(index + 1):  # from rows of the tiles to the left and of the diagonal tile
                start = tiles.span(j).start
                for first, part in self._slabs((index, j)):
                    out[start + first : start + first + part.shape[1], places] = part[own[places]].T
            for place in places:  # from columns of the tiles below and, from the diagonal on, of the diagonal tile
                at = int(own[place])
                for i in range(index, tiles.count):
                    rows = tiles.span(i)
                    buffer = np.empty(rows.stop - rows.start, tiles.dtype)
                    column = tiles.read((i, index), buffer, slice(at, at + 1))[:, 0]
                    skipped = at if i == index else 0
                    out[rows.start + skipped : rows.stop, place] = column[skipped:]
        return out

    def times(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product C·block, in the precision of the block."""
        return np.asarray(self.times_off_diagonal(block) + self.diagonal.astype(block.dtype)[:, None] * block)

    def times_off_diagonal(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product (C − diag c)·block, in the precision of the block; reads every tile once."""
        tiles, out = self.tiles, np.zeros_like(block)
        for i in range(tiles.count):
            for j in range(i + 1):
                rows, start = tiles.span(i), tiles.span(j).start
                for first, part in self._slabs((i, j)):
                    left = slice(start + first, start + first + part.shape[1])
                    if i == j:  # keep the part strictly below the diagonal
                        part[np.arange(len(part))[:, None] <= first + np.arange(part.shape[1])] = 0
                    values = part.astype(block.dtype, copy=False)
                    out[rows] += values @ block[left]
                    out[left] += values.T @ block[rows]
        return out

    def into_weights(self, scale: Float64, diagonal: Float64, threads: int) -> NDArray[Any]:
        """C·diag(scale) with another diagonal, as a memory-mapped file; the folder is removed with the array.

        The result is C-ordered: row i holds what item i of a history adds to every score.
        """
        tiles, scale = self.tiles, scale.astype(self.tiles.dtype)
        head = hashlib.sha256(scale.tobytes() + diagonal.tobytes()).hexdigest()
        done = self._rows_done(head)
        buffers = np.empty((2, tiles.tile**2), tiles.dtype)
        with storage_errors(tiles.folder, tiles.needed):
            for i in range(tiles.count):
                if i not in done:
                    self._write_rows(i, scale, diagonal, buffers)
                    os.fsync(tiles.weights.fileno())
                    tiles.journal.add({"stage": "weights", "row": i})
                self._stage("weights", tiles.span(i).stop - tiles.span(i).start)
            mapped = np.memmap(tiles.folder / WEIGHTS, np.uint8, "r")
        out: NDArray[Any] = np.ndarray((tiles.n, tiles.n), tiles.dtype, buffer=mapped.data)
        self._finalizer.detach()
        weakref.finalize(out, self.scratch.end)
        return out

    def _rows_done(self, head: str) -> set[int]:
        """The rows of tiles whose weights are written; rows of another head do not count."""
        stored, done = "", set[int]()
        for entry in self.tiles.journal.entries:
            if "head" in entry:
                stored, done = str(entry["head"]), set()
            elif "row" in entry:
                done.add(int(entry["row"]))
        if stored == head:
            return done
        with storage_errors(self.tiles.folder, self.tiles.needed):
            self.tiles.journal.add({"stage": "weights", "head": head})
        return set()

    def _write_rows(self, i: int, scale: NDArray[Any], diagonal: Float64, buffers: NDArray[Any]) -> None:
        tiles, rows = self.tiles, self.tiles.span(i)
        for j in range(tiles.count):
            span = tiles.span(j)
            block = buffers[1][: (rows.stop - rows.start) * (span.stop - span.start)]
            block = block.reshape((rows.stop - rows.start, span.stop - span.start))
            if i == j:
                mirror_below(tiles.read((i, i), buffers[0]), block)
                block *= scale[span]
                np.fill_diagonal(block, diagonal[span])
            else:
                tile = tiles.read((max(i, j), min(i, j)), buffers[0])
                np.multiply(tile if j < i else tile.T, scale[span], out=block)
            for row, values in zip(range(rows.start, rows.stop), block, strict=True):
                put(tiles.weights, (row * tiles.n + span.start) * tiles.dtype.itemsize, values)
