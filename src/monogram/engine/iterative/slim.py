"""SLIM by coordinate descent with working sets, column by column, without an n × n array.

Column j of B minimises ½wᵀ(S + l2·I)w − sᵀw + l1·‖w‖₁ over the weights w of the other items, with s = S_j (and w ≥ 0).
With the gradient h = (S + l2·I)w − s, a weight above 0 must have h = −l1, one below 0 h = l1, one at 0 h ≥ −l1 (and
h ≤ l1 where signs are free). Where no entry of S is negative and w ≥ 0, Sw ≥ 0: an item with s_i ≤ l1 meets its
condition at 0 whatever the other weights are. Only items with s_i > l1 are *candidates*; this screening is exact.
Otherwise every other item is a candidate.

The *working set* has the candidates that may have a weight. A round computes h on all candidates, adds those whose
conditions are violated most to the working set, and minimises over the working set by coordinate descent. Rows of S are
copied when an item joins the working set, restricted to the candidates, whose order keeps the working set in front: the
sub-Gram of the working set is then the leading block of the copies. A column is finished when no condition on any
candidate is violated by more than `tolerance` times the largest s_i.

Columns are independent: the result does not depend on the number of threads.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import squares
from monogram.engine.gram.probes import probe_items
from monogram.engine.gram.sparse_rows import SparseRows
from monogram.engine.iterative.slim_columns import SIDE, solve_columns
from monogram.engine.linalg.small_cholesky import TILE
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float
from monogram.engine.runtime.progress import Stage, silent
from monogram.engine.topk.column_topk import from_columns
from monogram.errors import MemoryBudgetError

CHUNK = 16  # columns that a thread solves at a time
AREA = 2**23  # entries of the rows that are copied for a column, or
DEPTH = {True: 512, False: 2048}  # so many rows of all items, by whether the weights are positive


@dataclass(frozen=True)
class SlimProblem:
    """The objective of SLIM."""

    l1: float
    l2: float
    positive: bool


@dataclass(frozen=True)
class SlimSolution:
    """The weights as CSR, and the certificate of the solver.

    Attributes
    ----------
    matrix : the weights
    objective : ½‖X − XB‖² + ½·l2·‖B‖² + l1·‖B‖₁
    gap : bound on how far the objective is above its minimum; infinite where none is known
    passes : largest number of passes over the weights of a column
    unfinished : number of columns that did not converge
    """

    matrix: Csr
    objective: float
    gap: float
    passes: int
    unfinished: int


def area(n: int, positive: bool) -> int:
    """The number of entries of the copied rows that a thread holds."""
    return min(n * n, max(AREA, DEPTH[positive] * n))


def side(n: int) -> int:
    """The side of the square array in which a thread solves for the weights that are not zero."""
    return min(-(-n // TILE) * TILE, SIDE)


def slim(
    rows: SparseRows,
    problem: SlimProblem,
    *,
    epochs: int,
    tolerance: float,
    start: Csr | None = None,
    copied: int = 0,
    most: float = np.inf,
    threads: int = 1,
    stage: Stage = silent,
) -> SlimSolution:
    """All columns of the weights B of SLIM.

    Parameters
    ----------
    rows : S by rows
    epochs : maximum number of passes over the weights of a column
    tolerance : largest violation of a condition of the minimum, relative to the largest entry of the column of S
    start : weights to start from, such as those of a larger l1
    copied : entries of the copied rows that a thread may hold; at least those of `area`
        Memory is taken only for a column with so many weights; one with more weights than rows fit does not converge.
    most : maximum number of entries of the result
        MemoryBudgetError where it is exceeded.
    """
    n = rows.n
    held = min(n * n, max(copied, area(n, problem.positive)))
    columns = _Columns(rows, problem, epochs, tolerance, start, held)

    def solve(first: int, stop: int) -> None:
        columns.solve(first, stop)
        if columns.entries > most:
            raise MemoryBudgetError(
                f"the weights have more than the {int(most):,} entries that fit in memory, before all "
                f"{n:,} items are done"
            )

    parallel.parallel_for(solve, n, CHUNK, threads, lambda number: stage("columns", number))
    return columns.solution()


class _Columns:
    """The columns that are done, and the scratch arrays of the threads."""

    def __init__(
        self, rows: SparseRows, problem: SlimProblem, epochs: int, tolerance: float, start: Csr | None, held: int
    ) -> None:
        n, dtype, self.held = rows.n, rows.dtype, held
        self.rows, self.problem, self.epochs, self.tolerance = rows, problem, epochs, tolerance
        self.diagonal = rows.diagonal.astype(dtype)
        by_column = None if start is None else start.tocsc()
        empty = (np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, dtype))
        self.start = empty if by_column is None else (
            by_column.indptr.astype(np.int64), by_column.indices.astype(np.int32), by_column.data.astype(dtype)
        )  # fmt: skip
        self.columns: list[tuple[NDArray[np.int32], Float]] = [(empty[1], empty[2])] * n
        self.results = np.zeros((n, 4))  # objective, gap, passes, whether it has converged
        self.entries = 0
        self._free: list[tuple[Any, ...]] = []
        self._lock = threading.Lock()

    def solve(self, first: int, stop: int) -> None:
        """Solve some columns."""
        n, dtype, problem = self.rows.n, self.rows.dtype, self.problem
        with self._lock:
            scratch = self._free.pop() if self._free else self._scratch()
        indices, values = np.empty((stop - first, n), np.int32), np.empty((stop - first, n), dtype)
        counts = np.empty(stop - first, np.int64)
        solve_columns(
            self.rows.source,
            self.diagonal,
            self.start,
            dtype.type(problem.l1),
            dtype.type(problem.l2),
            problem.positive,
            problem.positive and self.rows.nonnegative,
            dtype.type(self.tolerance),
            self.epochs,
            first,
            stop,
            scratch,
            (indices, values, counts, self.results),
        )
        for at, number in enumerate(counts.tolist()):
            order = np.argsort(indices[at, :number])
            self.columns[first + at] = indices[at, order], values[at, order]
        with self._lock:
            self._free.append(scratch)
            self.entries += int(counts.sum())

    def _scratch(self) -> tuple[Any, ...]:
        n, dtype = self.rows.n, self.rows.dtype
        vectors = tuple(np.empty(n, dtype) for _ in range(4))  # s, w, h, and a row of S
        heap = np.empty(n, np.int64), np.empty(n)
        direct = np.empty((side(n), side(n)), dtype), *(np.empty(n, dtype) for _ in range(3)), np.empty(n, np.int32)
        return (
            *vectors,
            np.full(n, -1, np.int32),
            np.empty(n, np.int32),
            *heap,
            direct,
            np.empty(self.held, dtype),
        )

    def solution(self) -> SlimSolution:
        """All columns."""
        objective, gap = self.results[:, :2].sum(axis=0)
        unfinished = int((self.results[:, 3] == 0).sum())
        matrix = from_columns(self.columns, self.rows.dtype)
        return SlimSolution(matrix, float(objective), float(gap), int(self.results[:, 2].max(initial=0)), unfinished)


def optimality(matrix: Csr, weights: Csr, problem: SlimProblem) -> float:
    """The largest violation of the optimality conditions (KKT) by the weights, relative to max|S|.

    With the gradient g = S(B − I) + l2·B, an entry above 0 must have g = −l1, one below 0 g = l1, and one at 0
    g ≥ −l1 (and g ≤ l1 where signs are free). Computed in float64 on eight columns, from the data and not from the
    rows of S.
    """
    diagonal = squares(matrix)
    chosen = probe_items(diagonal)
    if not len(chosen):
        return 0.0
    own = (chosen, np.arange(len(chosen)))
    b = weights[:, chosen].toarray().astype(np.float64)
    moved = b.copy()
    moved[own] -= 1
    gradient = matrix.T @ (matrix @ moved) + problem.l2 * b
    at_zero = -gradient if problem.positive else np.abs(gradient)
    wrong = np.where(b == 0, np.maximum(at_zero - problem.l1, 0), np.abs(gradient + problem.l1 * np.sign(b)))
    wrong[own] = 0
    return float(wrong.max() / diagonal.max())
