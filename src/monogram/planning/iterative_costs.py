"""Costs of iterative fits (alternating least squares, Newton-CG, ADMM) and of nearest neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.iterative import slim as slim_solver
from monogram.engine.iterative import wrmf as wrmf_solver
from monogram.engine.runtime import parallel
from monogram.engine.topk import column_topk
from monogram.planning.calibration import calibrate
from monogram.planning.cost import WORKSPACE, Cost, Extra
from monogram.planning.lowrank_costs import LOWER_RANK, SPARSE_RATE
from monogram.planning.size import Size

COPIES = {"als": 4, "newton_cg": 8}  # copies of both factors in memory, by solver of RG²
SMALL_PRODUCTS = 0.15  # speed of WRMF's small products, relative to large ones; measured at rank 64
SLIM_EPOCHS = 60  # epochs that a column of SLIM usually needs
SLIM_DENSITY = 0.1  # planned density of SLIM's weights with l1 above 0; a fit that exceeds its budget stops


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


def slim_weights(items: int, l1: float) -> float:
    """The planned number of weights of SLIM: a share of n² with an l1 above 0, else n²."""
    return items**2 * (SLIM_DENSITY if l1 else 1.0)


def slim_extra(size: Size, l1: float, epochs: int, *, dtype: str = "float32") -> Extra:
    """What SLIM takes in addition to its inverse: a pool of columns for ADMM, and its sparse weights."""
    n = size.items
    pool = 3 * slim_solver.width(n) * n * np.dtype(dtype).itemsize
    weights = int(slim_weights(n, l1)) * column_topk.entry_bytes(dtype)
    return Extra(pool + weights, 2.0 * n**3 * min(epochs, SLIM_EPOCHS))
