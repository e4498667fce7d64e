"""A fit on a cluster is the fit on one machine, to rounding."""

from __future__ import annotations

import gc
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.cluster import Cluster, client, gram, parts
from monogram.cluster.client import Run
from monogram.engine.lowrank import spectrum
from monogram.errors import MemoryBudgetError, NumericalError, ParameterError

FULL_RANK = [mg.EASE(l2=20), mg.EDLAE(l2=20, dropout=0.4), mg.DEQL(l2=20, b=0.7), mg.DLAE(l2=20), mg.Tempered(l2=20)]
SPECTRAL = [mg.LRR(rank=8, l2=30), mg.RegularizedPCA(rank=8, l2=2), mg.RG2(rank=8, l2=0.3)]


def names(model):
    return type(model).__name__


@pytest.mark.parametrize("way", ["one_worker", "tiles"])
@pytest.mark.parametrize(("kind", "dtype"), [("binary", "float32"), ("weighted", "float64")])
@pytest.mark.parametrize("model", FULL_RANK, ids=names)
def test_full_rank(model, kind, dtype, way, cluster, logs, same_weights):
    expected = type(model)(**model.params()).fit(logs[kind], dtype=dtype, solver="primal")
    model.fit(logs[kind], dtype=dtype, cluster=replace(cluster, solve=way))
    same_weights(model, expected, dtype)
    assert model.report_.solver == f"cluster ({way.replace('_', ' ')})"
    assert model.report_.residual < (1e-5 if dtype == "float32" else 1e-12)
    assert model.report_.planned_bytes > 150**2 * 4


@pytest.mark.parametrize(("method", "kind"), [("dense", "binary"), ("lanczos", "weighted")])
@pytest.mark.parametrize("model", SPECTRAL, ids=names)
def test_spectral(model, method, kind, cluster, logs, monkeypatch):
    monkeypatch.setattr(spectrum, "SMALL", 1000 if method == "dense" else 10)
    expected = type(model)(**model.params()).fit(logs[kind], dtype="float64", solver="primal")
    model.fit(logs[kind], dtype="float64", cluster=replace(cluster, part=40_000))
    largest = np.abs(expected.item_weights()).max()
    assert np.abs(model.item_weights() - expected.item_weights()).max() < 1e-7 * largest
    assert model.report_.solver == f"cluster, {method}"


def test_a_client_is_enough(shared_client, logs, same_weights):
    model = mg.EASE(l2=20).fit(logs["binary"], cluster=shared_client)
    same_weights(model, mg.EASE(l2=20).fit(logs["binary"], solver="primal"), "float32")
    assert model.report_.solver == "cluster (one worker)"


@pytest.mark.parametrize(
    ("model", "setting", "small"),
    [
        (mg.EASE(l2=20), {"solve": "one_worker"}, 1000),
        (mg.EASE(l2=20), {"solve": "tiles"}, 1000),
        (mg.LRR(rank=8), {}, 1000),
        (mg.LRR(rank=8), {"part": 40_000}, 10),
    ],
    ids=["one_worker", "tiles", "dense", "lanczos"],
)
def test_nothing_of_a_fit_stays(model, setting, small, cluster, logs, monkeypatch):
    """Though it was waited for and brought in many small steps, and nobody collects garbage."""
    gc.collect()  # what other tests have left
    monkeypatch.setattr(client, "LOOK", 1e-3)
    monkeypatch.setattr(client, "BRINGING", 1e-4)
    monkeypatch.setattr(spectrum, "SMALL", small)
    gc.disable()
    try:
        model.fit(logs["binary"], cluster=replace(cluster, **setting))
        end = time.monotonic() + 20  # what was released is released when the workers have heard of it
        while held := [key for keys in cluster.client.has_what().values() for key in keys]:
            assert time.monotonic() < end, held
            time.sleep(0.05)
    finally:
        gc.enable()


def test_the_gram_is_kept_and_the_model_can_change(cluster, logs, tmp_path, same_weights):
    model = mg.EASE(l2=20).fit(logs["binary"], cluster=cluster, keep_gram=True, dtype="float64")
    expected = mg.EASE(l2=70).fit(logs["binary"], solver="primal", dtype="float64")
    same_weights(model.changed(l2=70), expected, "float64")
    model.add_users([(5000, 3), (5000, 5)])
    model.save(tmp_path / "a.mono")
    assert 5000 in mg.load(tmp_path / "a.mono").log_.users


@pytest.mark.parametrize("cut", [{"part": 3_000}, {"group": 20_000, "bundle": 10**6}, {"tile": 31}, {}])
def test_the_gram_of_counts_does_not_depend_on_the_cuts(cut, cluster, logs):
    matrix = logs["binary"].matrix
    run = Run(replace(cluster, **cut))
    side = gram.tile_side(150, run.cluster.tile)
    exact = (matrix.T @ matrix).toarray()
    for (i, j), future in gram.tiles(run, matrix, np.float32).items():
        block = exact[i * side : (i + 1) * side, j * side : (j + 1) * side]
        assert np.array_equal(future.result(), block)


def test_every_user_is_in_one_partition():
    matrix = sp.csr_array(np.tril(np.ones((40, 30), np.float32)))
    for size in (1, 100, 700, 10**9):
        cuts = parts.row_cuts(matrix, size)
        assert [start for start, _ in cuts] == [0, *(stop for _, stop in cuts[:-1])]
        assert cuts[-1][1] == 40
        assert all(parts.part(matrix, *cut).nnz * 8 <= max(size, 30 * 8) for cut in cuts)


def test_what_a_task_carries_stays_small(shared_client):
    """Beyond 10 MB distributed warns, which the tests make an error."""
    wide = sp.random_array((3000, 6000), density=0.15, dtype=np.float32, format="csr", rng=1)
    run = Run(Cluster(shared_client))
    held = parts.spread(run, wide)
    assert len(held) == 3
    assert sum(run.value(one).nnz for one in held) == wide.nnz


def test_what_cannot_be_inverted_is_refused_with_advice(cluster):
    log, line = sp.csr_array(np.ones((4, 60), np.float32)), cluster.client.scheduler_comm
    for way in ("one_worker", "tiles"):
        with pytest.raises(NumericalError, match="raise l2"):
            mg.EASE(l2=0).fit(log, cluster=replace(cluster, solve=way))
        deadline = time.monotonic() + 20
        while cluster.client.run_on_scheduler(unfinished) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert cluster.client.run_on_scheduler(unfinished) == []  # what was begun is given up
    assert cluster.client.scheduler_comm is line  # and the scheduler has not hung up


def unfinished(dask_scheduler):
    return sorted(str(key) for key in dask_scheduler.tasks)


def test_the_client_must_hold_the_result(cluster, logs):
    with pytest.raises(MemoryBudgetError, match="nothing was allocated"):
        mg.EASE(l2=20).fit(logs["binary"], cluster=cluster, memory="1 MB")


@pytest.mark.parametrize("model", [mg.Popularity(), mg.ItemKNN(), mg.SLIM(), mg.WRMF(), mg.LowRankDLAE(),
                                   mg.RG2(solver="als")], ids=names)  # fmt: skip
def test_models_that_cannot_say_which_can(model, cluster, logs):
    with pytest.raises(ParameterError, match=r"on one machine; fit it without cluster.*EASE.*RG2"):
        model.fit(logs["binary"], cluster=cluster)


def test_solvers_of_one_machine_are_refused(cluster, logs):
    for solver in ("dual", "disk", "matrix_free"):
        with pytest.raises(ParameterError, match="with cluster expected 'auto' or 'primal'"):
            mg.EASE(l2=20).fit(logs["binary"], cluster=cluster, solver=solver)


def test_the_plan_says_what_moves(cluster, logs):
    plan = mg.EASE(l2=20).plan(logs["binary"], cluster=cluster)
    assert plan.chosen.solver == "cluster (one worker)"
    assert "3 workers; about" in str(plan)
    assert mg.LRR(rank=4).plan(logs["binary"], cluster=cluster).chosen.solver == "cluster"
