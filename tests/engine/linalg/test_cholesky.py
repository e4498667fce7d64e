"""Our blocked factorisation against LAPACK, against itself, and against the definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.linalg.blas import Blocks
from monogram.engine.linalg.cholesky import potrf, potri
from monogram.errors import NumericalError, ParameterError

BOUND = {"float32": 2e-5, "float64": 1e-13}


def positive(n: int, dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((n, 2 * n + 3))
    return np.asfortranarray((half @ half.T / n + np.eye(n)).astype(dtype))


@given(
    n=st.integers(1, 70), leaf=st.integers(1, 80), dtype=st.sampled_from(["float32", "float64"]), seed=st.integers(0, 9)
)
def test_any_leaf_gives_the_factor_and_the_inverse_of_lapack(n, leaf, dtype, seed):
    matrix = positive(n, dtype, seed)
    ours = matrix.copy(order="F")
    potrf(ours, leaf=leaf)
    factor = np.linalg.cholesky(matrix.astype(np.float64))
    np.testing.assert_allclose(np.tril(ours), factor, atol=BOUND[dtype] * 10)
    potri(ours, leaf=leaf)
    expected = scipy.linalg.inv(matrix.astype(np.float64))
    np.testing.assert_allclose(np.tril(ours), np.tril(expected), atol=BOUND[dtype] * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_leaves_agree_with_small_ones(dtype):
    matrix = positive(700, dtype)
    results = []
    for leaf in (64, 100, 1024):
        ours = matrix.copy(order="F")
        potrf(ours, leaf=leaf)
        potri(ours, leaf=leaf)
        results.append(np.tril(ours))
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], atol=BOUND[dtype] * np.abs(results[0]).max())


def test_only_the_lower_triangle_is_read():
    matrix = positive(50, "float64")
    lower_only = np.asfortranarray(np.tril(matrix) + np.triu(np.full((50, 50), np.nan), 1))
    for one in (matrix, lower_only):
        potrf(one, leaf=64)
        potri(one, leaf=64)
    np.testing.assert_array_equal(np.tril(matrix), np.tril(lower_only))


def test_progress_adds_up_to_the_work():
    done: list[float] = []
    matrix = positive(400, "float64")
    potrf(matrix, leaf=8, tick=done.append)
    assert sum(done) == pytest.approx(400**3 / 3, rel=0.05)
    done.clear()
    potri(matrix, leaf=8, tick=done.append)
    assert sum(done) == pytest.approx(2 * 400**3 / 3, rel=0.05)


@pytest.mark.parametrize("leaf", [1, 3, 64])
def test_what_is_not_positive_definite_is_refused(leaf):
    matrix = positive(20, "float64")
    matrix[11, 11] = -1
    with pytest.raises(NumericalError, match="pivot 12 of 20"):
        potrf(matrix, leaf=leaf)


@pytest.mark.parametrize(
    "matrix",
    [np.arange(16.0).reshape(4, 4), np.asfortranarray(np.ones((3, 4))), np.eye(4, dtype=np.int64, order="F")],
    ids=["C order", "not square", "integers"],
)
def test_arrays_that_cannot_be_worked_on_in_place_are_refused(matrix):
    with pytest.raises(ParameterError):
        Blocks(matrix)
