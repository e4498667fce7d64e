"""SLIM against the conditions of its minimum, a general optimiser, and EASE."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import monogram as mg
from monogram.engine.iterative import slim
from monogram.errors import MemoryBudgetError, MonogramWarning, ParameterError
from monogram.models.context import FitInputs, FitOptions
from monogram.testing import check_recommender

SHARP = {"epochs": 20_000, "tolerance": 1e-11}


@pytest.fixture
def small():
    rng = np.random.default_rng(3)
    return sp.csr_array((rng.random((40, 9)) < rng.uniform(0.2, 0.6, 9)).astype(np.float32))


def value(matrix, b, l1, l2) -> float:
    x = matrix.toarray().astype(np.float64)
    return 0.5 * ((x - x @ b) ** 2).sum() + 0.5 * l2 * (b**2).sum() + l1 * np.abs(b).sum()


def best_by_lbfgs(matrix, l1, l2, positive) -> np.ndarray:
    """Each column with b = p − q and p, q ≥ 0 (q = 0 where weights are positive): smooth, with bounds."""
    x = matrix.toarray().astype(np.float64)
    gram, n = x.T @ x, x.shape[1]
    out = np.zeros((n, n))
    for j in range(n):

        def loss(both, j=j):
            p, q = both[:n], both[n:]
            b = p - q
            slope = gram @ b - gram[:, j] + l2 * b
            worth = 0.5 * b @ gram @ b - gram[j] @ b + 0.5 * l2 * b @ b + l1 * both.sum()
            return worth, np.concatenate([slope + l1, l1 - slope])

        free = [(0, 0) if i % n == j or (positive and i >= n) else (0, None) for i in range(2 * n)]
        options = {"maxiter": 20_000, "ftol": 1e-16, "gtol": 1e-11}
        both = minimize(loss, np.zeros(2 * n), jac=True, method="L-BFGS-B", bounds=free, options=options).x
        out[:, j] = both[:n] - both[n:]
    return out


@pytest.mark.parametrize("rho", [0.5, 5.0])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize(("l1", "l2"), [(0.5, 2.0), (2.0, 0.5), (3.0, 0.0), (0.0, 1.0), (1000.0, 1.0)])
def test_slim_meets_the_conditions_of_its_minimum(world, l1, l2, positive, rho):
    """A zero subgradient off the diagonal, looked at in the dense data."""
    model = mg.SLIM(l1=l1, l2=l2, positive=positive, rho=rho, **SHARP).fit(world, dtype="float64")
    b, x = model.item_weights(), world.toarray().astype(np.float64)
    gradient = x.T @ x @ b - x.T @ x + l2 * b
    np.fill_diagonal(gradient, 0)
    off = ~np.eye(len(b), dtype=bool)
    np.testing.assert_array_equal(np.diag(b), 0)
    np.testing.assert_allclose(gradient[b > 0], -l1, atol=1e-6)
    np.testing.assert_allclose(gradient[b < 0], l1, atol=1e-6)
    assert (gradient[off & (b == 0)] >= -l1 - 1e-6).all()
    if positive:
        assert (b >= 0).all()
    else:
        assert (gradient[off & (b == 0)] <= l1 + 1e-6).all()
    assert model.report_.residual < 1e-7


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize(("l1", "l2"), [(1.0, 1.0), (0.3, 5.0)])
def test_slim_is_no_worse_than_a_general_optimiser(small, l1, l2, positive):
    actual = mg.SLIM(l1=l1, l2=l2, positive=positive, **SHARP).fit(small, dtype="float64").item_weights()
    other = best_by_lbfgs(small, l1, l2, positive)
    assert value(small, actual, l1, l2) == pytest.approx(value(small, other, l1, l2), rel=1e-9)
    np.testing.assert_allclose(actual, other, atol=1e-4)


def test_without_l1_and_with_signs_it_is_ease(world):
    actual = mg.SLIM(l1=0, l2=3, positive=False, **SHARP).fit(world, dtype="float64").item_weights()
    np.testing.assert_allclose(actual, mg.EASE(l2=3).fit(world, dtype="float64").item_weights(), atol=1e-9)


def test_float32_with_its_defaults_is_near(world):
    exact = mg.SLIM(l1=1, l2=2, **SHARP).fit(world, dtype="float64")
    rough = mg.SLIM(l1=1, l2=2).fit(world)
    np.testing.assert_allclose(rough.item_weights(), exact.item_weights(), atol=2e-3)
    assert rough.report_.residual < 1e-3
    assert "error" not in str(rough.report_)


@pytest.mark.parametrize("width", [1, 4, 25])
def test_the_size_of_the_pool_changes_nothing(world, width, monkeypatch):
    expected = mg.SLIM(l1=1, l2=2).fit(world, dtype="float64").item_weights()
    monkeypatch.setattr(slim, "WIDTH", width)
    np.testing.assert_allclose(mg.SLIM(l1=1, l2=2).fit(world, dtype="float64").item_weights(), expected, atol=1e-12)


def test_permuting_items_permutes_the_answer(world):
    order = np.random.default_rng(1).permutation(world.shape[1])
    plain = mg.SLIM(l1=1, l2=2).fit(world, dtype="float64").item_weights()
    moved = mg.SLIM(l1=1, l2=2).fit(sp.csr_array(world[:, order]), dtype="float64").item_weights()
    np.testing.assert_allclose(moved, plain[np.ix_(order, order)], atol=1e-10)


def test_more_l1_leaves_fewer_weights_and_no_stored_zeros(world):
    counts = []
    for l1 in (0.1, 1, 3, 1000):
        matrix = mg.SLIM(l1=l1, l2=2).fit(world).weights_.matrix
        assert (matrix.data != 0).all()
        counts.append(matrix.nnz)
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0


@pytest.mark.parametrize("positive", [True, False])
def test_the_record_ends_at_the_objective(world, positive):
    inputs, options = FitInputs(mg.Interactions.from_csr(world)), FitOptions(dtype="float64", budget=10**9)
    model, report = mg.SLIM(l1=1, l2=2, positive=positive, epochs=2000, tolerance=1e-9), options.report()
    actual = model._fit(inputs, options, report)
    assert 1 < len(report.objectives) < 2000
    expected = value(world, actual.columns(np.arange(25)), 1, 2)
    assert report.objectives[-1] == pytest.approx(expected, rel=1e-7)
    assert abs(report.objectives[0] - expected) > abs(report.objectives[-1] - expected)


def test_columns_that_have_not_converged_are_warned_of(world):
    with pytest.warns(MonogramWarning, match=r"not converged for \d+ of 25 items after 2 epochs .* raise epochs"):
        model = mg.SLIM(l1=1, l2=2, epochs=2).fit(world)
    assert model.report_.residual > 1e-3


def test_the_plan_counts_the_memory_of_slim(world):
    size = (50_000, 20_000, 10**6)
    ease, sparse = mg.EASE().plan(size, solver="primal"), mg.SLIM().plan(size)
    square = 4 * 20_000**2
    assert sparse.chosen.bytes - ease.chosen.bytes == pytest.approx(0.1 * 4 * square + 3 * 4 * 512 * 20_000, rel=0.01)
    assert mg.SLIM(l1=0).plan(size).chosen.bytes > 4.9 * square
    assert sparse.chosen.seconds > ease.chosen.seconds
    with pytest.raises(MemoryBudgetError, match="most active items") as caught:
        mg.SLIM().plan(size, memory="1 GB").require()
    kept = int(str(caught.value).split("keep the ")[1].split(" most")[0].replace(",", ""))
    assert mg.SLIM().plan((50_000, int(0.97 * kept), 10**6), memory="1 GB").fits
    with pytest.raises(MemoryBudgetError, match="nothing was allocated"):
        mg.SLIM().fit(world, memory="1 MB")


def test_weights_that_turn_out_too_dense_for_the_budget_are_refused():
    rng = np.random.default_rng(0)
    log = mg.Interactions.from_csr(sp.csr_array((rng.random((500, 100)) < 0.5).astype(np.float32)))
    model = mg.SLIM(l1=0.01, l2=1, positive=False)
    expected = r"more than the 1,000 entries .* before all 100 items are done; raise l1, or the memory$"
    with pytest.raises(MemoryBudgetError, match=expected):
        model.fit(log, memory=model.plan(log).chosen.bytes)


def test_the_solver_states_too_dense_weights_without_advice():
    problem = slim.SlimProblem(0.01, 1.0, False, np.full(25, 100.0))
    with pytest.raises(MemoryBudgetError, match=r"more than the 10 entries .* before all 25 items are done$"):
        slim.slim(np.linalg.inv(np.eye(25) * 101 + 1), problem, epochs=3, tolerance=0.0, most=10)


def test_there_is_no_dual(world):
    with pytest.raises(ParameterError, match="solver='dual'"):
        mg.SLIM().fit(world, solver="dual")


@pytest.mark.parametrize("parameters", [{"l1": -1}, {"l2": "2"}, {"rho": 0}, {"epochs": 0}, {"positive": 1}])
def test_parameters_outside_their_range_are_named(parameters):
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        mg.SLIM(**parameters)


@pytest.mark.parametrize("parameters", [{}, {"l1": 0.2, "l2": 1, "positive": False}])
def test_the_contract(parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_recommender(mg.SLIM, **parameters)
