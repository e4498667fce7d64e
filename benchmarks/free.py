"""Matrix-free DLAE where no square array fits: seconds for 100 histories, their residual, peak memory.

    .venv/bin/python benchmarks/free.py [share]

At share 1 (the default) the generated log has 2 million users, 1 million items and 50 million events; at 0.02 a
fiftieth of each. Fit and requests run in a separate process, with the helper functions of foundation.py.
"""

from __future__ import annotations

import json
import sys
import time

import foundation
import numpy as np
import scipy.sparse as sp
from foundation import head, row

USERS, ITEMS, EVENTS = 2_000_000, 1_000_000, 50_000_000
TASTES = 200
PART = 5_000_000


def generated(share, seed=0):
    """Popularity by a power law; six events in ten are of the user's taste, which is every TASTES-th item."""
    import monogram as mg

    users, items, events = (max(TASTES, int(share * one)) for one in (USERS, ITEMS, EVENTS))
    rng = np.random.default_rng(seed)
    popularity = np.cumsum(1 / (np.arange(items) + 30.0) ** 0.85)
    popularity /= popularity[-1]
    taste, drawn, keys = rng.integers(0, TASTES, users), int(1.1 * events), []
    for start in range(0, drawn, PART):  # some are drawn twice, and count once
        user = rng.integers(0, users, min(PART, drawn - start))
        item = np.searchsorted(popularity, rng.random(len(user))).clip(0, items - 1)
        own = rng.random(len(user)) < 0.6
        item[own] = (item[own] // TASTES * TASTES + taste[user[own]]) % items
        keys.append(user * items + item)
    whole = np.unique(np.concatenate(keys))
    pointers = np.searchsorted(whole, np.arange(users + 1) * items)
    arrays = np.ones(len(whole), np.float32), (whole % items).astype(np.int32), pointers
    return mg.Interactions.from_csr(sp.csr_array(arrays, shape=(users, items)))


def task_answers(share, histories=100, dropout=0.3):
    import monogram as mg
    from monogram.engine.runtime import memory

    log = generated(share)
    model = mg.DLAE(l2=100, dropout=dropout)
    planned = model.plan(log, solver="matrix_free").chosen
    model.fit(log, solver="matrix_free")
    asked = list(range(0, log.n_users, log.n_users // histories))[:histories]
    with memory.Peak() as peak:
        start = time.perf_counter()
        lists = model.recommend(asked, k=20)
        seconds = time.perf_counter() - start
    report = model.report_
    return {
        "size": [log.n_users, log.n_items, log.n_events],
        "fit": sum(report.seconds.values()) - report.seconds.get("compile", 0.0),
        "fit_bytes": report.peak_bytes,
        "planned": report.planned_bytes,
        "seconds": seconds,
        "foreseen": planned.seconds_per_history * histories,
        "answer_bytes": peak.bytes,
        "process_bytes": foundation.peak_of_process(),
        "residual": float(lists.residuals.max()),
    }


def show(share):
    found = foundation.measure("answers", file=__file__, share=share)
    users, items, events = found["size"]
    title = f"Matrix-free DLAE, {users:,} × {items:,}, {events:,} events"
    head(title, "", "seconds", "(planned)", "memory", "(planned)")
    row("fit", f"{found['fit']:.1f}", "", _bytes(found["fit_bytes"]), _bytes(found["planned"]))
    row("100 histories", f"{found['seconds']:.1f}", f"{found['foreseen']:.1f}", _bytes(found["answer_bytes"]), "")
    row("largest residual of a history", f"{found['residual']:.1e}", "", "", "")
    row("whole process", "", "", _bytes(found["process_bytes"]), "")


def _bytes(number):
    return "not measured" if number is None else f"{number / 1e9:.2f} GB"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        given = json.loads(sys.argv[2])
        given.pop("task")
        print(json.dumps(task_answers(**given)))
    else:
        show(float(sys.argv[1]) if sys.argv[1:] else 1.0)
