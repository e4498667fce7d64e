"""Weights of users, and factors of items.

A user counts w_u = unit·|I_u|^(−α), by which a row of the data counts in S = Xᵀ·diag(w)·X. |I_u| is the sum of the row:
on a binary log the number of items. A user without events has weight 1, which changes nothing. With
`unit` = |D| / Σ_v|I_v|^(1−α) the mean weight of an event is 1; α = 0 weighs all alike, α = 1 is the weighting of RG².
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from monogram.engine.gram.accumulate import row_sums
from monogram.engine.runtime.arrays import Float64


def unit(matrix: Any, power: float) -> float:
    """The factor of |I_u|^(−power) for which the mean weight of an event is 1; 1 without events."""
    sums = row_sums(matrix)
    sums = sums[sums > 0]
    return float(sums.sum() / (sums ** (1 - power)).sum()) if len(sums) else 1.0


def user_weights(matrix: Any, power: float, factor: float) -> Float64:
    """The weight factor·|I_u|^(−power) of each user; 1 for one without events."""
    sums = row_sums(matrix)
    return np.asarray(np.where(sums > 0, factor * np.where(sums > 0, sums, 1.0) ** -power, 1.0))


def scale_rows(matrix: Any, weights: Float64 | None) -> Any:
    """X̃ = diag(√w)·X, sharing the structure of X."""
    if weights is None:
        return matrix
    scaled = matrix.data * np.repeat(np.sqrt(weights), np.diff(matrix.indptr))
    return type(matrix)((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)


def largest_part(matrix: Any) -> Any:
    """The log without the events outside its largest connected part, by events.

    Users and items are connected by events. Small parts are much alike, and so are their singular values: where there
    are many of them, the leading directions would be any of theirs.
    """
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


def balanced(matrix: Any) -> Any:
    """The entries divided by the roots of both their row's and their column's sum: no singular value is above 1."""
    rows, columns = row_sums(matrix), np.bincount(matrix.indices, matrix.data, matrix.shape[1])
    below = np.sqrt(np.repeat(rows, np.diff(matrix.indptr)) * columns[matrix.indices])
    data = np.divide(matrix.data, below, out=np.zeros(len(below)), where=below > 0)
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def popularity(counts: Float64, power: float) -> Float64:
    """The factor max(users of an item, ½)^power of each item's scores."""
    return np.asarray(np.maximum(counts, 0.5) ** power)
