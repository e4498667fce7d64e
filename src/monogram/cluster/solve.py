"""C = (S + Λ)⁻¹ from the tiles of S, on one worker in place or by tiles on all workers; the client receives C.

By tiles: A = L·Lᵀ by `dask.array.linalg.cholesky`, then Z = L⁻¹ and C = ZᵀZ, lower tiles only, each product a task:
n³ flops in all, as on one machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from monogram.cluster.client import Cluster, Run
from monogram.cluster.gram import Key, spans, tile_side, tiles
from monogram.engine.inverse.primal import PrimalInverse, invert_gram
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.progress import Stage, silent

SLAB = 64_000_000  # bytes of C transferred at once


def cluster_inverse(
    cluster: Cluster,
    matrix: Csr,
    penalties: Float64,
    way: str,
    *,
    keep: NDArray[Any] | None = None,
    dtype: Any = np.float32,
    threads: int = 1,
    stage: Stage = silent,
) -> PrimalInverse:
    """The inverse of an m × n log, computed on the cluster and returned as a `PrimalInverse` of the client.

    Parameters
    ----------
    way : "one_worker" or "tiles"
    keep : Fortran-ordered n × n array, optional
        Receives the lower triangle of the Gram matrix.
    """
    n, dtype, run = matrix.shape[1], np.dtype(dtype), Run(cluster)
    gram_tiles = tiles(run, matrix, dtype, stage)
    side = tile_side(n, run.cluster.tile)
    if keep is not None:
        with run.stage("transferring the Gram matrix"):
            receive(run, gram_tiles.copy(), keep, side, silent)
    out = np.empty((n, n), dtype, order="F")
    solve = _on_one_worker if way == "one_worker" else _by_tiles
    solve(run, gram_tiles, penalties, out, side, stage)
    return PrimalInverse(out, threads)


def receive(run: Run, square_tiles: dict[Key, Any], out: NDArray[Any], side: int, stage: Stage) -> None:
    """Write lower tiles into a square array; each future is dropped once its tile is received."""
    keys = list(square_tiles)
    for (i, j), tile in zip(keys, run.stream(square_tiles.pop(key) for key in keys), strict=True):
        place = out[i * side : (i + 1) * side, j * side : (j + 1) * side]
        place[:] = tile[: place.shape[0], : place.shape[1]]
        stage("collect", len(out) / len(keys))


def _on_one_worker(
    run: Run, gram_tiles: dict[Key, Any], penalties: Float64, out: NDArray[Any], side: int, stage: Stage
) -> None:
    """Collect all tiles on one worker, which inverts in place; C is transferred in slabs of columns."""
    n = len(out)
    with run.stage("the inverse on one worker"):
        where: dict[str, Any] = {"workers": largest(run), "allow_other_workers": True}
        keys = list(gram_tiles)
        solved = run.submit(invert, keys, [gram_tiles[key] for key in keys], penalties, side, name="solve", **where)
        stage("solve", 0.0)
        gram_tiles.clear()  # the scheduler can recompute them
        for _ in run.finished([solved]):
            stage("solve", float(n) ** 3)
    with run.stage("transferring the inverse"):
        cuts = spans(n, max(1, SLAB // (n * out.itemsize)))
        slabs = (run.submit(columns, solved, *cut, name=f"slab-{cut[0]}", **where) for cut in cuts)
        for (start, stop), slab in zip(cuts, run.stream(slabs, ahead=1), strict=True):
            out[start:, start:stop] = slab
            stage("collect", stop - start)


def largest(run: Run) -> list[str]:
    """The worker with the most free memory."""
    workers = run.cluster.workers()
    return [max(workers, key=lambda address: free_bytes(workers[address]))] if workers else []


def free_bytes(worker: dict[str, Any]) -> float:
    """Free bytes of a worker; infinite for a worker without a memory limit."""
    limit = worker["memory_limit"] or np.inf
    return float(limit - worker.get("metrics", {}).get("memory", 0))


def invert(keys: list[Key], gram_tiles: list[NDArray[Any]], penalties: Float64, side: int) -> NDArray[Any]:
    """The inverse from the tiles of the Gram, in the lower triangle of one array, with the threads of this worker."""
    from distributed import get_worker

    n = len(penalties)
    out = np.zeros((n, n), gram_tiles[0].dtype, order="F")
    for (i, j), tile in zip(keys, gram_tiles, strict=True):
        out[i * side : (i + 1) * side, j * side : (j + 1) * side] = tile
    with parallel.blas_threads(get_worker().state.nthreads):
        invert_gram(out, penalties)
    return out


def columns(square: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
    """Some columns of a square array, from the diagonal down."""
    return square[start:, start:stop].copy(order="F")


def _by_tiles(
    run: Run, gram_tiles: dict[Key, Any], penalties: Float64, out: NDArray[Any], side: int, stage: Stage
) -> None:
    """The factor, its inverse and their product, tile by tile; C is transferred by tiles."""
    count, cube = max(i for i, _ in gram_tiles) + 1, float(len(out)) ** 3
    with run.stage("the factor by tiles"):
        factor = _factor(run, gram_tiles, penalties, count, side, out.dtype)
        stage("factor", 0.0)
        gram_tiles.clear()
        for done in run.finished(factor.values()):
            stage("factor", cube / 3 * done / len(factor))
    with run.stage("the inverse by tiles"):
        inverse = _squared(run, _inverted(run, factor, count), count)
        factor.clear()
        stage("invert", 0.0)
        for done in run.finished(inverse.values()):
            stage("invert", cube * 2 / 3 * done / len(inverse))
    with run.stage("transferring the inverse"):
        receive(run, inverse, out, side, stage)


def _factor(
    run: Run, gram_tiles: dict[Key, Any], penalties: Float64, count: int, side: int, dtype: np.dtype[Any]
) -> dict[Key, Any]:
    """Futures of the lower tiles of L, through dask.array, which reads square upper tiles of equal size."""
    import dask.array as da

    name = f"monogram-upper-{run.mark}"
    upper: dict[Any, Any] = {}
    for (i, j), tile in gram_tiles.items():
        own = penalties[i * side : (i + 1) * side] if i == j else None
        upper[name, j, i] = run.submit(padded_transpose, tile, own, side, name=f"upper-{j}-{i}")
    square = da.Array(upper, name, ((side,) * count, (side,) * count), meta=np.empty((0, 0), dtype))
    lower = da.linalg.cholesky(square, lower=True).to_delayed()
    keys = list(gram_tiles)
    futures = run.cluster.client.compute([lower[key] for key in keys])
    run.watch(futures)
    return dict(zip(keys, futures, strict=True))


def padded_transpose(tile: NDArray[Any], penalties: Float64 | None, side: int) -> NDArray[Any]:
    """The transpose of a tile plus its penalties, padded to a square tile with 1 on the diagonal."""
    rows, columns = tile.shape
    out = np.zeros((side, side), tile.dtype)
    out[:columns, :rows] = tile.T
    if penalties is not None:
        np.einsum("ii->i", out)[:rows] += penalties.astype(tile.dtype)
        np.einsum("ii->i", out)[rows:] = 1
    return out


def _inverted(run: Run, factor: dict[Key, Any], count: int) -> dict[Key, Any]:
    """Futures of Z = L⁻¹: Z_jj = L_jj⁻¹ and Z_ij = −Z_ii·Σ L_ik·Z_kj over j ≤ k < i."""
    inverted = {(j, j): run.submit(triangle, factor[j, j], name=f"factor-inverse-{j}-{j}") for j in range(count)}
    for j in range(count):
        for i in range(j + 1, count):
            sums = None
            for k in range(j, i):
                sums = run.submit(plus, sums, factor[i, k], inverted[k, j], name=f"factor-inverse-{i}-{j}-{k}")
            inverted[i, j] = run.submit(minus, inverted[i, i], sums, name=f"factor-inverse-{i}-{j}")
    return inverted


def _squared(run: Run, inverse: dict[Key, Any], count: int) -> dict[Key, Any]:
    """Futures of the lower tiles of C = ZᵀZ: C_ij = Σ Z_kiᵀ·Z_kj over k ≥ i."""
    squared: dict[Key, Any] = {}
    for i in range(count):
        for j in range(i + 1):
            sums = None
            for k in range(i, count):
                sums = run.submit(plus_transposed, sums, inverse[k, i], inverse[k, j], name=f"inverse-{i}-{j}-{k}")
            squared[i, j] = sums
    return squared


def triangle(lower: NDArray[Any]) -> NDArray[Any]:
    """The inverse of a lower triangle."""
    eye = np.eye(len(lower), dtype=lower.dtype)
    return np.asarray(scipy.linalg.solve_triangular(lower, eye, lower=True, check_finite=False))


def plus(sums: NDArray[Any] | None, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """sums + left·right; the arguments are not changed (tasks are pure)."""
    product = left @ right
    return np.asarray(product if sums is None else np.add(product, sums, out=product))


def plus_transposed(sums: NDArray[Any] | None, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """As `plus`, with the left factor transposed: sums + leftᵀ·right."""
    return plus(sums, left.T, right)


def minus(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """The product −left·right."""
    return np.asarray(-(left @ right))
