"""C = (S + Λ)⁻¹ without a square array: (S + Λ)z = h by preconditioned conjugate gradients on the sparse data alone.

Many right-hand sides go side by side, one a column, each with its own steps and its own end; no column knows of the
others, so that a history has the same bits in any batch. The blocks are held in float32 where that is asked, every sum is
made in float64, and the solution is held in float64: from time to time the residual h − (S + Λ)z is measured anew in
float64, and what is left of it is solved for (iterative refinement). So the residual that is told is the true one, and
float32 limits the speed, not the result. All sums have a fixed order: the threads do not change a bit.

The diagonal c = diag C is exact for items that were solved for, c_j = (C·e_j)_j, and else estimated by probes v of random
signs: E[v_j·(C(s∘v))_j/s_j] = c_j, with the relative variance Σ_{i≠j} (C_ij·s_i/(s_j·c_j))². With s² = diag(S + Λ) the
popular items no longer drown in the noise of all the others; the probes are zero on the items solved for, so that those add
no noise; and the part of the noise that runs with the first-order C, −D⁻¹(S − diag d)D⁻¹, whose diagonal is known to be
0, is taken out by a regression on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine import parallel
from monogram.engine.gram import squares
from monogram.engine.inverse import Stage, probes, silent
from monogram.engine.native import kernel

Float = NDArray[np.float64]
Indices = NDArray[np.integer[Any]]

NAME = "matrix_free"
TOLERANCE = {"float32": 1e-7, "float64": 1e-11}  # of a history's residual, relative to the history
DIAGONAL = 1e-6  # of a column solved for its c alone, whose error is of the order of the square
PROBE = 1e-4  # of a probe: far below its noise
EXACT = 256  # most popular items, whose c is solved for
PROBES = 128
INNER = {"float32": 1e-4, "float64": 1e-12}  # what one round reduces the residual to: beyond, rounding has the word
ROUNDS, STEPS = 8, 2000  # at most: rounds, and steps in one
ROWS = 1024  # of a sparse matrix, taken by one thread; the sums are by these parts
SLAB = 8  # columns whose residual is measured at once
BLOCK = 1_000_000_000  # bytes that the columns solved side by side may take
USUAL_STEPS = 30


@dataclass(frozen=True)
class Solution:
    """Columns z (items × histories), ‖h − (S + Λ)z‖/‖h‖ of each as measured, the steps taken, and whether all arrived."""

    columns: Float
    residuals: Float
    steps: int
    converged: bool


class System:
    """S + Λ with S = XᵀX, as products with sparse X: by user as it comes, and once more by item.

    Parameters
    ----------
    matrix : CSR, users × items
    penalties : ℓ, each above 0
    dtype : what the blocks are held in
    """

    def __init__(self, matrix: Any, penalties: Float, dtype: str = "float32") -> None:
        self.by_user, self.by_item = matrix, matrix.T.tocsr()
        self.penalties, self.dtype = np.asarray(penalties, np.float64), dtype
        self.d = squares(matrix)
        self.diagonal: Float = self.d + self.penalties

    @property
    def width(self) -> int:
        """Columns to solve side by side."""
        return width(*self.by_user.shape, self.dtype)

    def apply(self, block: NDArray[Any], threads: int) -> tuple[NDArray[Any], Float]:
        """(S + Λ)·block in the block's precision, and by column the sum of block∘(S + Λ)block."""
        users, items = self.by_user.shape
        size = block.shape[1]
        middle = np.empty((users, size), block.dtype)
        out, sums = np.empty_like(block), np.zeros((-(-items // ROWS), size))

        def forward(start: int, stop: int) -> None:
            x = self.by_user
            _forward(x.indptr, x.indices, x.data, block, middle, start, stop, np.empty(size))

        def backward(start: int, stop: int) -> None:
            x, part = self.by_item, sums[start // ROWS]
            _backward(x.indptr, x.indices, x.data, middle, self.penalties, block, out, part, start, stop)

        parallel.over(forward, users, ROWS, threads)
        parallel.over(backward, items, ROWS, threads)
        return out, _total(sums)

    def rest(self, right: Any, solution: Float, at: Indices, threads: int) -> tuple[NDArray[Any], Float]:
        """h − (S + Λ)z of some columns, summed in float64 and then held in the working precision; and its norms."""
        out = np.empty((len(solution), len(at)), self.dtype)
        norms = np.empty(len(at))
        for start in range(0, len(at), SLAB):
            mine = at[start : start + SLAB]
            slab = -self.apply(np.ascontiguousarray(solution[:, mine]), threads)[0]
            _add_rows(right, mine, slab)
            norms[start : start + SLAB] = np.sqrt(_total(slab**2))
            out[:, start : start + SLAB] = slab
        return out, norms


def width(users: int, items: int, dtype: str) -> int:
    """Columns to solve side by side: what fits BLOCK, between 8 and 256."""
    return int(max(8, min(256, BLOCK // column_bytes(users, items, dtype) // 8 * 8)))


def column_bytes(users: int, items: int, dtype: str) -> int:
    """Bytes of one column that is solved for: its solution, three vectors by item, one by user."""
    size = np.dtype(dtype).itemsize
    return items * (8 + 3 * size) + users * size


def fitted(items: int, diagonal: bool) -> int:
    """Columns that a fit solves for: those of the certificate, and those of the diagonal."""
    return min(items, 8) + (min(items, EXACT + PROBES) if diagonal else 0)


def solve(system: System, right: Any, *, tolerance: float, threads: int = 1) -> Solution:
    """Solve (S + Λ)z = h for each row h of a CSR batch (at most `system.width` of them are advisable).

    A history ends where ‖h − (S + Λ)z‖ is at most `tolerance`·‖h‖, or where rounding lets it come no nearer.
    """
    batch, items = right.shape
    sizes = _norms(right)
    solution, norms = np.zeros((items, batch)), sizes.copy()
    goal, floor = tolerance * sizes, INNER[system.dtype]
    at, steps = np.flatnonzero(norms > goal), 0
    rest = np.zeros((items, len(at)), system.dtype)
    _add_rows(right, at, rest)
    for _ in range(ROUNDS):
        if not len(at):
            break
        steps += _descend(system, rest, solution, at, np.maximum(goal[at] / 2, floor * norms[at]), threads)
        before = norms[at]
        rest, norms[at] = system.rest(right, solution, at, threads)
        on = (norms[at] > goal[at]) & (norms[at] < before / 2)
        at, rest = at[on], np.ascontiguousarray(rest[:, on])
    residuals = np.divide(norms, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    return Solution(solution, residuals, steps, bool((norms <= goal).all()))


def _descend(system: System, rest: NDArray[Any], solution: Float, at: Indices, goal: Float, threads: int) -> int:
    """Conjugate gradients from a residual on, added to the columns `at` of the solution; the number of steps."""
    inverse = 1 / system.diagonal
    items = len(rest)
    parts = -(-items // ROWS)
    direction = (rest * inverse[:, None]).astype(rest.dtype)
    strength = _total(_products(rest, direction))
    for step in range(1, STEPS + 1):
        image, curve = system.apply(direction, threads)
        size = np.divide(strength, curve, out=np.zeros_like(curve), where=curve > 0)
        sums = np.zeros((2, parts, rest.shape[1]))

        def move(start: int, stop: int, image: Any = image, size: Float = size, sums: Float = sums) -> None:
            part = sums[:, start // ROWS]
            _move(solution, at, rest, direction, image, inverse, size, part, start, stop)

        parallel.over(move, items, ROWS, threads)
        after, squared = _total(sums[0]), _total(sums[1])
        on = (squared > goal**2) & (curve > 0)
        if not on.any():
            return step
        ratio = np.divide(after, strength, out=np.zeros_like(after), where=strength > 0)
        strength = np.where(on, after, 0.0)  # what has arrived takes no further step
        turn = _turned(direction, rest, inverse, ratio)
        parallel.over(turn, items, ROWS, threads)
        if 2 * on.sum() <= len(on):
            rest, direction = np.ascontiguousarray(rest[:, on]), np.ascontiguousarray(direction[:, on])
            at, goal, strength = at[on], goal[on], strength[on]
    return STEPS


def _turned(direction: NDArray[Any], rest: NDArray[Any], inverse: Float, ratio: Float) -> Any:
    return lambda start, stop: _turn(direction, rest, inverse, ratio, start, stop)


def units(items: Indices, size: int) -> Any:
    """The unit vectors of some items, as a CSR batch."""
    one = np.ones(len(items), np.float32)
    return sp.csr_array((one, np.asarray(items, np.int64), np.arange(len(items) + 1)), shape=(len(items), size))


@dataclass(frozen=True)
class Diagonal:
    """c = diag C, and the standard error of each: 0 where it was solved for."""

    values: Float
    errors: Float

    @property
    def deviation(self) -> float:
        """The largest standard error, relative."""
        return float((self.errors / self.values).max(initial=0.0))


def exact_diagonal(system: System, items: Indices, threads: int, stage: Stage = silent) -> tuple[Float, bool]:
    """c of some items, each by its column of C: of the square of the tolerance; whether all arrived."""
    out, arrived = np.empty(len(items)), True
    for start in range(0, len(items), system.width):
        mine = np.asarray(items[start : start + system.width])
        found = solve(system, units(mine, len(system.penalties)), tolerance=DIAGONAL, threads=threads)
        out[start : start + len(mine)] = found.columns[mine, np.arange(len(mine))]
        arrived &= found.converged
        stage("diagonal", len(mine))
    return np.clip(out, 1 / system.diagonal[items], 1 / system.penalties[items]), arrived


def diagonal(
    system: System,
    *,
    exact: int = EXACT,
    number: int = PROBES,
    seed: int = 0,
    threads: int = 1,
    stage: Stage = silent,
) -> Diagonal:
    """c: solved for the `exact` most popular items, estimated by `number` probes for the rest.

    Where there are no more items than columns to be solved, all are solved for.
    """
    values, errors = 1 / system.penalties, np.zeros(len(system.penalties))  # an item nobody used: 1/ℓ
    used = np.flatnonzero(system.d)
    order = used[np.argsort(-system.d[used], kind="stable")]
    first = order if len(order) <= exact + number else order[:exact]
    values[first] = exact_diagonal(system, first, threads, stage)[0]
    others = np.sort(order[len(first) :])
    if len(others):
        values[others], errors[others] = _estimate(system, others, number, seed, threads, stage)
    return Diagonal(values, errors)


def _estimate(
    system: System, items: Indices, number: int, seed: int, threads: int, stage: Stage
) -> tuple[Float, Float]:
    """Means of v_j·(C(s∘v))_j/s_j over the probes, and their standard errors, with what the Gram itself tells removed."""
    rng = np.random.default_rng(seed)
    scale = np.sqrt(system.diagonal[items])
    seen = _Moments(len(items))
    for start in range(0, number, system.width):
        size = min(system.width, number - start)
        signs = rng.integers(0, 2, (size, len(items)), dtype=np.int8) * 2 - 1
        places, pointers = np.tile(items, size), np.arange(size + 1) * len(items)
        right = sp.csr_array(((signs * scale).ravel(), places, pointers), shape=(size, len(system.penalties)))
        found = solve(system, right, tolerance=PROBE, threads=threads).columns
        for first in range(0, size, SLAB):
            mine = slice(first, min(first + SLAB, size))
            known = _off_products(system, items, signs[mine].T / scale[:, None], threads)
            sign = signs[mine].T / scale[:, None]
            seen.add(sign * found[items, mine], sign * known / system.diagonal[items][:, None])
        stage("diagonal", size)
    mean, errors = seen.estimate()
    return np.clip(mean, 1 / system.diagonal[items], 1 / system.penalties[items]), errors


def _off_products(system: System, items: Indices, block: Float, threads: int) -> Float:
    """(S − diag d)·block for a block that is zero beside some items, at these items."""
    whole = np.zeros((len(system.penalties), block.shape[1]))
    whole[items] = block
    return np.asarray(system.apply(whole, threads)[0][items] - system.diagonal[items][:, None] * block)


class _Moments:
    """Means of samples and of a companion whose mean is known to be 0, and their spreads."""

    def __init__(self, size: int) -> None:
        self.number = 0
        self.sample, self.other, self.own, self.both, self.others = (np.zeros(size) for _ in range(5))

    def add(self, samples: Float, others: Float) -> None:
        """Take columns of samples into account, one after the other."""
        for sample, other in zip(samples.T, others.T, strict=True):
            self.number += 1
            step, beside = sample - self.sample, other - self.other
            self.sample += step / self.number
            self.other += beside / self.number
            self.own += step * (sample - self.sample)
            self.both += step * (other - self.other)
            self.others += beside * (other - self.other)

    def estimate(self) -> tuple[Float, Float]:
        """The mean less the part of its chance deviation that the companion shows, and the standard error of that."""
        slope = np.divide(self.both, self.others, out=np.zeros_like(self.both), where=self.others > 0)
        left = np.maximum(self.own - slope * self.both, 0.0)
        return self.sample - slope * self.other, np.sqrt(left / (self.number * (self.number - 2)))


def warm(matrix: Any, dtype: str) -> None:
    """Compile what a fit will call, on data as small as can be."""
    system = System(matrix, np.ones(matrix.shape[1]), dtype)
    _estimate(system, np.arange(matrix.shape[1]), 3, 0, 1, silent)
    certificate(system, tolerance=0.1)


def certificate(system: System, *, tolerance: float, threads: int = 1) -> tuple[float, float]:
    """How far the columns of B are from the truth, on eight probe columns: bounds of what `inverse.certificate` gives.

    With r = e_j − (S + Λ)z the column of (S + Λ)B − S is r/c_j off the diagonal, and B is off by at most ‖r‖/(c_j·min ℓ),
    relative to its largest entry. Where that bound is large, the columns are compared with ones solved a thousand times
    finer.
    """
    chosen = probes(system.d)
    if not len(chosen):
        return 0.0, 0.0
    right, own = units(chosen, len(system.penalties)), (chosen, np.arange(len(chosen)))
    found = solve(system, right, tolerance=tolerance, threads=threads)
    c = found.columns[own]
    slopes = _off(found.columns, own) / c
    largest = max(float(np.abs(slopes).max()), 1e-30)
    residual = float((found.residuals / c).max() / system.d.max())
    error = float((found.residuals / c).max() / system.penalties[system.d > 0].min()) / largest
    if error > 1e-3:
        finer = solve(system, right, tolerance=tolerance / 1000, threads=threads).columns
        error = float(np.abs(_off(finer, own) / finer[own] - slopes).max()) / largest
    return residual, error


def _off(columns: Float, own: Any) -> Float:
    out = columns.copy()
    out[own] = 0.0
    return out


def _norms(rows: Any) -> Float:
    out = np.zeros(rows.shape[0])
    _row_norms(rows.indptr, rows.data, out)
    return out


def _add_rows(right: Any, rows: Indices, out: NDArray[Any]) -> None:
    """Add rows of a CSR batch to the columns of a block."""
    for k, row in enumerate(rows):
        part = slice(right.indptr[row], right.indptr[row + 1])
        out[right.indices[part], k] += right.data[part].astype(out.dtype)


def _products(first: NDArray[Any], second: NDArray[Any]) -> Float:
    """Sums of first∘second by column, in parts."""
    sums = np.zeros((-(-len(first) // ROWS), first.shape[1]))
    _dots(first, second, sums, ROWS)
    return sums


def _total(sums: Float) -> Float:
    """Sums by column, row after row: NumPy's own order depends on the number of columns."""
    out = np.zeros(sums.shape[1])
    _add_up(sums, out)
    return out


@kernel
def _add_up(sums: Any, out: Any) -> None:
    for i in range(len(sums)):
        for t in range(len(out)):
            out[t] += sums[i, t]


@kernel
def _row_norms(indptr: Any, data: Any, out: Any) -> None:
    for row in range(len(out)):
        total = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            total += np.float64(data[p]) * np.float64(data[p])
        out[row] = np.sqrt(total)


@kernel
def _dots(first: Any, second: Any, sums: Any, rows: int) -> None:
    for i in range(len(first)):
        part = sums[i // rows]
        for t in range(len(part)):
            part[t] += np.float64(first[i, t]) * np.float64(second[i, t])


@kernel
def _forward(indptr: Any, indices: Any, data: Any, block: Any, out: Any, start: int, stop: int, room: Any) -> None:
    for row in range(start, stop):
        room[:] = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            value = np.float64(data[p])
            other = block[indices[p]]
            for t in range(len(room)):
                room[t] += value * other[t]
        for t in range(len(room)):
            out[row, t] = room[t]


@kernel
def _backward(
    indptr: Any,
    indices: Any,
    data: Any,
    middle: Any,
    penalties: Any,
    block: Any,
    out: Any,
    part: Any,
    start: int,
    stop: int,
) -> None:
    room = np.empty(len(part))
    for row in range(start, stop):
        mine = block[row]
        for t in range(len(room)):
            room[t] = penalties[row] * mine[t]
        for p in range(indptr[row], indptr[row + 1]):
            value = np.float64(data[p])
            other = middle[indices[p]]
            for t in range(len(room)):
                room[t] += value * other[t]
        for t in range(len(room)):
            out[row, t] = room[t]
            part[t] += mine[t] * room[t]


@kernel
def _move(
    solution: Any,
    at: Any,
    rest: Any,
    direction: Any,
    image: Any,
    inverse: Any,
    size: Any,
    part: Any,
    start: int,
    stop: int,
) -> None:
    """A step along the directions; part gets the sums of r²/diag and of r²."""
    for row in range(start, stop):
        for t in range(len(size)):
            solution[row, at[t]] += size[t] * direction[row, t]
            left = rest[row, t] - size[t] * image[row, t]
            rest[row, t] = left
            part[0, t] += left * left * inverse[row]
            part[1, t] += left * left


@kernel
def _turn(direction: Any, rest: Any, inverse: Any, ratio: Any, start: int, stop: int) -> None:
    for row in range(start, stop):
        for t in range(len(ratio)):
            direction[row, t] = rest[row, t] * inverse[row] + ratio[t] * direction[row, t]
