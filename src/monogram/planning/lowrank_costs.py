"""Costs of a spectrum, of low-rank students, and of two-step models with low-pass directions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from monogram.engine.lowrank import spectrum, students
from monogram.engine.runtime import parallel
from monogram.engine.runtime.memory import show
from monogram.planning.calibration import calibrate
from monogram.planning.cost import WORKSPACE, Cost, Extra
from monogram.planning.size import Size

LOWER_RANK = "use a lower rank"
SPARSE_RATE = 1.5e9  # flops a second and thread of a product of sparse data with a block of columns
PRODUCTS_PER_PAIR = 7  # columns that Lanczos multiplies the data with, for each eigenpair


def spectral(
    size: Size, rank: int, *, dtype: Any = np.float32, threads: int = 1, copied: int = 0, timed: bool = False
) -> tuple[Cost, ...]:
    """The cost of `rank` eigenpairs by the items ("primal") and by the users ("dual").

    Parameters
    ----------
    copied : bytes of a weighted copy of the data
    timed : whether S has a time kernel: then the items alone, and each product visits all pairs of events of a user
    """
    threads, names = parallel.count(threads), ("primal",) if timed else ("primal", "dual")
    costs = (_spectral(name, size, rank, np.dtype(dtype), threads, timed) for name in names)
    return tuple(replace(cost, bytes=cost.bytes + copied) for cost in costs)


def _spectral(name: str, size: Size, rank: int, dtype: np.dtype[Any], threads: int, timed: bool) -> Cost:
    side = size.items if name == "primal" else size.users
    rank, pairs = min(rank, side), min(rank, size.items, size.items if timed else size.users)
    rate, _ = calibrate(dtype.name, threads)
    vectors = size.items * pairs
    sparse = 16 * size.events + 8 * spectrum.SLAB * (3 * size.items + 2 * size.users) + WORKSPACE
    if spectrum.method(side, rank) == "dense":
        flops = 4 / 3 * float(side) ** 3 + 2 * float(side) ** 2 * rank
        needed = 8 * (side * side + 2 * side * rank + vectors) + sparse
        return Cost(name, needed, flops, 8 * flops / rate, LOWER_RANK)
    block, basis = spectrum.widths(side, rank)
    products = PRODUCTS_PER_PAIR * rank
    multiplying = 4.0 * products * (size.pairs_by_user if timed else size.events)
    orthogonalising = 8.0 * side * products * basis + 6.0 * float(basis) ** 3
    return Cost(
        solver=name,
        bytes=dtype.itemsize * (side * (basis + block) + vectors) + 24 * basis * basis + 40 * side * block + sparse,
        flops=multiplying + orthogonalising,
        seconds=multiplying / (SPARSE_RATE * threads) + orthogonalising / rate,
        advice=LOWER_RANK,
        stages=(("spectrum", float(products), "columns"),),
    )


def student_extra(size: Size, rank: int, dtype: str, epochs: int = 0) -> Extra:
    """What a low-rank student takes in addition to its teacher: sparse data by item, eigenpairs, factors, epochs."""
    n, width = size.items, np.dtype(dtype).itemsize
    rank = min(rank, n)
    if spectrum.method(n, rank) == "dense":
        products, eigen, flops = 3 * n, 8 * n * (n + 2 * rank), 4.0 * n**3
        stages = [("spectrum", float(n) ** 3, "flops")]
    else:
        block, basis = spectrum.widths(n, rank)
        products = 6 * rank + basis
        eigen = width * n * (basis + block) + 24 * basis**2 + 8 * 4 * n * block
        flops = 4.0 * n * basis * products
        stages = [("spectrum", float(products), "columns")]
    slabs = 8 * students.SLAB * (2 * size.users + 4 * n)
    loops = 8 * students.BLOCKS * n * rank if epochs else 0
    stages += [("epochs", float(epochs), "epochs")] if epochs else []
    copies = 24 * size.events  # by item and by user, and the values in float64
    by_rank = max(eigen, loops) + 2 * width * n * rank
    return Extra(
        bytes=by_rank + slabs + copies,
        flops=flops,
        columns=products + 12 * rank * epochs,
        stages=tuple(stages),
        advice=LOWER_RANK,
        avoidable=by_rank,
    )


def two_step_extra(size: Size, rank: int, *, dtype: Any = np.float32, threads: int = 1, copied: int = 0) -> Extra:
    """What a two-step model takes in addition to its inverse: the product B², and `rank` low-pass directions.

    The directions are computed before the inverse, on the smaller side of the log, and stay in memory with it. With
    rank 0 there are none.
    """
    if not rank:
        return Extra(bytes=copied, products=1)
    primal, dual = spectral(size, rank, dtype=dtype, threads=threads)
    cost = dual if size.users < size.items else primal
    needed = cost.bytes + 48 * size.events
    return Extra(
        bytes=copied + needed,
        flops=cost.flops,
        stages=cost.stages,
        products=1,
        advice=f"{LOWER_RANK} than {rank:,}, whose low-pass directions take {show(needed)}",
        avoidable=needed,
    )
