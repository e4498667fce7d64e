"""Cosines between the embeddings of similar items, in encoder and decoder of a low-rank model (P4, figure 1).

W = UVᵀ fixes U and V only up to an invertible k × k matrix, and cosines depend on it. Here U = P·Σ^½ and V = Q·Σ^½ with
the singular value decomposition W = PΣQᵀ: the factors of W of least ‖U‖² + ‖V‖².
"""

from __future__ import annotations

import numpy as np

from monogram.engine.runtime.arrays import Float64, Indices
from monogram.errors import ParameterError
from monogram.weights import Factors, Weights

SIMILAR = 10  # items in a set, as in the paper
BINS = 80  # of a histogram from -1 to 1
BLOCK = 512  # items at a time


def similar_items(weights: Weights, items: int, count: int = SIMILAR) -> Indices:
    """For each item the items with the largest weights in its column of W, without itself (items × count).

    Parameters
    ----------
    weights : of the model that defines similarity
    items : their number, above `count`
    """
    if items <= count:
        raise ParameterError(f"{items} items have no sets of {count} similar items; expected at least {count + 1}")
    sets = np.empty((items, count), np.int64)
    for start in range(0, items, BLOCK):
        block = np.arange(start, min(start + BLOCK, items))
        columns = np.array(weights.columns(block), np.float64)
        columns[block, block - start] = -np.inf
        sets[block] = np.argpartition(-columns, count - 1, axis=0)[:count].T
    return sets


def balanced(factors: Factors) -> tuple[Float64, Float64]:
    """Encoder and decoder with equal scales: U = P·Σ^½, V = Q·Σ^½ of W = PΣQᵀ."""
    left, upper = np.linalg.qr(factors.left.astype(np.float64) * factors.scale)
    right, lower = np.linalg.qr(factors.right.astype(np.float64))
    p, sigma, q = np.linalg.svd(upper @ lower.T)
    root = np.sqrt(sigma)
    return left @ p * root, right @ q.T * root


def median_cosines(vectors: Float64, sets: Indices) -> Float64:
    """The median cosine over the pairs of each set of items; sets with an embedding that is 0 are left out.

    Parameters
    ----------
    vectors : an embedding for each item
    sets : items of each set, in rows
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.full_like(vectors, np.nan), where=norms > 0)
    above = np.triu_indices(sets.shape[1], 1)
    medians = []
    for start in range(0, len(sets), BLOCK):
        members = unit[sets[start : start + BLOCK]]
        medians.append(np.median((members @ members.transpose(0, 2, 1))[:, above[0], above[1]], axis=1))
    values = np.concatenate(medians)
    return np.asarray(values[~np.isnan(values)])


def histogram(values: Float64) -> list[int]:
    """The number of values in each of the equal bins from -1 to 1."""
    counts, _ = np.histogram(np.clip(values, -1, 1), bins=BINS, range=(-1, 1))
    return [int(count) for count in counts]
