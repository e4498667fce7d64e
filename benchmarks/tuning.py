"""What a search costs beside fitting and evaluating each of its settings alone, on MovieLens 1M.

    MONOGRAM_DATA=… .venv/bin/python benchmarks/tuning.py [settings]

EASE, EDLAE, DLAE and DEQL over the default coarse grid and its first refinements. Of the settings tried, some spread
over the search are then fitted and evaluated one by one, as a user would without `tune`; their mean is scaled to all of
them. Both ways are measured in this process, one after the other, after everything is compiled.
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


def movielens():
    with np.load(Path(os.environ["MONOGRAM_DATA"]) / "ml-1m.npz") as file:
        ones = np.ones(len(file["user"]), np.float32)
        return sp.csr_array((ones, (file["user"], file["item"])), shape=tuple(file["shape"]))


def timed(work):
    start = time.perf_counter()
    found = work()
    return found, time.perf_counter() - start


def main():
    settings = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    split = mg.splits.holdout(movielens(), seed=1)
    inner = mg.splits.holdout(split.train, share=0.1, seed=0)
    names = ["ease", "edlae", "dlae", "deql"]
    mg.tune(None, names, protocol=split, metric=METRIC, budget="20 settings")  # compiles
    found, seconds = timed(lambda: mg.tune(None, names, protocol=split, metric=METRIC, budget=f"{settings} settings"))
    print(found)
    rows = found.rows()
    search = sum(row["seconds"] for row in rows)
    evaluated, measured, worst = [], [], 0.0
    for at in np.linspace(0, len(rows) - 1, ALONE).astype(int):
        row = rows[at]
        model = model_class(row["model"])(**row["parameters"])
        result, taken = timed(lambda model=model: mg.evaluate({"it": model}, inner, METRIC))
        evaluated.append(taken)
        _, fit = timed(lambda model=model: model.fit(inner.train))
        _, rank = timed(lambda model=model: measure_model(model, inner, (parse(METRIC),), 2))
        measured.append(fit + rank)
        worst = max(worst, abs(result.value("it", METRIC) - row["value"]))
    print(f"\n{len(rows)} settings: {search:.1f} s of search, {seconds:.1f} s with the refits and the test")
    for name, times in (("mg.evaluate", evaluated), ("fit and measure, without floor and intervals", measured)):
        whole = np.mean(times) * len(rows)
        print(
            f"alone by {name}: {np.mean(times):.2f} s each (mean of {ALONE}, {min(times):.2f} to {max(times):.2f}), "
            f"{whole:.0f} s for all; {whole / search:.1f} times the search"
        )
    print(f"largest difference of a value to that of the setting alone: {worst:.1e}")


if __name__ == "__main__":
    main()
