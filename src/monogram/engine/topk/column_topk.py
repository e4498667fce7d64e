"""A few entries of each column of a matrix that is never formed whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64, Indices
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk.selection import offer

WIDTH = 256  # columns at a time


def entry_bytes(dtype: Any) -> int:
    """Bytes an entry takes while columns become rows: once in each order."""
    return 2 * (int(np.dtype(dtype).itemsize) + 4)


def from_columns(columns: Sequence[tuple[NDArray[np.int32], NDArray[Any]]], dtype: Any) -> Any:
    """A square CSR matrix from the rows and the values of each of its columns."""
    n = len(columns)
    pointers = np.cumsum([0] + [len(rows) for rows, _ in columns])
    rows = np.concatenate([rows for rows, _ in columns])
    values = np.concatenate([values for _, values in columns], dtype=dtype)
    return sp.csc_array((values, rows, pointers), shape=(n, n)).tocsr()


def thin(
    columns: Callable[[Indices], Float64],
    n: int,
    keep: int,
    *,
    dtype: Any,
    diagonal: bool = False,
    threads: int = 1,
) -> Any:
    """A square CSR matrix with the `keep` entries of largest magnitude of each column, and no zeros.

    Parameters
    ----------
    columns : gives a block of columns, n × b
    keep : entries kept beside the diagonal; between equals, those in the rows of lower index
    diagonal : keep the diagonal too, beside them (else it is left out)
    """
    parts = []
    for start in range(0, n, WIDTH):
        block = np.asfortranarray(columns(np.arange(start, min(start + WIDTH, n))))
        for place, rows in enumerate(_largest(block, start, min(keep, n), diagonal, threads)):
            parts.append((rows, block[rows, place].astype(dtype)))
    return from_columns(parts, dtype)


def _largest(block: Float64, offset: int, keep: int, diagonal: bool, threads: int) -> Iterator[NDArray[np.int32]]:
    width = block.shape[1]
    rows, counts = np.empty((width, keep + 1), np.int32), np.empty(width, np.int64)

    def choose(start: int, stop: int) -> None:
        _choose(block, offset, diagonal, rows, counts, start, stop, np.empty(keep, np.int64), np.empty(keep))

    parallel.parallel_for(choose, width, 16, threads)
    for place, count in enumerate(counts):
        yield np.sort(rows[place, :count])


@kernel
def _choose(
    block: Any, offset: int, diagonal: bool, rows: Any, counts: Any, start: int, stop: int, items: Any, sizes: Any
) -> None:
    """For columns of a block: the rows of the entries to keep, in no order."""
    keep = len(items)
    for place in range(start, stop):
        own, count = offset + place, 0
        column = block[:, place]
        for i in range(len(column)):
            size = abs(column[i])
            if size > 0 and i != own and (count < keep or size > sizes[0]):
                count = offer(items, sizes, count, i, size)
        for t in range(count):
            rows[place, t] = items[t]
        if diagonal and column[own] != 0:
            rows[place, count] = own
            count += 1
        counts[place] = count
