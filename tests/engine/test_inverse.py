"""Primal and dual are the same C, with and without user weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine import inverse


def setting(seed: int, weighted: bool):
    rng = np.random.default_rng(seed)
    matrix = sp.csr_array(((rng.random((20, 30)) < 0.3) * rng.uniform(0.5, 2, (20, 30))).astype(np.float32))
    weights = rng.uniform(0.2, 3, 20) if weighted else None
    penalties = rng.uniform(0.5, 4, 30)
    dense = matrix.toarray().astype(np.float64)
    scaled = dense if weights is None else dense * weights[:, None]
    return matrix, weights, penalties, np.linalg.inv(dense.T @ scaled + np.diag(penalties))


@pytest.mark.parametrize("solve", [inverse.primal, inverse.dual])
@given(seed=st.integers(0, 100), weighted=st.booleans())
def test_it_is_the_inverse(solve, seed, weighted):
    matrix, weights, penalties, expected = setting(seed, weighted)
    found = solve(matrix, penalties, weights=weights, dtype=np.float64, threads=2)
    np.testing.assert_allclose(found.diagonal, np.diag(expected), rtol=1e-6)
    np.testing.assert_allclose(found.columns(np.arange(30)), expected, atol=1e-6)
    histories = sp.csr_array(np.eye(30, dtype=np.float32)[[2, 5]] + np.eye(30, dtype=np.float32)[[7, 9]])
    np.testing.assert_allclose(found.apply(histories), histories.toarray() @ expected, atol=1e-6)
    assert inverse.residual(matrix, penalties, found, weights=weights) < 1e-6


@given(seed=st.integers(0, 30))
def test_unweighted_binary_data_is_exact_to_float64(seed):
    rng = np.random.default_rng(seed)
    matrix = sp.csr_array((rng.random((25, 18)) < 0.3).astype(np.float32))
    dense = matrix.toarray().astype(np.float64)
    penalties = rng.uniform(0.5, 4, 18)
    expected = np.linalg.inv(dense.T @ dense + np.diag(penalties))
    for solve in (inverse.primal, inverse.dual):
        found = solve(matrix, penalties, dtype=np.float64)
        np.testing.assert_allclose(found.columns(np.arange(18)), expected, atol=1e-12)
        np.testing.assert_allclose(found.diagonal, np.diag(expected), rtol=1e-12)


@pytest.mark.parametrize("solve", [inverse.primal, inverse.dual])
def test_a_wrong_inverse_is_found_out(solve):
    matrix, _, penalties, _ = setting(1, False)
    found = solve(matrix, penalties, dtype=np.float64)
    assert inverse.residual(matrix, penalties, found) < 1e-10
    assert inverse.residual(matrix, penalties * 1.5, found) > 1e-3


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("threads", [1, 3])
def test_weights_are_made_in_place(n, threads):
    rng = np.random.default_rng(n)
    half = rng.random((n, n))
    symmetric = half + half.T
    lower = np.asfortranarray(np.tril(symmetric) + np.triu(np.full((n, n), np.nan), 1))
    scale, diagonal = rng.random(n), rng.random(n)
    made = inverse.Primal(lower).into_weights(scale, diagonal, threads)
    expected = symmetric * scale
    np.fill_diagonal(expected, diagonal)
    np.testing.assert_allclose(made, expected)
    assert np.shares_memory(made, lower)
    assert made.flags.c_contiguous
