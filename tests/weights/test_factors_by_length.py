"""Factors whose filter follows the length of the history: RG² under the plain penalty."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from monogram.engine.iterative import rg2
from monogram.engine.topk.best import Eligible
from monogram.errors import ModelFileError
from monogram.weights import Factors

L2 = 1e-3
ITEMS = np.arange(12)


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    dense = (rng.random((40, 12)) < 0.3).astype(np.float32)
    dense[np.arange(40), rng.integers(0, 12, 40)] = 1
    dense[7] = 0
    return sp.csr_array(dense)


@pytest.fixture
def problem(matrix):
    return rg2.problem(matrix, L2, "plain", dtype="float64")


@pytest.fixture
def solution(problem):
    return rg2.als(problem, 4, epochs=300)


@pytest.fixture
def weights(problem, solution):
    return Factors(*rg2.fold_in(problem, solution))


def test_a_training_user_scores_its_row(matrix, solution, weights):
    expected = solution.users @ solution.items.T
    np.testing.assert_allclose(weights.score(matrix, ITEMS, 1), expected, atol=1e-12)
    assert (weights.score(matrix[[7]], ITEMS, 1) == 0).all(), "nothing is known of no history"


def test_any_history_scores_its_own_least_squares(matrix, solution, weights):
    """The row p minimises w·‖t − p·Qᵀ‖² + λ‖p‖², w = |h|/(2N|D|): solved anew, with weights in the history."""
    history = np.zeros(12)
    history[[1, 4, 9]] = 1, 2, 0.5
    length, items = history.sum(), solution.items
    strength, target = length / (2 * 12 * matrix.sum()), 12 * history / length - 1
    row = np.linalg.solve(strength * items.T @ items + L2 * np.eye(4), strength * items.T @ target)
    np.testing.assert_allclose(weights.score(sp.csr_array(history[None]), ITEMS, 1)[0], items @ row, atol=1e-12)


def test_explanations_sum_to_the_score(matrix, weights):
    for user in (0, 3, 20):
        scores = weights.score(matrix[[user]], ITEMS, 1)[0]
        for item in (0, 5):
            shares = weights.shares(matrix[[user]], item)
            assert shares.sum() + weights.base(np.array([item]))[0] == pytest.approx(scores[item], abs=1e-12)


def test_columns_are_the_scores_of_one_item(weights):
    every = sp.csr_array(np.eye(12))
    np.testing.assert_allclose(weights.columns(ITEMS[2:5]), weights.score(every, ITEMS[2:5], 1), atol=1e-12)


def test_the_best_are_those_of_the_scores(matrix, weights):
    users = matrix.shape[0]
    rules = Eligible(np.ones(12, np.bool_), np.zeros(users + 1, np.int64), *[np.zeros(0, np.int64)] * 3)
    best = weights.best(matrix, rules, 3, 2)
    scores = weights.score(matrix, ITEMS, 1)
    np.testing.assert_allclose(best.scores, -np.sort(-scores, axis=1)[:, :3], atol=1e-12)


def test_the_file_form_keeps_the_ridge_and_refuses_a_forged_one(matrix, weights):
    again = Factors.from_tensors(weights.tensors(), matrix)
    assert (again.score(matrix, ITEMS, 1) == weights.score(matrix, ITEMS, 1)).all()
    for forged in (np.array([-1.0]), np.array([np.nan]), np.array(1.0), np.array(["1"]), np.array([1, 2])):
        with pytest.raises(ModelFileError, match="ridge"):
            Factors.from_tensors(weights.tensors() | {"ridge": forged}, matrix)
    with pytest.raises(ModelFileError, match="ridge"):
        Factors.from_tensors(weights.tensors() | {"scale": -weights.scale}, matrix)


@pytest.mark.parametrize("l2", [0.2, 0.0])
def test_without_a_ridge_nothing_changes(matrix, l2):
    problem = rg2.problem(matrix, l2, dtype="float64")
    found = rg2.als(problem, 4, epochs=300)
    weights = Factors(*rg2.fold_in(problem, found))
    assert "ridge" not in weights.tensors()
    assert weights.left is weights.right
    np.testing.assert_allclose(weights.score(matrix, ITEMS, 1), found.users @ found.items.T, atol=1e-12)
    for user in (0, 7):
        shares = weights.shares(matrix[[user]], 5)
        assert shares.sum() + weights.base(ITEMS)[5] == pytest.approx(weights.score(matrix[[user]], ITEMS, 1)[0, 5])


def test_a_rank_above_what_survives_scores_as_well(matrix):
    problem = rg2.problem(matrix, 8 * L2, "plain", dtype="float64")
    found = rg2.als(problem, 12, epochs=2000)
    assert (found.spread == 0).any()
    weights = Factors(*rg2.fold_in(problem, found))
    np.testing.assert_allclose(weights.score(matrix, ITEMS, 1), found.users @ found.items.T, atol=1e-12)
