"""W as an n × n array, and constant scores that do not depend on the history."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.inverse.disk import ScratchFolder
from monogram.engine.runtime.arrays import Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.by_rows import best_by_rows, heads_by_rows
from monogram.engine.topk.scores import sum_rows
from monogram.weights.common import Tensors, checked


class Dense:
    """W as one C-ordered array: row i holds what item i of a history adds to every score.

    Where the array is a memory-mapped file of a fit on disk, `scratch` is the folder of that file.
    """

    kind = "dense"
    linear = True

    def __init__(self, matrix: NDArray[Any], scratch: ScratchFolder | None = None) -> None:
        self.matrix, self.scratch = matrix, scratch

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Any) -> Dense:
        """Build from stored arrays."""
        n = training.shape[1]
        return cls(checked(tensors, "weights", (n, n)))

    @property
    def nbytes(self) -> int:
        return int(self.matrix.nbytes)

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        return best_by_rows(self.matrix, histories, eligible, k, threads=threads)

    def heads(self, thetas: Float64, histories: Any, eligible: Eligible, k: int, threads: int) -> list[Best]:
        """The best items by each row of `thetas` times the scores: for models that differ by one factor per item."""
        return heads_by_rows(self.matrix, thetas, histories, eligible, k, threads=threads)

    def score(self, histories: Any, items: Indices, threads: int) -> Float64:
        return sum_rows(self.matrix, histories, items, threads=threads)

    def columns(self, items: Indices) -> Float64:
        return self.matrix[:, items].astype(np.float64)

    def shares(self, history: Any, item: int) -> Float64:
        return np.asarray(self.matrix[history.indices, item].astype(np.float64) * history.data)

    def base(self, items: Indices) -> Float64:
        return np.zeros(len(items))

    def tensors(self) -> Tensors:
        return {"weights": self.matrix}


class Fixed:
    """One score for each item, whatever the history."""

    kind = "fixed"
    linear = False

    def __init__(self, scores: Float64) -> None:
        self.scores = scores

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Any) -> Fixed:
        """Build from stored arrays."""
        return cls(checked(tensors, "scores", (training.shape[1],)))

    @property
    def nbytes(self) -> int:
        return int(self.scores.nbytes)

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        no_rows = np.empty((0, len(self.scores)))
        return best_by_rows(no_rows, histories, eligible, k, base=self.scores, threads=threads)

    def score(self, histories: Any, items: Indices, threads: int) -> Float64:
        return np.tile(self.scores[items], (histories.shape[0], 1))

    def columns(self, items: Indices) -> Float64:
        return np.zeros((len(self.scores), len(items)))

    def shares(self, history: Any, item: int) -> Float64:
        return np.zeros(history.nnz)

    def base(self, items: Indices) -> Float64:
        return np.asarray(self.scores[items])

    def tensors(self) -> Tensors:
        return {"scores": self.scores}
