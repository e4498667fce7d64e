"""The cost of time: a Gram matrix with a time kernel beside the plain one, on public logs with an order or with times.

    .venv/bin/python benchmarks/time.py [gram] [--runs 3] [--threads N]

gram: seconds of the Gram matrix, float32, the best of several runs that alternate between the plain matrix and those
with a kernel. It is written in panels of columns, so that it takes little memory. Gowalla has the order of its public
train lists alone: k is read from a table by distance. MovieLens-1M has times: k is evaluated between times, and between
positions for comparison. Nothing is learned or measured on a test.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import monogram as mg
from monogram.engine.gram.accumulate import GramColumns
from monogram.engine.runtime import parallel

PANEL = 2048  # columns
FOLDER = Path(os.environ.get("MONOGRAM_DATA", Path(__file__).parents[2] / "shared" / "data"))
RECIPES = {
    "gowalla-ordered": {"positions, decay 0.5": {"decay": 0.5}},
    "ml-1m-timestamps": {
        "positions, decay 0.5": {"decay": 0.5},
        "times, decay 0.5 per 7d": {"decay": 0.5, "decay_unit": "7d"},
        "times, decay 1 per 1h, floor 0.1": {"decay": 1, "decay_unit": "1h", "floor": 0.1},
    },
}


def ordered(name):
    """The train part of a split file, in the order of its lists; or a log with times."""
    stored = np.load(FOLDER / f"{name}.npz")
    shape = tuple(int(side) for side in stored["shape"])
    if "train_indptr" in stored:
        pointers, items = stored["train_indptr"], stored["train_indices"]
        places = np.arange(len(items)) - np.repeat(pointers[:-1], np.diff(pointers))
        numbered = sp.csr_array((places.astype(np.int32), items, pointers), shape=shape)
        numbered.sort_indices()
        matrix = sp.csr_array((np.ones(len(items), np.float32), numbered.indices, numbered.indptr), shape=shape)
        return mg.Interactions.from_csr(matrix, order=numbered.data)
    numbered = sp.csr_array((stored["timestamp"].astype(np.float64), (stored["user"], stored["item"])), shape=shape)
    matrix = sp.csr_array((np.ones(numbered.nnz, np.float32), numbered.indices, numbered.indptr), shape=shape)
    return mg.Interactions.from_csr(matrix, times=numbered.data, time_unit="s")


def part_gram(runs, threads):
    """Seconds of the plain Gram matrix and of those with a kernel, in the same run."""
    print(f"Gram matrix in float32, {threads} threads, the best of {runs} runs\n")
    print("| set | kernel | seconds | ratio to plain |")
    print("|---|---|---|---|")
    for name, recipes in RECIPES.items():
        log = ordered(name)
        kernels = {"none": None} | {label: mg.GramRecipe(**recipe).kernel(log) for label, recipe in recipes.items()}
        out = np.empty((log.n_items, min(PANEL, log.n_items)), np.float32, order="F")
        best = dict.fromkeys(kernels, np.inf)
        for run in range(runs + 1):
            for label, kernel in kernels.items():
                start = time.perf_counter()
                columns = GramColumns(log.matrix, None, threads, kernel)
                for first in range(0, log.n_items, PANEL):
                    columns.write(out[:, : log.n_items - first], first)
                if run:  # the first run compiles, and touches the memory
                    best[label] = min(best[label], time.perf_counter() - start)
        for label, seconds in best.items():
            print(f"| {name} | {label} | {seconds:.2f} | {seconds / best['none']:.2f} |", flush=True)


PARTS = {"gram": part_gram}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    missing = [name for name in RECIPES if not (FOLDER / f"{name}.npz").exists()]
    if missing:
        sys.exit(f"{', '.join(missing)} not found in {FOLDER}: set MONOGRAM_DATA to the folder that holds them")
    for part in options.parts or PARTS:
        PARTS[part](options.runs, parallel.count(options.threads))


if __name__ == "__main__":
    main()
