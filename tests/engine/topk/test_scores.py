"""Sums of rows against a loop over the items: the same order of summation, so the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.topk.best import Eligible
from monogram.engine.topk.by_sparse_rows import best_by_sparse_rows
from monogram.engine.topk.scores import add_sparse_rows, clear, entries, sum_rows, sum_sparse_rows, sums


@st.composite
def cases(draw):
    """Histories (some empty), weights with zeros, and columns in any order, with repetition, or none."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    users, n, dtype = draw(st.integers(0, 6)), draw(st.integers(1, 30)), draw(st.sampled_from([np.float32, np.float64]))
    histories = rng.uniform(0.1, 3, (users, n)) * (rng.random((users, n)) < draw(st.sampled_from([0.0, 0.3])))
    weights = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.4)
    columns = np.array(draw(st.lists(st.integers(0, n - 1), max_size=8)), np.int64)
    return histories.astype(np.float32), weights.astype(dtype), columns


def summed(histories, weights, columns):
    out = np.zeros((len(histories), len(columns)))
    for user, history in enumerate(histories):
        for item in np.flatnonzero(history):
            out[user] += np.float64(history[item]) * weights[item, columns].astype(np.float64)
    return out


@pytest.mark.parametrize("held", ["dense", "sparse"])
@given(case=cases(), threads=st.sampled_from([1, 2]))
def test_sums_of_rows(held, case, threads):
    histories, weights, columns = case
    rows = sp.csr_array(histories)
    if held == "dense":
        found = sum_rows(weights, rows, columns, threads=threads)
    else:
        found = sum_sparse_rows(sp.csr_array(weights), rows, columns, threads=threads)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, summed(histories, weights, columns))


@given(case=cases())
def test_sparse_sums_are_the_scores_of_the_lists(case):
    histories, weights, _ = case
    rows, matrix, n = sp.csr_array(histories), sp.csr_array(weights), histories.shape[1]
    best = best_by_sparse_rows(matrix, rows, Eligible.all_but(rows), n)
    scores = sum_sparse_rows(matrix, rows, np.arange(n))
    for user, count in enumerate(best.counts):
        assert count == n - np.count_nonzero(histories[user])
        np.testing.assert_array_equal(best.scores[user, :count], scores[user, best.items[user, :count]])


def test_rows_are_added_and_cleared():
    """Each item of the rows is listed once, also where its sum is 0; clearing leaves nothing for the next history."""
    matrix = sp.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [-1.0, 0.0, 1.0]]))
    total, is_summed, summed = sums(3)
    factors = np.array([1.0, 2.0, 1.0])
    number = add_sparse_rows(
        matrix.indptr, matrix.indices, matrix.data, np.array([0, 2, 2]), factors, total, is_summed, summed
    )
    assert summed[:number].tolist() == [0, 2]
    assert is_summed.tolist() == [True, False, True]
    assert total.tolist() == [-2.0, 0.0, 5.0]
    clear(total, is_summed, summed[:number])
    assert not total.any()
    assert not is_summed.any()


@given(case=cases())
def test_entries_of_a_column(case):
    histories, weights, columns = case
    matrix, rows = sp.csr_array(weights), sp.csr_array(histories).indices
    for column in columns:
        found = entries(matrix, rows, int(column))
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, weights[rows, column])
