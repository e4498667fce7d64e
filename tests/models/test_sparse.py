"""SLIM against the conditions of its minimum, a general optimiser, and EASE."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import monogram as mg
from monogram.engine.gram.sparse_rows import sparse_rows
from monogram.engine.iterative import slim
from monogram.errors import MemoryBudgetError, MonogramWarning, ParameterError
from monogram.models.sparse import SlimPath
from monogram.testing import check_recommender

GOLDEN = Path(__file__).parents[1] / "golden" / "slim.mono"
SHARP = {"epochs": 20_000, "tolerance": 1e-12}


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


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize(("l1", "l2"), [(0.5, 2.0), (2.0, 0.5), (3.0, 0.0), (0.0, 1.0), (1000.0, 1.0)])
def test_slim_meets_the_conditions_of_its_minimum(world, l1, l2, positive):
    """A zero subgradient off the diagonal, looked at in the dense data."""
    model = mg.SLIM(l1=l1, l2=l2, positive=positive, **SHARP).fit(world, dtype="float64")
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


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize(("name", "value"), [("AREA", 60), ("SIDE", 4)])
def test_little_room_for_copied_rows_and_direct_solves_changes_nothing(world, name, value, positive, monkeypatch):
    """A full working set drops its zeros; a support that is too large is left to coordinate descent."""
    settings = {"l1": 3, "l2": 2, "positive": positive, **SHARP}
    expected = mg.SLIM(**settings).fit(world, dtype="float64").item_weights()
    monkeypatch.setattr(slim, name, value)
    monkeypatch.setattr(slim, "DEPTH", {True: 1, False: 1})
    if name == "AREA":
        monkeypatch.setattr(slim, "AREA", 24 * (1 + int((expected != 0).sum(axis=0).max())))
    actual = mg.SLIM(**settings).fit(world, dtype="float64").item_weights()
    np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_the_number_of_threads_changes_nothing(world):
    one, three = (mg.SLIM(l1=1, l2=2).fit(world, threads=threads).weights_.matrix for threads in (1, 3))
    np.testing.assert_array_equal(one.toarray(), three.toarray())


def test_screening_is_exact(world):
    """No item with S_ij ≤ l1 has a weight at the minimum, which L-BFGS finds without screening."""
    small = sp.csr_array(world[:, :9])
    gram = (small.T @ small).toarray()
    l1 = float(np.median(gram))
    assert (best_by_lbfgs(small, l1, 0.5, True)[gram <= l1] <= 1e-9).all()


@pytest.mark.parametrize("positive", [True, False])
def test_a_path_of_l1_ends_at_the_same_minimum(world, positive):
    path = SlimPath(world)
    for l1 in (8.0, 3.0, 1.0, 2.0):
        settings = {"l1": l1, "l2": 2.0, "positive": positive, **SHARP}
        warm = mg.SLIM(**settings).fit(path, dtype="float64")
        fresh = mg.SLIM(**settings).fit(world, dtype="float64")
        np.testing.assert_allclose(warm.item_weights(), fresh.item_weights(), atol=1e-9)


def test_a_path_with_signs_can_go_on_without(world):
    path = SlimPath(world)
    mg.SLIM(l1=0.1, l2=2, positive=False).fit(path)
    assert (mg.SLIM(l1=0.1, l2=2).fit(path).item_weights() >= 0).all()


def test_permuting_items_permutes_the_answer(world):
    order = np.random.default_rng(1).permutation(world.shape[1])
    plain = mg.SLIM(l1=1, l2=2, **SHARP).fit(world, dtype="float64").item_weights()
    moved = mg.SLIM(l1=1, l2=2, **SHARP).fit(sp.csr_array(world[:, order]), dtype="float64").item_weights()
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
def test_the_report_has_the_objective(world, positive):
    model = mg.SLIM(l1=1, l2=2, positive=positive).fit(world, dtype="float64")
    assert model.report_.objectives == (pytest.approx(value(world, model.item_weights(), 1, 2), rel=1e-9),)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize(("l1", "l2"), [(1.0, 2.0), (3.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("tolerance", [0.3, 0.03, 1e-4])
def test_the_gap_bounds_the_distance_from_the_minimum(world, positive, l1, l2, tolerance):
    rows, problem = sparse_rows(world, dtype="float64"), slim.SlimProblem(l1, l2, positive)
    rough = slim.slim(rows, problem, epochs=20_000, tolerance=tolerance)
    sharp = slim.slim(rows, problem, **SHARP)
    above = rough.objective - sharp.objective
    assert -1e-7 <= above <= rough.gap + 1e-7
    assert sharp.gap <= 1e-6 * sharp.objective


def test_columns_that_have_not_converged_are_warned_of(world):
    expected = r"not converged for \d+ of 25 items after 2 passes .* raise epochs"
    with pytest.warns(MonogramWarning, match=expected):
        mg.SLIM(l1=0.01, l2=0.01, positive=False, epochs=2, tolerance=1e-9).fit(world)


def test_the_plan_needs_no_square_array():
    size = (50_000, 100_000, 10**6)
    square = 4 * 100_000**2
    assert mg.SLIM().plan(size, memory="8 GB").chosen.bytes < square / 10
    assert mg.SLIM(l1=0, positive=False).plan(size).chosen.bytes > mg.SLIM().plan(size).chosen.bytes
    assert mg.SLIM(positive=False).plan(size).chosen.seconds > mg.SLIM().plan(size).chosen.seconds


def test_less_memory_stores_fewer_rows_and_takes_longer(world):
    size = (50_000, 20_000, 10**6)
    much, little = (mg.SLIM().plan(size, memory=memory).chosen for memory in ("8 GB", "450 MB"))
    assert little.bytes <= 450e6 < much.bytes
    assert little.seconds > much.seconds
    with pytest.raises(MemoryBudgetError, match="nothing was allocated"):
        mg.SLIM().fit(world, memory="1 MB")


@pytest.mark.parametrize("positive", [True, False])
def test_rows_that_are_not_stored_change_nothing(world, positive):
    problem = slim.SlimProblem(1.0, 2.0, positive)
    solutions = [
        slim.slim(sparse_rows(world, dtype="float64", most=most), problem, **SHARP).matrix.toarray()
        for most in (np.inf, 2_000, 0)
    ]
    np.testing.assert_allclose(solutions[1], solutions[0], atol=1e-10)
    np.testing.assert_allclose(solutions[2], solutions[0], atol=1e-10)


@pytest.mark.parametrize("positive", [True, False])
def test_data_with_negative_weights_is_not_screened(positive):
    rng = np.random.default_rng(5)
    matrix = sp.csr_array(rng.normal(size=(30, 8)) * (rng.random((30, 8)) < 0.6))
    solution = slim.slim(sparse_rows(matrix, dtype="float64"), slim.SlimProblem(0.5, 1.0, positive), **SHARP)
    np.testing.assert_allclose(solution.matrix.toarray(), best_by_lbfgs(matrix, 0.5, 1.0, positive), atol=1e-5)


def test_weights_that_turn_out_too_dense_for_the_budget_are_refused():
    rng = np.random.default_rng(0)
    log = mg.Interactions.from_csr(sp.csr_array((rng.random((500, 100)) < 0.5).astype(np.float32)))
    model = mg.SLIM(l1=0.01, l2=1, positive=False)
    expected = r"more than the 1,000 entries .* before all 100 items are done; raise l1, or the memory$"
    with pytest.raises(MemoryBudgetError, match=expected):
        model.fit(log, memory=model.plan(log).chosen.bytes)


def test_the_solver_states_too_dense_weights_without_advice(world):
    problem = slim.SlimProblem(0.01, 1.0, False)
    with pytest.raises(MemoryBudgetError, match=r"more than the 10 entries .* before all 25 items are done$"):
        slim.slim(sparse_rows(world), problem, epochs=100, tolerance=1e-4, most=10)


def test_there_is_no_dual(world):
    with pytest.raises(ParameterError, match="solver='dual'"):
        mg.SLIM().fit(world, solver="dual")


@pytest.mark.parametrize("parameters", [{"l1": -1}, {"l2": "2"}, {"epochs": 0}, {"positive": 1}])
def test_parameters_outside_their_range_are_named(parameters):
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        mg.SLIM(**parameters)


def test_rho_of_an_earlier_version_has_no_effect_and_says_so():
    with pytest.warns(MonogramWarning, match=r"rho = 5 has no effect: .* leave it out"):
        model = mg.SLIM(rho=5)
    assert "rho" not in model.params()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(mg.load(GOLDEN)) == "SLIM(l1=1.0, l2=5.0, positive=True, epochs=200, tolerance=0.0001)"


@pytest.mark.parametrize("parameters", [{}, {"l1": 0.2, "l2": 1, "positive": False}])
def test_the_contract(parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_recommender(mg.SLIM, **parameters)


def test_many_weights_in_a_column(monkeypatch):
    """A column with more weights than rows are copied converges where memory allows, and else says why not."""
    monkeypatch.setattr(slim, "AREA", 1)
    monkeypatch.setattr(slim, "DEPTH", {True: 4, False: 4})
    rng = np.random.default_rng(0)
    matrix = sp.csr_array((rng.random((200, 60)) < 0.2).astype(np.float32))
    ease = mg.EASE(l2=300).fit(matrix, dtype="float64").item_weights()
    model = mg.SLIM(l1=0, l2=300, positive=False, **SHARP).fit(matrix, dtype="float64")
    np.testing.assert_allclose(model.item_weights(), ease, atol=1e-8)
    rows = sparse_rows(matrix, dtype="float64")
    found = slim.slim(rows, slim.SlimProblem(0, 300, False), epochs=1000, tolerance=1e-6)
    assert found.unfinished == 60
    with pytest.warns(MonogramWarning, match="60 of 60 items, which have more weights than fit in memory"):
        mg.SLIM(l1=0, l2=300)._check_convergence(found, 0.1)


def test_a_path_in_another_precision(small):
    path = SlimPath(mg.Interactions.from_csr(small))
    mg.SLIM(l1=0.5).fit(path)
    model = mg.SLIM(l1=0.1).fit(path, dtype="float64")
    assert model.weights_.matrix.dtype == np.float64
