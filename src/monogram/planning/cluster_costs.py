"""Costs of a fit on a cluster: memory of the client and of the workers, network traffic, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from monogram.engine.runtime.memory import show
from monogram.errors import MemoryBudgetError
from monogram.planning.calibration import calibrate
from monogram.planning.cost import WORKSPACE, Cost, Extra, Stages
from monogram.planning.inverse_costs import PAIR_SECONDS
from monogram.planning.plan import Plan
from monogram.planning.size import Size

NETWORK_RATE = 1e8  # bytes a second between two machines, assumed: the network is not measured
NAMES = {"one_worker": "cluster (one worker)", "tiles": "cluster (tiles)"}


@dataclass(frozen=True)
class Workers:
    """The workers of a cluster: free bytes and threads of each."""

    free: Sequence[float]
    threads: Sequence[int]

    def __len__(self) -> int:
        return len(self.free)


@dataclass(frozen=True)
class Tiling:
    """How a cluster divides a Gram matrix.

    Attributes
    ----------
    side : of a tile
    bundles : partial tiles that are summed to one tile
    fan : number of partial tiles that one task sums
    """

    side: int
    bundles: int
    fan: int


def plan_inverse(
    size: Size, workers: Workers, tiling: Tiling, *, budget: int, dtype: str, extra: Extra, solve: str = "auto"
) -> Plan:
    """The plan of an inverse that the workers compute and the client stores: on one worker if it fits, else by tiles.

    Parameters
    ----------
    solve : "auto", "one_worker" or "tiles"
    """
    itemsize = np.dtype(dtype).itemsize
    way = choose_way(size.items, itemsize, workers.free, tiling.side, solve)
    network = inverse_traffic(size, len(workers), tiling, itemsize, way)
    rate, _ = calibrate(dtype, 1)
    threads = [max(1, number) for number in workers.threads] or [1]
    solving = max(threads) if way == "one_worker" else sum(threads)
    cube, pairs = float(size.items) ** 3, size.pairs_by_user
    tiles = 4 * tiling.side**2 * itemsize
    cost = Cost(
        solver=NAMES[way],
        bytes=size.items**2 * itemsize + 16 * size.events + tiles + WORKSPACE + extra.bytes,
        flops=cube + pairs,
        seconds=cube / (rate * solving) + pairs * PAIR_SECONDS / sum(threads) + network / NETWORK_RATE,
        stages=_stages(size.items, way),
    )
    return Plan.of(size, cost, dtype=dtype, budget=budget, why=_network(len(workers), network))


def _network(workers: int, traffic: float) -> str:
    return f"{workers} workers; about {show(traffic)} go over the network, counted at {show(NETWORK_RATE)} a second"


def _stages(n: int, way: str) -> Stages:
    cube = float(n) ** 3
    solving: Stages = (("solve", cube, "flops"),)
    if way == "tiles":
        solving = (("factor", cube / 3, "flops"), ("invert", cube * 2 / 3, "flops"))
    return (("gram", float(n), "columns"), *solving, ("collect", float(n), "columns"))


def choose_way(items: int, itemsize: int, free: Sequence[float], tile: int, solve: str = "auto") -> str:
    """The method that fits the memory of the workers, "one_worker" or "tiles"; MemoryBudgetError where none does.

    Parameters
    ----------
    free : bytes that each worker may still take
    tile : side of a tile
    """
    square = items * items * itemsize
    alone = 3 * square // 2 + WORKSPACE  # the square array, and the tiles that are copied into it
    largest, smallest, together = max(free, default=0), min(free, default=0), sum(free)
    if solve != "tiles" and alone <= largest:
        return "one_worker"
    if solve == "one_worker":
        raise MemoryBudgetError(
            f"an inverse of {items:,} items on one worker takes {show(alone)}, and the largest has {show(largest)} "
            "free; give one worker more memory, or solve by tiles"
        )
    each = 8 * tile**2 * 8  # memory of one task of the Gram or of the factorisation, in float64
    if 5 * square // 2 > together or each > smallest:
        raise MemoryBudgetError(
            f"an inverse of {items:,} items takes {show(alone)} on one worker, or {show(5 * square // 2)} on all "
            f"together with {show(each)} on each; the {len(free)} workers have {show(together)} free, the largest "
            f"{show(largest)} and the smallest {show(smallest)}: start more or larger ones"
        )
    return "tiles"


def inverse_traffic(size: Size, workers: int, tiling: Tiling, itemsize: int, way: str) -> float:
    """Estimated bytes that an inverse sends over the network.

    The log is sent to the cluster once, and its columns at most to every worker. Each tile of the Gram is a sum of
    partial tiles in float64, one for each bundle of columns. Where there are several, all but those of the worker that
    sums them are sent, once for each level of the tree of sums. The client receives half of the symmetric inverse. With
    "one_worker" the tiles are sent to that worker first; with "tiles" each product fetches two tiles.
    """
    if workers == 0:
        return 0.0
    n, away = float(size.items), 1 - 1 / workers
    rows = -(-size.items // tiling.side)
    half = tiling.side**2 * rows * (rows + 1) / 2
    log = 8.0 * size.events * (1 + workers * away)
    gram = 8 * half * away * (tiling.bundles * (1 + 1 / tiling.fan) if tiling.bundles > 1 else 0)
    if way == "one_worker":
        return log + gram + itemsize * (half * away + n * (n + 1) / 2)
    products = 3 * rows**3 / 6 * 2 * tiling.side**2 * itemsize * away
    return log + gram + products + itemsize * half


def plan_spectrum(size: Size, cost: Cost, workers: int, parts: int, fan: int, *, budget: int, dtype: str) -> Plan:
    """The plan of a spectrum whose products are computed on the workers.

    Parameters
    ----------
    cost : of the same spectrum in this process with the primal solver
    parts : partitions of the log
    fan : partial products that one task sums
    """
    products = next((work for name, work, _ in cost.stages if name == "spectrum"), float(size.items))
    network = spectral_traffic(size, workers, products, np.dtype(dtype).itemsize, parts, fan)
    chosen = replace(cost, solver="cluster", seconds=cost.seconds + network / NETWORK_RATE)
    return Plan.of(size, chosen, dtype=dtype, budget=budget, why=_network(workers, network))


def spectral_traffic(size: Size, workers: int, products: float, itemsize: int, parts: int, fan: int) -> float:
    """Estimated bytes that a spectrum sends: the log, and for each product its columns to all workers and the sums."""
    sums = 2 * min(parts, 2 * parts / fan)
    return 8.0 * size.events + products * size.items * itemsize * (workers + 1 + sums)
