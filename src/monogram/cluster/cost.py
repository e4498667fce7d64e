"""The plan of a fit on a cluster: what `planning.cluster_costs` takes, read from the cluster."""

from __future__ import annotations

from typing import Any

from monogram.cluster.client import Cluster
from monogram.cluster.gram import bundle_count, tile_side
from monogram.cluster.parts import FAN
from monogram.cluster.solve import free_bytes
from monogram.planning import cluster_costs
from monogram.planning.cluster_costs import Tiling, Workers
from monogram.planning.cost import Cost, Extra
from monogram.planning.plan import Plan
from monogram.planning.size import Size


def inverse_plan(cluster: Cluster, size: Size, budget: int, *, dtype: str, extra: Extra) -> Plan:
    """The plan of an inverse on the workers, whose result the client holds."""
    described = cluster.workers().values()
    workers = Workers([free_bytes(worker) for worker in described], [int(worker["nthreads"]) for worker in described])
    how: dict[str, Any] = {"budget": budget, "dtype": dtype, "extra": extra, "solve": cluster.solve}
    return cluster_costs.plan_inverse(size, workers, tiling(size, cluster.tile, cluster.bundle), **how)


def tiling(size: Size, largest: int, bundle: int) -> Tiling:
    """How a cluster divides the Gram of a log, with tiles of at most a side and bundles of so many bytes."""
    side = tile_side(size.items, largest)
    return Tiling(side, bundle_count(8 * size.events, -(-size.items // side), bundle), FAN)


def spectral_plan(cluster: Cluster, size: Size, cost: Cost, budget: int, dtype: str) -> Plan:
    """The plan of a spectrum whose products are made on the workers, from the cost of one made here by the items."""
    parts = max(1, -(-8 * size.events // cluster.part))
    return cluster_costs.plan_spectrum(size, cost, len(cluster.workers()), parts, FAN, budget=budget, dtype=dtype)
