"""A dual fit with its expansion against a primal fit of the same model: seconds, peak, residual, agreement, requests/s.

    .venv/bin/python benchmarks/expand.py [--users N] [--items N] [--rounds N] [--serve] [--folder FOLDER]

By default on full Gowalla, of which each fit takes minutes and up to 11 GB; `--users 6000 --items 12000` takes seconds.
Each fit runs in a process of its own, primal and dual in turn; the best of the rounds counts. With --serve the models
go to files (full Gowalla: 17 GB), and a server answers from each: primal, dual, dual that the server expands, and dual
written by save(path, expand=True). MONOGRAM_DATA is the folder with gowalla.npz.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import serving
from foundation import gowalla, head, measure, peak_of_process, popular, row, size

TARGET = 0.6  # seconds of the dual fit and its expansion, relative to the primal fit
MODEL = {"l2": 80, "dropout": 0.8}


def log_of(users: int | None, items: int | None):
    import monogram as mg

    matrix = gowalla()[0]
    if items is not None:
        matrix = popular(matrix, items)
    return mg.Interactions.from_csr(sp.csr_array(matrix[:users]))


def probes(n: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, 64).astype(int))


def task_fit(solver: str, users: int | None, items: int | None, path: str | None, rows: str):
    import monogram as mg

    log, expand = log_of(users, items), solver == "dual"
    small = sp.csr_array(log.matrix[:60, :80] + sp.eye_array(60, 80, dtype=np.float32))
    mg.EDLAE(**MODEL).fit(mg.Interactions.from_csr(small), solver=solver, expand=expand)  # compile
    start = time.perf_counter()
    model = mg.EDLAE(**MODEL).fit(log, solver=solver, expand=expand)
    seconds = time.perf_counter() - start
    chosen = probes(log.n_items)
    np.save(rows, model.weights_.matrix[chosen])
    if path is not None:
        model.save(path)
    return {"seconds": seconds, "stages": model.report_.seconds, "residual": model.report_.residual,
            "error": model.report_.error, "bytes": model.report_.peak_bytes, "planned": model.report_.planned_bytes,
            "process": peak_of_process()}  # fmt: skip


def task_dual_files(users: int | None, items: int | None, dual: str, expanded: str):
    """A dual model as it is, and written with W block by block."""
    import monogram as mg

    model = mg.EDLAE(**MODEL).fit(log_of(users, items), solver="dual")
    model.save(dual)
    start = time.perf_counter()
    model.save(expanded, expand=True)
    return {"seconds": time.perf_counter() - start, "process": peak_of_process()}


def fits(given: argparse.Namespace, folder: Path) -> None:
    shape = {"users": given.users, "items": given.items}
    runs: dict[str, list[dict]] = {"primal": [], "dual": []}
    for number in range(given.rounds):
        for solver, done in runs.items():
            path = str(folder / "primal.mono") if given.serve and solver == "primal" and number == 0 else None
            done.append(measure("fit", __file__, solver=solver, path=path, rows=str(folder / f"{solver}.npy"), **shape))
    head("EDLAE on Gowalla", "fit", "seconds", "of them the expansion", "peak (planned)", "residual", "error")
    best = {solver: min(done, key=lambda run: run["seconds"]) for solver, done in runs.items()}
    for solver, run in best.items():
        label = "primal" if solver == "primal" else "dual, expanded"
        row(label, f"{run['seconds']:.1f}", f"{run['stages'].get('expand', 0):.1f}",
            f"{size(run['bytes'])} ({size(run['planned'])})", f"{run['residual']:.1e}",
            f"{run['error']:.1e}")  # fmt: skip
    ratio = best["dual"]["seconds"] / best["primal"]["seconds"]
    print(f"\ndual and expansion: {ratio:.2f} of the seconds of the primal fit (target: {TARGET} on full Gowalla)")
    primal, dual = (np.load(folder / f"{solver}.npy").astype(np.float64) for solver in ("primal", "dual"))
    difference = np.abs(primal - dual).max() / np.abs(primal).max()
    print(f"largest difference of the weights in {len(primal)} rows, relative to the largest weight: {difference:.1e}")
    print(
        "rounds (primal, dual):",
        ", ".join(f"{a['seconds']:.1f}, {b['seconds']:.1f}" for a, b in zip(*runs.values(), strict=True)),
    )


def requests(given: argparse.Namespace, folder: Path) -> None:
    shape = {"users": given.users, "items": given.items}
    dual, expanded = folder / "dual.mono", folder / "expanded.mono"
    written = measure("dual_files", __file__, dual=str(dual), expanded=str(expanded), **shape)
    print(f"\nsave(path, expand=True): {written['seconds']:.1f} s; peak of the process {size(written['process'])}")
    log = log_of(given.users, given.items)
    bodies = serving.bodies(log, 1, 500)
    head("Requests of one history, 64 connections", "model", "start to ready s", "requests/s", "p50 ms", "p99 ms")
    served = {
        "primal": (folder / "primal.mono",),
        "dual": (dual, "--no-expand"),
        "dual, expanded by the server": (dual,),
        "dual, expanded in the file": (expanded,),
    }
    for label, (path, *flags) in served.items():
        server = serving.Server(path, *flags)
        try:
            found = serving.measured(server, bodies, 64, given.seconds)
        finally:
            server.stop()
        row(label, f"{server.seconds:.1f}", f"{found['per second']:,.0f}", f"{found['p50 ms']:.1f}",
            f"{found['p99 ms']:.1f}")  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--users", type=int, help="the first N users")
    options.add_argument("--items", type=int, help="the N items with the most events")
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--serve", action="store_true", help="also measure the server")
    options.add_argument("--seconds", type=float, default=5.0, help="of each measurement of the server")
    options.add_argument("--folder", type=Path, help="for the model files; by default a temporary one")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        fits(given, Path(folder))
        if given.serve:
            requests(given, Path(folder))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        wanted = json.loads(sys.argv[2])
        print(json.dumps(globals()[f"task_{wanted.pop('task')}"](**wanted)))
    else:
        main()
