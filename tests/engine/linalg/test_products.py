"""Products of thin factors against sums over the rows by einsum."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.linalg import products
from monogram.engine.linalg.products import dot, inner, slabs


@st.composite
def cases(draw):
    """Two factors, of which the second may be the first, with or without weights; the number of rows may be 0."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    rows, dtype = draw(st.integers(0, 40)), draw(st.sampled_from([np.float32, np.float64]))
    left = rng.standard_normal((rows, draw(st.integers(1, 4)))).astype(dtype)
    width = draw(st.integers(1, 4))
    right = left if draw(st.booleans()) else rng.standard_normal((rows, width)).astype(dtype)
    weights = rng.random(rows) * (rng.random(rows) < 0.8) if draw(st.booleans()) else None
    return left, right, weights


@contextmanager
def slabs_of(rows):
    before, products.SLAB = products.SLAB, rows
    try:
        yield
    finally:
        products.SLAB = before


SIZES = st.sampled_from([1, 7, 16384])


@given(case=cases(), rows=SIZES)
def test_inner_is_the_sum_of_outer_products(case, rows):
    left, right, weights = case
    w = np.ones(len(left)) if weights is None else weights
    expected = np.einsum("u,ua,ub->ab", w, left.astype(np.float64), right.astype(np.float64))
    with slabs_of(rows):
        found = inner(left, right, weights)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@given(case=cases(), rows=SIZES)
def test_dot_is_the_sum_of_all_products(case, rows):
    left, right, weights = case
    right = right[:, : left.shape[1]] if right is not left else left
    left = left[:, : right.shape[1]] if right is not left else left
    w = np.ones(len(left)) if weights is None else weights
    expected = np.einsum("u,uk,uk->", w, left.astype(np.float64), right.astype(np.float64))
    with slabs_of(rows):
        found = dot(left, right, weights)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(case=cases(), rows=SIZES)
def test_slabs_are_the_rows_in_order(case, rows):
    left, right, weights = case
    with slabs_of(rows):
        parts = list(slabs(left, right, weights))
    assert all(0 < len(part) == len(other) <= rows for part, other in parts)
    assert all(part.dtype == other.dtype == np.float64 for part, other in parts)
    scaled = right.astype(np.float64) * (1 if weights is None else weights[:, None])
    for place, whole in enumerate((left, scaled)):
        joined = np.concatenate([np.empty((0, whole.shape[1])), *(both[place] for both in parts)])
        np.testing.assert_array_equal(joined, whole)


def test_float32_factors_are_summed_in_float64():
    """In float32, 1 + 2⁻²⁴ is 1: the small terms would be lost."""
    left = np.full((1001, 1), 2.0**-12, np.float32)
    left[0] = 1
    exact = 1 + 1000 * 2.0**-24
    assert inner(left, left)[0, 0] == pytest.approx(exact, rel=1e-15)
    assert dot(left, left) == pytest.approx(exact, rel=1e-15)
