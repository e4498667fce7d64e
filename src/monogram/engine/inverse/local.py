"""Local regression: each item is regressed on a few candidate items, exactly; no square array over items or users.

The candidates N(j) of an item j are the items that share a user with it and have the largest |S_ij|/√(d_i + ℓ_i), at
most `neighbours` of them; ties go to the lower index. With B_ij = 0 outside the candidates, the minimiser of
‖X − XB‖² + ‖Λ^½B‖² is, column by column, w = (S_NN + Λ_N)⁻¹·S_Nj: one small Cholesky factorisation for each item.
1/c_j = d_j + ℓ_j − S_jN·w is the Schur complement, from which heads compute θ and δ as from a full inverse. Where every
item is a candidate of every other one, B and c are those of the full inverse. With a time kernel S is that of the
kernel (`engine.gram.time_kernel`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import by_column, gram, squares
from monogram.engine.gram.kernel_table import kernel_table
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.inverse.local_kernels import choose_columns, scatter_columns, solve_columns
from monogram.engine.linalg.small_cholesky import TILE
from monogram.engine.linalg.symmetric import fill_upper
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.runtime.progress import Stage, silent
from monogram.errors import NumericalError

NAME = "local"
NEIGHBOURS = 300  # default number of candidates of an item
HUBS = 4096  # most used items, whose S is kept as one small array: they are candidates of many items
LISTING = 2.0  # cost of an event in a list, relative to that of an event in a row
LISTED = 1 << 20  # most events of one item's candidates that are listed by user
BLOCK = 64  # items in one task of a thread


@dataclass(frozen=True)
class LocalColumns:
    """Columns of B of some items.

    Attributes
    ----------
    sizes : number of candidates of each item
    parts : candidates in ascending order, and their weights, one item after the other, in blocks of items
    c : 1/(d_j + ℓ_j − S_jN·w) of each item
    explained : S_jN·w of each item: what its candidates take off its squared error d_j
    """

    sizes: Indices
    parts: list[tuple[NDArray[np.int32], Float]]
    c: Float64
    explained: Float64

    def column(self, place: int) -> tuple[NDArray[np.int32], Float]:
        """Candidates and weights of the item at a place."""
        rows, values = self.parts[place // BLOCK]
        start = int(self.sizes[place // BLOCK * BLOCK : place].sum())
        part = slice(start, start + int(self.sizes[place]))
        return rows[part], values[part]

    def into_rows(self, theta: Float64, delta: Float64) -> Csr:
        """W = B·diag(θ) + diag(δ) by rows, where these are the columns of all items; `parts` is emptied.

        A candidate with the weight 0 stays an entry; a diagonal entry that is 0 does not become one.
        """
        n = len(self.sizes)
        counts = (delta != 0).astype(np.int64)
        for rows, _ in self.parts:
            counts += np.bincount(rows, minlength=n)
        pointers = np.concatenate([[0], np.cumsum(counts)])
        index = np.int32 if pointers[-1] <= np.iinfo(np.int32).max else np.int64
        columns, values = np.empty(pointers[-1], index), np.empty(pointers[-1], self.parts[0][1].dtype)
        free = pointers[:-1].copy()
        self.parts.reverse()
        for start in range(0, n, BLOCK):
            scatter_columns(
                *self.parts.pop(), self.sizes, theta, delta, start, min(start + BLOCK, n), free, columns, values
            )
        return Csr((values, columns, pointers.astype(index)), shape=(n, n))


class LocalRegression:
    """The data of local regressions, prepared once; `columns` solves those of some items.

    Parameters
    ----------
    data : X̃ as CSR with sorted indices; without a kernel S = X̃ᵀX̃
    penalties : ℓ
    dtype : working precision
    threads : number of threads
    kernel : the time kernel of S on the entries of the data
    """

    def __init__(
        self,
        data: Csr,
        penalties: Float64,
        *,
        dtype: str = "float32",
        threads: int = 1,
        kernel: TimeKernel | None = None,
    ) -> None:
        self.data, self.penalties, self.d = data, np.ascontiguousarray(penalties, np.float64), squares(data)
        self.kernel = kernel
        self.dtype, self.threads = np.dtype(dtype), threads
        pointers, owners, places = by_column(data)
        by_item = pointers, owners, data.data[places]
        clock: Any = None
        if kernel is not None:
            table = kernel_table(kernel)
            clock = table.positions[places], table.positions, table.table, table.shift
        del places
        self._hubs, self._hub_gram = self._most_used(np.diff(pointers))
        roots = 1 / np.sqrt(np.maximum(self.d + self.penalties, np.finfo(np.float64).tiny))
        hub = self._hubs[data.indices] >= 0
        self._hub_rows = self._hubs_by_user(hub)
        if clock is not None:
            clock = *clock[:2], clock[1][hub], *clock[2:]
        self._positions = clock and clock[1]
        self._arrays = by_item, (data.indptr, data.indices, data.data), clock, roots, self._hubs
        self._reach = tuple(
            np.bincount(data.indices, np.repeat(np.diff(starts), np.diff(data.indptr)), minlength=data.shape[1])
            for starts in (data.indptr, self._hub_rows[0])
        )

    def _most_used(self, counts: Indices) -> tuple[NDArray[np.int32], Float]:
        """The place of each item among the hubs (−1: it is none), and S of the hubs."""
        chosen = np.sort(np.argsort(-counts, kind="stable")[:HUBS])
        places = np.full(len(counts), -1, np.int32)
        places[chosen] = np.arange(len(chosen))
        square = np.empty((len(chosen), len(chosen)), self.dtype, order="F")
        part, kernel = self._columns_of(chosen)
        gram(part, square, kernel=kernel, threads=self.threads)
        fill_upper(square, self.threads)
        return places, square.T

    def _columns_of(self, items: Indices) -> tuple[Csr, TimeKernel | None]:
        """The data of some items, in ascending order, and the kernel on their entries."""
        if self.kernel is None:
            return self.data[:, items], None
        chosen = np.zeros(self.data.shape[1], np.bool_)
        chosen[items] = True
        return self.data[:, items], self.kernel.part(chosen[self.data.indices])

    def _hubs_by_user(self, hub: NDArray[np.bool_]) -> tuple[Any, NDArray[np.int32], Float]:
        """The hubs of each user, as CSR: pointers, places among the hubs, values; `hub` says which entries are hubs."""
        pointers = np.concatenate([[0], np.cumsum(hub)])[self.data.indptr]
        return pointers, self._hubs[self.data.indices[hub]], self.data.data[hub]

    def columns(self, items: Indices, neighbours: int, stage: Stage = silent) -> LocalColumns:
        """Solve the columns of some items; NumericalError where a small system is not positive definite."""
        most, size = self._most(neighbours), len(items)
        width = -(-max(most, 1) // TILE) * TILE
        sizes, c, explained = np.zeros(size, np.int64), np.empty(size), np.empty(size)
        parts: list[Any] = [None] * -(-size // BLOCK)

        def scratch() -> Any:
            return self._scratch(most), (
                np.zeros((self.data.shape[0], 2), np.int32),
                np.empty(LISTED, np.int32),
                np.empty(LISTED, self.data.dtype),
                None if self._positions is None else np.empty(LISTED, self._positions.dtype),
                np.full(len(self._hub_gram), -1, np.int32),
                np.empty((width, width), self.dtype),
                np.empty(width, self.dtype),
            )

        def block(start: int, stop: int, arrays: Any) -> None:
            rows, values = np.empty((stop - start, most), np.int32), np.empty((stop - start, most), self.dtype)
            part = slice(start, stop)
            failed = solve_columns(
                *self._arrays,
                self.d,
                self.penalties,
                self._reach,
                self._hub_gram,
                self._hub_rows,
                LISTING,
                items[part],
                (rows, values, sizes[part], c[part], explained[part]),
                *arrays,
            )
            if failed >= 0:
                raise NumericalError("the regression of an item on its candidates is not positive definite")
            taken = np.arange(most) < sizes[part, None]
            parts[start // BLOCK] = rows[taken], values[taken]
            stage("solve", stop - start)

        self._by_blocks(block, size, scratch)
        return LocalColumns(sizes, parts, c, explained)

    def candidates(self, items: Indices, neighbours: int) -> tuple[Indices, NDArray[np.int32]]:
        """The number of candidates of some items, and the candidates of one item after the other."""
        most, sizes = self._most(neighbours), np.zeros(len(items), np.int64)
        parts: list[Any] = [None] * -(-len(items) // BLOCK)

        def block(start: int, stop: int, arrays: Any) -> None:
            rows, part = np.empty((stop - start, most), np.int32), slice(start, stop)
            choose_columns(*self._arrays, items[part], rows, sizes[part], arrays)
            parts[start // BLOCK] = rows[np.arange(most) < sizes[part, None]]

        self._by_blocks(block, len(items), lambda: self._scratch(most))
        return sizes, np.concatenate([np.zeros(0, np.int32), *parts])

    def _most(self, neighbours: int) -> int:
        return min(neighbours, len(self.d) - 1)

    def _scratch(self, most: int) -> tuple[Any, ...]:
        """Scratch arrays for the choice of candidates."""
        n = self.data.shape[1]
        return np.zeros(n), np.full(n, -1, np.int32), np.empty(n, np.int32), np.empty(n), np.empty(most, np.int32)

    def _by_blocks(self, work: Callable[[int, int, Any], None], size: int, scratch: Callable[[], Any]) -> None:
        """Call work(start, stop, scratch) for blocks of items, in threads; scratch arrays are made once a thread."""
        idle: list[Any] = []

        def block(start: int, stop: int) -> None:
            arrays = idle.pop() if idle else scratch()
            work(start, stop, arrays)
            idle.append(arrays)

        parallel.parallel_for(block, size, BLOCK, self.threads)

    def certificate(self, columns: LocalColumns, items: Indices, places: Indices) -> tuple[float, float]:
        """Residual and error of the columns of some items, which stand at some places, measured in float64.

        The residual is the largest entry of (S + Λ)B − S on the candidates of a column, relative to max|S|: the
        gradient of its objective. The error is that of its weights, relative to the largest one, or the relative error
        of its c where that is larger.
        """
        residual = error = largest = of_c = 0.0
        for j, place in zip(items, places, strict=True):
            near, weights = columns.column(int(place))
            if not len(near):
                continue
            system, right = self._system(near, j)
            system[np.diag_indices(len(near))] += self.penalties[near]
            remainder = system @ weights - right
            residual = max(residual, float(np.abs(remainder).max()))
            errors, exact = np.linalg.solve(system, np.stack([remainder, right], axis=1)).T
            error = max(error, float(np.abs(errors).max()))
            of_c = max(of_c, abs(columns.c[place] * (self.d[j] + self.penalties[j] - right @ exact) - 1))
            largest = max(largest, float(np.abs(weights).max()))
        relative = residual / max(self.d.max(initial=0.0), 1e-30)
        return float(relative), float(max(error / max(largest, 1e-30), of_c))

    def _system(self, near: NDArray[np.int32], j: int) -> tuple[Float64, Float64]:
        """S of some items, and their S with item j, in float64."""
        if self.kernel is None:
            block = self.data[:, near].astype(np.float64)
            right = np.asarray(block.T @ self.data[:, [j]].astype(np.float64).toarray()).ravel()
            return (block.T @ block).toarray(), right
        part, kernel = self._columns_of(np.sort(np.append(near, j)))
        square = np.empty((len(near) + 1, len(near) + 1), order="F")
        gram(part.astype(np.float64), square, kernel=kernel, threads=self.threads)
        fill_upper(square, self.threads)
        at = np.searchsorted(near, j)
        others = np.delete(np.arange(len(square)), at)
        return square[np.ix_(others, others)], square[others, at]

    def gaps(self, probes: Indices, neighbours: int) -> Float64:
        """The share by which the objective of each probe's regression falls with twice the candidates."""
        once, twice = (self.columns(probes, times * neighbours).explained for times in (1, 2))
        return np.asarray((twice - once) / np.maximum(self.d[probes] - once, 1e-30))
