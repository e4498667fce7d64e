"""Exact EDLAE through the dual at the size of Amazon-Book: seconds, residual, and peak memory.

    .venv/bin/python benchmarks/book.py [share]

At share 1 (the default) the generated log has 52,643 users, 91,599 items and 2.38 million events. Where MONOGRAM_DATA
holds amazon-book-first20.npz, the activity of users and the popularity of items are sampled from that part of the real
log, else from a power law. The fit runs in a separate process, with the helper functions of foundation.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import foundation
import numpy as np
import scipy.sparse as sp
from foundation import head, row, size

USERS, ITEMS, EVENTS = 52_643, 91_599, 2_380_730


def curves(users, items, rng):
    """Events of each user, and the share of each item, up to a factor."""
    folder = Path(os.environ.get("MONOGRAM_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "amazon-book-first20.npz").exists():
        return 10 + rng.geometric(0.03, users), 1 / (np.arange(items) + 30.0) ** 0.8
    stored = np.load(folder / "amazon-book-first20.npz")
    lengths = np.diff(stored["train_indptr"])
    counts = np.bincount(stored["train_indices"], minlength=ITEMS)
    # 0.3: a fifth of the users leaves many items out that the others used
    return rng.choice(lengths[lengths > 0], users), rng.permutation(counts + 0.3)[:items]


def generated(share=1.0, seed=0):
    rng = np.random.default_rng(seed)
    users, items, events = (int(share * one) for one in (USERS, ITEMS, EVENTS))
    lengths, popularity = curves(users, items, rng)
    rows = np.repeat(np.arange(users), np.maximum(1, np.round(lengths * (1.08 * events / lengths.sum())).astype(int)))
    chosen = np.searchsorted(np.cumsum(popularity) / popularity.sum(), rng.random(len(rows))).clip(0, items - 1)
    flat = np.unique(rows * items + chosen)  # what was drawn twice counts once
    flat = np.sort(rng.choice(flat, min(events, len(flat)), replace=False))
    return sp.csr_array((np.ones(len(flat), np.float32), np.divmod(flat, items)), shape=(users, items))


def task_fit(share):
    import monogram as mg

    log = mg.Interactions.from_csr(generated(share))
    model = mg.EDLAE(l2=80, dropout=0.5)
    start = time.perf_counter()
    model.fit(log, solver="dual")
    seconds = time.perf_counter() - start
    users = list(log.users)[:2000]
    start = time.perf_counter()
    model.recommend(users, k=20)
    ranking = time.perf_counter() - start
    report = model.report_
    return {
        "size": [log.n_users, log.n_items, log.n_events],
        "chosen": mg.EDLAE(l2=80, dropout=0.5).plan(log, memory="13 GB").chosen.solver,
        "seconds": seconds,
        "stages": report.seconds,
        "residual": report.residual,
        "error": report.error,
        "fit_bytes": report.peak_bytes,
        "planned": report.planned_bytes,
        "process_bytes": foundation.peak_of_process(),
        "ranking": len(users) / ranking,
    }


def show(share):
    found = foundation.measure("fit", file=__file__, share=share)
    users, items, events = found["size"]
    title = f"EDLAE through the dual, {users:,} × {items:,}, {events:,} events"
    head(title, "chosen within 13 GB", "seconds", "peak above start (planned)", "process peak", "residual", "error",
         "lists/s")  # fmt: skip
    row(found["chosen"], f"{found['seconds']:.0f}", f"{size(found['fit_bytes'])} ({size(found['planned'])})",
        size(found["process_bytes"]), f"{found['residual']:.1e}", f"{found['error']:.0e}",
        f"{found['ranking']:.0f}")  # fmt: skip
    print("\nStages: " + ", ".join(f"{name} {value:.1f}" for name, value in found["stages"].items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        given = json.loads(sys.argv[2])
        given.pop("task")
        print(json.dumps(task_fit(**given)))
    else:
        show(float(sys.argv[1]) if sys.argv[1:] else 1.0)
