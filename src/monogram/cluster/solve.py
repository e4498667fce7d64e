"""C = (S + Λ)⁻¹ from the tiles of S: on one worker in place, or by tiles on all of them; C comes to the client.

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
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import Stage, silent

SLAB = 64_000_000  # bytes of C that come at once


def cluster_inverse(
    cluster: Cluster,
    matrix: Any,
    penalties: Float64,
    way: str,
    *,
    keep: NDArray[Any] | None = None,
    dtype: Any = np.float32,
    threads: int = 1,
    stage: Stage = silent,
) -> PrimalInverse:
    """The inverse of an m × n log, computed on the cluster and held here.

    Parameters
    ----------
    way : "one_worker" or "tiles"
    keep : Fortran-ordered n × n array, optional
        Receives the lower triangle of the Gram.
    """
    n, dtype, run = matrix.shape[1], np.dtype(dtype), Run(cluster)
    held = tiles(run, matrix, dtype, stage)
    side = tile_side(n, run.cluster.tile)
    if keep is not None:
        with run.stage("bringing the Gram"):
            receive(run, held.copy(), keep, side, silent)
    out = np.empty((n, n), dtype, order="F")
    solve = _on_one_worker if way == "one_worker" else _by_tiles
    solve(run, held, penalties, out, side, stage)
    return PrimalInverse(out, threads)


def receive(run: Run, held: dict[Key, Any], out: NDArray[Any], side: int, stage: Stage) -> None:
    """Write lower tiles into a square array; each is forgotten as it is taken."""
    keys = list(held)
    for (i, j), tile in zip(keys, run.stream(held.pop(key) for key in keys), strict=True):
        place = out[i * side : (i + 1) * side, j * side : (j + 1) * side]
        place[:] = tile[: place.shape[0], : place.shape[1]]
        stage("collect", len(out) / len(keys))


def _on_one_worker(
    run: Run, held: dict[Key, Any], penalties: Float64, out: NDArray[Any], side: int, stage: Stage
) -> None:
    """All tiles go to one worker, which inverts in place as one machine does; C comes back by slabs of columns."""
    n = len(out)
    with run.stage("the inverse on one worker"):
        where: dict[str, Any] = {"workers": largest(run), "allow_other_workers": True}
        keys = list(held)
        solved = run.submit(invert, keys, [held[key] for key in keys], penalties, side, name="solve", **where)
        stage("solve", 0.0)
        held.clear()  # the scheduler knows how to make them again
        for _ in run.finished([solved]):
            stage("solve", float(n) ** 3)
    with run.stage("bringing the inverse"):
        cuts = spans(n, max(1, SLAB // (n * out.itemsize)))
        slabs = (run.submit(columns, solved, *cut, name=f"slab-{cut[0]}", **where) for cut in cuts)
        for (start, stop), slab in zip(cuts, run.stream(slabs, ahead=1), strict=True):
            out[start:, start:stop] = slab
            stage("collect", stop - start)


def largest(run: Run) -> list[str]:
    """The worker with the most free memory."""
    found = run.cluster.workers()
    return [max(found, key=lambda address: free(found[address]))] if found else []


def free(worker: dict[str, Any]) -> float:
    """Bytes a worker may still take; one without a limit has no bound."""
    limit = worker["memory_limit"] or np.inf
    return float(limit - worker.get("metrics", {}).get("memory", 0))


def invert(keys: list[Key], held: list[NDArray[Any]], penalties: Float64, side: int) -> NDArray[Any]:
    """The inverse from the tiles of the Gram, in the lower triangle of one array, with the threads of this worker."""
    from distributed import get_worker

    n = len(penalties)
    out = np.zeros((n, n), held[0].dtype, order="F")
    for (i, j), tile in zip(keys, held, strict=True):
        out[i * side : (i + 1) * side, j * side : (j + 1) * side] = tile
    with parallel.blas_threads(get_worker().state.nthreads):
        invert_gram(out, penalties)
    return out


def columns(square: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
    """Some columns of a square array, from the diagonal down."""
    return square[start:, start:stop].copy(order="F")


def _by_tiles(run: Run, held: dict[Key, Any], penalties: Float64, out: NDArray[Any], side: int, stage: Stage) -> None:
    """The factor, its inverse and their product, tile by tile; C comes back by tiles."""
    count, cube = max(i for i, _ in held) + 1, float(len(out)) ** 3
    with run.stage("the factor by tiles"):
        factor = _factor(run, held, penalties, count, side, out.dtype)
        stage("factor", 0.0)
        held.clear()
        for done in run.finished(factor.values()):
            stage("factor", cube / 3 * done / len(factor))
    with run.stage("the inverse by tiles"):
        found = _squared(run, _inverted(run, factor, count), count)
        factor.clear()
        stage("invert", 0.0)
        for done in run.finished(found.values()):
            stage("invert", cube * 2 / 3 * done / len(found))
    with run.stage("bringing the inverse"):
        receive(run, found, out, side, stage)


def _factor(
    run: Run, held: dict[Key, Any], penalties: Float64, count: int, side: int, dtype: np.dtype[Any]
) -> dict[Key, Any]:
    """Futures of the lower tiles of L, through dask.array, which wants squares of one size and reads the upper ones."""
    import dask.array as da

    name = f"monogram-upper-{run.mark}"
    upper: dict[Any, Any] = {}
    for (i, j), tile in held.items():
        own = penalties[i * side : (i + 1) * side] if i == j else None
        upper[name, j, i] = run.submit(ready, tile, own, side, name=f"upper-{j}-{i}")
    square = da.Array(upper, name, ((side,) * count, (side,) * count), meta=np.empty((0, 0), dtype))
    lower = da.linalg.cholesky(square, lower=True).to_delayed()
    keys = list(held)
    futures = run.cluster.client.compute([lower[key] for key in keys])
    run.watch(futures)
    return dict(zip(keys, futures, strict=True))


def ready(tile: NDArray[Any], penalties: Float64 | None, side: int) -> NDArray[Any]:
    """A tile with its penalties, turned to the upper side, and filled up to a square: with 1 on the diagonal."""
    rows, columns = tile.shape
    out = np.zeros((side, side), tile.dtype)
    out[:columns, :rows] = tile.T
    if penalties is not None:
        np.einsum("ii->i", out)[:rows] += penalties.astype(tile.dtype)
        np.einsum("ii->i", out)[rows:] = 1
    return out


def _inverted(run: Run, factor: dict[Key, Any], count: int) -> dict[Key, Any]:
    """Futures of Z = L⁻¹: Z_jj = L_jj⁻¹ and Z_ij = −Z_ii·Σ L_ik·Z_kj over j ≤ k < i."""
    found = {(j, j): run.submit(triangle, factor[j, j], name=f"turned-{j}-{j}") for j in range(count)}
    for j in range(count):
        for i in range(j + 1, count):
            sums = None
            for k in range(j, i):
                sums = run.submit(plus, sums, factor[i, k], found[k, j], name=f"turned-{i}-{j}-{k}")
            found[i, j] = run.submit(minus, found[i, i], sums, name=f"turned-{i}-{j}")
    return found


def _squared(run: Run, turned: dict[Key, Any], count: int) -> dict[Key, Any]:
    """Futures of the lower tiles of C = ZᵀZ: C_ij = Σ Z_kiᵀ·Z_kj over k ≥ i."""
    found: dict[Key, Any] = {}
    for i in range(count):
        for j in range(i + 1):
            sums = None
            for k in range(i, count):
                sums = run.submit(plus_turned, sums, turned[k, i], turned[k, j], name=f"inverse-{i}-{j}-{k}")
            found[i, j] = sums
    return found


def triangle(lower: NDArray[Any]) -> NDArray[Any]:
    """The inverse of a lower triangle."""
    eye = np.eye(len(lower), dtype=lower.dtype)
    return np.asarray(scipy.linalg.solve_triangular(lower, eye, lower=True, check_finite=False))


def plus(sums: NDArray[Any] | None, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """A sum of products, one product further; what came in is left as it is."""
    product = left @ right
    return np.asarray(product if sums is None else np.add(product, sums, out=product))


def plus_turned(sums: NDArray[Any] | None, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """As `plus`, with the left side turned."""
    return plus(sums, left.T, right)


def minus(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """The product −left·right."""
    return np.asarray(-(left @ right))
