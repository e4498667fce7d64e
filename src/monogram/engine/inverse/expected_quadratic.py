"""The minimum of an expected quadratic loss from two moments: W = (E[x̂ᵀx̂] + Λ)⁻¹·E[x̂ᵀt].

The loss is E‖t − x̂W‖² + ‖Λ^½W‖², for any distribution of an input x̂ and a target t. With G = E[x̂ᵀx̂], T = E[x̂ᵀt] and
C = (G + Λ)⁻¹ column j is C·t_j. Where W_jj is fixed at ξ_j, the multiplier μ_j of that constraint adds μ_j·e_j to the
gradient: (G + Λ)w = t_j − μ_j·e_j with μ_j = ((CT)_jj − ξ_j)/C_jj. So W = C·V with V = T − diag(μ), and μ_j = 0 for a
free entry. A sparse V stays sparse, and W need not be formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from monogram.engine.gram.probes import probe_items
from monogram.engine.inverse.primal import invert_gram
from monogram.engine.linalg.symmetric import fill_upper, lower_times, symmetric_times, transpose
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.runtime.progress import Stage, silent

PANEL = 512  # columns multiplied at a time
SKETCH = 16  # random directions along which the gradient is measured
SLAB = 500_000  # entries gathered at a time


class Solution(NamedTuple):
    """W = C·V.

    Attributes
    ----------
    inverse : C, both triangles, C-ordered; None where W was formed
    by_column : V by column, the CSR matrix of its transpose; None where W was formed
    weights : W as an array, C-ordered; None where it was not formed
    residual : estimated norm of the gradient on the probe columns, relative to the largest norm of a column of T
    """

    inverse: Float | None
    by_column: Csr | None
    weights: Float | None
    residual: float


def minimise(
    second: Float,
    cross: Csr | Float,
    penalties: Float64,
    diagonal: Float64 | None = None,
    *,
    threads: int = 1,
    stage: Stage = silent,
) -> Solution:
    """The minimum of the expected loss.

    Parameters
    ----------
    second : G in the lower triangle of a Fortran-ordered array, which is overwritten
    cross : T by column, as the CSR matrix of its transpose, or a Fortran-ordered array, which is overwritten
    penalties : ℓ, the diagonal of Λ
    diagonal : ξ, the values at which the diagonal of W is fixed; NaN where it is free. None: all are free
    """
    probes = _Probes(second, cross, penalties)
    invert_gram(second, penalties, stage)
    fill_upper(second, threads)
    inverse = second.T
    if isinstance(cross, np.ndarray):
        multipliers = _multiply(inverse, cross, diagonal, stage)
        residual = probes.residual(cross[:, probes.items].astype(np.float64), multipliers)
        return Solution(None, None, transpose(cross), residual)
    multipliers = np.zeros(len(inverse))
    if diagonal is not None:
        own = np.diagonal(inverse).astype(np.float64)
        multipliers = np.where(np.isnan(diagonal), 0.0, (_diagonal_of_product(inverse, cross) - diagonal) / own)
        multipliers = multipliers.astype(cross.dtype)
        cross = sp.csr_array(cross - sp.diags_array(multipliers, dtype=cross.dtype))
        cross.sort_indices()
    wanted = cross[probes.items].toarray().T.astype(np.float64)
    columns = np.asarray(symmetric_times(inverse, wanted), np.float64)
    residual = probes.residual(columns, multipliers.astype(np.float64))
    return Solution(inverse, cross, None, residual)


class _Probes:
    """Columns of T, and random combinations ω of the rows of G + Λ, from before the array of G is overwritten.

    For random signs ω the mean of (ωᵀr)² is ‖r‖², so the combinations measure the whole gradient r of a column.
    """

    def __init__(self, second: Float, cross: Csr | Float, penalties: Float64) -> None:
        n = len(second)
        self.items: Indices = probe_items(np.diagonal(second).astype(np.float64))
        self._signs = np.random.default_rng(0).choice([-1.0, 1.0], (n, min(SKETCH, n)))
        self._combined = lower_times(second, self._signs) + penalties[:, None] * self._signs
        if isinstance(cross, np.ndarray):
            self._targets = cross[:, self.items].astype(np.float64)
            largest = max((_norms(cross[:, a : a + PANEL].T).max() for a in range(0, n, PANEL)), default=0.0)
        else:
            self._targets = cross[self.items].toarray().T.astype(np.float64)
            squared = sum(
                (np.bincount(columns, values**2, n) for columns, _, values in _entries(cross)), start=np.zeros(n)
            )
            largest = float(np.sqrt(squared.max(initial=0.0)))
        self._largest = float(largest)

    def residual(self, columns: Float64, multipliers: Float64) -> float:
        """The norm of the gradient (G + Λ)W − T + diag(μ) on the probe columns, relative to that of T."""
        if not len(self.items) or not self._largest:
            return 0.0
        sketched = self._combined.T @ columns - self._signs.T @ self._targets
        sketched += self._signs[self.items].T * multipliers[self.items]
        return float(np.sqrt((sketched**2).mean(axis=0)).max() / self._largest)


def _norms(rows: Any) -> Float64:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)))


def _multiply(inverse: Float, cross: Float, diagonal: Float64 | None, stage: Stage) -> Float64:
    """W over the array of T, panel by panel; the multipliers of the constraints."""
    n = len(inverse)
    multipliers, own = np.zeros(n), np.diagonal(inverse).astype(np.float64)
    for start in range(0, n, PANEL):
        items = np.arange(start, min(start + PANEL, n))
        panel = inverse @ cross[:, items]
        if diagonal is not None:
            fixed = ~np.isnan(diagonal[items])
            at = items[fixed], np.flatnonzero(fixed)
            multipliers[at[0]] = (panel[at].astype(np.float64) - diagonal[at[0]]) / own[at[0]]
            panel -= inverse[items].T * multipliers[items].astype(inverse.dtype)
            panel[at] = diagonal[at[0]]
        cross[:, items] = panel
        stage("product", len(items))
    return multipliers


def _diagonal_of_product(inverse: Float, by_column: Csr) -> Float64:
    """The diagonal of C·T for a sparse T, in float64."""
    total = np.zeros(len(inverse))
    for columns, rows, values in _entries(by_column):
        total += np.bincount(columns, inverse[columns, rows].astype(np.float64) * values, len(total))
    return total


def _entries(by_column: Csr) -> Iterator[tuple[Indices, Indices, Float64]]:
    """Yield column, row and value of the entries of a sparse matrix that is stored by column, in slabs."""
    for start in range(0, by_column.nnz, SLAB):
        stop = min(start + SLAB, by_column.nnz)
        columns = np.searchsorted(by_column.indptr, np.arange(start, stop), side="right") - 1
        yield columns, by_column.indices[start:stop], by_column.data[start:stop].astype(np.float64)
