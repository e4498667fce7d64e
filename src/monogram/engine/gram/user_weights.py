"""User weights in the Gram matrix, normalisation of the data, and popularity factors of the items.

S = Xᵀ·diag(w)·X with the user weights w_u = unit·|I_u|^(−α). |I_u| is the sum of the row: the number of items on a
binary log. A user without events has weight 1, which has no effect. With `unit` = |D| / Σ_v|I_v|^(1−α) the mean weight
of an event is 1. α = 0 gives equal weights, α = 1 is the weighting of RG².
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from monogram.engine.gram.accumulate import row_sums
from monogram.engine.runtime.arrays import Csr, Float64


def unit(matrix: Csr, power: float) -> float:
    """The factor of |I_u|^(−power) that makes the mean weight of an event 1; 1 for a log without events."""
    sums = row_sums(matrix)
    sums = sums[sums > 0]
    return float(sums.sum() / (sums ** (1 - power)).sum()) if len(sums) else 1.0


def user_weights(matrix: Csr, power: float, factor: float) -> Float64:
    """The weight factor·|I_u|^(−power) of each user; 1 for a user without events."""
    sums = row_sums(matrix)
    return np.asarray(np.where(sums > 0, factor * np.where(sums > 0, sums, 1.0) ** -power, 1.0))


def scale_rows(matrix: Csr, weights: Float64 | None) -> Csr:
    """X̃ = diag(√w)·X; the index arrays of X are shared."""
    if weights is None:
        return matrix
    scaled = matrix.data * np.repeat(np.sqrt(weights), np.diff(matrix.indptr))
    return type(matrix)((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)


def largest_part(matrix: Csr) -> Csr:
    """The log restricted to its connected component with the most events (a bipartite graph of users and items).

    Many small components have nearly equal singular values, so the leading singular vectors would be an arbitrary
    choice among them.
    """
    from scipy.sparse.csgraph import connected_components

    users, items = matrix.shape
    ends = np.append(matrix.indptr, np.full(items, matrix.nnz))
    graph = sp.csr_array((np.ones(matrix.nnz, np.int8), matrix.indices + users, ends), shape=(users + items,) * 2)
    number, labels = connected_components(graph, directed=False)
    lengths = np.diff(matrix.indptr)
    events = np.bincount(labels[:users], lengths, number)
    if events.max(initial=0) == matrix.nnz:
        return matrix
    inside = np.repeat(labels[:users] == events.argmax(), lengths)
    pointers = np.concatenate([[0], np.cumsum(inside)])[matrix.indptr]
    return sp.csr_array((matrix.data[inside], matrix.indices[inside], pointers), shape=matrix.shape)


def balanced(matrix: Csr) -> Csr:
    """Each entry divided by √(row sum · column sum): no singular value exceeds 1."""
    rows, columns = row_sums(matrix), np.bincount(matrix.indices, matrix.data, matrix.shape[1])
    divisors = np.sqrt(np.repeat(rows, np.diff(matrix.indptr)) * columns[matrix.indices])
    data = np.divide(matrix.data, divisors, out=np.zeros(len(divisors)), where=divisors > 0)
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def popularity(counts: Float64, power: float) -> Float64:
    """The factor max(number of users, ½)^power of the scores of each item."""
    return np.asarray(np.maximum(counts, 0.5) ** power)
