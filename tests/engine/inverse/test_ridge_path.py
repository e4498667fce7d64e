"""One eigendecomposition against an inverse for each l2."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.gram.accumulate import gram
from monogram.engine.inverse import ridge_path


def case(seed, users=40, items=12, share=0.3):
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.random((users, items)) < share).astype(np.float32))


def inverse(matrix, l2, scale):
    dense = matrix.toarray().astype(np.float64)
    return np.linalg.inv(dense.T @ dense + l2 * np.diag(scale))


@given(
    seed=st.integers(0, 10_000),
    users=st.integers(1, 30),
    ratio=st.sampled_from([0.0, 0.01, 0.3]),
    threads=st.sampled_from([1, 2]),
    known=st.booleans(),
)
def test_it_is_the_inverse_of_every_l2(seed, users, ratio, threads, known):
    matrix, l2s = case(seed, users), [0.5, 4.0, 300.0]
    dense = matrix.toarray().astype(np.float64)
    scale = 1 + ratio * (dense**2).sum(axis=0)
    square = np.empty((12, 12), order="F")
    gram(matrix, square)
    found = ridge_path.decompose(matrix, scale, known_gram=square if known else None, dtype=np.float64, threads=threads)
    diagonals = found.diagonals(l2s)
    prepared = found.prepare(matrix)
    for l2, diagonal in zip(l2s, diagonals, strict=True):
        expected = inverse(matrix, l2, scale)
        np.testing.assert_allclose(diagonal, np.diag(expected), rtol=1e-10)
        unseen = dense == 0
        np.testing.assert_allclose(found.scores(prepared, l2)[unseen], -(dense @ expected)[unseen], atol=1e-11)


def test_the_known_gram_stays_as_it_is():
    matrix, square = case(1), np.zeros((12, 12), order="F")
    gram(matrix, square)
    before = square.copy()
    ridge_path.decompose(matrix, np.full(12, 2.0), known_gram=square, dtype=np.float64)
    np.testing.assert_array_equal(square, before)


def test_in_float32_to_its_rounding():
    matrix, scale = case(3, 400, 60), np.ones(60)
    found = ridge_path.decompose(matrix, scale, dtype=np.float32)
    assert found.basis.dtype == np.float32
    assert found.scores(found.prepare(matrix), 5.0).dtype == np.float32
    np.testing.assert_allclose(found.diagonals([5.0])[0], np.diag(inverse(matrix, 5.0, scale)), rtol=1e-5)


def test_items_that_nobody_used():
    matrix = sp.csr_array(np.pad(case(2).toarray(), ((0, 0), (0, 3))))
    found = ridge_path.decompose(matrix, np.ones(15), dtype=np.float64)
    np.testing.assert_allclose(found.diagonals([4.0])[0, 12:], 0.25)
    assert np.abs(found.scores(found.prepare(matrix), 4.0)[:, 12:]).max() < 1e-12


def test_the_lowest_l2_is_in_roundings_of_the_largest_eigenvalue():
    matrix = case(5, 300, 40)
    dense = matrix.toarray().astype(np.float64)
    scale = 1 + 0.1 * dense.sum(axis=0)
    top = np.linalg.eigvalsh(dense.T @ dense / np.sqrt(np.outer(scale, scale)))[-1]
    for dtype in (np.float32, np.float64):
        expected = ridge_path.COARSE * np.finfo(dtype).eps * top
        assert ridge_path.lowest(matrix, scale, dtype) == pytest.approx(expected, rel=1e-2)
    assert ridge_path.lowest(sp.csr_array((3, 4)), np.ones(4), np.float32) == 0


def test_in_float32_it_keeps_what_a_large_eigenvalue_would_drown():
    rng = np.random.default_rng(6)
    matrix = case(6, 200, 30)
    matrix.data *= rng.uniform(0.5, 300, 30).astype(np.float32)[matrix.indices]  # items of very different sizes
    found = ridge_path.decompose(matrix, np.ones(30), dtype=np.float32)
    expected = inverse(matrix, 0.5, np.ones(30))
    np.testing.assert_allclose(found.diagonals([0.5])[0], np.diag(expected), rtol=1e-3)
