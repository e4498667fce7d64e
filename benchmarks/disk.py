"""An inverse by tiles on disk: seconds, its flops as a share of the machine's gemm rate, peak memory, residual.

    .venv/bin/python benchmarks/disk.py [items] [memory] [folder]

By default 60,000 items within 6 GB, which takes about 25 GB in the folder (by default the system's for temporary
files); 6000 "60 MB" takes seconds. The gemm rate is measured in the same run, before and after.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import monogram as mg
from monogram.engine.runtime import memory, parallel


def generated(items, users_an_item=1.5, events_a_user=20, seed=0):
    """A log with a popularity curve like that of the public ones."""
    rng = np.random.default_rng(seed)
    users = int(items * users_an_item)
    share = 1 / (np.arange(items) + 10.0) ** 0.8
    rows = np.repeat(np.arange(users), events_a_user)
    columns = np.searchsorted(np.cumsum(share) / share.sum(), rng.random(len(rows)))
    flat = np.unique(rows * items + np.minimum(columns, items - 1))
    values = np.ones(len(flat), np.float32)
    return sp.csr_array((values, np.divmod(flat, items)), shape=(users, items))


def gemm_rate(side=4096, times=4):
    left, right = (np.random.default_rng(n).random((side, side), np.float32) for n in range(2))
    best = np.inf
    for _ in range(times):
        start = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - start)
    return 2 * side**3 / best


def main():
    items = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
    budget = sys.argv[2] if len(sys.argv) > 2 else "6 GB"
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else tempfile.gettempdir())
    log = mg.Interactions.from_csr(generated(items))
    rate = gemm_rate()
    print(mg.EASE(l2=100).plan(log, memory=budget, scratch=folder, solver="disk"), flush=True)
    mg.EASE(l2=100).fit(sp.eye_array(50, 40, dtype=np.float32).tocsr(), solver="disk", scratch=folder)  # compile
    model = mg.EASE(l2=100).fit(log, memory=budget, scratch=folder, solver="disk")
    rate = max(rate, gemm_rate())
    report, seconds = model.report_, model.report_.seconds
    print(report)
    work = seconds["factor"] + seconds["invert"]
    share = items**3 / work / rate
    print(
        f"factor and inverse {work:.1f} s, {items**3 / work / 1e9:.0f} GFLOP/s, {share:.0%} of gemm's {rate / 1e9:.0f}"
    )
    total = sum(value for name, value in seconds.items() if name != "compile")
    print(f"whole fit {total:.1f} s, {items**3 / total / rate:.0%} of gemm; peak {memory.show(report.peak_bytes or 0)}")
    users = list(log.users)[:2000]
    start = time.perf_counter()
    model.recommend(users, k=20)
    print(f"top 20 of {len(users):,} users in {time.perf_counter() - start:.2f} s on {parallel.count(None)} cores")


if __name__ == "__main__":
    main()
