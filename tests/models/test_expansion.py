"""Expanded dual weights against the primal solver: the weights, the lists, the updates, the file, the plan."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import monogram as mg
from monogram.engine.inverse.expand import BLOCK_BYTES
from monogram.engine.runtime import memory
from monogram.errors import MemoryBudgetError, MonogramWarning, ParameterError
from monogram.models import expansion
from monogram.weights import Dense, Dual, TwoStepDual

SETTINGS = {
    "ease": lambda l2, dropout: mg.EASE(l2=l2),
    "edlae": lambda l2, dropout: mg.EDLAE(l2=l2, dropout=dropout),
    "dlae": lambda l2, dropout: mg.DLAE(l2=l2, dropout=dropout),
    "rdlae": lambda l2, dropout: mg.RDLAE(l2=l2, dropout=dropout, relax=0.2),
    "deql": lambda l2, dropout: mg.DEQL(l2=l2, dropout=dropout, b=0.7),
    "tempered": lambda l2, dropout: mg.Tempered(l2=l2, dropout=dropout, user_power=0.6, item_power=-0.2),
    "tempered, b": lambda l2, dropout: mg.Tempered(l2=l2, dropout=dropout, user_power=0.6, b=0.4),
}


def random_log(seed: int, users: int, items: int, weighted: bool = False) -> mg.Interactions:
    """Some items have no users, and some users no items."""
    rng = np.random.default_rng(seed)
    dense = rng.random((users, items)) < rng.uniform(0, 0.5, items)
    values = rng.uniform(0.5, 3, dense.shape) if weighted else np.ones(dense.shape)
    dense[0, 0] = True
    return mg.Interactions.from_csr(sp.csr_array((dense * values).astype(np.float32)), merge="sum")


def off_diagonal(array):
    return array - np.diag(np.diag(array))


@settings(max_examples=50)
@given(
    name=st.sampled_from(sorted(SETTINGS)),
    seed=st.integers(0, 1000),
    users=st.integers(1, 45),
    items=st.integers(1, 70),
    weighted=st.booleans(),
    l2=st.sampled_from([0.5, 20.0, 1000.0]),
    dropout=st.sampled_from([0.1, 0.7]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_expanded_weights_are_those_of_the_primal(name, seed, users, items, weighted, l2, dropout, dtype):
    log, make = random_log(seed, users, items, weighted), SETTINGS[name]
    exact = make(l2, dropout).fit(log, solver="primal", dtype="float64").weights_.matrix
    model = make(l2, dropout).fit(log, solver="dual", dtype=dtype, expand=True)
    assert isinstance(model.weights_, Dense)
    found = model.weights_.matrix
    assert found.dtype == dtype
    assert found.flags.c_contiguous
    tolerance = (2e-4 if dtype == "float32" else 1e-10) * max(np.abs(exact).max(), 1e-30)
    np.testing.assert_allclose(off_diagonal(found), off_diagonal(exact), atol=tolerance)
    np.testing.assert_allclose(np.diag(found), np.diag(exact), atol=tolerance, err_msg="δ")
    np.testing.assert_array_equal(np.diag(found)[np.diag(exact) == 0], 0)
    assert model.report_.residual < (1e-4 if dtype == "float32" else 1e-11)
    assert model.report_.solver == "dual, expanded"
    assert "expand" in model.report_.seconds


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lists_are_those_of_the_primal_up_to_near_ties(name, dtype):
    log, make = random_log(3, 80, 120), SETTINGS[name]
    primal = make(30.0, 0.4).fit(log, solver="primal", dtype="float64")
    model = make(30.0, 0.4).fit(log, solver="dual", dtype=dtype).expand()
    bound = 1e-4 if dtype == "float32" else 1e-10
    scores = primal.score([primal.history(user) for user in log.users])
    seen = log.matrix.toarray() > 0
    for exclude_seen in (True, False):
        eligible = np.where(seen & exclude_seen, -np.inf, scores)
        best = -np.sort(-eligible, axis=1)[:, :10]
        rows = model.recommend(k=10, exclude_seen=exclude_seen).rows()
        found = {(row["user"], row["rank"] - 1): row for row in rows}
        assert len(found) == np.isfinite(best).sum()
        for (user, rank), row in found.items():
            at = log.users.index([user])[0]
            assert row["score"] == pytest.approx(best[at, rank], abs=bound)
            assert eligible[at, log.items.index([row["item"]])[0]] == pytest.approx(best[at, rank], abs=bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("l2", [1e-3, 1e12, 1e30])
def test_extreme_penalties(l2, dtype):
    log = random_log(4, 30, 40)
    exact = off_diagonal(mg.EASE(l2=l2).fit(log, solver="dual", dtype="float64").item_weights())
    found = mg.EASE(l2=l2).fit(log, solver="dual", dtype=dtype, expand=True).item_weights()
    assert not np.diag(found).any()
    np.testing.assert_allclose(found, exact, atol=(1e-3 if dtype == "float32" else 1e-9) * np.abs(exact).max())


def test_the_number_of_threads_changes_no_bit():
    model = mg.DEQL(l2=5).fit(random_log(1, 40, 90), solver="dual")
    one, three = (model.weights_.expand(budget=2**40, threads=threads).matrix for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_weights_without_update_state_expand_to_the_same():
    """As in a file of a version that did not store the diagonal of C."""
    weights = mg.DLAE(l2=5).fit(random_log(1, 40, 60), solver="dual", dtype="float64").weights_
    expected = weights.expand(budget=2**40, threads=1)
    weights.update_state = None
    found = weights.expand(budget=2**40, threads=1)
    np.testing.assert_allclose(found.matrix, expected.matrix, atol=1e-13)
    assert found.update_state is None
    assert expected.update_state is not None


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("low_pass", [0.0, 0.3])
def test_two_steps(low_pass, stored, tmp_path):
    log = random_log(5, 40, 60)
    settings = {"l2": 10, "low_pass": low_pass, "rank": 3, "item_power": 0.2}
    exact = mg.TwoStep(**settings).fit(log, solver="primal", dtype="float64")
    model = mg.TwoStep(**settings).fit(log, solver="dual", dtype="float64")
    assert isinstance(model.weights_, TwoStepDual)
    if stored:
        model.save(tmp_path / "dual.mono")
        mg.load(tmp_path / "dual.mono").save(tmp_path / "whole.mono", expand=True)
        model = mg.load(tmp_path / "whole.mono")
    else:
        model.expand()
    assert isinstance(model.weights_, Dense)
    np.testing.assert_allclose(model.item_weights(), exact.item_weights(), atol=1e-10)
    for expand in (True, "file"):
        fitted = mg.TwoStep(**settings).fit(log, solver="dual", dtype="float64", expand=expand)
        np.testing.assert_allclose(fitted.item_weights(), exact.item_weights(), atol=1e-10)


def make_pair(name="deql", dtype="float64"):
    """A model that was expanded, and the primal fit on the same log."""
    log = random_log(7, 60, 120)
    model = SETTINGS[name](5.0, 0.3).fit(log, solver="dual", dtype=dtype, expand=True)
    return log, model, SETTINGS[name](5.0, 0.3).fit(log, solver="primal", dtype=dtype)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", ["edlae", "deql", "tempered"])
def test_updates_and_other_heads_are_those_of_a_primal_model(name, stored, tmp_path):
    log, model, primal = make_pair(name)
    if stored:
        SETTINGS[name](5.0, 0.3).fit(log, solver="dual", dtype="float64").save(tmp_path / "model.mono", expand=True)
        model = mg.load(tmp_path / "model.mono")
    more = [(1000 + number, log.items[item]) for number in range(3) for item in (1, 5, 9 + number)]
    for one in (model, primal):
        one.add_users(as_log(more, log), on_drift="error")
        one.forget_users([1001], on_drift="error")
    np.testing.assert_allclose(model.weights_.matrix, primal.weights_.matrix, atol=1e-9)
    assert model.report_.changes == 2
    assert model.report_.solver == "primal"
    changed = {"deql": {"b": 0.2}, "tempered": {"item_power": 0.5}}.get(name, {})
    np.testing.assert_allclose(
        model.changed(**changed).item_weights(), primal.changed(**changed).item_weights(), atol=1e-9
    )


def as_log(pairs, log):
    users = list(dict.fromkeys(user for user, _ in pairs))
    rows, columns = [users.index(user) for user, _ in pairs], log.items.index([item for _, item in pairs])
    matrix = sp.coo_array((np.ones(len(pairs)), (rows, columns)), shape=(len(users), log.n_items)).tocsr()
    return mg.Interactions.from_csr(matrix, users, list(log.items), merge=log.merge)


def test_another_model_is_fitted_from_an_expanded_one():
    log, model, _ = make_pair("edlae")
    found = mg.DLAE(l2=5.0, dropout=0.3).fit(model, dtype="float64")
    expected = mg.DLAE(l2=5.0, dropout=0.3).fit(log, solver="primal", dtype="float64")
    np.testing.assert_allclose(found.item_weights(), expected.item_weights(), atol=1e-10)
    dual = mg.EDLAE(l2=5.0, dropout=0.3).fit(log, solver="dual", dtype="float64")
    expanded = mg.DLAE(l2=5.0, dropout=0.3).fit(dual, dtype="float64", expand=True)
    assert isinstance(expanded.weights_, Dense)
    np.testing.assert_allclose(expanded.item_weights(), expected.item_weights(), atol=1e-10)


def test_a_copy_keeps_its_dual_weights():
    model = mg.EASE(l2=5).fit(random_log(2, 30, 40), solver="dual")
    other = copy.copy(model)
    assert model.expand() is model
    assert isinstance(model.weights_, Dense)
    assert isinstance(other.weights_, Dual)
    assert model.expand().weights_ is model.weights_, "nothing is left to expand"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_the_file_holds_the_weights_of_memory(dtype, rows, tmp_path, monkeypatch):
    """Written by blocks of any number of rows, the bits are those of the expansion in memory."""
    monkeypatch.setattr("monogram.weights.dual.block_rows", lambda *_: rows)
    model = mg.DEQL(l2=5).fit(random_log(2, 30, 40), solver="dual", dtype=dtype, expand="file")
    assert isinstance(model.weights_, Dual), "the fit leaves the expansion to the file"
    model.save(tmp_path / "a.mono", expand=True, metrics={"ndcg@20": 0.5}, threads=1)
    assert isinstance(model.weights_, Dual)
    stored = mg.load(tmp_path / "a.mono", verify=True)
    model.expand(threads=2)
    np.testing.assert_array_equal(stored.weights_.matrix, model.weights_.matrix)
    for name in ("c", "penalties", "scale"):
        here, there = (getattr(one.weights_.update_state, name) for one in (model, stored))
        np.testing.assert_array_equal(here, there)
    assert stored.report_.solver == "dual, expanded"
    stored.save(tmp_path / "b.mono", metrics={"ndcg@20": 0.5})
    assert (tmp_path / "a.mono").read_bytes() == (tmp_path / "b.mono").read_bytes()


def test_the_file_is_written_with_less_memory_than_its_weights_take(tmp_path, monkeypatch):
    for name in ("engine.inverse.expand.BLOCK_BYTES", "store.format.CHUNK", "store.writer.CHUNK"):
        monkeypatch.setattr(f"monogram.{name}", 1 << 20)
    rng = np.random.default_rng(0)
    matrix = sp.random_array((200, 5000), density=0.01, rng=rng, dtype=np.float32, format="csr")
    model = mg.EASE(l2=50).fit(mg.Interactions.from_csr(matrix, merge="sum"), solver="dual", expand="file")
    with memory.Peak() as peak:
        model.save(tmp_path / "a.mono", expand=True, threads=1)
    assert (tmp_path / "a.mono").stat().st_size > 4 * 5000**2
    assert peak.bytes is None or peak.bytes < 0.5 * 4 * 5000**2


def test_a_model_that_holds_its_weights_is_saved_as_it_is(tmp_path):
    _, _, primal = make_pair()
    primal.save(tmp_path / "a.mono", expand=True)
    primal.save(tmp_path / "b.mono")
    assert (tmp_path / "a.mono").read_bytes() == (tmp_path / "b.mono").read_bytes()


def test_what_cannot_be_expanded_is_an_error(tmp_path):
    log = random_log(2, 30, 40)
    model = mg.EASE(l2=5).fit(log, solver="matrix_free")
    with pytest.raises(ParameterError, match=r"cannot be expanded; expected.*solver='dual'"):
        model.expand()
    with pytest.raises(ParameterError, match="cannot be expanded"):
        mg.Popularity().fit(log).save(tmp_path / "a.mono", expand=True)
    with pytest.raises(ParameterError, match=r"Popularity has no dual weights.*EASE"):
        mg.Popularity().fit(log, expand=True)
    with pytest.raises(ParameterError, match="expand = 'files'; expected False, True or 'file'"):
        mg.EASE().fit(log, expand="files")
    with pytest.raises(ParameterError, match="expected False, True or 'file'"):
        mg.EASE().plan(log, expand=1)
    for options in ({"solver": "primal"}, {"solver": "disk"}, {"keep_gram": True}, {"cluster": "local:1"}):
        with pytest.raises(ParameterError, match="expand=True with"):
            mg.EASE().fit(log, expand=True, **options)


def test_over_the_memory_it_refuses_and_says_what_fits():
    model = mg.EASE(l2=5).fit(random_log(2, 30, 400), solver="dual")
    with pytest.raises(MemoryBudgetError, match=r"400 items.*may use 100 kB.*save\(path, expand=True\)"):
        model.expand(memory="100 kB")
    assert isinstance(model.weights_, Dual), "unchanged"
    size = (2_000, 20_000, 100_000)
    dual = mg.EASE().plan(size, solver="dual").chosen.bytes
    for expand, least in ((True, 4 * (2_000**2 + 20_000**2)), ("file", 4 * 2_000**2 + BLOCK_BYTES * 0.9)):
        assert least < mg.EASE().plan(size, solver="dual", expand=expand, threads=1).chosen.bytes < 1.1 * least + 2e7
    budget = dual + 2 * BLOCK_BYTES
    for solver in ("dual", "auto"):
        plan = mg.EASE().plan(size, solver=solver, expand=True, memory=budget)
        with pytest.raises(MemoryBudgetError, match="leave expand out, or give expand='file'"):
            plan.require()
        chosen = mg.EASE().plan(size, solver=solver, expand="file", memory=budget)
        assert chosen.fits
        assert chosen.chosen.solver == "dual"
    assert mg.EASE().plan(size, memory="50 MB").chosen.solver == "dual"
    assert not mg.EASE().plan(size, expand="file", memory="30 MB").fits, "nothing else that can be expanded"
    with pytest.raises(MemoryBudgetError, match=r"leave expand out[^,]"):
        mg.TwoStep().plan(size, solver="dual", expand="file", memory=budget).require()
    with pytest.raises(MemoryBudgetError, match="B and B²"):
        mg.TwoStep().fit(random_log(2, 30, 400), solver="dual").expand(memory="1 MB")


def test_auto_compares_the_dual_and_its_expansion_with_the_primal():
    few_users, few_items = (5_000, 9_000, 90_000), (9_000, 5_000, 90_000)
    for expand in (True, "file"):
        plan = mg.EASE().plan(few_users, expand=expand, memory="64 GB")
        assert plan.chosen.solver == "dual"
        assert "expanded" in plan.why
        assert mg.EASE().plan(few_items, expand=expand, memory="64 GB").chosen.solver == "primal"
    close = (9_000, 9_500, 90_000)
    assert mg.EASE().plan(close, memory="64 GB").chosen.solver == "primal", "a dual model would rank slowly"
    assert mg.EASE().plan(close, memory="64 GB", expand=True).chosen.solver == "dual"
    dense = (9_000, 9_500, 80_000_000)
    assert mg.EASE().plan(dense, memory="64 GB", expand=True).chosen.solver == "primal", "a costly expansion"


def test_progress_counts_the_rows():
    rows = []
    log = random_log(2, 30, 400)
    mg.EASE(l2=5).fit(log, solver="dual", expand=True, progress=lambda stage, work: rows.append((stage, work)))
    assert sum(work for stage, work in rows if stage == "expand") == 400
    assert ("expand", 400.0, "rows") in mg.EASE().plan(log, solver="dual", expand=True).chosen.stages


def test_the_fit_stays_within_its_plan():
    rng = np.random.default_rng(0)
    matrix = sp.random_array((1500, 4000), density=0.01, rng=rng, dtype=np.float32, format="csr")
    matrix.data[:] = 1
    model = mg.Tempered(l2=50).fit(mg.Interactions.from_csr(matrix), solver="dual", expand=True)
    if model.report_.peak_bytes is not None:
        assert 4 * 4000**2 < model.report_.peak_bytes <= model.report_.planned_bytes


def test_an_expansion_that_is_not_exact_is_warned_of():
    model = mg.EASE(l2=5).fit(random_log(2, 30, 40), solver="dual")
    model.weights_.inverse[3] *= 1.5
    with pytest.warns(MonogramWarning, match=r"this fit is not exact.*solver='primal'"):
        model.expand()
    assert model.report_.residual > 1e-3


def test_slow_models_are_those_with_many_users(monkeypatch):
    model = mg.EASE(l2=5).fit(random_log(2, 30, 40), solver="dual")
    assert not expansion.slow(model)
    monkeypatch.setattr(expansion, "SLOW", 0.0)
    assert expansion.slow(model)
    assert not expansion.slow(model.expand())
