"""The cost of a search compared with a separate fit and evaluation of each setting, on MovieLens 1M.

    MONOGRAM_DATA=… .venv/bin/python benchmarks/tuning.py [settings] [threads]

EASE, EDLAE, DLAE and DEQL over the default coarse grid and its first refinements. A sample of the settings, spread over
the search, is then fitted and evaluated one by one, as without `tune`; the mean of the sample is scaled to all
settings. Both are measured in this process, one after the other, after all kernels are compiled.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import monogram as mg
from monogram.evaluation.metrics import parse
from monogram.evaluation.protocol import measure_model
from monogram.models.registry import model_class

ALONE = 12
METRIC = "ndcg@20"
NAMES = ["ease", "edlae", "dlae", "deql"]


def movielens():
    path = Path(os.environ.get("MONOGRAM_DATA", Path(__file__).parents[2] / "shared" / "data")) / "ml-1m.npz"
    if not path.exists():
        sys.exit("ml-1m.npz was not found: set MONOGRAM_DATA to the folder that holds it")
    with np.load(path) as file:
        ones = np.ones(len(file["user"]), np.float32)
        return sp.csr_array((ones, (file["user"], file["item"])), shape=tuple(file["shape"]))


def timed(work):
    """What the work gave, its seconds, and its seconds of processor: a busy machine changes these less."""
    start, busy = time.perf_counter(), time.process_time()
    found = work()
    return found, np.array([time.perf_counter() - start, time.process_time() - busy])


def main():
    settings, threads = (int(one) for one in (sys.argv[1:] + ["560", "2"][len(sys.argv) - 1 :])[:2])
    split = mg.splits.holdout(movielens(), seed=1)
    inner = mg.splits.holdout(split.train, share=0.1, seed=0)
    how = {"protocol": split, "metric": METRIC, "threads": threads}
    mg.tune(None, NAMES, budget="20 settings", **how)  # compiles
    found, search = timed(lambda: mg.tune(None, NAMES, budget=f"{settings} settings", **how))
    print(found)
    rows = found.rows()
    evaluated, measured, worst = [], [], 0.0
    for at in np.linspace(0, len(rows) - 1, ALONE).astype(int):
        model = model_class(rows[at]["model"])(**rows[at]["parameters"])
        result, taken = timed(lambda model=model: mg.evaluate({"it": model}, inner, METRIC, threads=threads))
        evaluated.append(taken)
        _, fit = timed(lambda model=model: model.fit(inner.train, threads=threads))
        _, rank = timed(lambda model=model: measure_model(model, inner, (parse(METRIC),), threads))
        measured.append(fit + rank)
        worst = max(worst, abs(result.value("it", METRIC) - rows[at]["value"]))
    print(
        f"\n{len(rows)} settings, {threads} threads: {search[0]:.1f} s with the refits and the test "
        f"({search[1]:.1f} s of CPU)"
    )
    for name, times in (("by mg.evaluate", evaluated), ("by fit and measure, no floor, no interval", measured)):
        mean, ratio = np.mean(times, axis=0), np.mean(times, axis=0) * len(rows) / search
        print(
            f"alone {name}: {mean[0]:.2f} s each ({mean[1]:.2f} s of CPU; mean of {ALONE}), scaled to all "
            f"{mean[0] * len(rows):.0f} s: {ratio[0]:.1f} times the search ({ratio[1]:.1f} times by CPU)"
        )
    print(f"largest difference of a value to that of the setting alone: {worst:.1e}")


if __name__ == "__main__":
    main()
