"""Benchmarks of the spectral models and the students, on full Gowalla.

    .venv/bin/python benchmarks/spectral.py [rg2] [als] [sweep] [students]

Each fit runs in a separate process, with the helper functions of foundation.py; values that are compared are measured
in the same run.
"""

from __future__ import annotations

import json
import sys
import time

import foundation
import numpy as np
from foundation import gowalla, head, row


def task_fit(model, parameters, solver="auto"):
    return foundation.task_gowalla(model, parameters, solver)


def task_als(rank=64, epochs=20):
    """Seconds an epoch: the stage `epochs`, without what comes before and after."""
    import monogram as mg

    train, _ = gowalla()
    model = mg.RG2(rank=rank, l2=0.7, solver="als", epochs=epochs, tolerance=1e-6)
    marks = []
    model.fit(train, progress=lambda stage, _: marks.append(time.perf_counter()) if stage == "epochs" else None)
    return {"epoch": float(np.median(np.diff(marks))), "epochs": len(marks), "objective": model.report_.objectives[-1]}


def task_sweep(rank=256, values=20):
    import monogram as mg

    train, _ = gowalla()
    grid = np.linspace(0.3, 1.0, values)
    start = time.perf_counter()
    held = mg.Spectrum(train, rank=rank, target="rg2")
    spectrum = time.perf_counter() - start
    start = time.perf_counter()
    for l2 in grid:
        mg.RG2(rank=rank, l2=float(l2)).fit(held)
    swept = time.perf_counter() - start
    start = time.perf_counter()
    for l2 in grid:
        mg.RG2(rank=rank, l2=float(l2)).fit(held.log)
    return {"spectrum": spectrum, "swept": swept, "fits": time.perf_counter() - start}


def show_rg2():
    head("RG2, closed form", "", "seconds", "above start (planned)", "process", "residual", "recall@20", "ndcg@20")
    for rank, l2 in ((64, 0.5), (256, 0.7), (1024, 0.8)):
        found = foundation.measure("fit", file=__file__, model="rg2", parameters={"rank": rank, "l2": l2})
        _fit(f"rank {rank}, l2 {l2}", found)


def show_als():
    found = foundation.measure("als", file=__file__)
    head("RG2, ALS, rank 64", "", "seconds an epoch", "epochs to 1e-6", "objective")
    row("l2 0.7", f"{found['epoch']:.3f}", found["epochs"], f"{found['objective']:.6g}")


def show_sweep():
    found = foundation.measure("sweep", file=__file__)
    one = found["spectrum"] + found["swept"]
    head("20 values of l2, RG2 rank 256", "", "seconds")
    row("one spectrum, then 20 filters", f"{found['spectrum']:.1f} + {found['swept']:.2f}")
    row("20 fits", f"{found['fits']:.1f}")
    row(
        "ratio", f"{found['fits'] / one:.1f} × (each further value: {found['fits'] / 20 / (found['swept'] / 20):.0f} ×)"
    )


def show_students():
    columns = ("seconds", "above start (planned)", "process", "residual", "recall@20", "ndcg@20")
    head("Students: Gowalla, l2 80, dropout .8", "", *columns)
    shared = {"l2": 80, "dropout": 0.8}
    for rank in (64, 256, 1024, 4096):
        found = foundation.measure("fit", file=__file__, model="low_rank_edlae", parameters={"rank": rank, **shared})
        _fit(f"LowRankEDLAE, rank {rank}", found)
    _fit("EDLAE, the teacher", foundation.measure("fit", file=__file__, model="edlae", parameters=shared))


def _fit(name, found):
    memory = f"{found['fit_bytes'] / 1e9:.2f} GB ({found['planned'] / 1e9:.2f})"
    row(name, f"{found['seconds']:.1f}", memory, f"{found['process_bytes'] / 1e9:.2f} GB", f"{found['residual']:.0e}",
        f"{found['recall']:.4f}", f"{found['ndcg']:.4f}")  # fmt: skip


TASKS = {"fit": task_fit, "als": task_als, "sweep": task_sweep}
SHOWS = {"rg2": show_rg2, "als": show_als, "sweep": show_sweep, "students": show_students}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        given = json.loads(sys.argv[2])
        print(json.dumps(TASKS[given.pop("task")](**given)))
    else:
        for name in sys.argv[1:] or SHOWS:
            SHOWS[name]()
