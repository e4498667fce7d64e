"""Products of the vectors of pairs: for each pair (a, b) the product x_a·y_b, and the sums that are their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.gram.propagate import multiply_add
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Indices
from monogram.engine.runtime.jit import fused, kernel

PAIRS = 4096  # in one task


def pair_products(left: Float, right: Float, pairs: tuple[Indices, Indices], threads: int = 1) -> Float:
    """x_a·y_b for each pair (a, b). The bits do not depend on the number of threads."""
    out = np.empty(len(pairs[0]), left.dtype)
    parallel.parallel_for(lambda start, stop: _dots(left, right, *pairs, out, start, stop), len(out), PAIRS, threads)
    return out


def add_pairs(weights: Float, right: Float, pairs: tuple[Indices, Indices], rows: int, threads: int = 1) -> Float:
    """Σ_p w_p·y_b over the pairs p = (a, b), for each a < `rows`: the product of a sparse matrix with Y."""
    pointers = np.zeros(rows + 1, np.int32)
    indices, data = np.empty(len(weights), np.int32), np.empty_like(weights)
    _group(*pairs, weights, pointers, indices, data)
    return multiply_add(Csr((data, indices, pointers), shape=(rows, len(right))), right, None, threads)


@fused
def _dots(left: Any, right: Any, a: Any, b: Any, out: Any, start: int, stop: int) -> None:
    for p in range(start, stop):
        x, y = left[a[p]], right[b[p]]
        total = x[0] * y[0]
        for t in range(1, len(x)):
            total += x[t] * y[t]
        out[p] = total


@kernel
def _group(a: Any, b: Any, weights: Any, pointers: Any, indices: Any, data: Any) -> None:
    """Sort pairs by their first number, by counting; equal ones stay in order."""
    for p in range(len(a)):
        pointers[a[p] + 1] += 1
    for row in range(1, len(pointers)):
        pointers[row] += pointers[row - 1]
    for p in range(len(a)):
        place = pointers[a[p]]
        indices[place], data[place] = b[p], weights[p]
        pointers[a[p]] = place + 1
    for row in range(len(pointers) - 1, 0, -1):
        pointers[row] = pointers[row - 1]
    pointers[0] = 0
