"""What a fit on a cluster costs: bytes here and on the workers, bytes moved, seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from monogram.cluster.client import Cluster
from monogram.cluster.gram import bundle_count, tile_side
from monogram.cluster.parts import FAN
from monogram.cluster.solve import free
from monogram.engine.plan import WORKSPACE, Cost, Extra, Plan, Size, calibrate
from monogram.engine.runtime.memory import show
from monogram.errors import MemoryBudgetError

LINE = 1e8  # bytes a second between two machines, where they were not measured: an ordinary network
NAMES = {"one_worker": "cluster (one worker)", "tiles": "cluster (tiles)"}


def inverse_plan(cluster: Cluster, size: Size, budget: int, *, dtype: Any, extra: Extra) -> Plan:
    """The plan of an inverse on the workers, whose result the client holds: one worker if it fits there, else tiles."""
    dtype = np.dtype(dtype)
    workers = cluster.workers()
    way = choose(cluster, workers, size.items, dtype.itemsize)
    square = size.items**2 * dtype.itemsize
    tile = tile_side(size.items, cluster.tile)
    here = square + 16 * size.events + 4 * tile**2 * dtype.itemsize + WORKSPACE + extra.bytes
    moving = moved(size, len(workers), tile, dtype.itemsize, way, cluster.bundle)
    rate, _ = calibrate(dtype.name, 1)
    cores = [max(1, int(one["nthreads"])) for one in workers.values()] or [1]
    solving = max(cores) if way == "one_worker" else sum(cores)
    cube, pairs = float(size.items) ** 3, size.pairs_by_user
    seconds = cube / (rate * solving) + pairs * 1e-9 / sum(cores) + moving / LINE
    cost = Cost(NAMES[way], here, cube + pairs, seconds, "", _stages(size.items, way))
    told = _told(len(workers), moving)
    return Plan(size.users, size.items, size.events, dtype.name, budget, cost, (cost,), told)


def _told(workers: int, moving: float) -> str:
    return f"{workers} workers; about {show(moving)} go over the network, counted at {show(LINE)} a second"


def _stages(n: int, way: str) -> tuple[tuple[str, float, str], ...]:
    cube = float(n) ** 3
    solving = (("solve", cube, "flops"),)
    if way == "tiles":
        solving = (("factor", cube / 3, "flops"), ("invert", cube * 2 / 3, "flops"))  # type: ignore[assignment]
    return (("gram", float(n), "columns"), *solving, ("collect", float(n), "columns"))


def choose(cluster: Cluster, workers: dict[str, Any], n: int, itemsize: int) -> str:
    """The way to solve that fits the workers: one that was named is checked, else the first that fits."""
    square, tile = n * n * itemsize, tile_side(n, cluster.tile) ** 2
    alone = 3 * square // 2 + WORKSPACE  # the square, and the tiles it is made of
    most = max((free(one) for one in workers.values()), default=0)
    if cluster.solve != "tiles" and alone <= most:
        return "one_worker"
    if cluster.solve == "one_worker":
        raise MemoryBudgetError(
            f"an inverse of {n:,} items on one worker takes {show(alone)}, and the largest has {show(most)} free; "
            "give one worker more memory, or solve by tiles"
        )
    together = sum(free(one) for one in workers.values())
    least = min((free(one) for one in workers.values()), default=0)
    each = 8 * tile * 8  # what one task of the Gram or of the factor holds, in float64
    if 5 * square // 2 > together or each > least:
        raise MemoryBudgetError(
            f"an inverse of {n:,} items takes {show(alone)} on one worker, or {show(5 * square // 2)} on all together "
            f"with {show(each)} on each; the {len(workers)} workers have {show(together)} free, the largest "
            f"{show(most)} and the smallest {show(least)}: start more or larger ones"
        )
    return "tiles"


def moved(size: Size, workers: int, tile: int, itemsize: int, way: str, bundle: int) -> float:
    """Bytes that go over the network, about.

    The log goes to the cluster once, and its columns to each worker that needs them: at most to all. Of each tile there
    are as many partial ones, in float64, as there are bundles of columns; where it is more than one, all but the share
    of the worker that sums them move, once a level of the tree. Then C comes home: half a square. On one worker the
    tiles go there before; by tiles each product fetches two of them.
    """
    if workers == 0:
        return 0.0
    n, away = float(size.items), 1 - 1 / workers
    rows = -(-size.items // tile)
    half = tile**2 * rows * (rows + 1) / 2
    bundles = bundle_count(8 * size.events, rows, bundle)
    log = 8.0 * size.events * (1 + workers * away)
    gram = 8 * half * away * (bundles * (1 + 1 / FAN) if bundles > 1 else 0)
    if way == "one_worker":
        return log + gram + itemsize * (half * away + n * (n + 1) / 2)
    products = 3 * rows**3 / 6 * 2 * tile**2 * itemsize * away
    return log + gram + products + itemsize * half


def spectral_plan(cluster: Cluster, size: Size, cost: Cost, budget: int, dtype: str) -> Plan:
    """The plan of a spectrum whose products are made on the workers, from that of one made here by the items."""
    workers = cluster.workers()
    products = next((work for name, work, _ in cost.stages if name == "spectrum"), float(size.items))
    moving = spectral_moved(size, len(workers), products, np.dtype(dtype).itemsize, cluster.part)
    chosen = replace(cost, solver="cluster", seconds=cost.seconds + moving / LINE)
    return Plan(size.users, size.items, size.events, dtype, budget, chosen, (chosen,), _told(len(workers), moving))


def spectral_moved(size: Size, workers: int, products: float, itemsize: int, part: int) -> float:
    """Bytes that a spectrum moves: the log once; each product its columns to all workers, and one sum a partition."""
    parts = max(1, -(-8 * size.events // part))
    return 8.0 * size.events + products * size.items * itemsize * (workers + 1 + min(parts, 2 * parts / FAN) * 2)
