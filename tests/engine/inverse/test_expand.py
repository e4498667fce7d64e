"""The rows of X̃ᵀK⁻¹X̃ against the plain product, and the weights they give against a direct inverse."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.inverse.dual import dual_inverse
from monogram.engine.inverse.expand import BLOCK_BYTES, LANES, block_rows, buffer_bytes, expand_rows

EDGES = (1, 2, LANES - 1, LANES, LANES + 1, 2 * LANES + 5)


def setting(seed: int, users: int, items: int):
    rng = np.random.default_rng(seed)
    dense = (rng.random((users, items)) < rng.uniform(0, 0.5, items)) * rng.uniform(0.5, 2, (users, items))
    return sp.csr_array(dense.astype(np.float32)), rng


@given(
    seed=st.integers(0, 1000),
    users=st.integers(1, 40),
    items=st.sampled_from(EDGES),
    dtype=st.sampled_from([np.float32, np.float64]),
    weighted=st.booleans(),
    threads=st.sampled_from([1, 3]),
)
def test_it_is_the_plain_product(seed, users, items, dtype, weighted, threads):
    matrix, rng = setting(seed, users, items)
    by_item = matrix.T.tocsr().astype(np.float64 if weighted else np.float32)
    half = rng.standard_normal((users, users))
    square = np.asfortranarray(half + half.T, dtype)
    row, column = rng.standard_normal(items), rng.standard_normal(items)
    dense = by_item.toarray().astype(np.float64)
    expected = row[:, None] * (dense @ square.astype(np.float64) @ dense.T) * column
    out = np.full((items, items), np.nan, dtype)
    expand_rows(square, by_item, row, column, out, threads=threads)
    bound = np.abs(row)[:, None] * (np.abs(dense) @ np.abs(square) @ np.abs(dense).T) * np.abs(column)
    assert (np.abs(out - expected) <= 4 * np.finfo(dtype).eps * bound).all()


@given(seed=st.integers(0, 100), first=st.integers(0, 69), rows=st.integers(0, 70))
def test_some_rows_have_the_bits_of_all_rows_whatever_the_threads(seed, first, rows):
    matrix, rng = setting(seed, 30, 70)
    half = rng.standard_normal((30, 30))
    square, by_item = np.asfortranarray(half + half.T, np.float32), matrix.T.tocsr()
    factors = rng.random(70), rng.random(70)
    whole = np.empty((70, 70), np.float32)
    expand_rows(square, by_item, *factors, whole)
    part = np.empty((min(rows, 70 - first), 70), np.float32)
    counted: list[int] = []
    expand_rows(square, by_item, *factors, part, first, threads=2, done=counted.append)
    np.testing.assert_array_equal(part, whole[first : first + rows])
    assert sum(counted) == len(part)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_more_users_than_are_summed_at_once(dtype):
    """Longer than one piece of a sum, with a read-only K⁻¹ as in a mapped file."""
    matrix, rng = setting(1, 2500, 20)
    penalties = rng.uniform(50, 400, 20)
    found = dual_inverse(matrix, penalties, dtype=dtype)
    found.inverse.setflags(write=False)
    dense = matrix.toarray().astype(np.float64)
    exact = np.linalg.inv(dense.T @ dense + np.diag(penalties))
    out = np.empty((20, 20), dtype)
    expand_rows(found.inverse, found.by_item, 1 / penalties, -1 / penalties, out)
    off = ~np.eye(20, dtype=bool)
    np.testing.assert_allclose(out[off], exact[off], atol=(1e-5 if dtype == "float32" else 1e-13) * exact.max())


@given(items=st.integers(1, 10**6), itemsize=st.sampled_from([4, 8]), threads=st.integers(1, 64))
def test_blocks_for_a_file_are_bounded_and_keep_the_threads_busy(items, itemsize, threads):
    rows = block_rows(items, itemsize, threads)
    assert 1 <= rows <= items
    assert rows == items or rows % (LANES * threads) == 0
    assert rows * items * itemsize <= max(BLOCK_BYTES, LANES * threads * items * itemsize)


def test_the_buffers_are_those_of_the_threads():
    assert buffer_bytes(1000, 4, 2) == 2 * buffer_bytes(1000, 4, 1) > 2 * 4 * 1000 * LANES
