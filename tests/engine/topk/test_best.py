"""The selection against a plain sort: exactly the k best eligible items, ties to the lower index."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.topk import by_rows
from monogram.engine.topk.best import Eligible, heads_by_scores
from monogram.engine.topk.by_products import best_by_products
from monogram.engine.topk.by_rows import best_by_rows, heads_by_rows
from monogram.engine.topk.by_sparse_rows import best_by_sparse_rows
from monogram.engine.topk.dual import best_by_gathering, heads_by_gathering


def pointers(lists):
    return np.cumsum([0] + [len(one) for one in lists]).astype(np.int64)


def flat(lists):
    return np.array([item for one in lists for item in sorted(one)], np.int64)


@st.composite
def cases(draw):
    n, users = draw(st.integers(1, 40)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    levels = draw(st.sampled_from([2, 5, 1000]))  # few levels: many ties
    histories = sp.csr_array((rng.random((users, n)) < 0.2).astype(np.float32))
    subsets = st.sets(st.integers(0, n - 1))
    out = [draw(subsets) for _ in range(users)]
    only = [draw(subsets) for _ in range(users)] if draw(st.booleans()) else []
    mask = rng.random(n) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    eligible = Eligible(mask, pointers(out), flat(out), pointers(only) if only else np.zeros(0, np.int64), flat(only))
    allowed = [
        [j for j in range(n) if mask[j] and j not in out[u] and (not only or j in only[u])] for u in range(users)
    ]
    return rng, n, users, levels, histories, eligible, allowed, draw(st.integers(1, n))


def expect(best, scores, allowed, k):
    for user, candidates in enumerate(allowed):
        wanted = sorted(candidates, key=lambda j: (-scores[user, j], j))[:k]
        count = best.counts[user]
        assert best.items[user, :count].tolist() == wanted
        np.testing.assert_array_equal(best.scores[user, :count], scores[user, wanted])


@given(case=cases(), threads=st.sampled_from([1, 2]), tile=st.sampled_from([1, 7, 64]))
def test_rows(case, threads, tile):
    rng, n, _, levels, histories, eligible, allowed, k = case
    weights = rng.integers(-levels, levels, (n, n)).astype(np.float32)
    base = rng.integers(-levels, levels, n).astype(np.float64)
    before, by_rows.TILE = by_rows.TILE, tile
    try:
        best = best_by_rows(weights, histories, eligible, k, base=base, threads=threads)
    finally:
        by_rows.TILE = before
    expect(best, histories.toarray().astype(np.float64) @ weights + base, allowed, k)


@given(case=cases(), threads=st.sampled_from([1, 2]))
def test_gathering(case, threads):
    rng, n, users, levels, histories, eligible, allowed, k = case
    training = sp.csr_array((rng.random((13, n)) < 0.3).astype(np.float32))
    coefficients = rng.integers(-levels, levels, (users, 13)).astype(np.float64)
    scale, own = np.full(n, 2.0), rng.integers(-9, 9, histories.nnz).astype(np.float64)
    best = best_by_gathering(training.T.tocsr(), scale, own, coefficients, histories, eligible, k, threads=threads)
    added = sp.csr_array((own, histories.indices, histories.indptr), shape=histories.shape).toarray()
    expect(best, (coefficients @ training.toarray()) * scale + added, allowed, k)


@given(case=cases(), threads=st.sampled_from([1, 2]), dtype=st.sampled_from(["float32", "float64"]))
def test_products(case, threads, dtype):
    rng, n, users, levels, _, eligible, allowed, k = case
    left = rng.integers(-levels, levels, (users, 3)).astype(np.float64)
    right, base = rng.integers(-9, 9, (n, 3)).astype(dtype), rng.integers(-levels, levels, n).astype(np.float64)
    best = best_by_products(left, right, base, eligible, k, threads=threads)
    expect(best, left @ right.T + base, allowed, k)


def test_products_are_decided_in_float64():
    """Scores that float32 cannot tell apart, in the wrong order of the index."""
    right = np.array([[1.0, 0.0], [1.0, 1.0], [0.5, 0.0]], np.float32)
    nothing = Eligible(np.ones(3, bool), np.zeros(2, np.int64), *[np.zeros(0, np.int64)] * 3)
    best = best_by_products(np.array([[1.0, 1e-10]]), right, np.zeros(3), nothing, 2)
    assert best.items.tolist() == [[1, 0]]


@given(case=cases(), threads=st.sampled_from([1, 2]))
def test_sparse_rows(case, threads):
    rng, n, _, levels, histories, eligible, allowed, k = case
    weights = rng.integers(-levels, levels, (n, n)) * (rng.random((n, n)) < 0.2)
    best = best_by_sparse_rows(sp.csr_array(weights.astype(np.float32)), histories, eligible, k, threads=threads)
    expect(best, histories.toarray().astype(np.float64) @ weights, allowed, k)


@pytest.mark.parametrize("users", [0, 1, 127, 128, 129, 400])
def test_every_block_size(users):
    rng = np.random.default_rng(0)
    histories = sp.csr_array((rng.random((users, 50)) < 0.1).astype(np.float32))
    weights = rng.standard_normal((50, 50))
    nothing = Eligible(np.ones(50, bool), np.zeros(users + 1, np.int64), *[np.zeros(0, np.int64)] * 3)
    best = best_by_rows(weights, histories, nothing, 5, threads=2)
    scores = histories.toarray() @ weights
    assert best.counts.tolist() == [5] * users
    for user in range(users):
        np.testing.assert_array_equal(best.items[user], np.argsort(-scores[user], kind="stable")[:5])


def same(one, other):
    for name in ("items", "scores", "counts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def factors(rng, heads, n, positive=False):
    """Of either sign, some 0, or all above 0; powers of two: multiplying by them rounds nothing."""
    return rng.choice([0.5, 1.0, 2.0] if positive else [-2.0, -0.5, 0.0, 0.5, 1.0, 4.0], (heads, n))


@given(
    case=cases(),
    threads=st.sampled_from([1, 2]),
    tile=st.sampled_from([7, 64]),
    heads=st.integers(1, 4),
    positive=st.booleans(),
    lowest=st.sampled_from([-1, 0, 1]),
)
def test_heads_by_rows_are_each_alone(case, threads, tile, heads, positive, lowest):
    rng, n, _, levels, histories, eligible, allowed, k = case
    weights = rng.integers(lowest * levels if lowest < 0 else lowest, levels, (n, n)).astype(np.float32)
    scales = factors(rng, heads, n, positive)
    before, by_rows.TILE = by_rows.TILE, tile
    try:
        found = heads_by_rows(weights, scales, histories, eligible, k, threads=threads)
    finally:
        by_rows.TILE = before
    assert len(found) == heads
    for scale, best in zip(scales, found, strict=True):
        expect(best, (histories.toarray().astype(np.float64) @ weights) * scale, allowed, k)


@given(case=cases(), threads=st.sampled_from([1, 2]), heads=st.integers(1, 4))
def test_heads_by_gathering_are_each_alone(case, threads, heads):
    rng, n, users, levels, histories, eligible, _, k = case
    by_item = sp.csr_array((rng.random((13, n)) < 0.3).astype(np.float32)).T.tocsr()
    coefficients = rng.integers(-levels, levels, (users, 13)).astype(np.float64)
    scales, own = factors(rng, heads, n), rng.integers(-9, 9, histories.nnz).astype(np.float64)
    found = heads_by_gathering(by_item, scales, own, coefficients, histories, eligible, k, threads=threads)
    assert len(found) == heads
    for scale, best in zip(scales, found, strict=True):
        same(best, best_by_gathering(by_item, scale, own, coefficients, histories, eligible, k, threads=threads))


@given(
    case=cases(),
    threads=st.sampled_from([1, 2]),
    heads=st.integers(1, 4),
    positive=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_heads_by_scores_are_each_alone(case, threads, heads, positive, dtype):
    rng, n, users, levels, _, eligible, allowed, k = case
    scores = rng.integers(-levels, levels, (users, n)).astype(dtype)
    scales = factors(rng, heads, n, positive)
    found = heads_by_scores(scores.copy(), scales, eligible, k, threads=threads)
    assert len(found) == heads
    for scale, best in zip(scales, found, strict=True):
        expect(best, scores.astype(np.float64) * scale, allowed, k)


@given(case=cases())
def test_among_is_membership(case):
    rng, n, users, _, histories, eligible, _, k = case
    best = best_by_rows(rng.standard_normal((n, n)), histories, eligible, k)
    wanted = sp.csr_array((rng.random((users, n)) < 0.3).astype(np.float32))
    there = np.arange(k) < best.counts[:, None]
    held = wanted.toarray()[np.arange(users)[:, None], best.items] > 0
    np.testing.assert_array_equal(best.among(wanted), held & there)
