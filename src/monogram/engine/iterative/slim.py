"""SLIM by ADMM on one inverse, a pool of columns at a time.

Column j of B minimises ½(b − e_j)ᵀS(b − e_j) + ½·l2·‖b‖² + l1·‖b‖₁ with b_j = 0 (and b ≥ 0). ADMM splits it into a
smooth part b and a copy z that carries the l1 norm and the signs, held together by penalties ρ_i and a scaled dual γ:

    b = e_j + C(ρ∘(z − γ) − ν·e_j),  C = (S + diag(l2 + ρ))⁻¹,  ν = (1 + (C(ρ∘(z − γ)))_j)/C_jj, so that b_j = 0
    v = a·b + (1 − a)·z + γ,  z = prox(v), γ = v − z,  with over-relaxation a and prox the threshold l1/ρ_i

S itself is not needed (CS = I − C·diag(l2 + ρ)), and both z and γ are read from v. The columns do not touch each other.
So one n × n array is held, C, and beside it three of a pool of columns: v, ρ∘(z − γ), and its product with C. A column
that has converged leaves the pool for the next one, so that every product is a full one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import squares
from monogram.engine.gram.probes import probe_items
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.jit import kernel
from monogram.engine.runtime.progress import Stage, silent
from monogram.engine.topk.column_topk import from_columns
from monogram.errors import MemoryBudgetError

WIDTH = 512  # columns in the pool
RELAXED = 1.6  # the usual over-relaxation of ADMM: between 1.5 and 1.8
_NOTHING = (np.zeros(0, np.int32), np.zeros(0, np.float32))


@dataclass(frozen=True)
class SlimProblem:
    """What is minimised, and the penalties of the method."""

    l1: float
    l2: float
    positive: bool
    rho: Float64  # ρ, one an item


@dataclass(frozen=True)
class SlimSolution:
    """The weights as CSR, the objective by epoch, the epochs needed, and the columns that were cut off."""

    matrix: Any
    record: list[float]
    epochs: int
    unfinished: int


def width(n: int) -> int:
    """How many columns are in the pool at once."""
    return min(n, WIDTH)


def penalties(diagonal: Float64, l2: float, rho: float) -> Float64:
    """The penalties ρ_i = rho·√((d_i + l2)·mean(d + l2)).

    Between one penalty for all, which is slow for rare items, and one in proportion to d + l2, slow for popular ones.
    """
    size = diagonal + l2
    mean = float(size.mean()) or 1.0
    return np.asarray(rho * np.sqrt(np.where(size > 0, size, mean) * mean))


def slim(
    inverse: NDArray[Any],
    problem: SlimProblem,
    *,
    epochs: int,
    tolerance: float,
    most: float = np.inf,
    threads: int = 1,
    stage: Stage = silent,
) -> SlimSolution:
    """Every column of SLIM's B.

    Parameters
    ----------
    inverse : C = (S + diag(l2 + ρ))⁻¹, n × n, both triangles
    epochs : steps after which a column is taken as it is
    tolerance : at which a column has converged
        Of the primal residual ‖b − z‖ and the dual ‖z − z'‖, in the norm of ρ, relative to the largest of b, z and γ.
    most : entries the result may have
        More is a MemoryBudgetError.
    """
    pool, harvest = _Pool(inverse, problem, threads), _Harvest(len(inverse), epochs)
    while pool.size:
        residuals, objectives = pool.step()
        leaving = harvest.take(pool, residuals <= tolerance, objectives)
        if harvest.entries > most:
            raise MemoryBudgetError(
                f"the weights are denser than the memory allows: more than {int(most):,} entries before all "
                f"{len(inverse):,} items are done; raise l1, or the memory it may use"
            )
        pool.replace(leaving)
        stage("columns", len(leaving))
    return harvest.solution(inverse.dtype)


class _Harvest:
    """What the columns that leave the pool become, and the objective by epoch."""

    def __init__(self, n: int, epochs: int) -> None:
        self.found: list[tuple[NDArray[np.int32], NDArray[Any]]] = [_NOTHING] * n
        self.values, self.last = np.zeros(epochs), np.zeros(epochs)  # of columns at work, and of those that leave
        self.entries = self.unfinished = self.oldest = 0

    def take(self, pool: _Pool, done: NDArray[np.bool_], objectives: Float64) -> NDArray[np.int64]:
        """Take the columns that have converged, or have had their time; the lanes they leave come back."""
        ages = pool.ages[: pool.size]
        np.add.at(self.values, ages - 1, objectives)
        leaving = np.flatnonzero(done | (ages >= len(self.values)))
        np.add.at(self.last, ages[leaving] - 1, objectives[leaving])
        for lane in leaving.tolist():
            row = pool.solution(lane)
            kept = np.flatnonzero(row).astype(np.int32)
            self.found[pool.owners[lane]] = (kept, row[kept])
            self.entries += len(kept)
        self.unfinished += int((~done[leaving]).sum())
        self.oldest = max(self.oldest, int(ages.max()))
        return leaving

    def solution(self, dtype: Any) -> SlimSolution:
        """All columns; one that left early counts with its last value from then on."""
        record = self.values + np.concatenate([[0.0], np.cumsum(self.last)[:-1]])
        return SlimSolution(
            from_columns(self.found, dtype), record[: self.oldest].tolist(), self.oldest, self.unfinished
        )


class _Pool:
    """The columns that are worked on; each is a lane, a row of three arrays."""

    def __init__(self, inverse: NDArray[Any], problem: SlimProblem, threads: int) -> None:
        n, dtype = len(inverse), inverse.dtype
        self.inverse, self.problem, self.threads = inverse, problem, threads
        self.rho, self.thresholds = problem.rho.astype(dtype), (problem.l1 / problem.rho).astype(dtype)
        self.size = self.next = width(n)
        self.state, self.given = np.zeros((self.size, n), dtype), np.zeros((self.size, n), dtype)
        self.made = np.empty((self.size, n), dtype)
        self.owners, self.ages = np.arange(self.size), np.zeros(self.size, np.int64)
        self.sums = np.empty((self.size, 4))

    def step(self) -> tuple[Float64, Float64]:
        """One step of every lane; their residuals, and their objectives."""
        size, one = self.size, self.problem
        np.matmul(self.given[:size], self.inverse, out=self.made[:size])

        def lanes(start: int, stop: int) -> None:
            _step(
                self.inverse,
                self.owners,
                self.rho,
                self.thresholds,
                one.l1,
                one.l2,
                one.positive,
                self.state,
                self.given,
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
                self.state[lane] = self.given[lane] = 0
                self.owners[lane], self.ages[lane] = self.next, 0
                self.next += 1
                continue
            self.size -= 1
            for one in (self.state, self.given, self.owners, self.ages):
                one[lane] = one[self.size]


def optimality(matrix: Any, weights: Any, problem: SlimProblem) -> float:
    """How far the weights are from the minimum: the largest violation of its conditions, relative to max|S|.

    With the gradient g = S(B − I) + l2·B, an entry above 0 must have g = −l1, one below 0 g = l1, and one at 0
    g ≥ −l1 (and g ≤ l1 where signs are free). Looked at in float64 on eight columns, with the data and not with C.
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
    given: Any,
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
        column, product, v, right = inverse[:, j], made[lane], state[lane], given[lane]
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
