"""The operator AᵀA of a log on a cluster, summed over partitions, for `engine.lowrank.spectrum`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.cluster import parts
from monogram.cluster.client import Cluster, Run
from monogram.cluster.gram import tile_side, tiles
from monogram.cluster.solve import receive
from monogram.engine.gram.operators import Operator, shifted
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import silent


class DistributedOperator(Operator):
    """The operator A = Y − a·bᵀ with its rows on the workers; only products with AᵀA are supported.

    Parameters
    ----------
    cluster : Cluster
    matrix : Y as CSR, m × n
    shift : (a, b), or None
    """

    def __init__(self, cluster: Cluster, matrix: Any, shift: tuple[Float64, Float64] | None = None) -> None:
        self.run, self.matrix, self.shift, self.threads, self.kernel = Run(cluster), matrix, shift, 1, None
        self._applied = 0
        with self.run.stage("sending the log"):
            cuts = parts.row_cuts(matrix, cluster.part)
            self._partitions = [self._send(n, *cut) for n, cut in enumerate(cuts)]

    def _send(self, number: int, start: int, stop: int) -> Any:
        own = self.shift and (self.shift[0][start:stop], self.shift[1])
        data = self.run.submit(parts.same, parts.part(self.matrix, start, stop), name=f"rows-{number}")
        return self.run.submit(Operator, data, own, name=f"operator-{number}")

    def item_gram_times(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product AᵀA·block: the products of the partitions, summed in float64."""
        self._applied += 1
        name = f"{self._applied}"
        with self.run.stage("a product of the spectrum"):
            pieces = self._pieces(np.ascontiguousarray(block), name)
            terms = [
                self.run.submit(apply, operator, pieces, name=f"apply-{name}-{n}")
                for n, operator in enumerate(self._partitions)
            ]
            summed = parts.total(self.run, terms, f"apply-{name}", block.dtype)
            del terms
            for _ in self.run.finished([summed]):
                pass
            return np.array(self.run.value(summed))  # a received array may be read-only

    def _pieces(self, block: NDArray[Any], name: str) -> list[Any]:
        """The block in pieces of rows, small enough for the argument of a task."""
        rows = max(1, self.run.cluster.part // max(1, block[:1].nbytes))
        starts = range(0, len(block), rows)
        return [
            self.run.submit(parts.same, block[start : start + rows].copy(), name=f"block-{name}-{start}")
            for start in starts
        ]

    def dense(self, side: str) -> Float64:
        """AᵀA as an array, lower triangle only."""
        if side != "items":
            raise ValueError(f"side = {side!r}; a distributed operator supports side='items' only")
        n = self.matrix.shape[1]
        gram_tiles = tiles(self.run, self.matrix, np.float64)
        out = np.zeros((n, n), np.float64, order="F")
        with self.run.stage("transferring the Gram matrix"):
            receive(self.run, gram_tiles, out, tile_side(n, self.run.cluster.tile), silent)
        return shifted(out, self.matrix, self.shift)


def apply(operator: Operator, pieces: list[NDArray[Any]]) -> NDArray[Any]:
    """AᵀA·block of one partition."""
    return operator.item_gram_times(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))
