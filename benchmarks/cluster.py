"""The Gram matrix and a whole fit on 1 and on 2 worker processes, compared with this process in the same run.

    .venv/bin/python benchmarks/cluster.py [--items 4000] [--users 40000] [--events 25] [--workers 1 2]

Prints ratios (cluster / this process; below 1 the cluster is faster) and the rows of the table in
docs/howto/cluster.md. `--extrapolate` prints its extrapolated rows, from the formulas only. The default takes about a
minute.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp

import monogram as mg
from monogram.cluster import open_cluster
from monogram.cluster.client import Run
from monogram.cluster.cost import tiling
from monogram.cluster.gram import tiles
from monogram.engine.gram import accumulate
from monogram.engine.runtime import parallel
from monogram.engine.runtime.memory import show
from monogram.planning.cluster_costs import NETWORK_RATE, inverse_traffic
from monogram.planning.size import guess, measure

SIZES = [  # users, items, events, workers, way
    (1_000_000, 20_000, 50_000_000, 4, "one_worker"),
    (5_000_000, 50_000, 250_000_000, 4, "one_worker"),
    (5_000_000, 50_000, 250_000_000, 16, "tiles"),
    (20_000_000, 100_000, 1_000_000_000, 16, "one_worker"),
    (20_000_000, 100_000, 1_000_000_000, 32, "tiles"),
]
BUNDLE = 256_000_000  # as the cluster has it by default
RATE, THREADS = 60e9, 8  # flops a second and thread; threads of a worker


def generated(users, items, events, seed=0):
    """A log with a popularity curve like that of the public ones."""
    rng = np.random.default_rng(seed)
    share = 1 / (np.arange(items) + 10.0) ** 0.8
    rows = np.repeat(np.arange(users), events)
    columns = np.searchsorted(np.cumsum(share) / share.sum(), rng.random(len(rows)))
    flat = np.unique(rows * items + np.minimum(columns, items - 1))
    return sp.csr_array((np.ones(len(flat), np.float32), np.divmod(flat, items)), shape=(users, items))


def received(dask_worker):
    return sum(one["total"] for one in dask_worker.transfer_incoming_log)


def between(cluster):
    """Bytes that the workers have had from each other."""
    return sum(cluster.client.run(received).values())


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def row(kind, size, workers, way, seconds, moving):
    print(
        f"| {kind} | {size.users:,} | {size.items:,} | {size.events:,} | {workers} | {way.replace('_', ' ')} | "
        f"{seconds:,.3g} | {show(moving)} |",
        flush=True,
    )


def header():
    print("| | users | items | events | workers | solve | seconds | bytes moved |")
    print("|---|---:|---:|---:|---:|---|---:|---:|", flush=True)


def measured(options):
    log = mg.Interactions.from_csr(generated(options.users, options.items, options.events))
    size = measure(log.matrix)
    threads = parallel.count(None)
    out = np.empty((options.items, options.items), np.float32, order="F")
    mg.EASE(l2=100).fit(log.matrix[:200], solver="primal")  # compile
    here = timed(lambda: accumulate.gram(log.matrix, out, threads=threads))
    fit_here = timed(lambda: mg.EASE(l2=100).fit(log, solver="primal"))
    print(f"here, {threads} threads: Gram {here:.2f} s, fit {fit_here:.2f} s\n", flush=True)
    found = []
    for workers in options.workers:
        with open_cluster(f"local:{workers}") as cluster:
            mg.EASE(l2=100).fit(log.matrix[:200], cluster=cluster)  # compile there
            there = timed(lambda held=cluster: tiles(Run(held), log.matrix, np.float32))
            before = between(cluster)
            fit = timed(lambda held=cluster: mg.EASE(l2=100).fit(log, cluster=held))
            home = 4 * options.items * (options.items + 1) / 2
            found.append((workers, there, fit, between(cluster) - before + 8 * size.events + home))
            print(f"{workers} workers: Gram {there:.2f} s ({there / here:.2f} of here), "
                  f"fit {found[-1][2]:.2f} s ({found[-1][2] / fit_here:.2f} of here)", flush=True)  # fmt: skip
    print()
    header()
    for workers, _, seconds, moving in found:
        row("measured", size, workers, "one_worker", seconds, moving)


def extrapolated():
    header()
    for users, items, events, workers, way in SIZES:
        size = guess(users, items, events)
        moving = inverse_traffic(size, workers, tiling(size, 4096, BUNDLE), 4, way)
        solving = THREADS if way == "one_worker" else THREADS * workers
        seconds = items**3 / (RATE * solving) + size.pairs_by_user * 1e-9 / (THREADS * workers) + moving / NETWORK_RATE
        row("extrapolated", size, workers, way, seconds, moving)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--users", type=int, default=40_000)
    parser.add_argument("--events", type=int, default=25, help="of a user, before repeated ones are left out")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--extrapolate", action="store_true", help="only print the extrapolated rows")
    options = parser.parse_args()
    if options.extrapolate:
        extrapolated()
    else:
        measured(options)


if __name__ == "__main__":
    main()
