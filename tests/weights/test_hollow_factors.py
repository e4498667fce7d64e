"""W = A·Aᵀ without its diagonal, against the dense array."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from monogram.engine.topk.best import Eligible
from monogram.errors import ModelFileError
from monogram.weights import HollowFactors, from_tensors

N, USERS = 40, 25
RNG = np.random.default_rng(2)
DENSE = ((RNG.random((USERS, N)) < 0.2) * RNG.integers(1, 4, (USERS, N))).astype(np.float32)
DENSE[6], DENSE[9] = 0, 1
HISTORIES = sp.csr_array(DENSE)
ITEMS = np.array([7, 0, 39, 7])
NONE = np.zeros(USERS + 1, np.int64)
EVERYTHING = Eligible(np.ones(N, np.bool_), NONE, NONE[:0], NONE[:0], NONE[:0])


@pytest.fixture(params=["float32", "float64"])
def case(request):
    weights = HollowFactors(RNG.standard_normal((N, 4)).astype(request.param))
    dense = weights.right.astype(float) @ weights.right.astype(float).T
    return weights, dense * ~np.eye(N, dtype=bool)


def test_scores_columns_and_shares(case):
    weights, dense = case
    np.testing.assert_allclose(weights.score(HISTORIES, ITEMS, 1), (DENSE @ dense)[:, ITEMS], atol=1e-5)
    np.testing.assert_allclose(weights.columns(ITEMS), dense[:, ITEMS], atol=1e-6)
    for item in (int(HISTORIES[[1]].indices[0]), 3):
        shares = weights.shares(HISTORIES[[1]], item)
        assert shares.sum() == pytest.approx((DENSE[1] @ dense)[item], abs=1e-5)


@pytest.mark.parametrize("k", [1, 5, N, N + 3])
@pytest.mark.parametrize("rules", ["unseen", "everything"])
def test_lists_are_ranked_by_the_scores(case, k, rules):
    weights, dense = case
    eligible = EVERYTHING if rules == "everything" else Eligible.all_but(HISTORIES)
    best = weights.best(HISTORIES, eligible, k, 1)
    scores = np.where((DENSE > 0) & (rules == "unseen"), -np.inf, DENSE.astype(float) @ dense)
    for user in range(USERS):
        count = min(k, int(np.isfinite(scores[user]).sum()))
        assert best.counts[user] == count
        np.testing.assert_allclose(best.scores[user, :count], -np.sort(-scores[user])[:count], atol=1e-5)
        np.testing.assert_allclose(scores[user, best.items[user, :count]], best.scores[user, :count], atol=1e-5)
        assert len(set(best.items[user, :count].tolist())) == count


def test_a_file_holds_one_array(case):
    weights, _ = case
    tensors = weights.tensors()
    assert set(tensors) == {"items"}
    loaded = from_tensors("hollow_factors", tensors, HISTORIES)
    np.testing.assert_array_equal(loaded.columns(ITEMS), weights.columns(ITEMS))
    with pytest.raises(ModelFileError, match="must hold a float tensor 'items'"):
        from_tensors("hollow_factors", {"items": tensors["items"][1:]}, HISTORIES)
    for hostile in ({}, {"items": np.array(1.0)}, {"items": np.zeros(N)}):
        with pytest.raises(ModelFileError, match="must hold a matrix 'items'"):
            from_tensors("hollow_factors", hostile, HISTORIES)
