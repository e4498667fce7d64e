"""Write the golden model files and their expected answers. Run it once, by the version whose files are to be kept:

    .venv/bin/python tests/golden/make.py FOLDER

The files in this folder were written by version 0.1.0, before the packages were rearranged. Never write over them: a
later format gets files of its own beside them.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import monogram as mg
from monogram.errors import MonogramWarning

USERS, ITEMS = 40, 24


def log(users=USERS, items=ITEMS, seed=5):
    rng = np.random.default_rng(seed)
    dense = rng.random((users, items)) < rng.uniform(0.08, 0.45, items)
    dense[0] = False
    dense[1:, :2] |= rng.random((users - 1, 2)) < 0.5
    names = [f"item {number} é" for number in range(items)]
    return mg.Interactions.from_csr(sp.csr_array(dense.astype(np.float32)), users=list(range(users)), items=names)


def models():
    """Every kind of weights, by every solver that leaves its own."""
    wide, tall = log(30, 45, 7), log()
    yield "ease-primal", mg.EASE(l2=5).fit(tall, solver="primal")
    yield "ease-float64", mg.EASE(l2=5).fit(tall, solver="primal", dtype="float64")
    yield "ease-pruned", mg.EASE(l2=5).fit(tall, solver="primal").prune(keep=6)
    yield "ease-disk", mg.EASE(l2=5).fit(tall, solver="disk")
    yield "edlae-dual", mg.EDLAE(l2=5, dropout=0.4).fit(wide, solver="dual")
    yield "edlae-matrix-free", mg.EDLAE(l2=5, dropout=0.4).fit(tall, solver="matrix_free", dtype="float64")
    yield "dlae-primal", mg.DLAE(l2=5, dropout=0.4).fit(tall, solver="primal")
    yield "deql-kept-gram", mg.DEQL(l2=5, dropout=0.4, b=0.7).fit(tall, keep_gram=True)
    yield "tempered-primal", mg.Tempered(l2=5, item_power=0.1).fit(tall, solver="primal")
    yield "tempered-dual", mg.Tempered(l2=5, b=0.5).fit(wide, solver="dual")
    yield "two-step-primal", mg.TwoStep(l2=5, low_pass=0.2, rank=6).fit(tall, solver="primal")
    yield "two-step-dual", mg.TwoStep(l2=5, low_pass=0.2, rank=6).fit(wide, solver="dual", dtype="float64")
    yield "low-rank-dlae", mg.LowRankDLAE(l2=5, rank=6).fit(tall)
    yield "low-rank-edlae", mg.LowRankEDLAE(l2=5, rank=6, solver="alternating").fit(tall)
    yield "regularized-pca", mg.RegularizedPCA(rank=6, l2=1).fit(tall)
    yield "dropout-mf", mg.DropoutMF(keep=0.98).fit(tall)
    yield "nuclear-power", mg.NuclearPower(l2=0.05).fit(tall)
    yield "wlae", mg.WLAE(rank=6, weights=4).fit(tall)
    yield "vlae", mg.VLAE(rank=6, weights=1).fit(tall)
    yield "lrr", mg.LRR(rank=6, l2=10).fit(tall)
    yield "rg2-closed-form", mg.RG2(rank=6, l2=0.2).fit(tall)
    yield "rg2-als", mg.RG2(rank=6, l2=0.2, solver="als").fit(tall)
    yield "rg2-newton-cg", mg.RG2(rank=6, l2=0.2, solver="newton_cg", penalty="plain").fit(tall)
    yield "wrmf", mg.WRMF(rank=6, epochs=4).fit(tall)
    yield "slim", mg.SLIM(l1=1, l2=5).fit(tall)
    yield "item-knn", mg.ItemKNN(k=5, shrink=1).fit(tall)
    yield "popularity", mg.Popularity().fit(tall)


def answers(model):
    """What a model says: lists, scores, explanations, similar items, of known users and of strangers."""
    items = list(model.log_.items)
    users, histories = list(model.log_.users)[:9], [items[:3], [items[5]], [], [items[2], "unknown"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MonogramWarning)
        scores = model.score(histories).tolist()
    explained = [model.explain(history, items[8]) for history in histories[:3]]
    return {
        "model": repr(model),
        "users": model.recommend(users, k=7).rows(),
        "histories": model.recommend(histories=histories, k=7, deny=items[10:12]).rows(),
        "similar": model.similar(items[:3], k=4).rows(),
        "scores": scores,
        "explained": [[{"item": row["item"], "share": row["share"]} for row in one.rows()] for one in explained],
    }


def main(folder):
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    expected = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MonogramWarning)
        for name, model in models():
            model.save(folder / f"{name}.mono")
            expected[name] = answers(model)
    spectrum = mg.Spectrum(log(), 6)
    spectrum.save(folder / "spectrum.mono")
    expected["spectrum"] = {"values": spectrum.values.tolist()}
    (folder / "answers.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
