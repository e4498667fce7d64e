"""C = (S + Λ)⁻¹ out of core: Cholesky factor and inverse by tiles on a disk, with five tiles in memory.

With tiles A_ij (i ≥ j), each stage writes every tile once, as a sum of products of tiles; a thread reads the next pair
of tiles while the current pair is multiplied:

    factor    L_ij = (A_ij − Σ_{k<j} L_ik·L_jkᵀ)·L_jj⁻ᵀ      by columns
    triangle  M = L⁻¹: M_ij = −L_ii⁻¹·Σ_{j≤k<i} L_ik·M_kj     by rows, from the left
    square    C_ij = Σ_{k≥i} M_kiᵀ·M_kj                       by rows, the diagonal last

In this order no later tile needs the former value of a replaced tile, so one lower triangle on the disk suffices. The
work is n³ flops in all; a pair of tiles of side b costs 2b³ flops for 2b² values read.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from monogram._version import __version__
from monogram.engine.gram.accumulate import GramColumns
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.inverse.tile_store import Key, Tiles
from monogram.engine.linalg.blas import gemm
from monogram.engine.linalg.cholesky import lauum, potrf, trtri
from monogram.engine.linalg.triangular import add_lower, clear_above, lower_times, solve_left, solve_right, times_lower
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.errors import NumericalError

Stage = Callable[[str, float], None]
HELD = 5  # tiles in memory: the result, the pair that is multiplied, the pair that is read
LARGEST = 8192  # side of a tile: at this size a disk of 250 MB/s keeps up with 250 GFLOP/s
SMALLEST = 256
ORDER = ("gram", "factor", "triangle", "square")


def tile_size(n: int, budget: int, itemsize: int) -> int:
    """The side of the tiles that a budget of bytes allows: a multiple of 64 that makes all tiles about equal."""
    most = int((max(0, budget) / (HELD * itemsize)) ** 0.5)
    most = max(SMALLEST, min(LARGEST, most) // 64 * 64)
    even = n / math.ceil(n / most)
    return min(most, math.ceil(even / 64) * 64)


def fingerprint(matrix: Csr, penalties: Float64, dtype: Any, kernel: TimeKernel | None = None) -> str:
    """A hash of the data, the penalties, the precision and the version, which identifies a fit on disk."""
    digest = hashlib.sha256(f"{__version__} {np.dtype(dtype).name} {matrix.shape}".encode())
    for array in (matrix.indptr, matrix.indices, matrix.data, penalties):
        digest.update(np.ascontiguousarray(array).data)
    if kernel is not None:
        digest.update(f"{kernel.decay!r} {kernel.floor!r} {kernel.positions.dtype}".encode())
        digest.update(np.ascontiguousarray(kernel.positions).data)
    return digest.hexdigest()


def _tasks(count: int) -> Iterator[tuple[str, Key]]:
    """Every tile of every stage after the Gram matrix, in the order of computation."""
    yield from (("factor", (i, j)) for j in range(count) for i in range(j, count))
    for stage in ORDER[2:]:
        yield from ((stage, (i, j)) for i in range(count) for j in range(i + 1))


class TiledSolver:
    """Runs the stages on the tiles of one folder."""

    def __init__(self, tiles: Tiles, stage: Stage, threads: int) -> None:
        self.tiles, self.tick, self.threads = tiles, stage, threads
        tile = tiles.tile**2
        self.memory = np.empty(max(HELD * tile, tiles.n + tile), tiles.dtype)
        self.buffers = self.memory[: HELD * tile].reshape(HELD, tile)
        self.make = {"factor": self._factor, "triangle": self._triangle, "square": self._square}
        self.after: list[tuple[Key, Key]] = []  # the first pair of the next tile
        self.coming: tuple[tuple[Key, Key], Future[Any]] | None = None
        self.side = 2

    def run(self, matrix: Csr, penalties: Float64, kernel: TimeKernel | None = None) -> None:
        """Run all stages, skipping the tiles that the journal records as done."""
        self.gram(matrix, penalties, kernel)
        tasks = list(_tasks(self.tiles.count))
        with ThreadPoolExecutor(1) as self.reader:
            for (stage, key), after in zip(tasks, [*tasks[1:], None], strict=True):
                if ORDER.index(self.tiles.stage[key]) < ORDER.index(stage):
                    self.after = self._wanted(*after)[:1] if after else []
                    self.tiles.write(key, stage, self.make[stage](key))
                self.tick("factor" if stage == "factor" else "invert", self._flops(stage, key))

    def gram(self, matrix: Csr, penalties: Float64, kernel: TimeKernel | None = None) -> None:
        """Write S + Λ from the sparse data, one column of tiles at a time, in panels of the size of two tiles."""
        tiles, columns = self.tiles, None
        for j in range(tiles.count):
            span, keys = tiles.span(j), [(i, j) for i in range(j, tiles.count)]
            if keys[0] in tiles.stage:
                self.tick("gram", span.stop - span.start)
                continue
            columns = columns or GramColumns(matrix, None, self.threads, kernel)
            tall = tiles.n - span.start
            wide = max(1, 2 * tiles.tile**2 // tall)
            for first in range(span.start, span.stop, wide):
                last = min(first + wide, span.stop)
                panel = self.memory[: tall * (last - first)].reshape((tall, last - first), order="F")
                panel[: last - span.start] = 0
                columns.write(panel, first, span.start, done=lambda k: self.tick("gram", k))
                own = np.arange(last - first)
                panel[own + first - span.start, own] += penalties[first:last].astype(tiles.dtype)
                tiles.write_columns(keys, first - span.start, panel, self.memory[-(tiles.tile**2) :])
            tiles.mark("gram", keys)

    def _flops(self, stage: str, key: Key) -> float:
        """Flops of a tile; the flops of a stage sum to n³/3."""
        (i, j), count, cube = key, self.tiles.count, float(self.tiles.tile) ** 3
        if i == j:
            return cube * ({"factor": j, "triangle": 0, "square": count - i - 1}[stage] + 1 / 3)
        return 2 * cube * {"factor": j + 0.5, "triangle": i - j, "square": count - i - 0.5}[stage]

    def _wanted(self, stage: str, key: Key) -> list[tuple[Key, Key]]:
        """The pairs of tiles whose products sum to a tile."""
        i, j = key
        if stage == "factor":
            return [((i, k), (j, k)) for k in range(j)]
        if stage == "triangle":
            return [((i, k), (k, j)) for k in range(j, i)]
        return [((k, i), (k, j)) for k in range(i + (i == j), self.tiles.count)]

    def _pairs(self, stage: str, key: Key) -> Iterator[tuple[Float, Float]]:
        """Read the pairs of `_wanted`, one pair ahead of its use; after the last, the first pair of the next tile."""
        wanted = self._wanted(stage, key)
        later = [pair for pair in self.after if key not in pair]  # a tile that is being computed cannot be read yet
        then: list[tuple[Key, Key] | None] = [*wanted[1:], *later, None]
        for pair, following in zip(wanted, then, strict=False):
            if self.coming is None or self.coming[0] != pair:
                self._read_ahead(pair)
            assert self.coming is not None
            tiles = self.coming[1].result()
            self.side = 3 - self.side  # 1 or 2: the buffers of this pair
            self.coming = None
            if following is not None:
                self._read_ahead(following)
            yield tiles

    def _read_ahead(self, pair: tuple[Key, Key]) -> None:
        """Start reading a pair into the buffers that are not in use."""
        left, right = pair
        first, second = self.buffers[1:3] if self.side == 2 else self.buffers[3:5]

        def load() -> tuple[Float, Float]:
            tile = self.tiles.read(left, first)
            return tile, tile if left == right else self.tiles.read(right, second)

        self.coming = pair, self.reader.submit(load)

    def _corner(self, index: int) -> Float:
        """A diagonal tile, read into a buffer that is not being filled ahead."""
        return self.tiles.read((index, index), self.buffers[1 if self.side == 1 else 3])

    def _factor(self, key: Key) -> Float:
        i, j = key
        out = self.tiles.read(key, self.buffers[0])
        add = add_lower if i == j else gemm
        for left, right in self._pairs("factor", key):
            add(out, left, right, alpha=-1.0, transpose=b"NT")
        if i == j:
            self._root(out, j)
        else:
            solve_right(self._corner(j), out)
        return out

    def _root(self, out: Float, j: int) -> None:
        try:
            potrf(out)
        except NumericalError:
            rows = self.tiles.span(j)
            raise NumericalError(
                f"the matrix is not positive definite (among rows {rows.start + 1:,} to {rows.stop:,} of "
                f"{self.tiles.n:,})"
            ) from None

    def _triangle(self, key: Key) -> Float:
        i, j = key
        if i == j:
            out = self.tiles.read(key, self.buffers[0])
            trtri(out)
            clear_above(out)
            return out
        out = self._zeros(key)
        for k, (left, right) in enumerate(self._pairs("triangle", key), j):
            if k == j:
                times_lower(out, left, right)
            else:
                gemm(out, left, right)
        solve_left(self._corner(i), out)
        np.negative(out, out=out)
        return out

    def _square(self, key: Key) -> Float:
        i, j = key
        if i == j:
            out = self.tiles.read(key, self.buffers[0])
            lauum(out)
            for left, right in self._pairs("square", key):
                add_lower(out, left, right, alpha=1.0, transpose=b"TN")
            return out
        out = self._zeros(key)
        for number, (left, right) in enumerate(self._pairs("square", key)):
            if number:
                gemm(out, left, right, transpose=b"TN")
            else:
                lower_times(out, left, right)
        return out

    def _zeros(self, key: Key) -> Float:
        rows, columns = self.tiles.shape(key)
        out: Float = self.buffers[0][: rows * columns].reshape((rows, columns), order="F")
        out[...] = 0
        return out
