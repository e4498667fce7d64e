"""Benchmarks of the gradient-trained models: seconds an epoch beside other programs, in the same run.

    .venv/bin/python benchmarks/gradient.py [light_gcn] [elsa] [mult_vae] [bpr] [--peer PYTHON] [--rounds 2]

`--peer` is the Python of another environment with torch, elsarec 0.1.4 and implicit 0.7.3; without it, only the models
with a plain torch implementation in this file, `light_gcn` and `mult_vae`, are compared. Every measurement runs in a
process of its own with two threads; ours and the other program take turns. A batch takes the median of the seconds over
all rounds; an epoch takes this times its batches. Processor seconds are the sum of both threads; they are more reliable
than those of the clock on a shared machine.

- `light_gcn`: BPR, 3 layers, 64 wide, batch 2,048, learning rate 0.001, l2 1e-4, Gowalla. The plain implementation
  multiplies with torch.sparse.mm and a COO adjacency at every batch, and draws the negatives of an epoch at once.
- `elsa`: 256 wide, batch 1,024, Gowalla, beside elsarec.
- `mult_vae`: 600–200–600, batch 500, ml-1m. The plain implementation reads dense rows.
- `bpr`: `Factorization`, rank 64, Gowalla, at two sizes of the batch, beside the stochastic descent of implicit.
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
from foundation import gowalla, head, measure, row

THREADS = 2
PARTS = ("light_gcn", "elsa", "mult_vae", "bpr")
WIDE, RATE, L2, EVENTS = 64, 1e-3, 1e-4, 2048  # of LightGCN
VAE = {"batch": 500, "hidden": 600, "rank": 200, "dropout": 0.5, "beta": 0.2, "annealing": 20}

LOAD = """
import json, sys, time
import numpy as np, scipy.sparse as sp
given = json.loads(sys.argv[1])
held = np.load(given["data"])
matrix = sp.csr_matrix((held["data"], held["indices"], held["indptr"]), shape=tuple(held["shape"]))
marks = []
def note(*_):
    marks.append([time.perf_counter(), time.process_time()])
"""
ELSAREC = """
import torch
from elsa import ELSA
torch.set_num_threads(given["threads"])
model = ELSA(n_items=matrix.shape[1], n_dims=given["rank"], device=torch.device("cpu"))
step = model.train_step
def timed(x, y):
    result = step(x, y)
    note()
    return result
model.train_step = timed
model.fit(matrix[:given["batch"] * given["number"]], batch_size=given["batch"], epochs=1, verbose=False)
print(json.dumps(marks))
"""
IMPLICIT = """
from implicit.cpu.bpr import BayesianPersonalizedRanking
model = BayesianPersonalizedRanking(
    factors=given["rank"], iterations=given["number"], num_threads=given["threads"], random_state=0)
model.fit(matrix, show_progress=False, callback=note)
print(json.dumps(marks))
"""


# --- tasks -----------------------------------------------------------------------------------------------------------


def ml_1m():
    import monogram as mg

    folder = Path(os.environ.get("MONOGRAM_DATA", Path(__file__).parents[2] / "shared" / "data"))
    stored = np.load(folder / "ml-1m.npz")
    if "train_indptr" in stored:
        return mg.splits.public(folder / "ml-1m.npz").train.matrix
    import scipy.sparse as sp

    pairs = np.unique(np.stack([stored["user"], stored["item"]]), axis=1)
    return sp.csr_array((np.ones(pairs.shape[1], np.float32), tuple(pairs)), shape=tuple(stored["shape"]))


def model_of(part, batch):
    import monogram as mg

    if part == "elsa":
        return mg.ELSA(rank=256, batch=batch), gowalla()[0]
    if part == "mult_vae":
        return mg.MultVAE(**VAE), ml_1m()
    kind = mg.LightGCN if part == "light_gcn" else mg.Factorization
    return kind(loss="bpr", rank=WIDE, batch=batch, learning_rate=RATE, l2=L2), gowalla()[0]


def task_ours(part, batch, number):
    """The times after each batch."""
    import monogram as mg
    from monogram.gradient.trainer import Context, seeded
    from monogram.models.context import FitOptions

    model, matrix = model_of(part, batch)
    options = FitOptions(budget=10**10, threads=THREADS)
    model._warm(options)
    marks = []

    def note():
        marks.append([time.perf_counter(), time.process_time()])
        return len(marks) > number

    with seeded(0, THREADS):
        context = Context("cpu", options.dtype, THREADS, model.learning_rate)
        training = model._training(mg.Interactions.from_csr(matrix), context)
        while len(marks) <= number:
            training.epoch(note)
    return marks


def task_plain_light_gcn(number, batch):
    """LightGCN as the authors' torch program computes it; the sampling of an epoch is spread over its batches."""
    import torch
    from torch.nn import Embedding, functional

    torch.set_num_threads(THREADS)
    matrix = gowalla()[0].tocoo()
    users, items = matrix.shape
    degrees = [np.bincount(side, minlength=size) for side, size in ((matrix.row, users), (matrix.col, items))]
    values = (1 / np.sqrt(degrees[0][matrix.row] * degrees[1][matrix.col].astype(np.float64))).astype(np.float32)
    edges = np.stack([np.r_[matrix.row, matrix.col + users], np.r_[matrix.col + users, matrix.row]]).astype(np.int64)
    size = (users + items, users + items)
    graph = torch.sparse_coo_tensor(torch.from_numpy(edges), torch.from_numpy(np.r_[values, values]), size).coalesce()
    tables = Embedding(users, WIDE), Embedding(items, WIDE)
    for table in tables:
        torch.nn.init.normal_(table.weight, std=0.1)
    optimiser = torch.optim.Adam([table.weight for table in tables], lr=RATE)
    start = time.perf_counter(), time.process_time()
    triples = torch.from_numpy(sampled(gowalla()[0]))
    spent = [(now - then) / (matrix.nnz / batch) for now, then in zip(clocks(), start, strict=True)]
    triples = triples[torch.randperm(len(triples))]
    marks = [list(clocks())]
    for user, positive, negative in (part.T for part in triples[: number * batch].split(batch)):
        vectors = [torch.cat([table.weight for table in tables])]
        for _ in range(3):
            vectors.append(torch.sparse.mm(graph, vectors[-1]))
        of_users, of_items = torch.split(torch.mean(torch.stack(vectors, 1), 1), [users, items])
        query, chosen, other = of_users[user], of_items[positive], of_items[negative]
        own = tables[0](user), tables[1](positive), tables[1](negative)
        penalty = sum(rows.norm(2).pow(2) for rows in own) / 2 / len(user)
        loss = functional.softplus((query * other).sum(1) - (query * chosen).sum(1)).mean() + L2 * penalty
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        done = len(marks)
        marks.append([now + done * extra for now, extra in zip(clocks(), spent, strict=True)])
    return marks


def sampled(matrix):
    """A user, an item of the user and another item for each event: uniform negatives, drawn anew where seen."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    keys, items = users * matrix.shape[1] + matrix.indices, rng.integers(0, matrix.shape[1], matrix.nnz)
    while (seen := np.flatnonzero(np.isin(users * matrix.shape[1] + items, keys))).size:
        items[seen] = rng.integers(0, matrix.shape[1], len(seen))
    return np.stack([users, matrix.indices, items], axis=1).astype(np.int64)


def task_plain_mult_vae(number, batch):
    """Mult-VAE on dense rows, as the authors' program and its ports compute it."""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(THREADS)
    matrix = ml_1m()
    items, hidden, rank = matrix.shape[1], VAE["hidden"], VAE["rank"]
    encoder = nn.Sequential(nn.Linear(items, hidden), nn.Tanh(), nn.Linear(hidden, 2 * rank))
    decoder = nn.Sequential(nn.Linear(rank, hidden), nn.Tanh(), nn.Linear(hidden, items))
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=RATE)
    marks = [list(clocks())]
    while len(marks) <= number:
        for rows in np.array_split(np.random.default_rng(0).permutation(matrix.shape[0]), -(-matrix.shape[0] // batch)):
            x = torch.from_numpy(matrix[np.sort(rows)].toarray().astype(np.float32))
            mean, logarithm = encoder(functional.dropout(functional.normalize(x), VAE["dropout"])).split(rank, 1)
            code = mean + torch.randn_like(mean) * (logarithm / 2).exp()
            likelihood = (functional.log_softmax(decoder(code), 1) * x).sum(1).mean()
            divergence = (mean.square() + logarithm.exp() - 1 - logarithm).sum(1).mean() / 2
            optimiser.zero_grad()
            (VAE["beta"] * divergence - likelihood).backward()
            optimiser.step()
            marks.append(list(clocks()))
    return marks


def clocks():
    return time.perf_counter(), time.process_time()


# --- tables ----------------------------------------------------------------------------------------------------------


def peer(python, code, matrix, **given):
    """The times after each batch, or epoch, of a program in another environment."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": str(THREADS)}
    environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
        np.savez(data, **arrays)
        text = json.dumps({"data": str(data), "threads": THREADS, **given})
        done = subprocess.run([python, "-c", LOAD + code, text], capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"the other program failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(name, batches, rounds, **runs):
    """Rows of a table: seconds an epoch of each run, and the ratios to the last."""
    marks = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            marks[key].append(np.diff(np.array(run()), axis=0))
    seconds = {key: np.median(np.concatenate(parts), axis=0) * batches.get(key, 1) for key, parts in marks.items()}
    least = {key: np.concatenate(parts).min(axis=0) * batches.get(key, 1) for key, parts in marks.items()}
    *_, last = runs
    for key, (clock, used) in seconds.items():
        ratios = f"{seconds[last][0] / clock:.2f}", f"{seconds[last][1] / used:.2f}"
        row(name, key.replace("_", " "), f"{clock:.2f}", f"{least[key][0]:.2f}", f"{used:.2f}", *ratios)


def show_light_gcn(_, rounds):
    batches = -(-gowalla()[0].nnz // EVENTS)
    compare(
        "LightGCN, BPR", {"Monogram": batches, "plain_torch": batches}, rounds,
        Monogram=lambda: measure("ours", file=__file__, part="light_gcn", batch=EVENTS, number=30),
        plain_torch=lambda: measure("plain_light_gcn", file=__file__, number=16, batch=EVENTS),
    )  # fmt: skip


def show_elsa(python, rounds):
    if python:
        matrix, batch = gowalla()[0], 1024
        batches = -(-matrix.shape[0] // batch)
        compare(
            "ELSA, 256 wide", {"Monogram": batches, "elsarec_0.1.4": batches}, rounds,
            Monogram=lambda: measure("ours", file=__file__, part="elsa", batch=batch, number=20),
            **{"elsarec_0.1.4": lambda: peer(python, ELSAREC, matrix, rank=256, batch=batch, number=6)},
        )  # fmt: skip


def show_mult_vae(_, rounds):
    batches = -(-ml_1m().shape[0] // VAE["batch"])
    compare(
        "Mult-VAE, ml-1m", {"Monogram": batches, "plain_torch": batches}, rounds,
        Monogram=lambda: measure("ours", file=__file__, part="mult_vae", batch=VAE["batch"], number=40),
        plain_torch=lambda: measure("plain_mult_vae", file=__file__, number=40, batch=VAE["batch"]),
    )  # fmt: skip


def show_bpr(python, rounds):
    if python:
        matrix = gowalla()[0]
        sizes = {2048: 60, 131_072: 14}
        batches = {f"Monogram,_batch_{size:,}": matrix.nnz / size for size in sizes}

        def ours(size, number):
            return lambda: measure("ours", file=__file__, part="bpr", batch=size, number=number)

        runs = {key: ours(*pair) for key, pair in zip(batches, sizes.items(), strict=True)}
        runs["implicit_0.7.3"] = lambda: peer(python, IMPLICIT, matrix, rank=WIDE, number=8)
        compare("BPR factorisation, rank 64", batches, rounds, **runs)


def main():
    if sys.argv[1:2] == ["--task"]:
        given = json.loads(sys.argv[2])
        print(json.dumps(globals()[f"task_{given.pop('task')}"](**given)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="part")
    parser.add_argument("--peer", help="a python that has elsarec 0.1.4 and implicit 0.7.3")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"unknown part {unknown.pop()!r}; expected some of {', '.join(PARTS)}")
    head(f"Training, {THREADS} threads", "model", "program", "s an epoch (median)", "s an epoch (least)",
         "processor s an epoch", "speed-up", "speed-up, processor")  # fmt: skip
    for part in given.parts:
        globals()[f"show_{part}"](given.peer, given.rounds)
    print(f"\nLoad of the machine at the end: {', '.join(f'{one:.1f}' for one in os.getloadavg())}.")


if __name__ == "__main__":
    main()
