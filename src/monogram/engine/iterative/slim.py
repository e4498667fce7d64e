"""SLIM by ADMM with one inverse, in a pool of columns.

Column j of B minimises ½(b − e_j)ᵀS(b − e_j) + ½·l2·‖b‖² + l1·‖b‖₁ with b_j = 0 (and b ≥ 0). ADMM splits it into a
smooth part b and a copy z with the l1 norm and the sign constraint, coupled by penalties ρ_i and a scaled dual γ:

    b = e_j + C(ρ∘(z − γ) − ν·e_j),  C = (S + diag(l2 + ρ))⁻¹,  ν = (1 + (C(ρ∘(z − γ)))_j)/C_jj, so that b_j = 0
    v = a·b + (1 − a)·z + γ,  z = prox(v), γ = v − z,  with over-relaxation a and prox the threshold l1/ρ_i

S itself is not needed (CS = I − C·diag(l2 + ρ)), and both z and γ follow from v. The columns are independent. Memory is
one n × n array, C, and three arrays of the columns in the pool: v, ρ∘(z − γ), and its product with C. A finished column
is replaced by the next one, so that every matrix product has the full width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import squares
from monogram.engine.gram.probes import probe_items
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.runtime.progress import Stage, silent
from monogram.engine.topk.column_topk import from_columns
from monogram.errors import MemoryBudgetError

WIDTH = 512  # columns in the pool
RELAXED = 1.6  # the usual over-relaxation of ADMM: between 1.5 and 1.8
_EMPTY = (np.zeros(0, np.int32), np.zeros(0, np.float32))


@dataclass(frozen=True)
class SlimProblem:
    """The objective of SLIM, and the penalties ρ of ADMM."""

    l1: float
    l2: float
    positive: bool
    rho: Float64  # ρ, one for each item


@dataclass(frozen=True)
class SlimSolution:
    """The weights as CSR, the objective by epoch, the number of epochs, and of columns that did not converge."""

    matrix: Csr
    record: list[float]
    epochs: int
    unfinished: int


def width(n: int) -> int:
    """The number of columns in the pool."""
    return min(n, WIDTH)


def penalties(diagonal: Float64, l2: float, rho: float) -> Float64:
    """The penalties ρ_i = rho·√((d_i + l2)·mean(d + l2)).

    A compromise: equal penalties converge slowly for rare items, penalties proportional to d + l2 for popular ones.
    """
    size = diagonal + l2
    mean = float(size.mean()) or 1.0
    return np.asarray(rho * np.sqrt(np.where(size > 0, size, mean) * mean))


def slim(
    inverse: Float,
    problem: SlimProblem,
    *,
    epochs: int,
    tolerance: float,
    most: float = np.inf,
    threads: int = 1,
    stage: Stage = silent,
) -> SlimSolution:
    """All columns of the weights B of SLIM.

    Parameters
    ----------
    inverse : C = (S + diag(l2 + ρ))⁻¹, n × n, both triangles
    epochs : maximum number of steps of a column
    tolerance : at which a column has converged
        Of the primal residual ‖b − z‖ and the dual ‖z − z'‖, in the norm of ρ, relative to the largest of b, z and γ.
    most : maximum number of entries of the result
        MemoryBudgetError where it is exceeded.
    """
    pool, finished = _Pool(inverse, problem, threads), _Finished(len(inverse), epochs)
    while pool.size:
        residuals, objectives = pool.step()
        leaving = finished.take(pool, residuals <= tolerance, objectives)
        if finished.entries > most:
            raise MemoryBudgetError(
                f"the weights have more than the {int(most):,} entries that fit in memory, before all "
                f"{len(inverse):,} items are done"
            )
        pool.replace(leaving)
        stage("columns", len(leaving))
    return finished.solution(inverse.dtype)


class _Finished:
    """The columns that have left the pool, and the objective by epoch."""

    def __init__(self, n: int, epochs: int) -> None:
        self.columns: list[tuple[NDArray[np.int32], Float]] = [_EMPTY] * n
        self.values, self.last = np.zeros(epochs), np.zeros(epochs)  # of columns in the pool, and of columns that leave
        self.entries = self.unfinished = self.oldest = 0

    def take(self, pool: _Pool, done: NDArray[np.bool_], objectives: Float64) -> NDArray[np.int64]:
        """Collect the columns that have converged or reached the last epoch; return their lanes."""
        ages = pool.ages[: pool.size]
        np.add.at(self.values, ages - 1, objectives)
        leaving = np.flatnonzero(done | (ages >= len(self.values)))
        np.add.at(self.last, ages[leaving] - 1, objectives[leaving])
        for lane in leaving.tolist():
            row = pool.solution(lane)
            places = np.flatnonzero(row).astype(np.int32)
            self.columns[pool.owners[lane]] = (places, row[places])
            self.entries += len(places)
        self.unfinished += int((~done[leaving]).sum())
        self.oldest = max(self.oldest, int(ages.max()))
        return leaving

    def solution(self, dtype: Any) -> SlimSolution:
        """All columns; in the objective a finished column keeps its last value."""
        record = self.values + np.concatenate([[0.0], np.cumsum(self.last)[:-1]])
        return SlimSolution(
            from_columns(self.columns, dtype), record[: self.oldest].tolist(), self.oldest, self.unfinished
        )


class _Pool:
    """The columns in progress; each is a lane, a row of three arrays."""

    def __init__(self, inverse: Float, problem: SlimProblem, threads: int) -> None:
        n, dtype = len(inverse), inverse.dtype
        self.inverse, self.problem, self.threads = inverse, problem, threads
        self.rho, self.thresholds = problem.rho.astype(dtype), (problem.l1 / problem.rho).astype(dtype)
        self.size = self.next = width(n)
        self.state, self.right = np.zeros((self.size, n), dtype), np.zeros((self.size, n), dtype)
        self.made = np.empty((self.size, n), dtype)
        self.owners, self.ages = np.arange(self.size), np.zeros(self.size, np.int64)
        self.sums = np.empty((self.size, 4))

    def step(self) -> tuple[Float64, Float64]:
        """One step of every lane; their residuals, and their objectives."""
        size, problem = self.size, self.problem
        np.matmul(self.right[:size], self.inverse, out=self.made[:size])

        def lanes(start: int, stop: int) -> None:
            _step(
                self.inverse,
                self.owners,
                self.rho,
                self.thresholds,
                problem.l1,
                problem.l2,
                problem.positive,
                self.state,
                self.right,
                self.made,
                self.sums,
                start,
                stop,
            )

        parallel.parallel_for(lanes, size, max(1, -(-size // (4 * self.threads))), self.threads)
        self.ages[:size] += 1
        primal, dual, scale, objective = self.sums[:size].T
        worst = np.sqrt(np.maximum(primal, dual))
        return np.divide(worst, np.sqrt(scale), out=np.zeros(size), where=scale > 0), objective

    def solution(self, lane: int) -> NDArray[Any]:
        """The copy z of a lane, with its exact zeros."""
        z: NDArray[Any] = np.maximum(np.abs(self.state[lane]) - self.thresholds, 0)
        z[self.state[lane] < 0] *= 0 if self.problem.positive else -1
        return z

    def replace(self, leaving: NDArray[np.int64]) -> None:
        """Give each lane that has left the next column; when there are none, the last lane moves into its place."""
        n = len(self.inverse)
        for lane in leaving[::-1]:
            if self.next < n:
                self.state[lane] = self.right[lane] = 0
                self.owners[lane], self.ages[lane] = self.next, 0
                self.next += 1
                continue
            self.size -= 1
            for array in (self.state, self.right, self.owners, self.ages):
                array[lane] = array[self.size]


def optimality(matrix: Csr, weights: Csr, problem: SlimProblem) -> float:
    """The largest violation of the optimality conditions (KKT) by the weights, relative to max|S|.

    With the gradient g = S(B − I) + l2·B, an entry above 0 must have g = −l1, one below 0 g = l1, and one at 0
    g ≥ −l1 (and g ≤ l1 where signs are free). Computed in float64 on eight columns, from the data and not from C.
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


@kernel
def _step(
    inverse: Any,
    owners: Any,
    rho: Any,
    thresholds: Any,
    l1: float,
    l2: float,
    positive: bool,
    state: Any,
    rights: Any,
    made: Any,
    sums: Any,
    start: int,
    stop: int,
) -> None:
    """From the product C(ρ∘(z − γ)) to the next v and ρ∘(z − γ); sums of squares (b − z, z − z', scale), objective."""
    n = len(rho)
    zero = rho.dtype.type(0)
    for lane in range(start, stop):
        j = owners[lane]
        column, product, v, right = inverse[:, j], made[lane], state[lane], rights[lane]
        nu = (1 + product[j]) / column[j]
        primal, dual, of_b, of_z, of_gamma = 0.0, 0.0, 0.0, 0.0, 0.0
        loss, size, square = 0.5 * (nu - rho[j] - l2), 0.0, 0.0
        v[j] = right[j] = zero
        for i in range(n):
            if i == j:
                continue
            b = product[i] - nu * column[i]
            bound = thresholds[i]
            before = max(v[i] - bound, zero)
            if not positive:
                before += min(v[i] + bound, zero)
            # ½(b − e)ᵀS(b − e), from S(b − e) = ρ∘(z − γ) − ν·e − (l2 + ρ)∘(b − e)
            loss += 0.5 * b * (right[i] - (rho[i] + l2) * b)
            new = RELAXED * (b - before) + v[i]  # a·b + (1 − a)·z + γ, with γ = v − z
            z = max(new - bound, zero)
            if not positive:
                z += min(new + bound, zero)
            v[i] = new
            right[i] = rho[i] * (2 * z - new)
            primal += rho[i] * (b - z) ** 2
            dual += rho[i] * (z - before) ** 2
            of_b += rho[i] * b * b
            of_z += rho[i] * z * z
            of_gamma += rho[i] * (new - z) ** 2
            size += abs(z)
            square += b * b
        sums[lane, 0], sums[lane, 1] = primal, dual
        sums[lane, 2] = max(of_b, of_z, of_gamma)
        sums[lane, 3] = loss + 0.5 * l2 * square + l1 * size
