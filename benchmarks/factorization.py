"""Benchmarks of the matrix factorisations.

    .venv/bin/python benchmarks/factorization.py wrmf [--peer PYTHON] [--rank 64] [--epochs 10]

`wrmf`: Gowalla, two threads, the same objective (nu = 0) and the same start for both libraries: seconds per epoch, the
objective reached, recall on the public test list. `--peer` is the Python of another environment with implicit 0.7.3; it
runs with one BLAS thread, as implicit recommends. The weight of an observed entry is alpha·r in implicit and 1 +
alpha·r here, so implicit gets 1 + alpha. CPU seconds are the sum of both threads; they are more reliable than wall time
on a shared machine.
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
from foundation import gowalla, head, row

THREADS = 2
SAME = {"l2": 100.0, "alpha": 100.0, "nu": 0.0}

PEER = """
import json, sys, time
import numpy as np, scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
given = json.loads(sys.argv[1])
held = np.load(given["data"])
matrix = sp.csr_matrix((held["data"], held["indices"], held["indptr"]), shape=tuple(held["shape"]))
model = AlternatingLeastSquares(
    factors=given["rank"], regularization=given["l2"], alpha=1.0, iterations=given["epochs"], use_cg=given["cg"],
    num_threads=given["threads"], random_state=0)
model.item_factors, model.user_factors = held["items"].copy(), np.zeros((matrix.shape[0], given["rank"]), np.float32)
clock, used = [], [time.process_time()]
model.fit(matrix, show_progress=False,
          callback=lambda _, seconds, __: (clock.append(seconds), used.append(time.process_time())))
np.savez(given["out"], users=model.user_factors, items=model.item_factors)
print(json.dumps([clock, np.diff(used).tolist()]))
"""


def ours(log, rank, epochs, solver, **settings):
    """A fit: its weights, the seconds of each epoch by the clock and of the processor, the last objective."""
    import monogram as mg
    from monogram.models.context import FitInputs, FitOptions

    marks = []

    def note(stage, _):
        if stage in ("start", "epochs"):
            marks.append((time.perf_counter(), time.process_time()))

    model = mg.WRMF(rank=rank, epochs=epochs, solver=solver, **settings)
    options = FitOptions(budget=10**10, threads=THREADS, progress=note)
    model._warm(options)
    report = options.report()
    weights = model._fit(FitInputs(log), options, report)
    return weights, np.diff(np.array(marks), axis=0).T, report.objectives[-1]


def peer(python, log, rank, epochs, cg):
    """The same by implicit; the objective is computed here, by the code that computes ours."""
    import monogram as mg
    from monogram.engine.iterative import wrmf
    from monogram.weights import FoldIn

    matrix, environment = log.matrix, os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    _, items = mg.WRMF(rank=rank)._start(log, rank, "float32")
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "data.npz", Path(folder) / "out.npz"
        np.savez(data, data=(1 + SAME["alpha"] * matrix.data).astype(np.float32), indices=matrix.indices,
                 indptr=matrix.indptr, shape=matrix.shape, items=items)  # fmt: skip
        given = {"data": str(data), "out": str(out), "rank": rank, "epochs": epochs, "cg": cg, "l2": SAME["l2"]}
        command = [python, "-c", PEER, json.dumps(given | {"threads": THREADS})]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            sys.exit(f"implicit failed:\n{done.stderr}")
        with np.load(out) as found:
            users, items = found["users"], found["items"]
    value = wrmf.objective(matrix, users, items, threads=THREADS, **SAME)
    weights = FoldIn(items, wrmf.rotate_to_axes(items), l2=SAME["l2"], alpha=SAME["alpha"], nu=SAME["nu"])
    return weights, np.array(json.loads(done.stdout.splitlines()[-1])), value


def recall(weights, train, test):
    """Histories folded into the factors, ranked and measured by `mg.evaluate`."""
    import monogram as mg

    model = mg.WRMF()
    model.adopt(train, weights, None)
    split = mg.splits.Split("public", train, train, test)
    rows = mg.evaluate({"this": model}, split, metrics=["recall@20"], threads=THREADS).rows()
    return next(one["value"] for one in rows if one["model"] == "this")


def show_wrmf(arguments):
    import monogram as mg

    rank, epochs = arguments.rank, arguments.epochs
    train, test = (mg.Interactions.from_csr(part) for part in gowalla())
    runs = [(f"Monogram, {solver}", ours(train, rank, epochs, solver, **SAME)) for solver in ("cholesky", "cg")]
    if arguments.peer:
        for name, cg in (("cholesky", False), ("cg", True)):
            runs.append((f"implicit 0.7.3, {name}", peer(arguments.peer, train, rank, epochs, cg)))
    runs.append(("Monogram, cholesky, its defaults", ours(train, rank, epochs, "cholesky")))
    head(f"WRMF on Gowalla, rank {rank}, {epochs} epochs, {THREADS} threads", "what", "s an epoch (median)",
         "s an epoch (least)", "processor s an epoch", "objective", "recall@20")  # fmt: skip
    for name, (weights, (clock, used), value) in runs:
        row(name, f"{np.median(clock):.3f}", f"{clock.min():.3f}", f"{np.median(used):.3f}", f"{value:.6g}",
            f"{recall(weights, train, test):.4f}")  # fmt: skip
    print(f"\nLoad of the machine at the end: {', '.join(f'{one:.1f}' for one in os.getloadavg())}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["wrmf"])
    parser.add_argument("--peer", help="a python that has implicit 0.7.3")
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    wanted = parser.parse_args()
    globals()[f"show_{wanted.what}"](wanted)
