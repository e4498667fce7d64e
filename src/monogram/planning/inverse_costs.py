"""Costs of the inverse (S + Λ)⁻¹: dense (primal, dual), on disk, local, matrix-free, and for many l2 at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from monogram.engine.inverse import local as local_solver
from monogram.engine.inverse import local_hubs, probing, ridge_path
from monogram.engine.inverse import matrix_free as solver
from monogram.engine.inverse.expand import block_rows, buffer_bytes
from monogram.engine.inverse.tile_store import disk_bytes
from monogram.engine.inverse.tiled_cholesky import HELD, tile_size
from monogram.engine.runtime import parallel
from monogram.planning.calibration import calibrate
from monogram.planning.cost import WORKSPACE, Cost, Extra
from monogram.planning.size import Size

PAIR_SECONDS = 1e-9  # to add one pair of events to a Gram matrix, on one thread
GATHER_SHARE = 0.5  # speed at which scattered rows are read, relative to a copy
SMALL_RATE = 0.5  # speed of small factorisations, relative to that of large products
GATHER_SECONDS = 3e-9  # to gather an entry of S for a small system, on one thread
DISK_RATE = 5e8  # bytes a second of an SSD, assumed: the disk is not measured

# Times relative to those of n³ flops of our factorisation and inverse, measured with one thread. They are constants, so
# that the choice between a path and inverses does not depend on the load of the machine.
EIGEN = {"float32": 14.0, "float64": 6.5}  # the eigendecomposition, relative to n³; it is in float64 for both
SMALL_EIGEN = 600  # added to n in that term: small decompositions take longer than their flops
ROW_SUM = 25.0  # to add one entry of a row of weights to a score
PRODUCT = 0.75  # a flop of a plain matrix product
EXPANSION = 40.0  # one of the events·(users + items) multiply-adds from a dual inverse to the weights

EXPANSION_SECONDS = 3e-10  # the same multiply-add, on one thread: for an estimate without a measurement
READ_RATE = 2e10  # bytes of K⁻¹ read in a second, assumed
READS = 2  # how often K⁻¹ is read to rank for one new history


def dense(
    name: str,
    size: Size,
    *,
    dtype: Any = np.float32,
    threads: int = 1,
    extra: Extra = Extra(),  # noqa: B008 (frozen)
) -> Cost:
    """The cost of the "primal" inverse, a square over the items, or the "dual" one, a square over the users."""
    dtype, threads = np.dtype(dtype), parallel.count(threads)
    primal = name == "primal"
    side, pairs = (size.items, size.pairs_by_user) if primal else (size.users, size.pairs_by_item)
    # The sparse data by the other side (12 bytes an event; the dual also keeps its transpose), and sums by thread.
    sparse = size.events * (12 if primal else 28) + 8 * side * threads
    rate, copying = calibrate(dtype.name, threads)
    cube = float(side) ** 3
    products = extra.products if primal else 0
    flops = cube + extra.flops + 2.0 * side * side * (extra.columns + products * side)
    cost = Cost(
        solver=name,
        bytes=(1 + products) * side * side * dtype.itemsize + sparse + WORKSPACE + extra.bytes,
        flops=flops + pairs,
        seconds=flops / rate + pairs * PAIR_SECONDS / threads + 3 * side * side * dtype.itemsize / copying,
        advice=extra.advice,
        stages=(("gram", float(side), "columns"), *_factorisation(cube), *extra.stages),
        avoidable=extra.avoidable,
    )
    return cost if primal or not extra.expand else _expanded(cost, size, extra, dtype.itemsize, threads, rate)


def _expanded(cost: Cost, size: Size, extra: Extra, itemsize: int, threads: int, rate: float) -> Cost:
    """The cost of a dual inverse and of its expansion to the weights."""
    flops = EXPANSION * size.events * (size.users + size.items) + 2.0 * extra.products * float(size.items) ** 3
    needed = cost.bytes + buffer_bytes(size.users, itemsize, threads)
    cost = replace(cost, flops=cost.flops + flops, seconds=cost.seconds + flops / rate)
    if extra.expand == "file":
        return replace(cost, bytes=needed + block_rows(size.items, itemsize, threads) * size.items * itemsize)
    square = (1 + extra.products) * size.items**2 * itemsize
    return replace(
        cost,
        bytes=needed + square,
        stages=(*cost.stages, ("expand", float(size.items), "rows")),
        advice="leave expand out" + (", or give expand='file'" if not extra.products else ""),
        avoidable=square,
    )


def expansion_seconds(users: int, items: int, events: int, threads: int) -> float:
    """About how long it takes to compute the weights from a dual inverse."""
    return EXPANSION_SECONDS * events * (users + items) / threads


def dual_seconds_per_history(users: int, itemsize: int) -> float:
    """About how long dual weights take to rank for one new history; primal weights take well below a millisecond."""
    return READS * float(users) ** 2 * itemsize / READ_RATE


def _factorisation(cube: float) -> tuple[tuple[str, float, str], ...]:
    return ("factor", cube / 3, "flops"), ("invert", cube * 2 / 3, "flops")


def local(size: Size, neighbours: int, *, dtype: Any = np.float32, threads: int | None = 1) -> Cost:
    """The cost of regressing each item on at most so many others: no square array, and sparse weights."""
    dtype, threads = np.dtype(dtype), parallel.count(threads)
    side = min(neighbours, size.items - 1, int(size.pairs_by_user / size.items) + 1)  # candidates of an ordinary item
    entries, most = size.items * side, min(neighbours, size.items - 1)
    hubs, width = min(size.items, local_hubs.HUBS), dtype.itemsize
    listed = min(size.events, most * (size.events // (hubs + 1)))  # events of the candidates that are no hubs
    scratch = 60 * size.items + 60 * listed
    with_hubs = min(local_hubs.most_entries(size.items, size.events), size.pairs_by_user) * (2 + width)
    twice = min(2 * most, size.items - 1)  # candidates of the few items that are solved again to measure the gap
    systems = max(threads * most**2 * dtype.itemsize, min(threads, 8) * twice**2 * dtype.itemsize, 4 * 8 * most**2)
    weights = 2 * entries * (4 + dtype.itemsize)  # by column while they are computed, then by row
    prepared = 16 * size.events + hubs**2 * width + with_hubs + 64 * size.items
    rate, _ = calibrate(dtype.name, threads)
    flops = size.items * (side**3 / 3 + 4.0 * side**2)
    gathered = size.items * side**2 * GATHER_SECONDS + size.pairs_by_user * 2 * PAIR_SECONDS
    return Cost(
        solver=local_solver.NAME,
        bytes=prepared + max(32 * size.events, weights + threads * scratch + systems) + WORKSPACE,
        flops=flops + 2 * size.pairs_by_user,
        seconds=flops / (rate * SMALL_RATE) + gathered / threads,
        advice="lower neighbours" if most > 100 else "use a larger machine",
        stages=(("solve", float(size.items), "items"),),
    )


def matrix_free(size: Size, diagonal: bool, *, timed: bool = False, dtype: Any = np.float32, threads: int = 1) -> Cost:
    """The cost of conjugate gradients in place of an inverse: no square array, but a linear system for each history.

    Parameters
    ----------
    diagonal : whether the fit estimates the diagonal of the inverse
    timed : whether S has a time kernel
        Each step then visits all pairs of events of a user, and there are no sums by user. The events by item are
        counted with their positions, as a copy of the data.
    """
    name, threads = np.dtype(dtype).name, parallel.count(threads)
    by_item = 0 if timed else 8 * size.events
    size = replace(size, users=0) if timed else size
    columns, width = probing.fitted(size.items, diagonal), solver.width(size.users, size.items, name)
    vectors = (128 if diagonal else 48) * size.items  # d, ℓ, row pointers; c and its error, the moments of the probes
    flops = (2.0 * size.pairs_by_user if timed else 4.0 * size.events) * solver.USUAL_STEPS
    _, copying = calibrate(name, threads)
    seconds = flops / 2 * np.dtype(dtype).itemsize / (copying * GATHER_SHARE)
    if timed:
        seconds = flops / 2 * PAIR_SECONDS / threads
    return Cost(
        solver=solver.NAME,
        bytes=by_item + vectors + _columns(size, min(columns, width), diagonal, name) + WORKSPACE,
        flops=columns * flops,
        seconds=columns * seconds,
        advice="use dtype float32" if name == "float64" else "use a larger machine",
        stages=(("diagonal", float(columns), "columns"),) if diagonal else (),
        flops_per_history=flops,
        seconds_per_history=seconds,
    )


def _columns(size: Size, width: int, diagonal: bool, dtype: str) -> int:
    """Memory of the columns that a matrix-free fit solves at the same time, in the stage that takes most.

    The certificate of eight columns keeps them beside others that are solved more finely. The probes of the diagonal
    keep their signs, and are then read in slabs of eight. Blocks that are freed and allocated again, batch after batch,
    leave gaps in the heap: about one block and two slabs.
    """
    certificate = _solving(size, min(size.items, solver.SLAB), dtype) + 8 * solver.SLAB * size.items
    if not diagonal:
        return certificate
    slabs = 8 * solver.SLAB * (6 * size.items + size.users)
    probes = width * size.items + max(_solving(size, width, dtype), 8 * width * size.items + slabs)
    gaps = (width * np.dtype(dtype).itemsize + 2 * 8 * solver.SLAB) * size.items
    return max(certificate, probes + gaps)


def _solving(size: Size, width: int, dtype: str) -> int:
    """Memory of `matrix_free.solve` for so many columns: a solution in float64, and vectors in the working precision.

    It takes most in a step of conjugate gradients, or where the residual is measured, in slabs in float64.
    """
    itemsize = np.dtype(dtype).itemsize
    step = width * solver.column_bytes(size.users, size.items, dtype)
    slabs = 8 * solver.SLAB * (2 * size.items + max(size.items, size.users))
    return max(step, width * size.items * (8 + 2 * itemsize) + slabs)


def beside_tiles(size: Size, threads: int) -> int:
    """Memory that the inverse on disk takes in addition to its tiles, as the primal inverse does beside its array."""
    return 12 * size.events + 8 * size.items * threads + WORKSPACE


def on_disk(size: Size, budget: int, *, dtype: Any = np.float32, threads: int = 1) -> Cost:
    """The cost of a primal inverse in a file, with tiles as large as the memory budget allows.

    Each stage reads a row of tiles for each tile that it writes.
    """
    dtype, threads = np.dtype(dtype), parallel.count(threads)
    n, beside = size.items, beside_tiles(size, threads)
    tile = tile_size(n, budget - beside, dtype.itemsize)
    square, cube = float(n) ** 2 * dtype.itemsize, float(n) ** 3
    rate, _ = calibrate(dtype.name, threads)
    reading, writing = square * (n / tile + 1) / DISK_RATE, 3 * square / DISK_RATE
    return Cost(
        solver="disk",
        bytes=HELD * tile**2 * dtype.itemsize + beside,
        flops=cube + size.pairs_by_user,
        seconds=max(cube / rate, reading) + writing + size.pairs_by_user * PAIR_SECONDS / threads,
        advice="give it more memory",
        stages=(("gram", float(n), "columns"), *_factorisation(cube), ("weights", float(n), "rows")),
        disk=disk_bytes(n, tile, dtype.itemsize),
    )


def ridge_path_cost(
    size: Size, values: int, users: int, events: int, *, dtype: Any = np.float32, threads: int = 1
) -> Cost:
    """The cost of one eigendecomposition for many values of l2, and of scoring histories with each.

    The Gram matrix exists already.

    Parameters
    ----------
    values : number of values of l2
    users, events : of the histories that are scored
    """
    dtype, n = np.dtype(dtype), float(size.items)
    flops = EIGEN[dtype.name] * n**2 * (n + SMALL_EIGEN) + ROW_SUM * events * n
    flops += values * (2 * PRODUCT * users + 2) * n**2
    # The matrix that is decomposed and LAPACK's workspace, then the basis beside the vectors; some blocks of histories.
    blocks = 3 * min(users, ridge_path.BLOCK) * size.items * dtype.itemsize
    needed = 3 * 8 * size.items**2 + blocks + WORKSPACE
    return Cost("path", needed, flops, flops / calibrate(dtype.name, threads)[0])


def repeated_inverses(size: Size, values: int, events: int, *, dtype: Any = np.float32, threads: int = 1) -> Cost:
    """The cost of one primal inverse for each value of l2; see `ridge_path_cost`."""
    dtype, n = np.dtype(dtype), float(size.items)
    flops = values * (n**3 + ROW_SUM * events * n)
    needed = size.items**2 * dtype.itemsize + WORKSPACE
    return Cost("primal", needed, flops, flops / calibrate(dtype.name, threads)[0])
