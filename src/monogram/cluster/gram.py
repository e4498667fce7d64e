"""The Gram matrix by tiles of its lower triangle: products of sparse column slices, summed as trees.

Every tile is summed in float64 and rounded once. The partition depends on the data alone, so the result has the same
bits for any number of workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from monogram.cluster import parts
from monogram.cluster.client import Run
from monogram.engine.gram.accumulate import by_column
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.runtime.progress import Stage, silent

ROWS = 8  # rows of tiles, where the tiles are below their maximum size

Key = tuple[int, int]


def tile_side(n: int, largest: int) -> int:
    """The side of the tiles: at most `largest`, and small enough for about ROWS rows of tiles."""
    return max(1, min(largest, max(256, -(-n // ROWS)), n))


def spans(n: int, side: int) -> list[tuple[int, int]]:
    """The ranges of items, one for each row of tiles."""
    return [(start, min(start + side, n)) for start in range(0, n, side)]


def bundle_count(nbytes: int, rows: int, bundle: int) -> int:
    """The number of partial tiles that are summed to one tile: as few as the size of a bundle allows."""
    return max(1, -(-nbytes // (rows * bundle)))


def tiles(run: Run, matrix: Csr, dtype: Any, stage: Stage = silent) -> dict[Key, Any]:
    """Futures of the lower tiles of XᵀX; diagonal tiles have both triangles. All are finished on return."""
    n = matrix.shape[1]
    blocks = spans(n, tile_side(n, run.cluster.tile))
    with run.stage("the Gram"):
        slices = _slices(run, matrix, blocks)
        count = bundle_count(matrix.data.nbytes + matrix.indices.nbytes, len(blocks), run.cluster.bundle)
        futures = {
            (i, j): parts.total(run, _terms(run, slices, i, j, count), f"gram-{i}-{j}", np.dtype(dtype))
            for i in range(len(blocks))
            for j in range(i + 1)
        }
        del slices
        stage("gram", 0.0)
        for done in run.finished(futures.values()):
            stage("gram", n * done / len(futures))
    return futures


def _slices(run: Run, matrix: Csr, blocks: list[tuple[int, int]]) -> list[list[Any]]:
    """For each group of partitions, the column slices of all rows of tiles."""
    partitions = parts.spread(run, matrix)
    size = matrix.data.nbytes + matrix.indices.nbytes
    groups = np.array_split(np.arange(len(partitions)), min(len(partitions), max(1, -(-size // run.cluster.group))))
    return [
        [
            run.submit(cut, [partitions[at] for at in group], *block, name=f"cut-{g}-{b}")
            for b, block in enumerate(blocks)
        ]
        for g, group in enumerate(groups)
    ]


def _terms(run: Run, slices: list[list[Any]], i: int, j: int, count: int) -> list[Any]:
    """Futures of the partial tiles, one for each bundle of groups."""
    bundles = np.array_split(np.arange(len(slices)), min(count, len(slices)))
    return [
        run.submit(product, [slices[g][i] for g in bundle], [slices[g][j] for g in bundle], name=f"gram-{i}-{j}-{n}")
        for n, bundle in enumerate(bundles)
    ]


def cut(rows: list[Csr], start: int, stop: int) -> Csr:
    """Some columns of partitions, stacked, as CSR."""
    stacked = sp.vstack([part[:, start:stop] for part in rows], format="csr")
    stacked.sort_indices()
    indices, indptr = stacked.indices.astype(np.int32), stacked.indptr.astype(np.int64)
    return sp.csr_array((stacked.data, indices, indptr), shape=stacked.shape)


def product(lefts: list[Csr], rights: list[Csr]) -> Float64:
    """Σ leftᵀ·right as a dense array, every entry summed in float64 in the order of the rows."""
    out = np.zeros((lefts[0].shape[1], rights[0].shape[1]), order="F")
    for left, right in zip(lefts, rights, strict=True):
        pointers, owners, places = by_column(right)
        _product(pointers, owners, right.data[places], left.indptr, left.indices, left.data, out)
    return out


@kernel
def _product(pointers: Any, owners: Any, values: Any, indptr: Any, indices: Any, data: Any, out: Any) -> None:
    for j in range(out.shape[1]):
        column = out[:, j]
        for p in range(pointers[j], pointers[j + 1]):
            row = owners[p]
            factor = np.float64(values[p])
            for q in range(indptr[row], indptr[row + 1]):
                column[indices[q]] += factor * data[q]
