"""SLIM against LensKit's: the same objective, the same log, the same number of threads.

    .venv/bin/python benchmarks/slim.py [--peer PYTHON] [--sets gowalla-10k ml-1m] [--l1 1] [--l2 1] [--path]

`--peer` is the Python of another environment with lenskit 2025.8.1. LensKit minimises the same objective for a binary
log (no division by the number of users, float32, non-negative weights), and stops when no weight changes by more than
1e-3, after at most 100 passes. The objective of both is computed here, by the same function. Seconds are the best of
two runs; processor seconds are those of all threads, more reliable on a shared machine. `--path` fits five values of
l1, from the highest down, with and without a warm start. MONOGRAM_DATA is the folder with gowalla.npz and ml-1m.npz.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from foundation import gowalla, head, popular, row

THREADS = 2

PEER = """
import json, sys, time
import numpy as np, pandas as pd, scipy.sparse as sp
from lenskit.data import from_interactions_df
from lenskit.knn.slim import SLIMScorer
from lenskit.training import TrainingOptions
given = json.loads(sys.argv[1])
matrix = sp.load_npz(given["data"]).tocoo()
log = from_interactions_df(pd.DataFrame({"user_id": matrix.row, "item_id": matrix.col}))
clock, used = [], []
for _ in range(2):
    model = SLIMScorer(l1_reg=given["l1"], l2_reg=given["l2"])
    start = time.perf_counter(), time.process_time()
    model.train(log, TrainingOptions())
    clock.append(time.perf_counter() - start[0])
    used.append(time.process_time() - start[1])
ids, weights = np.asarray(model.items.ids()), model.weights.tocoo()
shape = (matrix.shape[1], matrix.shape[1])
sp.save_npz(given["out"], sp.csr_array((weights.data, (ids[weights.row], ids[weights.col])), shape=shape))
print(json.dumps([min(clock), min(used)]))
"""


def ml_1m():
    folder = Path(os.environ.get("MONOGRAM_DATA", Path(__file__).parents[2] / "shared" / "data"))
    stored = np.load(folder / "ml-1m.npz")
    ones = np.ones(len(stored["user"]), np.float32)
    return sp.csr_array((ones, (stored["user"], stored["item"])))


SETS = {"gowalla-10k": lambda: popular(gowalla()[0]), "gowalla": lambda: gowalla()[0], "ml-1m": ml_1m}


def objective(matrix, weights, l1, l2):
    """½‖X − XB‖² + ½·l2·‖B‖² + l1·‖B‖₁ in float64, by blocks of columns."""
    x, b = matrix.astype(np.float64), weights.astype(np.float64).tocsc()
    total = 0.5 * l2 * (b.data**2).sum() + l1 * np.abs(b.data).sum()
    columns = x.tocsc()
    for start in range(0, b.shape[1], 500):
        part = slice(start, start + 500)
        total += 0.5 * ((columns[:, part] - x @ b[:, part]).toarray() ** 2).sum()
    return float(total)


def ours(log, **parameters):
    import monogram as mg

    mg.SLIM(**parameters).fit(mg.sample(), threads=1)  # compiles
    clock, used = [], []
    for _ in range(2):
        start = time.perf_counter(), time.process_time()
        model = mg.SLIM(**parameters).fit(log, threads=THREADS)
        clock.append(time.perf_counter() - start[0])
        used.append(time.process_time() - start[1])
    return model.weights_.matrix, min(clock), min(used)


def peer(python, matrix, l1, l2):
    environment = os.environ | {"LK_NUM_THREADS": str(THREADS), "RAYON_NUM_THREADS": str(THREADS)}
    environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "data.npz", Path(folder) / "out.npz"
        sp.save_npz(data, matrix)
        given = {"data": str(data), "out": str(out), "l1": l1, "l2": l2}
        done = subprocess.run([python, "-c", PEER, json.dumps(given)], capture_output=True, text=True, env=environment)
        if done.returncode:
            sys.exit(f"lenskit failed:\n{done.stderr}")
        return sp.load_npz(out), *json.loads(done.stdout.splitlines()[-1])


def bound(log, l1, l2):
    """The solver's own bound on its distance from the minimum, relative to the objective."""
    from monogram.engine.gram.sparse_rows import sparse_rows
    from monogram.engine.iterative import slim

    problem = slim.SlimProblem(l1, l2, True)
    solution = slim.slim(
        sparse_rows(log.matrix, threads=THREADS), problem, epochs=2000, tolerance=1e-4, threads=THREADS
    )
    return solution.gap / solution.objective


def compare(arguments):
    import monogram as mg

    l1, l2 = arguments.l1, arguments.l2
    head(f"SLIM(l1={l1:g}, l2={l2:g}), {THREADS} threads", "log", "what", "seconds", "processor seconds", "weights",
         "objective", "our time is")  # fmt: skip
    for name in arguments.sets:
        matrix = SETS[name]()
        log = mg.Interactions.from_csr(matrix)
        weights, seconds, used = ours(log, l1=l1, l2=l2)
        above = f"at most {bound(log, l1, l2):.0e} above the minimum"
        row(name, "Monogram", f"{seconds:.2f}", f"{used:.2f}", f"{weights.nnz:,}",
            f"{objective(matrix, weights, l1, l2):.8g} ({above})", "")  # fmt: skip
        if arguments.peer:
            weights, other, spent = peer(arguments.peer, matrix, l1, l2)
            ratios = f"{seconds / other:.2f} × ({used / spent:.2f} × of the processor)"
            row(name, "LensKit 2025.8.1", f"{other:.2f}", f"{spent:.2f}", f"{weights.nnz:,}",
                f"{objective(matrix, weights, l1, l2):.8g}", ratios)  # fmt: skip


def path(arguments):
    """Five values of l1 from the highest down: each fitted on the log, and in a sequence."""
    import monogram as mg
    from monogram.models.sparse import SlimPath

    head(f"A path of l1, l2 = {arguments.l2:g}", "log", "l1", "processor s alone", "processor s from the l1 before")
    for name in arguments.sets:
        log = mg.Interactions.from_csr(SETS[name]())
        source = SlimPath(log)
        for factor in (16, 8, 4, 2, 1):
            spent = []
            for data in (log, source):
                start = time.process_time()
                mg.SLIM(l1=factor * arguments.l1, l2=arguments.l2).fit(data, threads=THREADS)
                spent.append(time.process_time() - start)
            row(name, f"{factor * arguments.l1:g}", *(f"{seconds:.2f}" for seconds in spent))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a python that has lenskit 2025.8.1")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=["gowalla-10k", "ml-1m"])
    parser.add_argument("--l1", type=float, default=1.0)
    parser.add_argument("--l2", type=float, default=1.0)
    parser.add_argument("--path", action="store_true", help="a path of l1, with and without a warm start")
    wanted = parser.parse_args()
    (path if wanted.path else compare)(wanted)
    print(f"\nLoad of the machine at the end: {', '.join(f'{one:.1f}' for one in os.getloadavg())}.")
