"""Two-step lists of sparse weights against the dense formula, and of `Mixtures` against single models."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from monogram.engine.topk.best import Eligible
from monogram.weights import Dense, Local, Mixture, Mixtures, Sparse, TwoStepSparse
from monogram.weights.projection import Projection

N, USERS, RANK = 40, 15, 5
RNG = np.random.default_rng(11)
HISTORIES = sp.csr_array(((RNG.random((USERS, N)) < 0.2) * RNG.integers(1, 4, (USERS, N))).astype(np.float32))
H = HISTORIES.toarray().astype(np.float64)
B = RNG.standard_normal((N, N)) * (RNG.random((N, N)) < 0.15)
BASIS = RNG.standard_normal((N, RANK)) / 3
POWERS = RNG.uniform(0.5, 3, N)
THETAS = RNG.uniform(0.5, 2, (2, N))
SHARES = (0.0, 0.3, 0.75, 1.0)
MIXTURES = [
    Mixture(share, weight, rank, THETAS, repeat, powers)
    for share in SHARES
    for weight, rank, repeat, powers in (
        (0.0, RANK, 0.0, None),
        (0.6, 3, 0.0, None),
        (0.25, RANK, 1.5, None),
        (0.4, 3, 0.0, POWERS),
        (0.4, RANK, 0.0, POWERS),
    )
]


def single(mixture, theta, dtype):
    basis = np.sqrt(mixture.weight) * BASIS[:, : mixture.rank]
    low_pass = Projection(basis, mixture.powers) if mixture.weight else None
    return TwoStepSparse(sp.csr_array(B.astype(dtype)), mixture.share, theta, low_pass, mixture.repeat)


def formula(mixture, theta, dtype):
    """hW, from dense arrays."""
    b, v = B.astype(dtype).astype(np.float64), BASIS[:, : mixture.rank]
    p = np.ones(N) if mixture.powers is None else mixture.powers
    low = mixture.weight * np.diag(1 / p) @ v @ v.T @ np.diag(p)
    w = ((1 - mixture.share) * b + mixture.share * b @ b + low) * theta
    return H @ (w + mixture.repeat * np.eye(N))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [Local, Sparse])
def test_mixtures_are_the_single_models(kind, dtype, threads, monkeypatch):
    monkeypatch.setattr("monogram.weights.mixtures.BATCH", 4)
    eligible = Eligible.all_but(sp.csr_array((USERS, N)))  # seen items too: `repeat` changes their scores
    shared = Mixtures(kind(sp.csr_array(B.astype(dtype))), BASIS)
    heads = iter(shared.heads(MIXTURES, HISTORIES, eligible, 8, threads))
    for mixture in MIXTURES:
        for theta in mixture.thetas:
            head, model = next(heads), single(mixture, theta, dtype)
            best = model.best(HISTORIES, eligible, 8, threads)
            np.testing.assert_array_equal(head.items, best.items)
            np.testing.assert_allclose(head.scores, best.scores, atol=1e-12)
            expected = formula(mixture, theta, dtype)
            np.testing.assert_allclose(best.scores, -np.sort(-expected, axis=1)[:, :8], atol=1e-12)
            np.testing.assert_allclose(np.take_along_axis(expected, best.items, axis=1), best.scores, atol=1e-12)
            np.testing.assert_allclose(model.score(HISTORIES, np.arange(N), threads), expected, atol=1e-12)
    assert next(heads, None) is None


def test_a_sparse_first_step_ranks_as_a_dense_one():
    eligible = Eligible.all_but(HISTORIES)
    sparse, dense = (Mixtures(first, BASIS) for first in (Local(sp.csr_array(B)), Dense(B.copy(order="F"))))
    pairs = zip(*(shared.heads(MIXTURES, HISTORIES, eligible, 8, 2) for shared in (sparse, dense)), strict=True)
    for actual, expected in pairs:
        np.testing.assert_array_equal(actual.items, expected.items)
        np.testing.assert_allclose(actual.scores, expected.scores, atol=1e-12)


@pytest.mark.parametrize("share", SHARES)
def test_a_history_alone_has_the_bits_of_a_batch(share):
    model = TwoStepSparse(sp.csr_array(B.astype(np.float32)), share, THETAS[0])
    together = model.best(HISTORIES, Eligible.all_but(HISTORIES), 8, 3)
    for user in range(USERS):
        row = HISTORIES[[user]]
        alone = model.best(row, Eligible.all_but(row), 8, 1)
        np.testing.assert_array_equal(alone.items[0], together.items[user])
        np.testing.assert_array_equal(alone.scores[0], together.scores[user])
