"""RG²: alternating least squares and Gauss–Newton against the closed form, a dense sum and a general optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.iterative import rg2
from monogram.engine.iterative.rg2_newton import newton_cg
from monogram.errors import NumericalError, ParameterError

SOLVERS = [rg2.als, newton_cg]
PLAIN = 1e-3  # an l2 for the plain penalty on this data: some directions survive it, some do not


def log(seed: int = 0, items: int = 12, empty: bool = True):
    rng = np.random.default_rng(seed)
    dense = (rng.random((40, items)) < rng.uniform(0.1, 0.5, items)).astype(np.float32)
    dense[np.arange(40), rng.integers(0, items, 40)] = 1
    if empty:
        dense[7] = 0
    return sp.csr_array(dense)


def parts(matrix):
    """T and w, dense, by their definitions."""
    dense = matrix.toarray().astype(np.float64)
    sums, items = dense.sum(axis=1), dense.shape[1]
    target = -np.ones_like(dense)
    for user in np.flatnonzero(sums):
        target[user] += dense[user] * items / sums[user]
    return target, sums / (2 * items * sums.sum())


def double_sum(matrix, l2, penalty, users, items):
    target, weights = parts(matrix)
    errors = weights[:, None] * (target - users @ items.T) ** 2
    if penalty == "plain":
        return errors.sum() + l2 * (users**2).sum() + l2 * (items**2).sum()
    spread = l2 * len(items) * (weights[:, None] * users**2).sum()
    return errors.sum() + spread + l2 * weights.sum() * (items**2).sum()


def closed_form(matrix, l2, rank):
    """The soft-thresholded SVD of diag(√w)·T, its threshold λ/√2, and the objective there."""
    target, weights = parts(matrix)
    left, values, right = np.linalg.svd(np.sqrt(weights)[:, None] * target, full_matrices=False)
    kept = np.maximum(values - l2 / np.sqrt(2), 0)
    kept[rank:] = 0
    return (left * kept) @ right, ((values - kept) ** 2).sum() + np.sqrt(2) * l2 * kept.sum()


def by_lbfgs(matrix, l2, penalty, rank, seed):
    """The objective a general optimiser reaches."""
    target, weights = parts(matrix)
    m, n = target.shape
    ridge = np.full(m, l2) if penalty == "plain" else l2 * n * weights
    other = l2 if penalty == "plain" else l2 * weights.sum()

    def both(flat):
        users, items = flat[: m * rank].reshape(m, rank), flat[m * rank :].reshape(n, rank)
        rest = weights[:, None] * (users @ items.T - target)
        slope = 2 * np.concatenate([(rest @ items + ridge[:, None] * users).ravel(), (rest.T @ users).ravel()])
        slope[m * rank :] += 2 * other * items.ravel()
        return double_sum(matrix, l2, penalty, users, items), slope

    start = np.random.default_rng(seed).standard_normal((m + n) * rank)
    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-15, "gtol": 1e-10}
    return scipy.optimize.minimize(both, start, jac=True, method="L-BFGS-B", options=options).fun


@given(seed=st.integers(0, 50), l2=st.floats(0, 2), penalty=st.sampled_from(rg2.PENALTIES), counts=st.booleans())
def test_the_objective_is_the_dense_double_sum(seed, l2, penalty, counts):
    rng = np.random.default_rng(seed)
    matrix = log(seed)
    if counts:
        matrix.data[:] = rng.integers(1, 6, matrix.nnz)
    users, items = rng.standard_normal((40, 3)), rng.standard_normal((12, 3))
    found = rg2.problem(matrix, l2, penalty, dtype="float64")
    expected = double_sum(matrix, l2, penalty, users, items)
    assert found.objective(users, items) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(found.times(items), parts(matrix)[0] @ items, atol=1e-12)
    np.testing.assert_allclose(
        found.transpose_times(users), (parts(matrix)[1][:, None] * parts(matrix)[0]).T @ users, atol=1e-12
    )
    coarse = rg2.problem(matrix, l2, penalty).objective(users.astype(np.float32), items.astype(np.float32))
    assert coarse == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("penalty", rg2.PENALTIES)
@pytest.mark.parametrize("l2", [0.0, 0.5, 50.0])
@pytest.mark.parametrize("rank", [1, 5, 12])
def test_the_objective_never_rises_and_is_that_of_the_factors(solve, penalty, l2, rank):
    l2 *= PLAIN if penalty == "plain" else 1
    found = solve(rg2.problem(log(), l2, penalty, dtype="float64"), rank, epochs=40, tolerance=-1)
    values = found.record.objectives
    assert np.diff(values).max(initial=0) <= 1e-13  # of Σ wT², which is of the order of 1
    assert values[-1] == pytest.approx(double_sum(log(), l2, penalty, found.users, found.items), abs=1e-12)
    np.testing.assert_allclose(found.items.T @ found.items, np.diag(found.spread), atol=1e-9)


@pytest.mark.parametrize(("solve", "accuracy"), [(rg2.als, 1e-8), (newton_cg, 1e-6)])
@pytest.mark.parametrize("items", [9, 25])
@pytest.mark.parametrize(("l2", "rank"), [(0.1, 3), (0.3, 5), (0.3, 9), (0.0, 4), (0.0, 9), (5.0, 3)])
def test_the_weighted_penalty_ends_at_the_closed_form(solve, accuracy, items, l2, rank):
    matrix = log(1, items)
    expected, lowest = closed_form(matrix, l2, rank)
    found = solve(rg2.problem(matrix, l2, dtype="float64"), rank, epochs=3000, tolerance=-1)
    reached = np.sqrt(parts(matrix)[1])[:, None] * (found.users @ found.items.T)
    np.testing.assert_allclose(reached, expected, atol=accuracy)
    assert found.record.objectives[-1] == pytest.approx(lowest, rel=1e-10, abs=1e-13)


@pytest.mark.parametrize("solve", SOLVERS)
def test_directions_below_the_threshold_become_nothing(solve):
    matrix = log()
    target, weights = parts(matrix)
    values = np.linalg.svd(np.sqrt(weights)[:, None] * target, compute_uv=False)
    l2 = np.sqrt(2) * (values[2] + values[3]) / 2
    for dtype in ("float32", "float64"):
        found = solve(rg2.problem(matrix, l2, dtype=dtype), 8, epochs=1000, tolerance=-1)
        assert np.isfinite(found.users).all()
        assert (found.spread > 1e-3).sum() == 3
        assert (np.abs(found.users @ found.items.T).max(axis=1) > 0).all()
    assert (found.spread[:-3] == 0).all() or solve is newton_cg, "they are set to 0 before they become denormal"
    none = solve(rg2.problem(matrix, 10 * l2, dtype="float32"), 8, epochs=1000, tolerance=-1)
    assert np.abs(none.items).max() < 1e-8


@pytest.mark.parametrize("rank", [12, 20])
def test_a_small_penalty_does_not_take_many_epochs(rank):
    """Half-steps alone move a direction from one factor to the other by a share of μ/σ an epoch."""
    matrix = log()
    found = rg2.als(rg2.problem(matrix, 1e-4, dtype="float64"), rank, epochs=30, tolerance=1e-9)
    assert found.record.converged
    assert found.record.objectives[-1] == pytest.approx(closed_form(matrix, 1e-4, rank)[1], rel=1e-7)


@pytest.mark.parametrize("penalty", rg2.PENALTIES)
@pytest.mark.parametrize("solve", SOLVERS)
def test_no_optimiser_finds_less_and_the_gradient_is_zero(solve, penalty):
    matrix, l2, rank = log(2, 9, empty=False), PLAIN if penalty == "plain" else 0.2, 4
    found = solve(rg2.problem(matrix, l2, penalty, dtype="float64"), rank, epochs=3000, tolerance=-1)
    value = found.record.objectives[-1]
    others = [by_lbfgs(matrix, l2, penalty, rank, seed) for seed in range(3)]
    assert value <= min(others) + 1e-9
    assert value == pytest.approx(min(others), rel=1e-6)
    rng, step = np.random.default_rng(0), 1e-4
    for _ in range(5):
        users, items = rng.standard_normal(found.users.shape), rng.standard_normal(found.items.shape)
        ends = [
            double_sum(matrix, l2, penalty, found.users + sign * step * users, found.items + sign * step * items)
            for sign in (1, -1)
        ]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(0, abs=1e-6)


def test_the_plain_penalty_has_one_answer_from_every_start():
    matrix = log(3)
    given_ = rg2.problem(matrix, PLAIN, "plain", dtype="float64")
    first = rg2.als(given_, 4, epochs=3000, tolerance=-1)
    assert (first.users[7] == 0).all(), "a user without events weighs nothing"
    for solve in SOLVERS:
        for seed in (1, 2):
            found = solve(given_, 4, epochs=3000, tolerance=-1, seed=seed)
            np.testing.assert_allclose(found.users @ found.items.T, first.users @ first.items.T, atol=1e-6)


@pytest.mark.parametrize("penalty", rg2.PENALTIES)
@pytest.mark.parametrize("solve", SOLVERS)
def test_the_stopping_rule_is_told(solve, penalty):
    given_ = rg2.problem(log(), PLAIN if penalty == "plain" else 0.2, penalty, dtype="float64")
    short = solve(given_, 4, epochs=2, tolerance=1e-12)
    assert not short.record.converged
    assert short.record.epochs == 2
    long = solve(given_, 4, epochs=5000, tolerance=1e-12)
    assert long.record.converged
    assert long.record.epochs < 5000
    start = long.items if solve is rg2.als else (long.users, long.items)
    again = solve(given_, 4, epochs=5000, tolerance=1e-9, start=start)
    assert again.record.converged
    assert again.record.epochs <= 1, "it starts where it is told"
    assert again.record.objectives[-1] == pytest.approx(long.record.objectives[-1], rel=1e-9)


@pytest.mark.parametrize("penalty", rg2.PENALTIES)
@pytest.mark.parametrize("solve", SOLVERS)
def test_threads_and_seeds(solve, penalty):
    rng = np.random.default_rng(0)
    matrix = sp.csr_array((rng.random((2500, 30)) < 0.1).astype(np.float32))  # more rows than one thread takes
    one, three = (
        solve(rg2.problem(matrix, 1e-5, penalty, dtype="float64", threads=t), 4, epochs=3, seed=5) for t in (1, 3)
    )
    np.testing.assert_allclose(one.users @ one.items.T, three.users @ three.items.T, atol=1e-9)
    same, other = (solve(rg2.problem(matrix, 1e-5, penalty, dtype="float64"), 4, epochs=3, seed=s) for s in (5, 6))
    assert (one.items == same.items).all()
    assert (one.items != other.items).any()


@pytest.mark.parametrize("solve", SOLVERS)
def test_single_precision_comes_near(solve):
    matrix = log(4, 25)
    coarse, fine = (solve(rg2.problem(matrix, 0.2, dtype=kind), 6, epochs=300) for kind in ("float32", "float64"))
    assert coarse.users.dtype == coarse.items.dtype == np.float32
    assert coarse.record.converged
    assert coarse.record.objectives[-1] == pytest.approx(fine.record.objectives[-1], rel=1e-5)


def test_a_new_history_gets_the_row_of_a_user_who_has_it():
    """P is the best for Q at the end, so that t·Q/(g + ρ) of a training row is that row; so is the closed form's."""
    matrix = log(5)
    target, weights = parts(matrix)
    found = rg2.als(rg2.problem(matrix, 0.2, dtype="float64"), 4, epochs=3000, tolerance=-1)
    filtered = found.items / (found.spread + 0.2 * 12)
    np.testing.assert_allclose(target @ filtered, found.users, atol=1e-12)
    _, values, right = np.linalg.svd(np.sqrt(weights)[:, None] * target, full_matrices=False)
    shrunk = np.maximum(values[:4] - 0.2 / np.sqrt(2), 0) / values[:4]
    np.testing.assert_allclose(filtered @ found.items.T, (right[:4].T * shrunk) @ right[:4], atol=1e-8)


def test_what_cannot_be_is_said():
    with pytest.raises(ParameterError, match="penalty = 'none'; expected 'weighted' or 'plain'"):
        rg2.problem(log(), 1.0, "none")
    with pytest.raises(NumericalError, match="no events"):
        rg2.problem(sp.csr_array((3, 4), dtype=np.float32), 1.0)
    with pytest.raises(ParameterError, match=r"start has shape \(12, 2\); expected \(12, 3\)"):
        rg2.als(rg2.problem(log(), 1.0), 3, start=np.zeros((12, 2)))


def excess(logits):
    """RG²'s bound less the softmax loss, the same whichever item is the positive one."""
    items = len(logits)
    bound = np.log(items) - 0.5 + ((logits + 1) ** 2).sum() / (2 * items)
    return bound - np.log(np.exp(logits).sum())


def premise(logits):
    """The least eigenvalue of I/N − diag(a) + aaᵀ, a = softmax(o)."""
    shares = np.exp(logits) / np.exp(logits).sum()
    return np.linalg.eigvalsh(np.eye(len(logits)) / len(logits) - np.diag(shares) + np.outer(shares, shares))[0]


@given(seed=st.integers(0, 10_000), items=st.integers(2, 30), size=st.floats(1e-2, 5))
def test_the_loss_bounds_softmax(seed, items, size):
    """P3, proposition B.2, and what is true beside it.

    *Suppose that I/N − diag(a_i) + (a_j·a_k) is positive semi-definite, where a_i = p(o_i); then the softmax loss is
    upper bounded by L_eps*: log Σ_j exp(o_j) − o_i ≤ (log N − ½) − o_i + ‖o + 1‖²/(2N). (The constant log N − ½, which
    eq. 13 leaves out, is needed. The proof by the mean value theorem takes the premise on the segment from 0 to o.)

    Where the premise holds along the segment the bound must hold; two items always meet it. It also holds for all
    logits of at most 0, since e^x ≤ 1 + x + x²/2 there and log(1 + y) ≤ y: that is not in the paper.
    """
    rng = np.random.default_rng(seed)
    for logits in (size * rng.standard_normal(items), np.full(items, size), size * np.eye(items)[0]):
        if min(premise(share * logits) for share in np.linspace(0, 1, 30)) >= -1e-12:
            assert excess(logits) >= -1e-12
        assert excess(-np.abs(logits)) >= -1e-12
    pair = size * rng.standard_normal(2)
    assert premise(pair) >= -1e-12
    assert excess(pair) >= -1e-12


@given(seed=st.integers(0, 1000), items=st.integers(4, 30))
def test_the_premise_of_the_bound_fails_near_zero(seed, items):
    """P3 says below B.2 that the premise holds for logits near 0. For N > 2 it holds there for equal logits alone.

    And the bound itself fails near 0 for logits of mean 0 and positive skewness: with κ₃ their third cumulant, bound −
    loss = ½·mean² − κ₃/6 + O(‖o‖⁴).
    """
    logits = 1e-3 * np.random.default_rng(seed).standard_normal(items)
    assert premise(logits) < 0
    assert premise(np.full(items, 0.3)) >= -1e-12
    peaked = 1e-2 * (items * np.eye(items)[0] - 1)
    assert excess(peaked) < 0
