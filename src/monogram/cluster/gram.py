"""The Gram by tiles of its lower triangle: sparse columns of the partitions in, dense tiles out, summed as trees.

Every tile is summed in float64 and rounded once. How the data is cut depends on the data alone, so that the number of
workers changes no bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.cluster import parts
from monogram.cluster.client import Run
from monogram.engine.gram.accumulate import by_column
from monogram.engine.runtime.jit import kernel
from monogram.engine.runtime.progress import Stage, silent

ROWS = 8  # of tiles, where they are not as large as they may be

Key = tuple[int, int]


def tile_side(n: int, largest: int) -> int:
    """The side of the tiles: enough of them to share, none larger than asked."""
    return max(1, min(largest, max(256, -(-n // ROWS)), n))


def spans(n: int, side: int) -> list[tuple[int, int]]:
    """The ranges of items, one a row of tiles."""
    return [(start, min(start + side, n)) for start in range(0, n, side)]


def bundle_count(nbytes: int, rows: int, bundle: int) -> int:
    """How many partial tiles are summed to one: as few as the columns of the log, in so many rows of tiles, allow."""
    return max(1, -(-nbytes // (rows * bundle)))


def tiles(run: Run, matrix: Any, dtype: Any, stage: Stage = silent) -> dict[Key, Any]:
    """Futures of the lower tiles of XᵀX; the diagonal ones are whole. All are done when this returns."""
    n = matrix.shape[1]
    blocks = spans(n, tile_side(n, run.cluster.tile))
    with run.stage("the Gram"):
        slices = _slices(run, matrix, blocks)
        count = bundle_count(matrix.data.nbytes + matrix.indices.nbytes, len(blocks), run.cluster.bundle)
        found = {
            (i, j): parts.total(run, _terms(run, slices, i, j, count), f"gram-{i}-{j}", np.dtype(dtype))
            for i in range(len(blocks))
            for j in range(i + 1)
        }
        del slices
        stage("gram", 0.0)
        for done in run.finished(found.values()):
            stage("gram", n * done / len(found))
    return found


def _slices(run: Run, matrix: Any, blocks: list[tuple[int, int]]) -> list[list[Any]]:
    """By group of partitions: the columns of each row of tiles."""
    held = parts.spread(run, matrix)
    size = matrix.data.nbytes + matrix.indices.nbytes
    groups = np.array_split(np.arange(len(held)), min(len(held), max(1, -(-size // run.cluster.group))))
    return [
        [run.submit(cut, [held[at] for at in group], *block, name=f"cut-{g}-{b}") for b, block in enumerate(blocks)]
        for g, group in enumerate(groups)
    ]


def _terms(run: Run, slices: list[list[Any]], i: int, j: int, count: int) -> list[Any]:
    """Futures of the partial tiles, each of a bundle of groups."""
    bundles = np.array_split(np.arange(len(slices)), min(count, len(slices)))
    return [
        run.submit(product, [slices[g][i] for g in own], [slices[g][j] for g in own], name=f"gram-{i}-{j}-{n}")
        for n, own in enumerate(bundles)
    ]


def cut(rows: list[Any], start: int, stop: int) -> Any:
    """Some columns of partitions, one under the other, as CSR."""
    found = sp.vstack([one[:, start:stop] for one in rows], format="csr")
    found.sort_indices()
    return sp.csr_array((found.data, found.indices.astype(np.int32), found.indptr.astype(np.int64)), shape=found.shape)


def product(lefts: list[Any], rights: list[Any]) -> NDArray[np.float64]:
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
