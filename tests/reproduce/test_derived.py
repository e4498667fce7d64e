"""Penalties of directions: the filter is the minimum of its objective, and proposition 1 maps there and back."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

import monogram as mg
from monogram.reproduce import derived


@pytest.fixture
def log():
    dense = (np.random.default_rng(3).random((30, 9)) < 0.4).astype(np.float32)
    return mg.Interactions.from_csr(sp.csr_array(dense))


def test_the_filter_minimises_the_objective_without_the_diagonal(log):
    x, l2 = log.matrix.toarray().astype(np.float64), 2.0
    _, sigma, vt = np.linalg.svd(x, full_matrices=False)
    vectors, sigma = vt[:4].T, sigma[:4]

    def objective(filters):
        w = vectors * filters @ vectors.T
        w = w - np.diag(np.diag(w))
        return ((x - x @ w) ** 2).sum() + l2 * (w**2).sum()

    found = derived.leave_own_out(vectors, sigma, (x**2).sum(axis=0), l2)
    best = scipy.optimize.minimize(objective, np.ones(4), tol=1e-12)
    np.testing.assert_allclose(found, best.x, atol=1e-5)


def test_proposition_1_there_and_back():
    sigma, l2 = np.array([5.0, 3.0, 1.0]), np.array([2.0, 40.0, 0.5])
    np.testing.assert_allclose(mg.vlae_as_lrr(sigma, derived.lrr_as_vlae(sigma, l2)), l2)


def test_the_weights_of_vlae_are_those_of_lrr_sorted(log):
    settings = {"rank": 5, "l2": 4.0}
    lrr, vlae = derived.weighted_lrr(log, settings), derived.sorted_vlae(log, settings)
    spectrum = mg.Spectrum(log, 5)
    sigma, counts = np.asarray(spectrum.values), np.asarray(log.matrix.sum(axis=0), float)
    np.testing.assert_allclose(vlae["weights"], derived.lrr_as_vlae(sigma, np.array(lrr["l2"])))
    assert mg.LRR(**lrr).params()["rank"] == mg.VLAE(**vlae).params()["rank"] == 5
    filters = derived.leave_own_out(spectrum.vectors.astype(float), sigma, counts, 4.0)
    np.testing.assert_allclose(sigma**2 / (sigma**2 + lrr["l2"]), np.clip(filters, derived.LEAST, 1), rtol=1e-6)
