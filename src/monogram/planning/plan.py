"""What a fit will cost, before it costs anything: solver, bytes at the peak, flops, seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from monogram.engine.inverse import matrix_free as free
from monogram.engine.inverse import probing
from monogram.engine.inverse.tile_store import disk_bytes
from monogram.engine.inverse.tiled_cholesky import HELD, tile_size
from monogram.engine.lowrank.spectrum import SLAB, method, widths
from monogram.engine.runtime import parallel
from monogram.engine.runtime.memory import show
from monogram.errors import MemoryBudgetError, ParameterError, StorageError

# Dual weights answer a new user with m² work where primal ones add a few rows, so the dual must be clearly cheaper.
DUAL_ADVANTAGE = 2.0
# Beside the large array: buffers of BLAS, caches of the kernels' threads.
WORKSPACE = 10_000_000
# Speed at which scattered rows are gathered, as a share of that of a copy.
GATHERED = 0.5
# Bytes a second of a disk, where they were not measured: an ordinary SSD.
DISK_RATE = 5e8


@dataclass(frozen=True)
class Size:
    """What a cost depends on: shape, entries, and the pairs of entries each Gram must add."""

    users: int
    items: int
    events: int
    pairs_by_user: float
    pairs_by_item: float


def measure(matrix: Any) -> Size:
    """The size of a CSR matrix."""
    counts = np.bincount(matrix.indices, minlength=1).astype(np.float64)
    lengths = np.diff(matrix.indptr).astype(np.float64)
    users, items = matrix.shape
    return Size(users, items, int(matrix.nnz), float((lengths**2).sum()), float((counts**2).sum()))


def guess(users: int, items: int, events: int) -> Size:
    """The size of a matrix of known shape, with a log's usual skew: 5 times the pairs of an even one."""
    if min(users, items, events) < 1 or events > users * items:
        raise ParameterError(
            f"{users} users × {items} items with {events} events; expected whole numbers of at least 1, "
            "and no more events than users × items"
        )
    return Size(users, items, events, 5 * events**2 / users, 5 * events**2 / items)


@dataclass(frozen=True)
class Cost:
    """The price of one way to fit.

    `advice` is what would make it smaller, where that is not fewer users or items; `stages` are its long parts: name,
    work, and what the work is counted in; `history` are the flops of one history's answer, where they are many, and
    `answer` its seconds; `disk` is what its files take.
    """

    solver: str
    bytes: int
    flops: float
    seconds: float
    advice: str = ""
    stages: tuple[tuple[str, float, str], ...] = ()
    history: float = 0.0
    answer: float = 0.0
    disk: int = 0


@dataclass(frozen=True)
class Extra:
    """What a fit takes beside the inverse: bytes, flops, columns the inverse is multiplied with, its own stages.

    `products` are those of a primal inverse with itself: each one more square array.
    """

    bytes: int = 0
    flops: float = 0.0
    columns: int = 0
    stages: tuple[tuple[str, float, str], ...] = ()
    products: int = 0


@dataclass(frozen=True)
class Plan:
    """The way chosen and why, the others beside it, and the budget it must stay in; `room` is that of its files."""

    users: int
    items: int
    events: int
    dtype: str
    budget: int
    chosen: Cost
    costs: tuple[Cost, ...]
    why: str = ""
    room: int | None = None

    @property
    def fits(self) -> bool:
        """Whether the chosen way stays in the budget, and its files in their room."""
        return not self._over(self.chosen)

    def _over(self, cost: Cost) -> str:
        """What a way takes too much of, if anything."""
        if cost.bytes > self.budget:
            return "over budget"
        return "no room on the disk" if self.room is not None and cost.disk > self.room else ""

    def require(self) -> Plan:
        """The plan itself if it fits; else a MemoryBudgetError that says what would, or a StorageError."""
        if self.chosen.bytes > self.budget:
            raise MemoryBudgetError(_refusal(self))
        if not self.fits:
            raise StorageError(
                f"the fit needs {show(self.chosen.disk)} on the disk, which has room for {show(self.room or 0)}; "
                "nothing was written: make room, or name another folder (scratch)"
            )
        return self

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a solver."""
        return [
            {
                "solver": cost.solver,
                "chosen": cost == self.chosen,
                "fits": not self._over(cost),
                "bytes": cost.bytes,
                "disk": cost.disk,
                "flops": cost.flops,
                "seconds": cost.seconds,
            }
            | ({"flops_a_history": cost.history, "seconds_a_history": cost.answer} if cost.history else {})
            for cost in self.costs
        ]

    def __str__(self) -> str:
        wide = max(8, *(len(cost.solver) for cost in self.costs))
        filed = any(cost.disk for cost in self.costs)
        lines = [
            f"{self.users:,} users × {self.items:,} items, {self.events:,} events, {self.dtype}, "
            f"budget {show(self.budget)}",
            f"{'solver':{wide}} {'peak':>9} {'flops':>9} {'time':>9}" + (f" {'files':>9}" if filed else ""),
        ]
        for cost in self.costs:
            files = f" {show(cost.disk) if cost.disk else '-':>9}" if filed else ""
            price = f"{show(cost.bytes):>9} {cost.flops:>9.2g} {duration(cost.seconds):>9}{files}"
            lines.append(f"{cost.solver:{wide}} {price}{self._note(cost)}")
        return "\n".join(lines + [self.why] * bool(self.why))

    def _note(self, cost: Cost) -> str:
        """What is to be said of a way beside its price."""
        said = (
            "← chosen" if cost == self.chosen else "",
            self._over(cost),
            "only in a folder you name" if cost.disk and self.room is None else "",
            f"and {duration(cost.answer)} a history" if cost.answer else "",
        )
        return "".join(f"  {one}" for one in said if one)


def plan(
    size: Size,
    *,
    budget: int,
    solver: str = "auto",
    solvers: tuple[str, ...] = ("primal", "dual"),
    dtype: Any = np.float32,
    threads: int = 1,
    extra: Extra = Extra(),  # noqa: B008 (frozen)
    others: tuple[Cost, ...] = (),
    room: int | None = None,
) -> Plan:
    """Choose between the primal and the dual inverse; where neither fits, the first of the others that does.

    Parameters
    ----------
    size : Size
        Of the matrix; see `measure` and `guess`.
    solver : "auto", "primal", "dual", or the name of one of the others
        What is named is taken.
    solvers : those that can be used at all
    budget : int
        Bytes the fit may take.
    extra : what comes on top of either inverse
    others : ways that hold no square array in memory, in the order of preference; see `on_disk` and `matrix_free`
    room : bytes that files may take; None where no folder for them was named, and "auto" then makes none
    """
    dtype = np.dtype(dtype)
    threads = parallel.count(threads)
    sides = {"primal": (size.items, size.pairs_by_user), "dual": (size.users, size.pairs_by_item)}
    found = {name: _cost(name, sides[name][0], size.events, sides[name][1], dtype, threads, extra) for name in solvers}
    if solver == "auto":
        chosen, why = _choice(found, others, budget, room)
    else:
        chosen, why = (found | {cost.solver: cost for cost in others})[solver], ""
    costs = (*found.values(), *others)
    return Plan(size.users, size.items, size.events, dtype.name, budget, chosen, costs, why, room)


def _choice(found: dict[str, Cost], others: tuple[Cost, ...], budget: int, room: int | None) -> tuple[Cost, str]:
    """The way that "auto" takes, and why; where nothing fits, the smallest."""
    least = min(found.values(), key=lambda cost: cost.bytes)
    held = [cost for cost in found.values() if cost.bytes <= budget]
    if len(held) == 2:
        primal, dual = found["primal"], found["dual"]
        ratio = primal.flops / dual.flops
        if ratio >= DUAL_ADVANTAGE:
            return dual, f"dual: {ratio:.2g} times fewer flops than primal"
        return primal, f"primal: it answers more quickly, and the dual is not {DUAL_ADVANTAGE:g} times cheaper"
    if held:
        return least, f"{least.solver}: the other is over the budget" if len(found) > 1 else ""
    for cost in others:
        if cost.bytes <= budget and cost.disk <= (room or 0):
            why = f"{cost.solver}: nothing dense fits {show(budget)}, the least is {show(least.bytes)} ({least.solver})"
            return cost, why + _no_disk(others, cost, room)
    allowed = [cost for cost in others if cost.disk <= (room or 0)]
    return min((least, *allowed), key=lambda cost: cost.bytes), ""


def _no_disk(others: tuple[Cost, ...], chosen: Cost, room: int | None) -> str:
    """What kept the disk from being chosen, where it was not."""
    wanted = [show(cost.disk) for cost in others if cost.disk and not chosen.disk]
    if not wanted:
        return ""
    if room is None:
        return f"; for the disk, with {wanted[0]} of files, name a folder (scratch)"
    return f"; the disk has room for {show(room)}, not for {wanted[0]}"


def _cost(solver: str, side: int, events: int, pairs: float, dtype: np.dtype[Any], threads: int, extra: Extra) -> Cost:
    # The sparse data again by the other side (12 bytes an event; the dual also keeps its transpose), sums by thread.
    sparse = events * (12 if solver == "primal" else 28) + 8 * side * threads
    rate, copying = calibrate(dtype.name, threads)
    cube = float(side) ** 3
    products = extra.products if solver == "primal" else 0
    flops = cube + extra.flops + 2.0 * side * side * (extra.columns + products * side)
    seconds = flops / rate + pairs * 1e-9 / threads + 3 * side * side * dtype.itemsize / copying
    stages = (("gram", float(side), "columns"), ("factor", cube / 3, "flops"), ("invert", cube * 2 / 3, "flops"))
    taken = (1 + products) * side * side * dtype.itemsize + sparse + WORKSPACE + extra.bytes
    return Cost(solver, taken, flops + pairs, seconds, "", stages + extra.stages)


def matrix_free(size: Size, diagonal: bool, *, dtype: Any = np.float32, threads: int = 1) -> Cost:
    """The cost of `engine.inverse.matrix_free`: no square array; each history is solved for."""
    name, threads = np.dtype(dtype).name, parallel.count(threads)
    columns, width = probing.fitted(size.items, diagonal), free.width(size.users, size.items, name)
    blocks = min(columns, width) * free.column_bytes(size.users, size.items, name)
    taken = 8 * size.events + 80 * size.items + 8 * free.SLAB * (2 * size.items + size.users) + blocks + WORKSPACE
    history = 4.0 * size.events * free.USUAL_STEPS
    _, copying = calibrate(name, threads)
    answer = 2.0 * size.events * free.USUAL_STEPS * np.dtype(dtype).itemsize / (copying * GATHERED)
    stages = (("diagonal", float(columns), "columns"),) if diagonal else ()
    advice = "use dtype float32" if name == "float64" else "use a larger machine"
    return Cost(free.NAME, taken, columns * history, columns * answer, advice, stages, history, answer)


def beside_tiles(size: Size, threads: int) -> int:
    """Bytes of memory that the inverse on disk takes beside its tiles: as the primal beside its array."""
    return 12 * size.events + 8 * size.items * threads + WORKSPACE


def on_disk(size: Size, budget: int, *, dtype: Any = np.float32, threads: int = 1) -> Cost:
    """The price of `engine.inverse.disk`: tiles as large as the budget allows.

    Each of its stages reads a row of tiles for each tile it writes.
    """
    dtype, threads = np.dtype(dtype), parallel.count(threads)
    n, beside = size.items, beside_tiles(size, threads)
    tile = tile_size(n, budget - beside, dtype.itemsize)
    square, cube = float(n) ** 2 * dtype.itemsize, float(n) ** 3
    rate, _ = calibrate(dtype.name, threads)
    reading, writing = square * (n / tile + 1) / DISK_RATE, 3 * square / DISK_RATE
    seconds = max(cube / rate, reading) + writing + size.pairs_by_user * 1e-9 / threads
    stages = (
        ("gram", float(n), "columns"),
        ("factor", cube / 3, "flops"),
        ("invert", cube * 2 / 3, "flops"),
        ("weights", float(n), "rows"),
    )
    taken = HELD * tile**2 * dtype.itemsize + beside
    files = disk_bytes(n, tile, dtype.itemsize)
    return Cost("disk", taken, cube + size.pairs_by_user, seconds, "give it more memory", stages, disk=files)


def spectral(size: Size, rank: int, *, dtype: Any = np.float32, threads: int = 1) -> tuple[Cost, Cost]:
    """The cost of `rank` eigenpairs (`engine.lowrank.spectrum`) by the items ("primal") and by the users ("dual")."""
    threads = parallel.count(threads)
    primal, dual = (_spectral_cost(name, size, rank, np.dtype(dtype), threads) for name in ("primal", "dual"))
    return primal, dual


def alternating(
    solver: str, size: Size, rank: int, epochs: int, *, dtype: Any = np.float32, threads: int = 1, copies: int = 4
) -> Cost:
    """The price of factors fitted in epochs: `copies` of both factors, the sparse data again by each side."""
    dtype, threads = np.dtype(dtype), parallel.count(threads)
    rate, _ = calibrate(dtype.name, threads)
    rows = size.users + size.items
    products, dense = 4.0 * size.events * rank * epochs, 6.0 * rows * rank**2 * epochs
    taken = copies * rows * rank * dtype.itemsize + 28 * size.events + 8 * 16384 * rank + 40 * rank**2 + WORKSPACE
    seconds = products / (1.5e9 * threads) + dense / rate
    stages = (("epochs", float(epochs), "epochs"),)
    return Cost(solver, taken, products + dense, seconds, "ask for a lower rank", stages)


def _spectral_cost(solver: str, size: Size, rank: int, dtype: np.dtype[Any], threads: int) -> Cost:
    side = size.items if solver == "primal" else size.users
    rank, found = min(rank, side), min(rank, size.users, size.items)
    rate, _ = calibrate(dtype.name, threads)
    kept = size.items * found
    sparse = 16 * size.events + 8 * SLAB * (3 * size.items + 2 * size.users) + WORKSPACE
    advice = "ask for a lower rank"
    if method(side, rank) == "dense":
        flops = 4 / 3 * float(side) ** 3 + 2 * float(side) ** 2 * rank
        return Cost(solver, 8 * (side * side + 2 * side * rank + kept) + sparse, flops, 8 * flops / rate, advice)
    block, most = widths(side, rank)
    products = 7 * rank
    flops = 4.0 * products * size.events + 8.0 * side * products * most + 6.0 * float(most) ** 3
    seconds = 4.0 * products * size.events / (1.5e9 * threads) + (flops - 4.0 * products * size.events) / rate
    taken = dtype.itemsize * (side * (most + block) + kept) + 24 * most * most + 40 * side * block
    return Cost(solver, taken + sparse, flops, seconds, advice, (("spectrum", float(products), "columns"),))


def _refusal(refused: Plan) -> str:
    size = np.dtype(refused.dtype).itemsize
    held = [cost for cost in refused.costs if not cost.disk] or refused.costs
    needs = " or ".join(f"{show(cost.bytes)} ({cost.solver}, {refused.dtype})" for cost in held)
    side, across = ("users", refused.users) if refused.chosen.solver == "dual" else ("items", refused.items)
    square = across**2 * size if refused.chosen.solver in ("primal", "dual") else 0
    room = max(0, 0.99 * refused.budget - (refused.chosen.bytes - square)) if square else 0
    advice = [f"raise the memory it may use to {show(refused.chosen.bytes)}"]
    if refused.dtype == "float64" and refused.chosen.bytes / 2 <= refused.budget:
        advice.append("use dtype float32")
    others = [c for c in refused.costs if c.bytes <= refused.budget]
    for cost in others:
        files = f", with {show(cost.disk)} of files in a folder that you name (scratch)" if cost.disk else ""
        advice.append(f"use the {cost.solver} solver{files}")
    if refused.chosen.advice:
        advice.append(refused.chosen.advice)
    elif room:
        advice.append(f"keep the {int((room / size) ** 0.5):,} most active {side}")
    else:
        advice.append("use a larger machine")
    return (
        f"the fit needs {needs} for {refused.users:,} users × {refused.items:,} items, but may use "
        f"{show(refused.budget)}; nothing was allocated. What would fit: {'; '.join(advice)}."
    )


@cache
def calibrate(dtype: str, threads: int) -> tuple[float, float]:
    """Flops per second of our factorisation and bytes per second of a copy, from a moment's measurement."""
    block = np.full((1024, 1024), 0.5, dtype)
    line = np.ones(4_000_000, dtype)
    with parallel.blas_threads(threads):
        gemm = min(_timed(lambda: block @ block) for _ in range(4))
    copy = min(_timed(line.copy) for _ in range(3))
    return 0.75 * 2 * 1024**3 / gemm, line.nbytes / copy


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def duration(seconds: float) -> str:
    """Seconds for people: 0.31 s, 12 min, 2.5 h, 40 years."""
    if seconds < 100:
        return f"{seconds:.2g} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 3.6e7 else f"{seconds / 3.15e7:.2g} years"
