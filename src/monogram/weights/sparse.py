"""W as a sparse matrix."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from monogram.engine.runtime.arrays import Csr, Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.few import best_by_sparse_rows
from monogram.engine.topk.scores import entries, sum_sparse_rows
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights, checked, whole_numbers


class Sparse(Weights):
    """W as CSR: row i holds what item i of a history adds to the scores of a few items."""

    kind = "sparse"
    linear = True
    batch_invariant = True

    def __init__(self, matrix: Csr) -> None:
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self.matrix = matrix

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> Sparse:
        """Build from stored arrays, with all indices checked: a kernel would read out of bounds at a wrong index."""
        n = training.shape[1]
        columns, pointers = (whole_numbers(tensors, name) for name in ("columns", "pointers"))
        try:
            matrix = sp.csr_array((checked(tensors, "values", columns.shape), columns, pointers), shape=(n, n))
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise ModelFileError(f"the file's sparse weights are not a matrix ({error})") from error
        if not matrix.has_canonical_format:
            raise ModelFileError("the file's sparse weights are not in canonical form")
        return cls(matrix)

    @property
    def nbytes(self) -> int:
        return int(self.matrix.data.nbytes + self.matrix.indices.nbytes + self.matrix.indptr.nbytes)

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        return best_by_sparse_rows(self.matrix, histories, eligible, k, threads=threads)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        return sum_sparse_rows(self.matrix, histories, items, threads=threads)

    def columns(self, items: Indices) -> Float64:
        return np.asarray(self.matrix[:, items].astype(np.float64).toarray())

    def shares(self, history: Csr, item: int) -> Float64:
        return np.asarray(entries(self.matrix, history.indices, item) * history.data)

    def tensors(self) -> Tensors:
        return {"values": self.matrix.data, "columns": self.matrix.indices, "pointers": self.matrix.indptr}
