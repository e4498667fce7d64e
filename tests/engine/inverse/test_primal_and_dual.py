"""Primal and dual are the same C, with and without user weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.gram.user_weights import scale_rows
from monogram.engine.inverse.certificate import certificate
from monogram.engine.inverse.dual import dual_inverse, dual_solve
from monogram.engine.inverse.primal import PrimalInverse, primal_inverse


def setting(seed: int, weighted: bool):
    rng = np.random.default_rng(seed)
    matrix = sp.csr_array(((rng.random((20, 30)) < 0.3) * rng.uniform(0.5, 2, (20, 30))).astype(np.float32))
    weights = rng.uniform(0.2, 3, 20) if weighted else None
    penalties = rng.uniform(0.5, 4, 30)
    dense = matrix.toarray().astype(np.float64)
    scaled = dense if weights is None else dense * weights[:, None]
    return matrix, weights, penalties, np.linalg.inv(dense.T @ scaled + np.diag(penalties))


@pytest.mark.parametrize("solve", [primal_inverse, dual_inverse])
@given(seed=st.integers(0, 100), weighted=st.booleans())
def test_it_is_the_inverse(solve, seed, weighted):
    matrix, weights, penalties, expected = setting(seed, weighted)
    data = scale_rows(matrix, weights)
    found = solve(data, penalties, dtype=np.float64, threads=2)
    np.testing.assert_allclose(found.diagonal, np.diag(expected), rtol=1e-12)
    np.testing.assert_allclose(found.columns(np.arange(30)), expected, atol=1e-12)
    block = np.random.default_rng(seed).standard_normal((30, 4))
    np.testing.assert_allclose(found.times(block), expected @ block, atol=1e-12)
    np.testing.assert_allclose(
        found.times_off_diagonal(block), (expected - np.diag(np.diag(expected))) @ block, atol=1e-12
    )
    np.testing.assert_allclose(found.columns(np.arange(30)), expected, atol=1e-12, err_msg="as before")
    residual, error = certificate(data, penalties, found)
    assert residual < 1e-12
    assert error < 1e-10


@given(seed=st.integers(0, 30))
def test_unweighted_binary_data_is_exact_to_float64(seed):
    rng = np.random.default_rng(seed)
    matrix = sp.csr_array((rng.random((25, 18)) < 0.3).astype(np.float32))
    dense = matrix.toarray().astype(np.float64)
    penalties = rng.uniform(0.5, 4, 18)
    expected = np.linalg.inv(dense.T @ dense + np.diag(penalties))
    for solve in (primal_inverse, dual_inverse):
        found = solve(matrix, penalties, dtype=np.float64)
        np.testing.assert_allclose(found.columns(np.arange(18)), expected, atol=1e-12)
        np.testing.assert_allclose(found.diagonal, np.diag(expected), rtol=1e-12)


@pytest.mark.parametrize("solve", [primal_inverse, dual_inverse])
def test_a_wrong_inverse_is_found_out(solve):
    matrix, _, penalties, _ = setting(1, False)
    found = solve(matrix, penalties, dtype=np.float64)
    assert max(certificate(matrix, penalties, found)) < 1e-10
    residual, error = certificate(matrix, penalties * 1.5, found)
    assert residual > 1e-3
    assert error > 1e-2


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("threads", [1, 3])
def test_weights_are_made_in_place(n, threads):
    rng = np.random.default_rng(n)
    half = rng.random((n, n))
    symmetric = half + half.T
    lower = np.asfortranarray(np.tril(symmetric) + np.triu(np.full((n, n), np.nan), 1))
    scale, diagonal = rng.random(n), rng.random(n)
    made = PrimalInverse(lower).into_weights(scale, diagonal, threads)
    expected = symmetric * scale
    np.fill_diagonal(expected, diagonal)
    np.testing.assert_allclose(made, expected)
    assert np.shares_memory(made, lower)
    assert made.flags.c_contiguous


@pytest.mark.parametrize("solve", [primal_inverse, dual_inverse])
def test_products_are_of_the_precision_of_the_block(solve):
    """What is held in float32 multiplies a float64 block without rounding anything anew."""
    matrix, _, penalties, _ = setting(2, False)
    found = solve(matrix, penalties, dtype=np.float32)
    held = found.columns(np.arange(30))
    block = np.random.default_rng(0).standard_normal((30, 3))
    np.testing.assert_allclose(found.times(block), held @ block, atol=1e-14)
    coarse = found.times(block.astype(np.float32))
    assert coarse.dtype == np.float32
    np.testing.assert_allclose(coarse, held @ block, atol=1e-5)


def ill_conditioned():
    """Weights to 5,000 beside a penalty of 100: S is so large that a small residual hides a large error."""
    rng = np.random.default_rng(0)
    matrix = sp.random_array((400, 900), density=0.03, rng=rng, dtype=np.float32, format="csr")
    matrix.data[:] = np.ceil(matrix.data * 5000)
    return matrix, np.full(900, 100.0)


def test_an_error_that_the_residual_hides_is_found():
    matrix, penalties = ill_conditioned()
    found = primal_inverse(matrix, penalties, dtype=np.float32)
    exact = primal_inverse(matrix, penalties, dtype=np.float64)
    every = np.arange(900)
    slopes, truth = (-one.columns(every) / one.diagonal for one in (found, exact))
    for one in (slopes, truth):
        np.fill_diagonal(one, 0)
    real = np.abs(slopes - truth).max() / np.abs(truth).max()
    residual, error = certificate(matrix, penalties, found)
    assert residual < 1e-5, "it looks well"
    assert real > 0.1, "it is not"
    assert error > 0.05 * real
    assert certificate(matrix, penalties, exact)[1] < 1e-3


@pytest.mark.parametrize("number", [3, 40])
def test_the_dual_solves_to_float64_what_it_holds_in_float32(number):
    matrix, penalties = ill_conditioned()
    coarse = dual_inverse(matrix, penalties, dtype=np.float32)
    dense = matrix.toarray().astype(np.float64)
    kernel = np.eye(400) + dense / penalties @ dense.T
    right = sp.random_array((400, number), density=0.1, rng=np.random.default_rng(1), format="csr")
    solved, converged = dual_solve(coarse.inverse, coarse.by_item, penalties, right)
    assert converged
    np.testing.assert_allclose(kernel @ solved, right.toarray(), atol=1e-8)
