"""Users in partitions on the workers, and sums over them as trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.cluster.client import Run

FAN = 4  # summed by one task


def row_cuts(matrix: Any, size: int) -> list[tuple[int, int]]:
    """Ranges of rows of at most so many bytes each (but at least one row), whatever the number of workers."""
    each = matrix.data.itemsize + matrix.indices.itemsize
    room = max(1, size // each)
    cuts, start, rows = [], 0, matrix.shape[0]
    while start < rows:
        stop = int(np.searchsorted(matrix.indptr, matrix.indptr[start] + room, side="right")) - 1
        stop = min(max(stop, start + 1), rows, start + room)
        cuts.append((start, stop))
        start = stop
    return cuts


def part(matrix: Any, start: int, stop: int) -> Any:
    """Some rows of a CSR matrix, without the others behind them."""
    return matrix[start:stop].copy()


def same(value: Any) -> Any:
    """What was given: a task that carries its argument to the cluster, and can do so again."""
    return value


def spread(run: Run, matrix: Any) -> list[Any]:
    """The partitions of a CSR matrix, each the argument of a task of its own."""
    cuts = row_cuts(matrix, run.cluster.part)
    return [run.submit(same, part(matrix, *cut), name=f"part-{n}") for n, cut in enumerate(cuts)]


def total(run: Run, terms: Sequence[Any], name: str, dtype: Any = None) -> Any:
    """The sum of arrays as a tree, each sum in float64; the last one in the given precision."""
    level = list(terms)
    depth = 0
    while True:
        groups = [level[start : start + FAN] for start in range(0, len(level), FAN)]
        last = len(groups) == 1
        if last and depth == 0 and len(level) == 1 and dtype is None:
            return level[0]
        level = [
            run.submit(add, group, dtype if last else None, name=f"{name}-sum-{depth}-{n}")
            for n, group in enumerate(groups)
        ]
        if last:
            return level[0]
        depth += 1


def add(terms: list[NDArray[Any]], dtype: Any = None) -> NDArray[Any]:
    """The sum of a few arrays in float64, then in the given precision."""
    if len(terms) == 1:
        return terms[0] if dtype is None else terms[0].astype(dtype, copy=False)
    out = np.add(terms[0], terms[1], dtype=np.float64)
    for term in terms[2:]:
        out += term
    return np.asarray(out, dtype)
