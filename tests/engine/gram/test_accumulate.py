"""The Gram in blocks against the plain product."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.gram.accumulate import by_column, gram, squares


def random_matrix(seed: int, rows: int = 40, columns: int = 30) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    dense = rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.3)
    return sp.csr_array(dense.astype(np.float32))


@given(seed=st.integers(0, 1000), threads=st.sampled_from([1, 2, 3]), weighted=st.booleans())
def test_blocks_equal_the_whole_product(seed, threads, weighted):
    matrix = random_matrix(seed)
    weights = np.random.default_rng(seed).random(40) if weighted else None
    out = np.full((30, 30), np.nan, np.float64, order="F")
    gram(matrix, out, weights=weights, threads=threads)
    dense = matrix.toarray().astype(np.float64)
    expected = (dense * (1 if weights is None else weights[:, None])).T @ dense
    np.testing.assert_allclose(np.tril(out), np.tril(expected), atol=1e-12)
    np.testing.assert_allclose(squares(matrix, weights), np.diag(expected), atol=1e-12)
    np.testing.assert_allclose(squares(matrix, weights, slab=7), np.diag(expected), atol=1e-12)
    assert np.isnan(out[np.triu_indices(30, 1)]).all(), "the upper triangle is not ours to write"


def test_both_sides_by_one_function():
    matrix = random_matrix(3)
    penalties = np.linspace(1, 5, 30)
    out = np.zeros((40, 40), np.float64, order="F")
    gram(matrix.T.tocsr(), out, weights=1 / penalties, threads=2)
    dense = matrix.toarray().astype(np.float64)
    np.testing.assert_allclose(np.tril(out), np.tril(dense / penalties @ dense.T), atol=1e-12)


def test_the_number_of_threads_does_not_change_one_bit():
    matrix = random_matrix(5, 500, 200)
    results = []
    for threads in (1, 2, 5):
        out = np.zeros((200, 200), np.float32, order="F")
        gram(matrix, out, threads=threads)
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_doubling_every_user_is_weight_two():
    matrix = random_matrix(9)
    twice, weighted = (np.zeros((30, 30), order="F") for _ in range(2))
    gram(sp.vstack([matrix, matrix]).tocsr(), twice)
    gram(matrix, weighted, weights=np.full(40, 2.0))
    np.testing.assert_allclose(np.tril(twice), np.tril(weighted), rtol=1e-12)


def test_progress_counts_every_column():
    done: list[int] = []
    gram(random_matrix(1), np.zeros((30, 30), order="F"), threads=2, done=done.append)
    assert sum(done) == 30


def test_by_column_finds_every_entry():
    matrix = random_matrix(2)
    pointers, owners, places = by_column(matrix)
    expected = matrix.tocsc()
    np.testing.assert_array_equal(pointers, expected.indptr)
    np.testing.assert_array_equal(owners, expected.indices)
    np.testing.assert_array_equal(matrix.data[places], expected.data)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1)])
def test_small_shapes(shape):
    matrix = sp.csr_array(np.ones(shape, np.float32))
    out = np.zeros((shape[1],) * 2, np.float64, order="F")
    gram(matrix, out)
    np.testing.assert_array_equal(np.tril(out), np.tril(np.full(out.shape, shape[0])))
