"""Matrix-free solves of (S + Λ)z = h by preconditioned conjugate gradients on the sparse data; no n × n array exists.

Many right-hand sides are solved together, one in each column, each with its own step sizes and stopping point. Columns
do not influence each other, so a history has bit-identical results in any batch. Blocks may be float32; sums and the
solution are float64. Each round measures the residual h − (S + Λ)z in float64 and solves for what is left of it
(iterative refinement). So the reported residual is the true one, and float32 affects the speed, not the result. All
sums have a fixed order: the number of threads does not change a bit.

With a time kernel a product visits all pairs of events of each user. diag S, and so the preconditioner, does not
change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import squares
from monogram.engine.gram.operators import TimedGram
from monogram.engine.gram.probes import probe_items
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.runtime.jit import kernel

Indices = NDArray[np.integer[Any]]

NAME = "matrix_free"
TOLERANCE = {"float32": 1e-7, "float64": 1e-11}  # of the residual of a history, relative to the history
INNER = {"float32": 1e-5, "float64": 1e-12}  # reduction of the residual in a round; rounding allows no more
ROUNDS, STEPS = 8, 2000  # maximum number of rounds, and of steps in a round
ROWS = 1024  # rows of a sparse matrix in one task; sums are accumulated by these parts
SLAB = 8  # columns whose residual is measured together
BLOCK = 1_000_000_000  # bytes of the columns that are solved together
USUAL_STEPS = 30


@dataclass(frozen=True)
class CgSolution:
    """The result of `solve`.

    Attributes
    ----------
    columns : z, items × histories
    residuals : ‖r‖/‖h‖ with r = h − (S + Λ)z, measured in float64
    products : zᵀr; hᵀz + zᵀr equals hᵀCh up to rᵀCr, which is quadratic in the error of z
    steps : of conjugate gradients
    converged : whether all columns reached the tolerance
    """

    columns: Float64
    residuals: Float64
    products: Float64
    steps: int
    converged: bool


class System:
    """S + Λ with S = XᵀX as products with the sparse X, stored by user and by item.

    Parameters
    ----------
    matrix : CSR, users × items
    penalties : ℓ, each above 0
    dtype : precision of the blocks
    kernel : the time kernel of S on the entries of the matrix, or None
    """

    def __init__(
        self, matrix: Csr, penalties: Float64, dtype: str = "float32", kernel: TimeKernel | None = None
    ) -> None:
        self.by_user, self.kernel = matrix, kernel
        self._timed = None if kernel is None else TimedGram(matrix, kernel)
        self._by_item: Csr = (matrix if kernel is None else matrix[:0]).T.tocsr()  # a kernel has no use for it
        self.penalties, self.dtype = np.asarray(penalties, np.float64), dtype
        self.d = squares(matrix)
        self.diagonal: Float64 = self.d + self.penalties

    @property
    def width(self) -> int:
        """Number of columns to solve together."""
        users, items = self.by_user.shape
        return width(users if self.kernel is None else 0, items, self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes in addition to the data by user."""
        data = self._by_item
        by_item = data.data.nbytes + data.indices.nbytes + data.indptr.nbytes
        return int(self.penalties.nbytes) + (int(by_item) if self._timed is None else self._timed.nbytes)

    def apply(self, block: Float, threads: int) -> tuple[Float, Float64]:
        """(S + Λ)·block in the precision of the block, and of each column the sum of block∘(S + Λ)block."""
        if self._timed is not None:
            return self._add_penalties(self._timed.times(block, threads), block, threads)
        users, items = self.by_user.shape
        size = block.shape[1]
        middle = np.empty((users, size), block.dtype)
        out, sums = np.empty_like(block), np.zeros((-(-items // ROWS), size))

        def forward(start: int, stop: int) -> None:
            x = self.by_user
            _forward(x.indptr, x.indices, x.data, block, middle, start, stop, np.empty(size))

        def backward(start: int, stop: int) -> None:
            x, part = self._by_item, sums[start // ROWS]
            _backward(x.indptr, x.indices, x.data, middle, self.penalties, block, out, part, start, stop)

        parallel.parallel_for(forward, users, ROWS, threads)
        parallel.parallel_for(backward, items, ROWS, threads)
        return out, _total(sums)

    def _add_penalties(self, out: Float, block: Float, threads: int) -> tuple[Float, Float64]:
        """Add Λ·block to S·block in place; and of each column the sum of block∘(S + Λ)block."""
        sums = np.zeros((-(-len(out) // ROWS), out.shape[1]))

        def add(start: int, stop: int) -> None:
            _add_scaled(self.penalties, block, out, sums[start // ROWS], start, stop)

        parallel.parallel_for(add, len(out), ROWS, threads)
        return out, _total(sums)

    def residual(self, right: Csr, solution: Float64, at: Indices, threads: int) -> tuple[Float, Float64, Float64]:
        """r = h − (S + Λ)z of some columns, summed in float64 and cast to the working precision; ‖r‖ and zᵀr."""
        out = np.empty((len(solution), len(at)), self.dtype)
        norms, products = np.empty(len(at)), np.empty(len(at))
        for start in range(0, len(at), SLAB):
            columns = at[start : start + SLAB]
            part = np.ascontiguousarray(solution[:, columns])
            slab = -self.apply(part, threads)[0]
            _add_rows(right, columns, slab)
            norms[start : start + SLAB] = np.sqrt(_total(_products(slab, slab)))
            products[start : start + SLAB] = _total(_products(part, slab))
            out[:, start : start + SLAB] = slab
        return out, norms, products


def width(users: int, items: int, dtype: str) -> int:
    """Number of columns to solve together: as many as fit in BLOCK bytes, from 8 to 64 (the caches hold no more).

    With a time kernel there are no vectors over the users, and `users` is 0.
    """
    return int(max(8, min(64, BLOCK // column_bytes(users, items, dtype) // 8 * 8)))


def column_bytes(users: int, items: int, dtype: str) -> int:
    """Bytes of one column: its solution, three vectors over the items, one over the users."""
    size = np.dtype(dtype).itemsize
    return items * (8 + 3 * size) + users * size


def solve(system: System, right: Csr | ScaledSigns, *, tolerance: float | Float64, threads: int = 1) -> CgSolution:
    """Solve (S + Λ)z = h for each row h of a CSR batch or of `ScaledSigns` (best at most `system.width` rows).

    A column stops where ‖h − (S + Λ)z‖ is at most `tolerance` (one for all, or one for each) times ‖h‖, or where a
    round no longer halves the residual.
    """
    batch, items = right.shape
    sizes = _norms(right)
    solution, norms, products = np.zeros((items, batch)), sizes.copy(), np.zeros(batch)
    goal, floor = tolerance * sizes, INNER[system.dtype]
    at, steps = np.flatnonzero(norms > goal), 0
    residual = np.zeros((items, len(at)), system.dtype)
    _add_rows(right, at, residual)
    for _ in range(ROUNDS):
        if not len(at):
            break
        steps += _descend(system, residual, solution, at, np.maximum(goal[at] / 2, floor * norms[at]), threads)
        before = norms[at]
        residual, norms[at], products[at] = system.residual(right, solution, at, threads)
        running = (norms[at] > goal[at]) & (norms[at] < before / 2)
        at, residual = at[running], np.ascontiguousarray(residual[:, running])
    residuals = np.divide(norms, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    return CgSolution(solution, residuals, products, steps, bool((norms <= goal).all()))


def _descend(system: System, residual: Float, solution: Float64, at: Indices, goal: Float64, threads: int) -> int:
    """Run conjugate gradients from a residual, adding to the columns `at` of the solution; the number of steps."""
    inverse = 1 / system.diagonal
    direction = np.empty_like(residual)
    np.multiply(residual, inverse[:, None], out=direction, casting="same_kind")  # no block in float64 for a moment
    strength = _total(_products(residual, direction))
    for step in range(1, STEPS + 1):
        image, curve = system.apply(direction, threads)
        size = np.divide(strength, curve, out=np.zeros_like(curve), where=curve > 0)
        after, squared = _moved(solution, at, residual, direction, image, inverse, size, threads)
        del image  # else it would stay in memory beside the next one
        running = (squared > goal**2) & (curve > 0)
        if not running.any():
            return step
        _next_directions(
            direction, residual, inverse, np.divide(after, strength, out=np.zeros_like(after), where=running), threads
        )
        strength = np.where(running, after, 0.0)  # a converged column takes no further step
        if 2 * running.sum() <= len(running):
            residual, direction = (np.ascontiguousarray(block[:, running]) for block in (residual, direction))
            at, goal, strength = at[running], goal[running], strength[running]
    return STEPS


def _moved(
    solution: Float64,
    at: Indices,
    residual: Float,
    direction: Float,
    image: Float,
    inverse: Float64,
    size: Float64,
    threads: int,
) -> tuple[Float64, Float64]:
    """Take one step in each column; the sums of r²/diag and of r² after it."""
    sums = np.zeros((2, -(-len(residual) // ROWS), residual.shape[1]))

    def move(start: int, stop: int) -> None:
        _move(solution, at, residual, direction, image, inverse, size, sums[:, start // ROWS], start, stop)

    parallel.parallel_for(move, len(residual), ROWS, threads)
    return _total(sums[0]), _total(sums[1])


def _next_directions(direction: Float, residual: Float, inverse: Float64, ratio: Float64, threads: int) -> None:
    """Compute the next directions in place."""

    def update(start: int, stop: int) -> None:
        _update_directions(direction, residual, inverse, ratio, start, stop)

    parallel.parallel_for(update, len(residual), ROWS, threads)


def units(items: Indices, size: int) -> Csr:
    """The unit vectors of some items, as a CSR batch."""
    ones = np.ones(len(items), np.float32)
    return sp.csr_array((ones, np.asarray(items, np.int64), np.arange(len(items) + 1)), shape=(len(items), size))


def certificate(system: System, *, tolerance: float, threads: int = 1) -> tuple[float, float]:
    """Residual and error of the columns of B on eight probes: upper bounds of what `inverse.certificate` returns.

    With r = e_j − (S + Λ)z the column of (S + Λ)B − S is r/c_j off the diagonal, and the error of B is at most
    ‖r‖/(c_j·min ℓ). Where this bound is large relative to max|B|, the columns are compared with columns solved to a
    thousandth of the tolerance.
    """
    chosen = probe_items(system.d)
    if not len(chosen):
        return 0.0, 0.0
    right, own = units(chosen, len(system.penalties)), (chosen, np.arange(len(chosen)))
    solved = solve(system, right, tolerance=tolerance, threads=threads)
    c = solved.columns[own]
    slopes = _slopes(solved.columns, own, c)
    largest = max(float(np.abs(slopes).max()), 1e-30)
    residual = float((solved.residuals / c).max() / system.d.max())
    error = float((solved.residuals / c).max() / system.penalties[system.d > 0].min()) / largest
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
    items : indices of the items
    shape : right-hand sides × all items
    """

    signs: NDArray[np.int8]
    scale: Float64
    items: Indices
    shape: tuple[int, int]


def _norms(rows: Csr | ScaledSigns) -> Float64:
    if isinstance(rows, ScaledSigns):  # all rows have the same norm
        norm = np.zeros(1)
        _row_norms(np.array([0, len(rows.scale)]), rows.scale, norm)
        return np.repeat(norm, rows.shape[0])
    out = np.zeros(rows.shape[0])
    _row_norms(rows.indptr, rows.data, out)
    return out


def _add_rows(right: Csr | ScaledSigns, rows: Indices, out: Float) -> None:
    """Add rows of a batch, CSR or `ScaledSigns`, to the columns of a block."""
    if isinstance(right, ScaledSigns):
        for k, row in enumerate(rows):
            out[right.items, k] += (right.signs[row] * right.scale).astype(out.dtype)
        return
    for k, row in enumerate(rows):
        part = slice(right.indptr[row], right.indptr[row + 1])
        out[right.indices[part], k] += right.data[part].astype(out.dtype)


def _products(first: Float, second: Float) -> Float64:
    """Sums of first∘second of each column, by parts of ROWS rows."""
    sums = np.zeros((-(-len(first) // ROWS), first.shape[1]))
    _dots(first, second, sums, ROWS)
    return sums


def _total(sums: Float64) -> Float64:
    """Column sums, row after row: the order of NumPy's sum depends on the number of columns."""
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
def _forward(indptr: Any, indices: Any, data: Any, block: Any, out: Any, start: int, stop: int, sums: Any) -> None:
    for row in range(start, stop):
        sums[:] = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            value = np.float64(data[p])
            other = block[indices[p]]
            for t in range(len(sums)):
                sums[t] += value * other[t]
        for t in range(len(sums)):
            out[row, t] = sums[t]


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
    sums = np.empty(len(part))
    for row in range(start, stop):
        block_row = block[row]
        for t in range(len(sums)):
            sums[t] = penalties[row] * block_row[t]
        for p in range(indptr[row], indptr[row + 1]):
            value = np.float64(data[p])
            other = middle[indices[p]]
            for t in range(len(sums)):
                sums[t] += value * other[t]
        for t in range(len(sums)):
            out[row, t] = sums[t]
            part[t] += block_row[t] * sums[t]


@kernel
def _add_scaled(penalties: Any, block: Any, out: Any, part: Any, start: int, stop: int) -> None:
    for row in range(start, stop):
        for t in range(len(part)):
            value = np.float64(out[row, t]) + penalties[row] * block[row, t]
            out[row, t] = value
            part[t] += block[row, t] * value


@kernel
def _move(
    solution: Any,
    at: Any,
    residual: Any,
    direction: Any,
    image: Any,
    inverse: Any,
    size: Any,
    part: Any,
    start: int,
    stop: int,
) -> None:
    """Take a step along the directions; `part` receives the sums of r²/diag and of r²."""
    for row in range(start, stop):
        for t in range(len(size)):
            solution[row, at[t]] += size[t] * direction[row, t]
            value = residual[row, t] - size[t] * image[row, t]
            residual[row, t] = value
            part[0, t] += value * value * inverse[row]
            part[1, t] += value * value


@kernel
def _update_directions(direction: Any, residual: Any, inverse: Any, ratio: Any, start: int, stop: int) -> None:
    for row in range(start, stop):
        for t in range(len(ratio)):
            direction[row, t] = residual[row, t] * inverse[row] + ratio[t] * direction[row, t]
