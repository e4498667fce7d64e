"""Small systems in tiles against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from monogram.engine.linalg.small_cholesky import add_products, factor, substitute


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [4, 8, 20, 64])
def test_products_factor_and_solution(size, dtype):
    rng = np.random.default_rng(size)
    left = rng.standard_normal((size, size + 5)).astype(dtype)
    matrix = np.eye(size, dtype=dtype) * 3
    add_products(matrix, left, left, size, size + 3)
    used = left[:, : size + 3].astype(np.float64)
    exact = used @ used.T + 3 * np.eye(size)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-11, "atol": 1e-11}
    np.testing.assert_allclose(np.tril(matrix), np.tril(exact), **tolerance)
    assert factor(matrix, size)
    np.testing.assert_allclose(np.tril(matrix), np.linalg.cholesky(exact), **tolerance)
    vector = rng.standard_normal(size).astype(dtype)
    expected = np.linalg.solve(exact, vector.astype(np.float64))
    substitute(matrix, size, vector)
    np.testing.assert_allclose(vector, expected, **tolerance)
    assert vector.dtype == dtype


@pytest.mark.parametrize("at", [0, 3, 6])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_a_pivot_that_is_not_above_0_is_told(at, value):
    matrix = np.eye(8)
    matrix[at, at] = value
    assert not factor(matrix, 8)
