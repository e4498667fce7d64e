"""AᵀA of a log on a cluster, summed over partitions: what `engine.lowrank.spectrum` multiplies with."""

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
    """The operator A = Y − a·bᵀ with its rows on the workers; it multiplies by AᵀA, on the items' side.

    Parameters
    ----------
    cluster : Cluster
    matrix : Y as CSR, m × n
    shift : (a, b), or None
    """

    def __init__(self, cluster: Cluster, matrix: Any, shift: tuple[Float64, Float64] | None = None) -> None:
        self.run, self.matrix, self.shift, self.threads = Run(cluster), matrix, shift, 1
        self._applied = 0
        with self.run.stage("sending the log"):
            cuts = parts.row_cuts(matrix, cluster.part)
            self._held = [self._send(n, *cut) for n, cut in enumerate(cuts)]

    def _send(self, number: int, start: int, stop: int) -> Any:
        own = self.shift and (self.shift[0][start:stop], self.shift[1])
        data = self.run.submit(parts.same, parts.part(self.matrix, start, stop), name=f"rows-{number}")
        return self.run.submit(Operator, data, own, name=f"operator-{number}")

    def item_gram_times(self, block: NDArray[Any]) -> NDArray[Any]:
        """The product AᵀA·block: each partition's own, summed in float64."""
        self._applied += 1
        name = f"{self._applied}"
        with self.run.stage("a product of the spectrum"):
            pieces = self._pieces(np.ascontiguousarray(block), name)
            terms = [self.run.submit(apply, one, pieces, name=f"apply-{name}-{n}") for n, one in enumerate(self._held)]
            summed = parts.total(self.run, terms, f"apply-{name}", block.dtype)
            del terms
            for _ in self.run.finished([summed]):
                pass
            return np.array(self.run.value(summed))  # what comes over the line may not be writeable

    def _pieces(self, block: NDArray[Any], name: str) -> list[Any]:
        """The block in pieces of rows, none larger than a task may carry."""
        rows = max(1, self.run.cluster.part // max(1, block[:1].nbytes))
        starts = range(0, len(block), rows)
        return [
            self.run.submit(parts.same, block[start : start + rows].copy(), name=f"block-{name}-{start}")
            for start in starts
        ]

    def dense(self, side: str) -> Float64:
        """AᵀA as an array, lower triangle only."""
        if side != "items":
            raise ValueError(f"side = {side!r}; a spread operator knows the items' side only")
        n = self.matrix.shape[1]
        held = tiles(self.run, self.matrix, np.float64)
        out = np.zeros((n, n), np.float64, order="F")
        with self.run.stage("bringing the Gram"):
            receive(self.run, held, out, tile_side(n, self.run.cluster.tile), silent)
        return shifted(out, self.matrix, self.shift)


def apply(operator: Operator, pieces: list[NDArray[Any]]) -> NDArray[Any]:
    """AᵀA·block of one partition."""
    return operator.item_gram_times(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))
