"""Find the rows of a matrix that histories are equal to: so a trained vector of a user is used for its history."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime.arrays import Csr, Float, Indices

_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, eq=False)
class KnownRows:
    """The rows of a matrix by their content; entries are sorted by column, as histories are.

    Parameters
    ----------
    matrix : CSR, users × items
    """

    matrix: Csr

    def find(self, histories: Csr) -> Indices:
        """For each history the first row that is equal to it; −1 where there is none, or the history is empty."""
        hashes, first = self._table
        wanted = row_hashes(histories)
        place = np.minimum(np.searchsorted(hashes, wanted), max(0, len(hashes) - 1))
        rows = np.full(len(wanted), -1, np.int64)
        if len(hashes):
            same = (hashes[place] == wanted) & (np.diff(histories.indptr) > 0)
            rows[same] = first[place[same]]
        rows[rows >= 0] = np.where(_equal(self.matrix, histories, rows), rows[rows >= 0], -1)
        return rows

    def average(self, vectors: Float) -> Float:
        """Vectors of the rows, with the mean vector for rows of equal content: equal histories have equal scores."""
        hashes = row_hashes(self.matrix)
        _, group, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        if not (counts > 1).any():
            return vectors
        sums = np.zeros((len(counts), vectors.shape[1]))
        np.add.at(sums, group, vectors)
        averaged = vectors.copy()
        several = counts[group] > 1
        averaged[several] = (sums[group] / counts[group, None])[several]
        return averaged

    @cached_property
    def _table(self) -> tuple[NDArray[np.uint64], Indices]:
        hashes, first = np.unique(row_hashes(self.matrix), return_index=True)
        return hashes, first


def row_hashes(matrix: Csr) -> NDArray[np.uint64]:
    """A hash of 64 bits of the entries of each row, which does not depend on their order."""
    columns, bits = matrix.indices.astype(np.uint64), matrix.data.astype(np.float32).view(np.uint32).astype(np.uint64)
    mixed = (columns + np.uint64(1)) * _ODD[0] ^ bits * _ODD[1]
    for shift, odd in ((30, _ODD[1]), (27, _ODD[2])):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * odd
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    return np.asarray(sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]])


def _equal(matrix: Csr, histories: Csr, rows: Indices) -> NDArray[np.bool_]:
    """For each history with a row, whether both have the same entries."""
    chosen = rows >= 0
    left, right = matrix[rows[chosen]], histories[chosen]
    same = np.asarray(np.diff(left.indptr) == np.diff(right.indptr))
    left, right = left[same], right[same]
    differ = (left.indices != right.indices) | (left.data != right.data)
    owner = np.repeat(np.flatnonzero(same), np.diff(left.indptr))
    same[owner[differ]] = False
    return same
