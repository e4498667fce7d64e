"""The minimum of an expected quadratic loss against direct solves, column by column."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.inverse.expected_quadratic import minimise
from monogram.engine.linalg.symmetric import lower_times, transpose


def problem(seed, n=13):
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((30, n)) * (rng.random((30, n)) < 0.5)
    cross = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.4)
    return inputs.T @ inputs, cross, rng.uniform(0.5, 2, n), rng


def solved(second, cross, penalties, diagonal, is_sparse, dtype="float64"):
    lower = np.asfortranarray(second.astype(dtype))
    lower[np.triu_indices(len(lower), 1)] = np.nan  # the upper triangle is not read
    given = sp.csr_array(cross.T.astype(dtype)) if is_sparse else np.asfortranarray(cross.astype(dtype))
    solution = minimise(lower, given, penalties, diagonal)
    if is_sparse:
        assert solution.weights is None
        np.testing.assert_array_equal(solution.inverse, solution.inverse.T)
        return solution.inverse.astype(float) @ solution.by_column.toarray().T, solution
    assert solution.weights.flags.c_contiguous
    return solution.weights, solution


@given(seed=st.integers(0, 10_000), is_sparse=st.booleans(), fixed=st.sampled_from(["none", "zero", "some"]))
def test_columns_equal_their_own_solves(seed, is_sparse, fixed):
    second, cross, penalties, rng = problem(seed)
    n = len(second)
    diagonal = {"none": None, "zero": np.zeros(n), "some": np.where(rng.random(n) < 0.5, rng.normal(size=n), np.nan)}
    weights, solution = solved(second, cross, penalties, diagonal[fixed], is_sparse)
    system = second + np.diag(penalties)
    for j in range(n):
        value = np.nan if diagonal[fixed] is None else diagonal[fixed][j]
        expected = np.linalg.solve(system, cross[:, j])
        if not np.isnan(value):
            rest = np.delete(np.arange(n), j)
            expected[j] = value
            expected[rest] = np.linalg.solve(system[np.ix_(rest, rest)], cross[rest, j] - system[rest, j] * value)
        np.testing.assert_allclose(weights[:, j], expected, atol=1e-8)
        gradient = system @ weights[:, j] - cross[:, j]
        gradient[j] *= np.isnan(value)
        np.testing.assert_allclose(gradient, 0, atol=1e-8)
    assert solution.residual < 1e-10


@pytest.mark.parametrize("is_sparse", [True, False])
def test_sparse_and_dense_agree_in_single_precision(is_sparse):
    second, cross, penalties, _ = problem(3)
    exact, _ = solved(second, cross, penalties, np.zeros(13), not is_sparse)
    weights, solution = solved(second, cross, penalties, np.zeros(13), is_sparse, "float32")
    np.testing.assert_allclose(weights, exact, atol=1e-5)
    assert 0 < solution.residual < 1e-4


@pytest.mark.parametrize("is_sparse", [True, False])
def test_the_residual_sees_wrong_weights(is_sparse, monkeypatch):
    from monogram.engine.inverse import expected_quadratic

    invert = expected_quadratic.invert_gram

    def wrong(lower, *arguments):
        invert(lower, *arguments)
        lower[7, 2] += 0.05

    monkeypatch.setattr(expected_quadratic, "invert_gram", wrong)
    second, cross, penalties, _ = problem(4)
    assert solved(second, cross, penalties, None, is_sparse)[1].residual > 1e-3


@given(n=st.integers(1, 40), columns=st.integers(1, 50))
def test_products_with_a_lower_triangle_and_transposition(n, columns):
    rng = np.random.default_rng(n)
    square = rng.standard_normal((n, n))
    lower = np.asfortranarray(np.where(np.tri(n) > 0, square, np.nan))
    symmetric = np.tril(square) + np.tril(square, -1).T
    block = rng.standard_normal((n, 3))
    np.testing.assert_allclose(lower_times(lower, block, columns), symmetric @ block, atol=1e-12)
    turned = transpose(np.asfortranarray(square), columns)
    np.testing.assert_array_equal(turned, square)
    assert turned.flags.c_contiguous
