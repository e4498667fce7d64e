"""Partitions of the users on the workers, and tree sums over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.cluster.client import Run
from monogram.engine.runtime.arrays import Csr

FAN = 4  # arrays summed by one task


def row_cuts(matrix: Csr, size: int) -> list[tuple[int, int]]:
    """Ranges of rows of at most `size` bytes each (at least one row), whatever the number of workers."""
    each = matrix.data.itemsize + matrix.indices.itemsize
    entries = max(1, size // each)
    cuts, start, rows = [], 0, matrix.shape[0]
    while start < rows:
        stop = int(np.searchsorted(matrix.indptr, matrix.indptr[start] + entries, side="right")) - 1
        stop = min(max(stop, start + 1), rows, start + entries)
        cuts.append((start, stop))
        start = stop
    return cuts


def part(matrix: Csr, start: int, stop: int) -> Csr:
    """A copy of some rows of a CSR matrix, which does not refer to the other rows."""
    return matrix[start:stop].copy()


def same(value: Any) -> Any:
    """Return the argument: a task that sends its argument to the cluster, and again where a worker is lost."""
    return value


def spread(run: Run, matrix: Csr) -> list[Any]:
    """The partitions of a CSR matrix, each sent by its own task."""
    cuts = row_cuts(matrix, run.cluster.part)
    return [run.submit(same, part(matrix, *cut), name=f"part-{n}") for n, cut in enumerate(cuts)]


def total(run: Run, terms: Sequence[Any], name: str, dtype: Any = None) -> Any:
    """The sum of arrays as a tree, each sum in float64; the last one is cast to `dtype`."""
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
    """The sum of a few arrays in float64, cast to `dtype`."""
    if len(terms) == 1:
        return terms[0] if dtype is None else terms[0].astype(dtype, copy=False)
    out = np.add(terms[0], terms[1], dtype=np.float64)
    for term in terms[2:]:
        out += term
    return np.asarray(out, dtype)
