"""Folding in against a dense solve; the stored form is checked."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from monogram.engine.iterative import wrmf
from monogram.errors import ModelFileError
from monogram.weights import FoldIn, from_tensors

SETTINGS = {"l2": 0.01, "alpha": 3.0, "nu": 1.0}


@pytest.fixture(params=["float32", "float64"])
def weights(request):
    items = np.random.default_rng(0).standard_normal((12, 5)).astype(request.param)
    return FoldIn(items, wrmf.rotate_to_axes(items), **SETTINGS)


@pytest.fixture
def histories():
    rng = np.random.default_rng(1)
    dense = (rng.random((30, 12)) < 0.3) * rng.uniform(0.5, 2, (30, 12))
    dense[0], dense[1] = 0, 1
    return sp.csr_array(dense.astype(np.float32))


def dense_scores(weights, history):
    """From the definition: weights of all cells, no Gramian, no rotation."""
    items = weights.items.astype(np.float64)
    cell = 1 + SETTINGS["alpha"] * history
    ridge = SETTINGS["l2"] * cell.sum() ** SETTINGS["nu"]
    row = np.linalg.solve((items.T * cell) @ items + ridge * np.eye(5), items.T @ (cell * (history > 0)))
    return items @ row


def test_scores_are_those_of_the_definition(weights, histories):
    expected = np.stack([dense_scores(weights, row) for row in histories.toarray().astype(np.float64)])
    tolerance = 1e-5 if weights.items.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(weights.score(histories, np.arange(12), 2), expected, atol=tolerance)
    assert (weights.score(histories[[0]], np.arange(12), 1) == 0).all()


def test_a_column_is_the_score_for_one_item_alone(weights):
    found = weights.columns(np.array([7, 2]))
    for item in range(12):
        alone = sp.csr_array((np.ones(1, np.float32), [item], [0, 1]), shape=(1, 12))
        np.testing.assert_allclose(found[item], weights.score(alone, np.array([7, 2]), 1)[0], atol=1e-14)


def test_shares_sum_to_the_score_and_each_is_its_own_part(weights, histories):
    items = weights.items.astype(np.float64)
    for user in range(1, 10):
        history = histories[[user]]
        dense = history.toarray()[0].astype(np.float64)
        score = weights.score(history, np.array([4]), 1)[0, 0]
        shares = weights.shares(history, 4)
        assert shares.sum() == pytest.approx(score, abs=1e-10)
        gains = SETTINGS["alpha"] * dense
        ridge = SETTINGS["l2"] * (12 + gains.sum())
        inverse = np.linalg.inv(items.T @ items + ridge * np.eye(5) + (items.T * gains) @ items)
        expected = [(1 + gains[i]) * items[4] @ inverse @ items[i] for i in history.indices]
        np.testing.assert_allclose(shares, expected, atol=1e-5)
    assert (weights.base(np.arange(12)) == 0).all()


def test_the_stored_form_comes_back(weights, histories):
    again = from_tensors("folded", weights.tensors(), histories)
    assert isinstance(again, FoldIn)
    every = np.arange(12)
    np.testing.assert_array_equal(again.score(histories, every, 1), weights.score(histories, every, 1))
    assert again.nbytes == weights.items.nbytes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("items", np.zeros((11, 5))),
        ("items", np.zeros((12, 5), np.int64)),
        ("spectrum", np.zeros(4)),
        ("spectrum", np.full(5, -1.0)),
        ("settings", np.zeros(2)),
        ("settings", np.array([0.0, 1.0, 1.0])),
        ("settings", np.array([1.0, -1.0, 1.0])),
        ("settings", np.array([1.0, 1.0, -1.0])),
        ("settings", np.array([np.nan, 1.0, 1.0])),
    ],
)
def test_a_wrong_stored_form_is_refused(weights, histories, name, value):
    with pytest.raises(ModelFileError):
        from_tensors("folded", weights.tensors() | {name: value}, histories)
