"""Rows of the Gram, stored sparse, dense or not at all, against the dense product."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.gram.sparse_rows import add_row, gather_row, row_bytes, sparse_rows


def matrix(seed, users=30, items=12):
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.0, 0.5, items) ** 2
    values = rng.integers(1, 4, (users, items)) * (rng.random((users, items)) < shares)
    return sp.csr_array(values.astype(np.float32))


def rows_of(rows):
    out = np.zeros((rows.n, rows.n), rows.dtype)
    for i in range(rows.n):
        add_row(rows.source, i, rows.dtype.type(1), out[i])
    return out


@given(st.integers(0, 1000), st.sampled_from([0, 100, 300, np.inf]), st.sampled_from(["float32", "float64"]))
def test_every_row_is_that_of_the_product(seed, most, dtype):
    x = matrix(seed)
    rows = sparse_rows(x, dtype=dtype, most=most, threads=2)
    np.testing.assert_array_equal(rows_of(rows), (x.T @ x).toarray())
    np.testing.assert_array_equal(rows.diagonal, (x.T @ x).diagonal())


@given(st.integers(0, 1000), st.sampled_from([0, 100, 300, np.inf]))
def test_a_gathered_row_has_the_entries_of_the_listed_items(seed, most):
    x = matrix(seed)
    rows, n = sparse_rows(x, most=most), x.shape[1]
    items = np.random.default_rng(seed).permutation(n)[:5].astype(np.int32)
    place = np.full(n, -1, np.int32)
    place[items] = np.arange(5)
    out, expected = np.empty(5, np.float32), (x.T @ x).toarray()
    for i in range(n):
        gather_row(rows.source, i, items, 5, place, out, np.empty(n, np.float32))
        np.testing.assert_array_equal(out, expected[i, items])


def test_rows_are_sparse_dense_and_absent():
    x = matrix(1, items=60)
    x = sp.csr_array(x.multiply(np.random.default_rng(0).random(x.shape) < 0.3))
    rows = sparse_rows(x, most=0.9 * sparse_rows(x).rows[4].nbytes)
    lengths = rows.rows[1]
    assert (lengths == 60).any()
    assert (lengths == -1).any()
    assert ((lengths > 0) & (lengths < 60)).any()
    np.testing.assert_array_equal(rows_of(rows), (x.T @ x).toarray())


@pytest.mark.parametrize("most", [0, 100, 200, 400])
def test_stored_rows_stay_within_the_bytes(most):
    rows = sparse_rows(matrix(2), most=most)
    assert sum(array.nbytes for array in rows.rows[3:]) <= most


def test_a_row_takes_no_more_than_a_dense_one():
    np.testing.assert_array_equal(row_bytes(np.array([0, 3, 10**6]), 100, "float32"), [0, 24, 400])


def test_a_negative_entry_is_seen():
    assert sparse_rows(matrix(3)).nonnegative
    assert not sparse_rows(-matrix(3)).nonnegative
