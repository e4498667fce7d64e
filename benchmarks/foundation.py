"""Benchmarks of fit, full Gowalla, top-k with dense and sparse weights, and a factorisation beyond 32-bit offsets.

    .venv/bin/python benchmarks/foundation.py [fit10k] [gowalla] [topk] [topk_sparse] [large]

Each measurement runs in a separate process, so that its peak memory is its own; values that are compared are measured
in the same run. MONOGRAM_DATA is the folder with gowalla.npz.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

MODELS = {
    "EASE(l2=100)": ("ease", {"l2": 100}, (0.1765, 0.1467)),
    "EDLAE(l2=80, dropout=.8)": ("edlae", {"l2": 80, "dropout": 0.8}, (0.1844, 0.1539)),
    "DLAE(l2=80, dropout=.8)": ("dlae", {"l2": 80, "dropout": 0.8}, (0.1839, 0.1533)),
    "DEQL(l2=80, dropout=.8, b=.1)": ("deql", {"l2": 80, "dropout": 0.8, "b": 0.1}, (0.1845, 0.1540)),
}


def gowalla():
    folder = Path(os.environ.get("MONOGRAM_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "gowalla.npz").exists():
        sys.exit("gowalla.npz was not found: set MONOGRAM_DATA to the folder that holds it")
    stored = np.load(folder / "gowalla.npz")

    def part(name):
        indices = stored[f"{name}_indices"]
        arrays = (np.ones(len(indices), np.float32), indices, stored[f"{name}_indptr"])
        return sp.csr_array(arrays, shape=tuple(stored["shape"]))

    return part("train"), part("test")


def popular(matrix, number=10_000):
    counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
    return sp.csr_array(matrix[:, np.sort(np.argsort(-counts, kind="stable")[:number])])


def peak_of_process():
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def measure(task, file=__file__, **arguments):
    """Run one task of a file in a process of its own."""
    command = [sys.executable, file, "--task", json.dumps({"task": task, **arguments})]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{task} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


# --- tasks -----------------------------------------------------------------------------------------------------------


def task_fit10k():
    import monogram as mg

    log = mg.Interactions.from_csr(popular(gowalla()[0]))
    mg.EASE(l2=100).fit(mg.Interactions.from_csr(log.matrix[:, :50][:60] + sp.eye_array(60, 50, dtype=np.float32)))
    start = time.perf_counter()
    model = mg.EASE(l2=100).fit(log, solver="primal")
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "stages": model.report_.seconds, "fit_bytes": model.report_.peak_bytes,
            "process_bytes": peak_of_process(), "residual": model.report_.residual}  # fmt: skip


def task_lapack10k():
    from scipy.linalg.lapack import spotrf, spotri

    matrix = popular(gowalla()[0])
    gram = np.asfortranarray((matrix.T @ matrix).toarray())
    np.einsum("ii->i", gram)[...] += 100
    warm = np.asfortranarray(gram[:2000, :2000])
    spotri(spotrf(warm, lower=1, clean=0, overwrite_a=1)[0], lower=1, overwrite_c=1)
    start = time.perf_counter()
    factor, info = spotrf(gram, lower=1, clean=0, overwrite_a=1)
    _, other = spotri(factor, lower=1, overwrite_c=1)
    assert info == other == 0
    return {"seconds": time.perf_counter() - start}


def task_numpy10k():
    matrix = popular(gowalla()[0])
    gram = (matrix.T @ matrix).toarray().astype(np.float64)
    np.einsum("ii->i", gram)[...] += 100
    start = time.perf_counter()
    np.linalg.inv(gram)
    return {"seconds": time.perf_counter() - start, "process_bytes": peak_of_process()}


def task_gowalla(model, parameters, solver="auto"):
    from monogram.models.registry import MODELS as REGISTRY

    train, test = gowalla()
    start = time.perf_counter()
    fitted = REGISTRY[model](**parameters).fit(train, solver=solver)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    table = fitted.recommend(k=20).to_arrow()
    ranking = time.perf_counter() - start
    recall, ndcg = quality(table["item"].to_numpy().reshape(-1, 20), test)
    report = fitted.report_
    return {"solver": report.solver, "seconds": seconds, "fit_bytes": report.peak_bytes,
            "planned": report.planned_bytes, "process_bytes": peak_of_process(), "residual": report.residual,
            "recall": recall, "ndcg": ndcg, "ranking": ranking}  # fmt: skip


def quality(lists, test):
    gain = 1 / np.log2(np.arange(2, 22))
    recall, ndcg = [], []
    for user in np.flatnonzero(np.diff(test.indptr)):
        wanted = test.indices[test.indptr[user] : test.indptr[user + 1]]
        hits = np.isin(lists[user], wanted)
        recall.append(hits.sum() / len(wanted))
        ndcg.append((hits * gain).sum() / gain[: len(wanted)].sum())
    return float(np.mean(recall)), float(np.mean(ndcg))


def stream(threads=2, size=400_000_000):
    """Bytes per second read by a copy of an array too large for the caches, on all threads."""
    from concurrent.futures import ThreadPoolExecutor

    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    cuts = np.linspace(0, size, threads + 1).astype(int)
    parts = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    best = np.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))
            best = min(best, time.perf_counter() - start)
    return 2 * size / best  # a copy reads and writes


def task_topk(solver):
    import monogram as mg

    train, _ = gowalla()
    model = mg.EASE(l2=100).fit(train, solver=solver)
    model.recommend([0, 1], k=20)
    start = time.perf_counter()
    model.recommend(k=20)
    seconds = time.perf_counter() - start
    touched = train.nnz * train.shape[1] * 4 if solver == "primal" else None
    return {"fit": sum(model.report_.seconds.values()), "fit_bytes": model.report_.peak_bytes, "seconds": seconds,
            "users_per_second": train.shape[0] / seconds, "bytes_touched": touched, "stream": stream()}  # fmt: skip


def numpy_lists(weights, histories, k=20, block=1000):
    """The lists as numpy and scipy make them: scores of a block of users, seen items at −∞, argpartition, sort."""
    lists = np.empty((histories.shape[0], k), np.int64)
    for start in range(0, len(lists), block):
        rows = histories[start : start + block]
        scores = rows @ weights
        scores = -(scores.toarray() if sp.issparse(scores) else scores)
        scores[np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.indices] = np.inf
        best = np.argpartition(scores, k, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        lists[start : start + block] = np.take_along_axis(best, order, axis=1)
    return lists


def task_topk10k(runs=5):
    import monogram as mg

    histories = popular(gowalla()[0])
    model = mg.EASE(l2=100).fit(mg.Interactions.from_csr(histories), solver="primal")
    weights, seconds = model.weights_.matrix, {"monogram": [], "numpy": []}
    lists = model.recommend(k=20).to_arrow()["item"].to_numpy().reshape(-1, 20)
    same = (lists == numpy_lists(weights, histories))[np.diff(histories.indptr) > 0]  # else every score is 0
    for _ in range(runs):
        start = time.perf_counter()
        model.recommend(k=20)
        middle = time.perf_counter()
        numpy_lists(weights, histories)
        seconds["monogram"].append(middle - start)
        seconds["numpy"].append(time.perf_counter() - middle)
    return {name: min(values) for name, values in seconds.items()} | {"same": float(same.mean())}


def task_topk_sparse(n, row=300, history=25, users=4000):
    """Weights of `row` random items for each item: their number decides the time, not their values."""
    from monogram.engine.topk.best import Eligible
    from monogram.weights import Sparse

    rng = np.random.default_rng(0)
    # One random item in each of `row` ranges: sorted and distinct, without a sort of n rows.
    columns = rng.integers(0, n // row, (n, row), dtype=np.int32)
    columns += np.arange(row, dtype=np.int32) * (n // row)
    pointers = np.arange(0, n * row + 1, row, dtype=np.int32)
    weights = Sparse(sp.csr_array((rng.random(n * row, np.float32), columns.ravel(), pointers), shape=(n, n)))
    items = (rng.random((users, history)) ** 2 * n).astype(np.int32)
    histories = sp.csr_array(
        (np.ones(items.size, np.float32), items.ravel(), np.arange(0, items.size + 1, history, dtype=np.int32)),
        shape=(users, n),
    )
    histories.sum_duplicates()
    eligible, seconds, dense = Eligible.all_but(histories), np.inf, np.inf
    weights.best(histories[:2], Eligible.all_but(histories[:2]), 20, 2)
    for _ in range(3):
        start = time.perf_counter()
        weights.best(histories, eligible, 20, 2)
        seconds = min(seconds, time.perf_counter() - start)
        start = time.perf_counter()
        numpy_lists(weights.matrix, histories[:20])
        dense = min(dense, time.perf_counter() - start)
    return {"users_per_second": users / seconds, "scan": 20 / dense, "weights": weights.nbytes,
            "process_bytes": peak_of_process()}  # fmt: skip


def task_large(n=46_500):
    """A = λI + UUᵀ of known inverse (Woodbury), filled in blocks, factorised and inverted in place."""
    from monogram.engine.linalg.cholesky import potrf, potri

    rng = np.random.default_rng(0)
    low, ridge = rng.standard_normal((n, 64)).astype(np.float32), np.float32(n)
    matrix = np.empty((n, n), np.float32, order="F")
    for start in range(0, n, 1000):
        matrix[start:, start : start + 1000] = low[start:] @ low[start : start + 1000].T
    np.einsum("ii->i", matrix)[...] += ridge
    start = time.perf_counter()
    potrf(matrix)
    middle = time.perf_counter()
    potri(matrix)
    end = time.perf_counter()
    exact = low.astype(np.float64)
    inner = np.linalg.inv(float(ridge) * np.eye(64) + exact.T @ exact)
    worst = 0.0
    for row in [0, 1, 23_000, 46_339, 46_340, 46_341, n - 2, n - 1]:
        expected = -(exact[row] @ inner) @ exact[: row + 1].T / float(ridge)
        expected[row] += 1 / float(ridge)
        worst = max(worst, float(np.abs(matrix[row, : row + 1] - expected).max() * float(ridge)))
    return {"n": n, "potrf": middle - start, "potri": end - middle, "gflops": n**3 / (end - start) / 1e9,
            "relative_error": worst, "process_bytes": peak_of_process()}  # fmt: skip


# --- tables ----------------------------------------------------------------------------------------------------------


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def head(title, *cells):
    print(f"\n## {title}\n")
    row(*cells)
    row(*["---"] * len(cells))


def size(number):
    return f"{number / 1e9:.2f} GB"


def show_fit10k():
    runs = [(measure("fit10k"), measure("lapack10k")) for _ in range(3)]
    numpy64 = measure("numpy10k")
    fit = min((fit for fit, _ in runs), key=lambda one: one["seconds"])
    bare = min(bare["seconds"] for _, bare in runs)
    head(
        "EASE at 10,000 items", "what", "seconds (best of 3)", "Monogram's time is", "peak above start", "process peak"
    )
    row("Monogram fit, float32", f"{fit['seconds']:.2f}", "", size(fit["fit_bytes"]), size(fit["process_bytes"]))
    row("bare spotrf + spotri, float32", f"{bare:.2f}", f"{fit['seconds'] / bare:.2f} ×", "", "")
    ratio = f"{fit['seconds'] / numpy64['seconds']:.2f} ×"
    row("np.linalg.inv, float64", f"{numpy64['seconds']:.2f}", ratio, "", size(numpy64["process_bytes"]))
    stages = ", ".join(f"{name} {value:.2f}" for name, value in fit["stages"].items())
    print(f"\nStages of the fit: {stages}; residual {fit['residual']:.1e}.")
    print("Pairs (fit, LAPACK):", ", ".join(f"{a['seconds']:.2f}, {b['seconds']:.2f}" for a, b in runs))


def show_gowalla():
    head("Full Gowalla, public test list", "model", "solver", "fit s", "peak above start (planned)", "process peak",
         "residual", "recall@20 (P0)", "ndcg@20 (P0)")  # fmt: skip
    for label, (name, parameters, (recall, ndcg)) in MODELS.items():
        one = measure("gowalla", model=name, parameters=parameters)
        row(label, one["solver"], f"{one['seconds']:.0f}", f"{size(one['fit_bytes'])} ({size(one['planned'])})",
            size(one["process_bytes"]), f"{one['residual']:.1e}", f"{one['recall']:.4f} ({recall:.4f})",
            f"{one['ndcg']:.4f} ({ndcg:.4f})")  # fmt: skip


def show_topk():
    head("Top 20 for all 29,858 users of full Gowalla", "weights", "fit s", "fit peak", "seconds", "users/s",
         "W touched", "GB/s", "stream copy GB/s", "share")  # fmt: skip
    for solver in ("dual", "primal"):
        one = measure("topk", solver=solver)
        touched = one["bytes_touched"]
        speed = touched / one["seconds"] if touched else 0
        read = (size(touched), f"{speed / 1e9:.1f}") if touched else ("W is never formed", "")
        share = f"{speed / one['stream']:.0%}" if touched else ""
        row(solver, f"{one['fit']:.0f}", size(one["fit_bytes"]), f"{one['seconds']:.1f}",
            f"{one['users_per_second']:.0f}", *read, f"{one['stream'] / 1e9:.1f}", share)  # fmt: skip

    ratio = measure("topk10k")
    head("Top 20 for all users, 10,000 popular items of Gowalla", "what", "seconds (best of 5)", "speed-up")
    row("Monogram", f"{ratio['monogram']:.2f}", "")
    row("numpy, blocks of 1,000 users", f"{ratio['numpy']:.2f}", f"{ratio['numpy'] / ratio['monogram']:.1f} ×")
    print(f"\nThe same item at the same place: {ratio['same']:.4%} (numpy sums in float32).")


def show_topk_sparse():
    head("Top 20 by sparse weights: 300 for each item, histories of 25 items", "items", "weights", "lists/s",
         "numpy lists/s (one thread)", "process peak")  # fmt: skip
    for n in (10_000, 100_000, 1_000_000):
        one = measure("topk_sparse", n=n)
        row(f"{n:,}", size(one["weights"]), f"{one['users_per_second']:,.0f}", f"{one['scan']:,.0f}",
            size(one["process_bytes"]))  # fmt: skip


def show_large():
    one = measure("large")
    head("Factorisation and inverse with offsets beyond 2³¹", "n", "entries", "potrf s", "potri s", "GFLOP/s",
         "largest error × λ", "process peak")  # fmt: skip
    row(f"{one['n']:,}", f"{one['n'] ** 2:,}", f"{one['potrf']:.0f}", f"{one['potri']:.0f}", f"{one['gflops']:.0f}",
        f"{one['relative_error']:.1e}", size(one["process_bytes"]))  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        wanted = json.loads(sys.argv[2])
        print(json.dumps(globals()[f"task_{wanted.pop('task')}"](**wanted)))
    else:
        for name in sys.argv[1:] or ["fit10k", "gowalla", "topk", "topk_sparse"]:
            globals()[f"show_{name}"]()
