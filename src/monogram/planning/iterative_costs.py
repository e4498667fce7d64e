"""Costs of iterative fits (alternating least squares, Newton-CG, coordinate descent) and of nearest neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from monogram.engine.iterative import slim as slim_solver
from monogram.engine.iterative import wrmf as wrmf_solver
from monogram.engine.runtime import parallel
from monogram.engine.topk import column_topk
from monogram.planning.calibration import calibrate
from monogram.planning.cost import WORKSPACE, Cost
from monogram.planning.lowrank_costs import LOWER_RANK, SPARSE_RATE
from monogram.planning.size import Size

COPIES = {"als": 4, "newton_cg": 8}  # copies of both factors in memory, by solver of RG²
SMALL_PRODUCTS = 0.15  # speed of WRMF's small products, relative to large ones; measured at rank 64
# Of SLIM, by whether its weights are positive. The weights are a share of the pairs of items that share a user; a fit
# that exceeds its budget stops. The operations for each of these pairs were measured on ml-1m and Gowalla.
SLIM_DENSITY = {True: 0.05, False: 0.1}
SLIM_DENSITY_WITHOUT_L1 = {True: 0.1, False: 1.0}
SLIM_PAIRS = {True: 140.0, False: 1400.0}
SLIM_SECONDS = 1e-9  # of one of these operations
SLIM_ROWS = 100.0  # rows of the Gram that a column needs


def neighbours(size: Size, k: int, *, dtype: str = "float32", threads: int = 1) -> Cost:
    """The cost of the k nearest items of each item."""
    n = size.items
    weights = 2 * n * min(k, n) * column_topk.entry_bytes(dtype)  # by column, joined, and by row
    needed = weights + 8 * n * column_topk.WIDTH + 12 * size.events + WORKSPACE
    seconds = (size.pairs_by_user + n * n) * 2e-9 / threads
    return Cost("none", needed, size.pairs_by_user, seconds, "use a lower k")


def alternating(solver: str, size: Size, rank: int, epochs: int, *, dtype: Any = np.float32, threads: int = 1) -> Cost:
    """The cost of RG² by an iterative solver: copies of both factors, and of the sparse data by user and by item."""
    dtype, threads = np.dtype(dtype), parallel.count(threads)
    rate, _ = calibrate(dtype.name, threads)
    rank, rows = min(rank, size.users, size.items), size.users + size.items
    products, dense = 4.0 * size.events * rank * epochs, 6.0 * rows * rank**2 * epochs
    factors = COPIES[solver] * rows * rank * dtype.itemsize
    return Cost(
        solver=solver,
        bytes=factors + 28 * size.events + 8 * 16384 * rank + 40 * rank**2 + WORKSPACE,
        flops=products + dense,
        seconds=products / (SPARSE_RATE * threads) + dense / rate,
        advice=LOWER_RANK,
        stages=(("epochs", float(epochs), "epochs"),),
    )


def wrmf(solver: str, size: Size, rank: int, epochs: int, *, dtype: str = "float32", threads: int = 1) -> Cost:
    """The cost of weighted matrix factorisation, each row solved by "cholesky" or by "cg"."""
    rank, width = min(rank, size.users, size.items), np.dtype(dtype).itemsize
    rows = size.users + size.items
    gramians = 8 * rank**2 * (-(-max(size.users, size.items) // wrmf_solver.BLOCK) + 3 * threads)
    rotated = 16 * threads * wrmf_solver.BLOCK * rank
    needed = rows * (rank * width + 24) + size.events * (16 + 2 * width) + gramians + rotated
    sides = ((size.users, size.pairs_by_user), (size.items, size.pairs_by_item))
    if solver == "cg":
        rotations, solved = 6, 8.0 * (wrmf_solver.STEPS + 1) * size.events * rank
    else:  # short rows by their pairs of events, long ones by the square of the rank
        rotations = 4
        solved = sum(min(rank * pairs, size.events * rank**2 + n * rank**3 / 3) for n, pairs in sides)
    flops = float(epochs) * (rotations * rows * rank**2 + solved + 4 * size.events * rank)
    rate, _ = calibrate(dtype, threads)
    stages = (("epochs", float(epochs), "epochs"),)
    return Cost(solver, needed + WORKSPACE, flops, flops / (SMALL_PRODUCTS * rate), LOWER_RANK, stages)


def slim_weights(size: Size, l1: float, positive: bool) -> float:
    """The planned number of weights of SLIM, as a share of the pairs of items that share a user."""
    share = SLIM_DENSITY[positive] if l1 else SLIM_DENSITY_WITHOUT_L1[positive]
    return share * _pairs_of_items(size)


def slim(
    size: Size, l1: float, *, positive: bool = True, budget: float = math.inf, dtype: str = "float32", threads: int = 1
) -> Cost:
    """The cost of SLIM: as many rows of the Gram as fit in the budget, and for each thread one column with its rows."""
    n, width = size.items, np.dtype(dtype).itemsize
    scratch = (slim_solver.area(n, positive) + slim_solver.side(n) ** 2 + 7 * n) * width + 24 * n
    scratch += slim_solver.CHUNK * n * (4 + width)  # the weights of a few columns
    weights = slim_weights(size, l1, positive) * slim_entry_bytes(dtype)
    needed = int(weights) + threads * scratch + 20 * size.events + 40 * n + WORKSPACE
    rows = min(n * n * width, int(size.pairs_by_user) * (4 + width))
    stored = int(min(rows, max(0, budget - needed)))
    made = SLIM_ROWS * size.pairs_by_user * (1 - stored / rows)  # rows that are not stored are made for each column
    columns = SLIM_PAIRS[positive] * _pairs_of_items(size) + made
    advice, avoidable = ("use a single thread", (threads - 1) * scratch) if l1 else ("use an l1 above 0", int(weights))
    return Cost(
        "none",
        needed + stored,
        2 * columns + size.pairs_by_user,
        (columns * SLIM_SECONDS + size.pairs_by_user * 1e-9) / threads,
        advice if avoidable else "",
        (("columns", float(n), "columns"),),
        avoidable=avoidable,
    )


def slim_entry_bytes(dtype: str) -> int:
    """Bytes of one weight while the columns are joined: it exists three times."""
    return 3 * column_topk.entry_bytes(dtype) // 2


def _pairs_of_items(size: Size) -> float:
    """An upper bound on the entries of the Gram matrix that are not zero."""
    return min(float(size.items) ** 2, size.pairs_by_user)
