"""Pairs of items with hubs, the most used items, computed once for all local regressions.

Hubs are candidates of many items, and have many users. So S of two hubs is one small array, and S of every other item
with the hubs is stored by item, where it is not 0. Sums over users are then only needed for pairs of other items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import gram
from monogram.engine.gram.kernel_table import at_distance
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.linalg.symmetric import fill_upper
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Indices
from monogram.engine.runtime.jit import kernel as compiled

HUBS = 4096  # largest number of hubs
ENTRIES = 8  # entries by item that are stored for each event of the log, at most
FREE_ENTRIES = 1 << 24  # and so many beside
BLOCK = 256  # items in one task of a thread


@dataclass(frozen=True)
class Hubs:
    """S of pairs with hubs.

    Attributes
    ----------
    places : the place of each item among the hubs, −1 where it is none
    square : S of the hubs, both triangles
    rows : S of the other items with the hubs: pointers, places among the hubs, values
    """

    places: NDArray[np.int32]
    square: Float
    rows: tuple[Indices, NDArray[np.int16], Float]

    @property
    def arrays(self) -> tuple[Any, ...]:
        """All of it, as the kernels take it."""
        return self.places, self.square, self.rows


def most_entries(items: int, events: int) -> int:
    """Most entries by item that are stored."""
    return int(min(ENTRIES * events + FREE_ENTRIES, items * HUBS))


def find_hubs(data: Csr, by_item: Any, kernel: TimeKernel | None, clock: Any, *, dtype: Any, threads: int) -> Hubs:
    """The hubs of data: the HUBS most used items, and fewer where their pairs would take too much memory."""
    counts = np.diff(by_item[0])
    order = np.argsort(-counts, kind="stable")
    number = min(HUBS, len(counts))
    while True:
        chosen = np.sort(order[:number])
        places = np.full(len(counts), -1, np.int32)
        places[chosen] = np.arange(number)
        hub = places[data.indices] >= 0
        pointers = np.concatenate([[0], np.cumsum(hub)])[data.indptr]
        by_user = pointers, places[data.indices[hub]], data.data[hub]
        most = np.bincount(data.indices, np.repeat(np.diff(pointers), np.diff(data.indptr)), minlength=len(counts))
        most = np.where(places >= 0, 0, np.minimum(most, number)).astype(np.int64)
        if most.sum() <= most_entries(len(counts), data.nnz):
            break
        number //= 2
    square = np.empty((number, number), dtype, order="F")
    gram(data[:, chosen], square, kernel=None if kernel is None else kernel.part(hub), threads=threads)
    fill_upper(square, threads)
    hub_clock = None if clock is None else (clock[0], clock[1][hub], *clock[2:])
    rows = _rows(by_item, by_user, hub_clock, most, number, dtype, threads)
    return Hubs(places, square.T, rows)


def _rows(
    by_item: Any, by_user: Any, clock: Any, most: Indices, number: int, dtype: Any, threads: int
) -> tuple[Indices, NDArray[np.int16], Float]:
    """S of the items that are no hubs with the hubs; `most` bounds the entries of each item."""
    starts = np.concatenate([[0], np.cumsum(most)])
    places, values = np.empty(starts[-1], np.int16), np.empty(starts[-1], dtype)
    sizes = np.zeros(len(most), np.int64)

    def block(start: int, stop: int) -> None:
        scratch = np.zeros(number), np.full(number, -1, np.int64)
        _fill_rows(by_item, by_user, clock, starts, start, stop, sizes, places, values, scratch)

    parallel.parallel_for(block, len(most), BLOCK, threads)
    end = _pack_rows(starts, sizes, places, values)
    for array in (places, values):
        array.resize(end, refcheck=False)  # releases the unused tail without a copy
    return np.concatenate([[0], np.cumsum(sizes)]), places, values


@compiled
def _fill_rows(
    by_item: Any,
    by_user: Any,
    clock: Any,
    starts: Any,
    start: int,
    stop: int,
    sizes: Any,
    places: Any,
    values: Any,
    scratch: Any,
) -> None:
    pointers, owners, weights = by_item
    hub_pointers, hub_places, hub_weights = by_user
    total, mark = scratch  # zeros, and the item that last had an entry with each hub
    for item in range(start, stop):
        first = starts[item]
        if first == starts[item + 1]:
            continue
        end = first
        for p in range(pointers[item], pointers[item + 1]):
            weight = np.float64(weights[p])
            for r in range(hub_pointers[owners[p]], hub_pointers[owners[p] + 1]):
                place = hub_places[r]
                if mark[place] != item:
                    mark[place] = item
                    places[end] = place
                    end += 1
                if clock is None:
                    total[place] += weight * hub_weights[r]
                else:
                    near = at_distance(clock[2], clock[3], clock[0][p], clock[1][r])
                    total[place] += weight * hub_weights[r] * near
        for at in range(first, end):
            values[at] = total[places[at]]
            total[places[at]] = 0.0
        sizes[item] = end - first


@compiled
def _pack_rows(starts: Any, sizes: Any, places: Any, values: Any) -> int:
    """Move the rows together; return the number of entries."""
    end = 0
    for item in range(len(sizes)):
        first = starts[item]
        for at in range(first, first + sizes[item]):
            places[end], values[end] = places[at], values[at]
            end += 1
    return end
