"""SLIST against a direct solution from explicit pasts and futures, and its refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import monogram as mg
from monogram.errors import DataError, MemoryBudgetError, ParameterError
from monogram.weights import Dense, SolvedProduct

DAY = 86_400


def sessions(seed=0, users=30, items=14, density=0.3):
    """A log of sessions with times in seconds, and an empty session."""
    rng = np.random.default_rng(seed)
    dense = rng.random((users, items)) < density
    dense[2] = False
    matrix = sp.csr_array(dense.astype(np.float32))
    times = 1_700_000_000 + rng.permutation(matrix.nnz) * DAY // 3
    return mg.Interactions.from_csr(matrix, times=times, time_unit="s")


def explicit(log, decay, half_life_days):
    """Rows X̂, Â and T̂ of every session and cut."""
    whole, past, future = [], [], []
    for user in range(log.n_users):
        part = slice(log.matrix.indptr[user], log.matrix.indptr[user + 1])
        if part.start == part.stop:
            continue
        age = (log.times.max() - log.times[part].max()) / DAY
        root = 1.0 if half_life_days is None else np.sqrt(0.5 ** (age / half_life_days))
        items = log.matrix.indices[part][np.argsort(log.times[part])]
        whole.append(np.zeros(log.n_items))
        whole[-1][items] = root
        for cut in range(1, len(items)):
            a, t = np.zeros(log.n_items), np.zeros(log.n_items)
            for place, item in enumerate(items):
                side, distance = (a, cut - 1 - place) if place < cut else (t, place - cut)
                side[item] = root * np.exp(-decay * distance)
            past.append(a)
            future.append(t)
    return np.array(whole), np.array(past), np.array(future)


@given(
    seed=st.integers(0, 1000),
    alpha=st.sampled_from([0.0, 0.4, 1.0]),
    decay=st.sampled_from([0.0, 0.7]),
    half_life=st.sampled_from([None, "10d"]),
    density=st.sampled_from([0.1, 0.4]),
)
@settings(max_examples=20)
def test_it_is_the_direct_solution(seed, alpha, decay, half_life, density):
    log = sessions(seed, density=density)
    model = mg.SLIST(alpha=alpha, l2=2, position_decay=decay, training_half_life=half_life).fit(log, dtype="float64")
    x, a, t = explicit(log, decay, 10 if half_life else None)
    second = alpha * x.T @ x + (1 - alpha) * a.T @ a
    cross = alpha * x.T @ x + (1 - alpha) * a.T @ t
    expected = np.linalg.solve(second + 2 * np.eye(log.n_items), cross)
    np.testing.assert_allclose(model.item_weights(), expected, atol=1e-8)
    assert model.report_.residual < 1e-10
    same = mg.ExpectedQuadratic(l2=2).fit(mg.Moments(log, second, sp.csr_array(cross)), dtype="float64")
    np.testing.assert_allclose(model.item_weights(), same.item_weights(), atol=1e-8)


def test_a_sparse_right_side_is_not_multiplied(tmp_path):
    kinds = {}
    for density in (0.04, 0.5):
        model = mg.SLIST(l2=1).fit(sessions(1, users=40, items=60, density=density))
        kinds[density] = type(model.weights_)
        model.save(tmp_path / "a.mono")
        loaded = mg.load(tmp_path / "a.mono")
        assert loaded.recommend(k=9).to_arrow().equals(model.recommend(k=9).to_arrow())
        np.testing.assert_array_equal(loaded.item_weights(), model.item_weights())
    assert kinds == {0.04: SolvedProduct, 0.5: Dense}


def test_an_order_alone_is_enough():
    log = sessions()
    ordered = mg.Interactions.from_csr(log.matrix, order=log.times - log.times.min())
    expected = mg.SLIST(l2=1).fit(log).item_weights()
    np.testing.assert_array_equal(mg.SLIST(l2=1).fit(ordered).item_weights(), expected)


@pytest.mark.parametrize("call", ["fit", "plan"])
def test_a_log_without_order_is_refused(call, monkeypatch):
    monkeypatch.setattr(mg.SLIST, "fit_from", None)
    monkeypatch.setattr(mg.SLIST, "plan_size", None)
    with pytest.raises(DataError, match="this log has neither times nor an order"):
        getattr(mg.SLIST(), call)(sessions().matrix)
    assert mg.SLIST.needs_order


def test_a_plan_of_sizes_needs_no_order():
    assert mg.SLIST(training_half_life="5d").plan((30, 14, 99)).chosen.bytes > 0


@pytest.mark.parametrize("call", ["fit", "plan"])
def test_an_age_in_events_is_refused(call):
    with pytest.raises(ParameterError, match="training_half_life = '5 events'; expected a duration"):
        getattr(mg.SLIST(training_half_life="5 events"), call)(sessions())


@pytest.mark.parametrize("call", ["fit", "plan"])
def test_an_age_needs_times(call):
    log = sessions()
    ordered = mg.Interactions.from_csr(log.matrix, order=np.arange(log.n_events))
    with pytest.raises(DataError, match="span of time, but this log has no times"):
        getattr(mg.SLIST(training_half_life="5d"), call)(ordered)


def test_a_fit_over_the_budget_is_refused():
    with pytest.raises(MemoryBudgetError, match="for 30 users × 14 items"):
        mg.SLIST().fit(sessions(), memory=1000)


def test_the_fit_stays_within_its_plan():
    log = sessions(3, users=3000, items=900, density=0.004)
    mg.SLIST(l2=5).fit(log)
    model = mg.SLIST(l2=5).fit(log)
    if model.report_.peak_bytes is not None:
        assert model.report_.peak_bytes <= model.report_.planned_bytes


def test_the_threads_do_not_change_the_moments():
    log = sessions(4)
    first, second = (mg.SLIST(l2=1).fit(log, threads=threads, dtype="float64").item_weights() for threads in (1, 3))
    np.testing.assert_allclose(first, second, atol=1e-13)


def test_a_session_leads_forward():
    """In a log where b always follows a, and is followed by c, the next item after b is c."""
    rows = [(f"s{n}", item, place) for n in range(9) for place, item in enumerate("abc")]
    log = mg.read(pd.DataFrame(rows, columns=["user", "item", "time"]), time="time")
    model = mg.SLIST(l2=0.1, alpha=0).fit(log)
    assert model.recommend(histories=[["b"]], k=1).rows()[0]["item"] == "c"
