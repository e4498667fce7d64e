"""Cosines against the dense formula."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.gram.cosine import Cosines


@st.composite
def matrices(draw):
    """Users × items, positive weights; some users and items have none."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    shape = draw(st.integers(1, 20)), draw(st.integers(1, 30))
    dense = rng.uniform(0.1, 3, shape) * (rng.random(shape) < draw(st.sampled_from([0.0, 0.2, 0.7])))
    return dense.astype(draw(st.sampled_from([np.float32, np.float64])))


def formula(dense, shrink):
    """From unit columns where nothing is shrunk, else from norms: one pair of items at a time."""
    columns = dense.astype(np.float64).T
    out = np.zeros((len(columns), len(columns)))
    for i, one in enumerate(columns):
        for j, other in enumerate(columns):
            below = np.linalg.norm(one) * np.linalg.norm(other) + shrink
            out[i, j] = 0 if i == j or below == 0 else one @ other / below
    return out


@given(dense=matrices(), shrink=st.sampled_from([0.0, 0.5, 20.0]), threads=st.sampled_from([1, 2]), seed=st.integers(0))
def test_columns_are_the_formula(dense, shrink, threads, seed):
    items = np.random.default_rng(seed).integers(0, dense.shape[1], 11)  # in any order, some twice
    found = Cosines(sp.csr_array(dense), shrink, threads).columns(items)
    np.testing.assert_allclose(found, formula(dense, shrink)[:, items], rtol=1e-12, atol=1e-14)
    assert (found[items, np.arange(len(items))] == 0).all()


@given(dense=matrices())
def test_without_shrinkage_they_are_symmetric_and_at_most_one(dense):
    n = dense.shape[1]
    found = Cosines(sp.csr_array(dense), 0.0).columns(np.arange(n))
    np.testing.assert_allclose(found, found.T, rtol=1e-12)
    assert (found <= 1 + 1e-12).all()
    np.testing.assert_array_equal(found[:, ~dense.any(axis=0)], 0)


@given(dense=matrices(), factor=st.sampled_from([0.25, 2.0, 8.0]))
def test_without_shrinkage_a_factor_of_all_weights_changes_nothing(dense, factor):
    every = np.arange(dense.shape[1])
    once, scaled = (Cosines(sp.csr_array(one), 0.0).columns(every) for one in (dense, dense * factor))
    np.testing.assert_array_equal(once, scaled)  # powers of two: no rounding


def test_no_columns():
    matrix = sp.csr_array(np.eye(3, dtype=np.float32))
    assert Cosines(matrix, 1.0).columns(np.zeros(0, np.int64)).shape == (3, 0)


@pytest.mark.parametrize("number", [1, 7, 8, 9, 40])
def test_the_bits_do_not_depend_on_the_threads(number):
    rng = np.random.default_rng(number)
    matrix = sp.csr_array((rng.random((50, 40)) < 0.3) * rng.random((50, 40)))
    items = np.arange(number)
    alone, shared = (Cosines(matrix, 3.0, threads).columns(items) for threads in (1, 2))
    np.testing.assert_array_equal(alone, shared)
