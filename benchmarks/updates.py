"""Updates compared with refits in the same run: users added to, and forgotten by, a fitted EASE and EDLAE.

    .venv/bin/python benchmarks/updates.py [items] [users] [changed]

By default 40,000 items, 60,000 users and 100 changed: about 7 GB and ten minutes on two cores. The log is generated,
with item popularity by a power law. It prints seconds, the ratio to a fit, and the difference from a fit on the same
log.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import scipy.sparse as sp

import monogram as mg


def made_up(users, items, seed=0):
    rng = np.random.default_rng(seed)
    lengths = np.minimum(5 + rng.geometric(0.04, users), items // 4)
    rows = np.repeat(np.arange(users), lengths)
    columns = np.minimum((items * rng.random(len(rows)) ** 2.5).astype(np.int64), items - 1)
    matrix = sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(users, items))
    matrix.data[:] = 1
    return mg.Interactions.from_csr(matrix)


def part(log, start, stop):
    rows = np.arange(start, stop)
    return mg.Interactions(log.matrix[rows], log.users.part(rows), log.items, merge=log.merge)


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def difference(one, other, rows=64):
    """The largest difference of weights on some rows, relative to the largest weight."""
    at = np.linspace(0, len(other) - 1, rows).astype(int)
    return float(np.abs(one[at] - other[at]).max() / np.abs(other[at]).max())


def show(name, model, log, changed, penalties):
    first, late = part(log, 0, log.n_users - changed), part(log, log.n_users - changed, log.n_users)
    how = {"penalties": penalties}
    model.fit(first, solver="primal")
    add = timed(lambda: model.add_users(late, **how))
    note, kept, residual = model.report_.note, model.weights_.matrix[:: max(1, log.n_items // 64)].copy(), None
    residual = model.report_.residual
    forget = timed(lambda: model.forget_users(list(late.users), **how))
    fresh = type(model)(**model.params())
    del model.weights_
    fit = timed(lambda: fresh.fit(log, solver="primal"))
    same = difference(kept, fresh.weights_.matrix[:: max(1, log.n_items // 64)])
    print(
        f"| {name}, {penalties} | fit {fit:.2f} s | add {add:.2f} s, {fit / add:.0f} × | forget {forget:.2f} s, "
        f"{fit / forget:.0f} × | difference {same:.0e} | residual {residual:.0e} | {note} |",
        flush=True,
    )


if __name__ == "__main__":
    items, users, changed = [*map(int, sys.argv[1:]), *(40_000, 60_000, 100)[len(sys.argv) - 1 :]]
    log = made_up(users, items)
    print(f"{log!r}, {changed} users changed", flush=True)
    small = made_up(300, 400)
    mg.EASE().fit(part(small, 0, 299), solver="primal").add_users(part(small, 299, 300))  # compile
    show("EASE", mg.EASE(l2=100), log, changed, "followed")
    show("EDLAE", mg.EDLAE(l2=100, dropout=0.3), log, changed, "frozen")
    show("EDLAE", mg.EDLAE(l2=100, dropout=0.3), log, changed, "followed")
