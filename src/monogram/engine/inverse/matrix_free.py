"""C = (S + Λ)⁻¹ without a square array: (S + Λ)z = h by preconditioned conjugate gradients on the sparse data alone.

Many right-hand sides go side by side, one a column, each with its own steps and its own end; no column knows of the
others, so that a history has the same bits in any batch. The blocks are held in float32 where that is asked, every sum
is made in float64, and the solution is held in float64: from time to time the residual h − (S + Λ)z is measured anew in
float64, and what is left of it is solved for (iterative refinement). So the residual that is told is the true one, and
float32 limits the speed, not the result. All sums have a fixed order: the threads do not change a bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse.dense import probes
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.jit import kernel

Indices = NDArray[np.integer[Any]]

NAME = "matrix_free"
TOLERANCE = {"float32": 1e-7, "float64": 1e-11}  # of a history's residual, relative to the history
INNER = {"float32": 1e-5, "float64": 1e-12}  # what one round reduces the residual to: beyond, rounding has the word
ROUNDS, STEPS = 8, 2000  # at most: rounds, and steps in one
ROWS = 1024  # of a sparse matrix, taken by one thread; the sums are by these parts
SLAB = 8  # columns whose residual is measured at once
BLOCK = 1_000_000_000  # bytes that the columns solved side by side may take
USUAL_STEPS = 30


@dataclass(frozen=True)
class Solution:
    """Columns z (items × histories), ‖r‖/‖h‖ with r = h − (S + Λ)z as measured, zᵀr, steps, and whether all arrived.

    hᵀz + zᵀr is hᵀCh to the square of what z is off: by rᵀCr.
    """

    columns: Float64
    residuals: Float64
    products: Float64
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

    def __init__(self, matrix: Any, penalties: Float64, dtype: str = "float32") -> None:
        self.by_user, self.by_item = matrix, matrix.T.tocsr()
        self.penalties, self.dtype = np.asarray(penalties, np.float64), dtype
        self.d = squares(matrix)
        self.diagonal: Float64 = self.d + self.penalties

    @property
    def width(self) -> int:
        """Columns to solve side by side."""
        users, items = self.by_user.shape
        return width(users, items, self.dtype)

    def apply(self, block: NDArray[Any], threads: int) -> tuple[NDArray[Any], Float64]:
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

        parallel.parallel_for(forward, users, ROWS, threads)
        parallel.parallel_for(backward, items, ROWS, threads)
        return out, _total(sums)

    def rest(self, right: Any, solution: Float64, at: Indices, threads: int) -> tuple[NDArray[Any], Float64, Float64]:
        """r = h − (S + Λ)z of some columns, summed in float64, then held in the working precision; ‖r‖ and zᵀr."""
        out = np.empty((len(solution), len(at)), self.dtype)
        norms, products = np.empty(len(at)), np.empty(len(at))
        for start in range(0, len(at), SLAB):
            mine = at[start : start + SLAB]
            part = np.ascontiguousarray(solution[:, mine])
            slab = -self.apply(part, threads)[0]
            _add_rows(right, mine, slab)
            norms[start : start + SLAB] = np.sqrt(_total(_products(slab, slab)))
            products[start : start + SLAB] = _total(_products(part, slab))
            out[:, start : start + SLAB] = slab
        return out, norms, products


def width(users: int, items: int, dtype: str) -> int:
    """Columns to solve side by side: what fits BLOCK, between 8 and 64 (wider ones leave the caches)."""
    return int(max(8, min(64, BLOCK // column_bytes(users, items, dtype) // 8 * 8)))


def column_bytes(users: int, items: int, dtype: str) -> int:
    """Bytes of one column that is solved for: its solution, three vectors by item, one by user."""
    size = np.dtype(dtype).itemsize
    return items * (8 + 3 * size) + users * size


def solve(system: System, right: Any, *, tolerance: float | Float64, threads: int = 1) -> Solution:
    """Solve (S + Λ)z = h for each row h of a CSR batch or of `ScaledSigns` (best at most `system.width` rows).

    A history ends where ‖h − (S + Λ)z‖ is at most `tolerance` (one for all, or one each) times ‖h‖, or where rounding
    lets it come no nearer.
    """
    batch, items = right.shape
    sizes = _norms(right)
    solution, norms, products = np.zeros((items, batch)), sizes.copy(), np.zeros(batch)
    goal, floor = tolerance * sizes, INNER[system.dtype]
    at, steps = np.flatnonzero(norms > goal), 0
    rest = np.zeros((items, len(at)), system.dtype)
    _add_rows(right, at, rest)
    for _ in range(ROUNDS):
        if not len(at):
            break
        steps += _descend(system, rest, solution, at, np.maximum(goal[at] / 2, floor * norms[at]), threads)
        before = norms[at]
        rest, norms[at], products[at] = system.rest(right, solution, at, threads)
        on = (norms[at] > goal[at]) & (norms[at] < before / 2)
        at, rest = at[on], np.ascontiguousarray(rest[:, on])
    residuals = np.divide(norms, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    return Solution(solution, residuals, products, steps, bool((norms <= goal).all()))


def _descend(system: System, rest: NDArray[Any], solution: Float64, at: Indices, goal: Float64, threads: int) -> int:
    """Conjugate gradients from a residual on, added to the columns `at` of the solution; the number of steps."""
    inverse = 1 / system.diagonal
    direction = np.empty_like(rest)
    np.multiply(rest, inverse[:, None], out=direction, casting="same_kind")  # no block in float64 for a moment
    strength = _total(_products(rest, direction))
    for step in range(1, STEPS + 1):
        image, curve = system.apply(direction, threads)
        size = np.divide(strength, curve, out=np.zeros_like(curve), where=curve > 0)
        after, squared = _moved(solution, at, rest, direction, image, inverse, size, threads)
        del image  # or it would stand beside the next one
        on = (squared > goal**2) & (curve > 0)
        if not on.any():
            return step
        _turned(direction, rest, inverse, np.divide(after, strength, out=np.zeros_like(after), where=on), threads)
        strength = np.where(on, after, 0.0)  # what has arrived takes no further step
        if 2 * on.sum() <= len(on):
            rest, direction = np.ascontiguousarray(rest[:, on]), np.ascontiguousarray(direction[:, on])
            at, goal, strength = at[on], goal[on], strength[on]
    return STEPS


def _moved(
    solution: Float64,
    at: Indices,
    rest: NDArray[Any],
    direction: NDArray[Any],
    image: NDArray[Any],
    inverse: Float64,
    size: Float64,
    threads: int,
) -> tuple[Float64, Float64]:
    """A step of each column; the sums of r²/diag and of r² after it."""
    sums = np.zeros((2, -(-len(rest) // ROWS), rest.shape[1]))

    def move(start: int, stop: int) -> None:
        _move(solution, at, rest, direction, image, inverse, size, sums[:, start // ROWS], start, stop)

    parallel.parallel_for(move, len(rest), ROWS, threads)
    return _total(sums[0]), _total(sums[1])


def _turned(direction: NDArray[Any], rest: NDArray[Any], inverse: Float64, ratio: Float64, threads: int) -> None:
    """The next directions, in place."""

    def turn(start: int, stop: int) -> None:
        _turn(direction, rest, inverse, ratio, start, stop)

    parallel.parallel_for(turn, len(rest), ROWS, threads)


def units(items: Indices, size: int) -> Any:
    """The unit vectors of some items, as a CSR batch."""
    one = np.ones(len(items), np.float32)
    return sp.csr_array((one, np.asarray(items, np.int64), np.arange(len(items) + 1)), shape=(len(items), size))


def certificate(system: System, *, tolerance: float, threads: int = 1) -> tuple[float, float]:
    """How far the columns of B are from the truth, on eight probe columns: bounds of what `inverse.certificate` gives.

    With r = e_j − (S + Λ)z the column of (S + Λ)B − S is r/c_j off the diagonal, and B is off by at most
    ‖r‖/(c_j·min ℓ). Where that is large beside the largest entry of B, the columns are compared with ones solved a
    thousand times finer.
    """
    chosen = probes(system.d)
    if not len(chosen):
        return 0.0, 0.0
    right, own = units(chosen, len(system.penalties)), (chosen, np.arange(len(chosen)))
    found = solve(system, right, tolerance=tolerance, threads=threads)
    c = found.columns[own]
    slopes = _slopes(found.columns, own, c)
    largest = max(float(np.abs(slopes).max()), 1e-30)
    residual = float((found.residuals / c).max() / system.d.max())
    error = float((found.residuals / c).max() / system.penalties[system.d > 0].min()) / largest
    if error > 1e-3:
        finer = solve(system, right, tolerance=tolerance / 1000, threads=threads).columns
        finer = _slopes(finer, own, finer[own])
        finer -= slopes
        error = float(np.abs(finer, out=finer).max()) / largest
    return residual, error


def _slopes(columns: Float64, own: Any, c: Float64) -> Float64:
    """The columns of −B from those of C, in place: divided by the entry on the diagonal, which becomes 0."""
    columns[own] = 0.0
    columns /= c
    return columns


@dataclass(frozen=True)
class ScaledSigns:
    """Right-hand sides with the entries ±scale at the same items: one byte an entry, where a CSR batch takes 16.

    Attributes
    ----------
    signs : 1 or −1, int8, one row a right-hand side and one column for each of the items
    scale : size of the entry of each item
    items : their indices
    shape : right-hand sides × all items
    """

    signs: NDArray[np.int8]
    scale: Float64
    items: Indices
    shape: tuple[int, int]


def _norms(rows: Any) -> Float64:
    if isinstance(rows, ScaledSigns):  # all have the same
        one = np.zeros(1)
        _row_norms(np.array([0, len(rows.scale)]), rows.scale, one)
        return np.repeat(one, rows.shape[0])
    out = np.zeros(rows.shape[0])
    _row_norms(rows.indptr, rows.data, out)
    return out


def _add_rows(right: Any, rows: Indices, out: NDArray[Any]) -> None:
    """Add rows of a batch, CSR or `ScaledSigns`, to the columns of a block."""
    if isinstance(right, ScaledSigns):
        for k, row in enumerate(rows):
            out[right.items, k] += (right.signs[row] * right.scale).astype(out.dtype)
        return
    for k, row in enumerate(rows):
        part = slice(right.indptr[row], right.indptr[row + 1])
        out[right.indices[part], k] += right.data[part].astype(out.dtype)


def _products(first: NDArray[Any], second: NDArray[Any]) -> Float64:
    """Sums of first∘second by column, in parts."""
    sums = np.zeros((-(-len(first) // ROWS), first.shape[1]))
    _dots(first, second, sums, ROWS)
    return sums


def _total(sums: Float64) -> Float64:
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
