"""Matrix-free fits with a time kernel against primal ones: scores, lists, files, updates, plans."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.engine.inverse import probing
from monogram.errors import DataError, ModelFileError, ParameterError
from monogram.planning import choice
from monogram.weights import MatrixFree, from_tensors

KERNELS = [
    {"decay": 0.7},
    {"decay": 1.2, "decay_unit": "2 events", "floor": 0.1},
    {"decay": 0.5, "decay_unit": "1d"},
    {"decay": 0.8, "decay_unit": "40", "floor": 0.3},
]
MODELS = {
    "ease": (mg.EASE, {"l2": 4.0}),
    "edlae": (mg.EDLAE, {"l2": 4.0, "dropout": 0.4}),
    "dlae": (mg.DLAE, {"l2": 4.0, "dropout": 0.4}),
    "rdlae": (mg.RDLAE, {"l2": 4.0, "dropout": 0.4, "relax": 0.2}),
    "deql": (mg.DEQL, {"l2": 4.0, "dropout": 0.4, "b": 0.7}),
    "tempered": (mg.Tempered, {"l2": 4.0, "dropout": 0.4, "user_power": 0.6, "item_power": -0.2}),
}
HISTORIES = [{3: 1.0, 9: 2.0}, {}, {7: 1.0}, {0: 0.5, 1: 1.0, 2: 3.0, 39: 1.0}]
EVERYONE = range(150)


def world(seed=0, rows=EVERYONE, merge="binary"):
    """The first users of a log with times in seconds; an item nobody used and a user without events."""
    rng = np.random.default_rng(seed)
    tastes = rng.random((4, 40)) ** 3
    dense = rng.random((150, 40)) < 0.6 * tastes[rng.integers(0, 4, 150)]
    dense[:, 7] = dense[3] = False
    weights = rng.uniform(0.5, 2, dense.shape) if merge == "sum" else 1
    times = np.round(rng.exponential(4e5, dense.shape) / 7000) * 7000
    dense, times = (dense * weights)[rows.start : rows.stop], times[rows.start : rows.stop]
    matrix = sp.csr_array(dense.astype(np.float32))
    at = 1.5e9 + times[dense > 0]
    return mg.Interactions.from_csr(matrix, users=list(rows), times=at, time_unit="s", merge=merge)


@pytest.fixture
def estimated(monkeypatch):
    """Most of the diagonal is estimated, and badly."""
    monkeypatch.setattr(probing, "EXACT", 5)
    monkeypatch.setattr(probing, "PROBES", 12)


def remade(model, **changed):
    return type(model)(**(model.params() | changed))


def free(model, log, **options):
    return remade(model).fit(log, solver="matrix_free", **options)


@pytest.mark.integration
@pytest.mark.parametrize(("dtype", "atol"), [("float32", 4e-6), ("float64", 1e-9)])
@pytest.mark.parametrize("times", KERNELS, ids=str)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("estimated")
def test_scores_are_those_of_the_primal(name, times, dtype, atol):
    kind, parameters = MODELS[name]
    log = world(merge="sum" if name == "ease" else "binary")
    primal = kind(**parameters, **times).fit(log, dtype="float64", solver="primal")
    model = free(primal, log, dtype=dtype)
    expected = primal.score(HISTORIES)
    np.testing.assert_allclose(model.score(HISTORIES), expected, atol=atol)
    np.testing.assert_allclose(model.item_weights(), primal.item_weights(), atol=atol)
    assert isinstance(model.weights_, MatrixFree)
    assert model.report_.residual < 1e-6
    plain = remade(primal, decay=0).fit(log, dtype="float64", solver="primal").score(HISTORIES)
    assert np.abs(plain - expected).max() > 100 * atol, "the kernel changes the scores"


def same_rows(actual, expected):
    assert [(row["user"], row["item"]) for row in actual] == [(row["user"], row["item"]) for row in expected]
    np.testing.assert_allclose([row["score"] for row in actual], [row["score"] for row in expected], atol=1e-9)


@pytest.mark.parametrize("name", ["edlae", "dlae"])
@pytest.mark.usefixtures("estimated")
def test_lists_explanations_and_metrics_are_those_of_the_primal(name):
    kind, parameters = MODELS[name]
    split = mg.splits.temporal(world(2))
    primal = kind(**parameters, **KERNELS[2], recency=0.5).fit(split.train, dtype="float64", solver="primal")
    model = free(primal, split.train, dtype="float64")
    same_rows(model.recommend([0, 1, 2, 20], k=5).rows(), primal.recommend([0, 1, 2, 20], k=5).rows())
    mine, theirs = (one.explain(user=20, item=11) for one in (model, primal))
    assert [row["item"] for row in mine.rows()] == [row["item"] for row in theirs.rows()]
    assert mine.weights == theirs.weights
    assert mine.score == pytest.approx(theirs.score, abs=1e-9)
    value, expected = (mg.evaluate(one, split, "ndcg@20").rows()[0]["value"] for one in (model, primal))
    assert value == pytest.approx(expected, abs=1e-9)
    assert value > 0


@pytest.mark.usefixtures("estimated")
def test_the_bits_depend_neither_on_the_threads_nor_on_the_batch():
    model = mg.EDLAE(l2=4, **KERNELS[2])
    log = world(3)
    first, second = (free(model, log, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(first.score(HISTORIES), second.score(HISTORIES))
    np.testing.assert_array_equal(first.score(HISTORIES)[[3]], second.score(HISTORIES[3:]))


@pytest.mark.parametrize("name", MODELS)
def test_without_decay_the_times_change_no_bit(name):
    kind, parameters = MODELS[name]
    timed = world(4)
    blind = mg.Interactions.from_csr(timed.matrix, users=timed.users, items=timed.items)
    model, expected = (kind(**parameters).fit(log, solver="matrix_free") for log in (timed, blind))
    np.testing.assert_array_equal(model.score(HISTORIES), expected.score(HISTORIES))
    assert model.weights_.tensors().keys() == expected.weights_.tensors().keys()
    assert model.report_.note == ""


@pytest.mark.parametrize("times", KERNELS, ids=str)
@pytest.mark.parametrize("name", ["dlae", "tempered"])
@pytest.mark.usefixtures("estimated")
def test_saved_and_loaded_is_bit_equal(name, times, tmp_path):
    kind, parameters = MODELS[name]
    model = kind(**parameters, **times).fit(world(5), solver="matrix_free")
    model.save(tmp_path / "a.mono")
    again = mg.load(tmp_path / "a.mono")
    assert again.report_ == model.report_
    assert again.recommend(k=9).rows() == model.recommend(k=9).rows()
    np.testing.assert_array_equal(again.score(HISTORIES), model.score(HISTORIES))
    assert again.weights_.nbytes == model.weights_.nbytes


@pytest.mark.parametrize("times", KERNELS[::2], ids=str)
@pytest.mark.usefixtures("estimated")
def test_updates_equal_a_fit(times):
    model = mg.EDLAE(l2=4, **times)
    actual = free(model, world(6, range(120))).add_users(world(6, range(120, 150)))
    assert_same_bits(actual, free(model, world(6)))
    assert actual.report_.note.startswith("refit: the weights of a matrix-free model are its log")
    actual.forget_users(range(20))
    assert_same_bits(actual, free(model, world(6, range(20, 150))))
    with pytest.raises(DataError, match="the new events have no"):
        actual.add_users([(200, 3), (200, 9)])


def assert_same_bits(actual, expected):
    for name, tensor in expected.weights_.tensors().items():
        np.testing.assert_array_equal(actual.weights_.tensors()[name], tensor)
    np.testing.assert_array_equal(actual.score(HISTORIES), expected.score(HISTORIES))


def test_another_head_penalty_or_kernel():
    log, times = world(7), KERNELS[2]
    model = mg.DEQL(l2=4, dropout=0.4, b=0.7, **times).fit(log, solver="matrix_free")
    again = model.changed(b=2)
    assert again.report_.solver == "reused"
    for changed in (again, model.changed(l2=9.0), model.changed(decay=0.9), model.changed(decay=0)):
        np.testing.assert_array_equal(changed.score(HISTORIES), free(changed, log).score(HISTORIES))


def test_report_and_plan_say_what_a_history_costs():
    log = world(8)
    model = mg.DLAE(l2=4, decay=0.5)
    pairs = int((np.diff(log.matrix.indptr).astype(int) ** 2).sum())
    assert f"each step of a history visits {pairs:,} pairs of events" in str(free(model, log).report_)
    size = (2_000_000, 1_000_000, 50_000_000)
    timed, plain = (mg.DLAE(l2=4, decay=decay).plan(size, memory="2 GB") for decay in (0.5, 0))
    assert [cost.solver for cost in timed.costs] == ["primal", "disk", "local", "matrix_free"]
    assert timed.chosen.solver == plain.chosen.solver == "matrix_free"
    assert choice.ALL_PAIRS in str(timed)
    assert choice.ALL_PAIRS not in str(plain)
    ratio = 5 * 50_000_000 / 2_000_000 / 2  # pairs of an ordinary log, and half of the passes
    assert timed.chosen.flops_per_history == pytest.approx(ratio * plain.chosen.flops_per_history)
    assert timed.chosen.seconds_per_history > plain.chosen.seconds_per_history
    assert timed.chosen.stages == plain.chosen.stages


def test_auto_takes_it_last():
    size = (200_000, 100_000, 2_000_000)
    assert mg.EASE(decay=0.5).plan(size, memory="4 GB").chosen.solver == "local"
    assert mg.EASE(decay=0.5).plan(size, memory="400 MB").chosen.solver == "matrix_free"
    with pytest.raises(ParameterError, match="use primal, disk, local or matrix_free"):
        mg.EASE(decay=0.5).plan(size, solver="dual")


MEASURE = """
import ctypes, json, numpy as np, scipy.sparse as sp
import monogram as mg
rng = np.random.default_rng(0)
def made(users, items, events):
    flat = np.unique(rng.integers(0, users * items, events))
    matrix = sp.csr_array((np.ones(len(flat), np.float32), np.divmod(flat, items)), shape=(users, items))
    return mg.Interactions.from_csr(matrix, times=rng.random(matrix.nnz) * 100)
made_model = lambda: mg.%(model)s
made_model().fit(made(300, 200, 2000), solver="matrix_free", threads=1)
log = made(%(size)s)
ctypes.CDLL(None).malloc_trim(0)
report = made_model().fit(log, solver="matrix_free", threads=1).report_
print(json.dumps([report.peak_bytes, report.planned_bytes]))
"""


@pytest.mark.integration
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak can be reset on Linux only")
@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("DLAE(l2=10, decay=0.5, decay_unit='7')", "500_000, 20_000, 1_500_000"),
        ("Tempered(l2=10, decay=0.5)", "50_000, 20_000, 150_000"),
    ],
)
def test_the_measured_peak_is_within_the_plan(model, size):
    script = MEASURE % {"model": model, "size": size}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    peak, planned = json.loads(done.stdout)
    assert planned / 2 <= peak <= planned


BAD = {
    "no positions": lambda tensors: tensors.pop("positions"),
    "no kernel": lambda tensors: tensors.pop("kernel"),
    "too few positions": lambda tensors: tensors.__setitem__("positions", tensors["positions"][:-1]),
    "positions of another type": lambda tensors: tensors.__setitem__("positions", tensors["positions"].astype("int64")),
    "a position below 0": lambda tensors: tensors["positions"].__setitem__(2, -1),
    "a position beyond every history": lambda tensors: tensors["positions"].__setitem__(2, 2**31 - 1),
    "a time that is not finite": lambda tensors: tensors.__setitem__("positions", tensors["positions"] * np.inf),
    "a decay of 0": lambda tensors: tensors["kernel"].__setitem__(0, 0.0),
    "a decay that is too large": lambda tensors: tensors["kernel"].__setitem__(0, 1e30),
    "a floor of 1": lambda tensors: tensors["kernel"].__setitem__(1, 1.0),
}


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_bad_tensors_are_refused(change):
    model = mg.DLAE(l2=4, decay=0.5).fit(world(9), solver="matrix_free")
    tensors = {name: np.array(tensor) for name, tensor in model.weights_.tensors().items()}
    change(tensors)
    with pytest.raises(ModelFileError):
        from_tensors("free", tensors, model.log_.matrix)
