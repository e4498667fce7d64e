"""The cost of the minimum of an expected quadratic loss from its two moments."""

from __future__ import annotations

import numpy as np

from monogram.engine.gram.session_moments import DENSE_SHARE
from monogram.planning.calibration import calibrate
from monogram.planning.cost import WORKSPACE, Cost, Stages
from monogram.planning.inverse_costs import PAIR_SECONDS
from monogram.planning.size import Size

BLOCKS = 18_000  # bytes for each item: the columns that are multiplied at a time, in float64, and their sparse copies


def expected_quadratic(
    size: Size,
    *,
    entries: float | None = None,
    is_dense: bool | None = None,
    sums: bool = True,
    dtype: str = "float32",
    threads: int = 1,
) -> Cost:
    """The cost of one inverse of the second moment, and of a cross moment that is sparse, or is multiplied with it.

    Parameters
    ----------
    entries : of the cross moment; by default at most one for each pair of items that share a user
    is_dense : whether W is formed as an array; by default by the number of entries
    sums : whether the moments are summed over the log; else they exist already
    """
    n, width = size.items, np.dtype(dtype).itemsize
    square = float(n) ** 2
    entries = min(square, size.pairs_by_user) if entries is None else entries
    dense = entries > DENSE_SHARE * square if is_dense is None else is_dense
    cross = width * square if dense else 2 * entries * (4 + width)  # V twice where its diagonal is changed
    summing = size.pairs_by_user * 2 if sums else 0.0
    needed = width * square + cross + (40 * size.events if sums else 0) + 8 * n * (40 + 4 * threads)
    product = 2 * square * n if dense else 0.0
    rate, copying = calibrate(dtype, threads)
    flops = square * n + product
    stages: Stages = (("gram", float(n), "columns"),) if sums else ()
    stages += ("factor", square * n / 3, "flops"), ("invert", square * n * 2 / 3, "flops")
    return Cost(
        solver="primal",
        bytes=int(needed) + BLOCKS * n + WORKSPACE,
        flops=flops + summing,
        seconds=flops / rate + summing * PAIR_SECONDS / threads + 3 * square * width / copying,
        stages=(*stages, ("product", float(n), "columns")) if dense else stages,
    )
