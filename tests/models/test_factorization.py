"""WRMF: its objective, its recorded objectives, and folding in as the half-step of training."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.engine.iterative import wrmf
from monogram.errors import MemoryBudgetError, NumericalError, ParameterError
from monogram.models.context import FitInputs, FitOptions
from monogram.testing import check_recommender, two_tastes

SETTINGS = {"l2": 0.02, "alpha": 5.0, "nu": 1.0}


def fitted(log, dtype="float64", threads=1, **parameters):
    """The weights and the report of a fit, on their own."""
    options = FitOptions(dtype=dtype, budget=10**9, threads=threads)
    report = options.report()
    return mg.WRMF(**(SETTINGS | parameters))._fit(FitInputs(log), options, report), report


@pytest.fixture
def log(world):
    weighted = world.copy()
    weighted.data = np.random.default_rng(0).uniform(0.5, 3, weighted.nnz).astype(np.float32)
    return mg.Interactions.from_csr(weighted, merge="sum")


@pytest.mark.parametrize("parameters", [{"solver": "cg"}, {"nu": 0, "l2": 1, "rank": 5}, {"alpha": 0}])
def test_the_contract_with_other_parameters(parameters):
    check_recommender(mg.WRMF, **parameters)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_the_record_is_the_objective_and_falls(log, solver, nu):
    weights, report = fitted(log, rank=6, epochs=12, solver=solver, nu=nu)
    assert len(report.objectives) == 12
    assert (np.diff(report.objectives) <= 1e-9 * report.objectives[0]).all()
    assert report.solver == solver
    assert report.rank == 6
    rows = weights.rows(log.matrix, 1)  # half a step beyond the last epoch
    after = wrmf.objective(log.matrix, rows, weights.items, **(SETTINGS | {"nu": nu}))
    assert report.objectives[-1] * 0.9 < after <= report.objectives[-1] * (1 + 1e-12)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-11)])
def test_folding_a_training_user_in_is_the_half_step_of_training(log, solver, dtype, tolerance):
    weights, _ = fitted(log, dtype, rank=6, epochs=5, solver=solver)
    users = np.zeros((log.n_users, 6), dtype)
    mg.WRMF(rank=6, **SETTINGS)._half(log.matrix, weights.items, users, 1)
    np.testing.assert_allclose(
        users @ weights.items.T, weights.score(log.matrix, np.arange(log.n_items), 1), atol=tolerance
    )


def test_conjugate_gradients_reach_what_exact_rows_reach(log):
    exact, cheap = (fitted(log, rank=4, epochs=200, solver=solver)[1].objectives[-1] for solver in ("cholesky", "cg"))
    assert cheap == pytest.approx(exact, rel=1e-3)


def test_a_rank_above_the_log_is_lowered_and_loses_nothing(log):
    high, report = fitted(log, rank=500, epochs=100)
    assert report.rank == high.items.shape[1] == log.n_items
    assert report.objectives[-1] <= fitted(log, rank=10, epochs=100)[1].objectives[-1] * (1 + 1e-6)


def test_the_seed_is_the_start(log):
    scores = [mg.WRMF(rank=4, epochs=2, seed=seed).fit(log).item_weights() for seed in (0, 0, 1)]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.abs(scores[0] - scores[2]).max() > 1e-6


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_the_same_bits_whatever_the_threads(log, solver):
    one, two = (mg.WRMF(rank=6, epochs=3, solver=solver).fit(log, threads=threads).weights_.items for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_a_history_of_one_group_gets_items_of_the_group(solver):
    log, history, answer = two_tastes()
    model = mg.WRMF(rank=4, l2=0.05, solver=solver).fit(log)
    assert model.recommend(histories=[history], k=1).rows()[0]["item"] == answer


@pytest.mark.parametrize(
    "wrong", [{"rank": 0}, {"l2": 0}, {"alpha": -1}, {"nu": 3}, {"epochs": 0}, {"seed": -1}, {"solver": "primal"}]
)
def test_wrong_parameters_are_refused_by_name(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        mg.WRMF(**wrong)


def test_numbers_beyond_the_precision_are_an_error():
    huge = mg.Interactions.from_csr(sp.csr_array(np.full((3, 3), 1e35, np.float32)), merge="sum")
    with pytest.raises(NumericalError, match="raise l2"):
        mg.WRMF(rank=2, alpha=1e6).fit(huge)


def test_the_plan_grows_with_the_rank_and_refuses_what_does_not_fit():
    size = (100_000, 50_000, 3_000_000)
    small, large = (mg.WRMF(rank=rank).plan(size).chosen for rank in (32, 256))
    assert small.solver == "cholesky"
    assert small.bytes < large.bytes
    assert small.flops < large.flops
    assert mg.WRMF(solver="cg").plan(size).chosen.flops < mg.WRMF().plan(size).chosen.flops
    with pytest.raises(MemoryBudgetError, match="use a lower rank"):
        mg.WRMF(rank=256).plan(size, memory="50 MB").require()


def test_a_fit_stays_within_its_plan(world):
    report = mg.WRMF(rank=8, epochs=2).fit(world).report_
    assert report.solver == "cholesky"
    assert report.peak_bytes is None or report.peak_bytes <= report.planned_bytes


def test_a_refusal_names_the_size_of_the_log(world):
    with pytest.raises(MemoryBudgetError, match="60 users × 25 items"):
        mg.WRMF().fit(world, memory=1000)
