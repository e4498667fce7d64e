"""The heap and the rules of eligibility against a sort by NumPy: descending scores, ties to the lower index."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.topk.selection import exclude, exclude_all_but, offer, select, sort, worse

SEEDS = st.integers(0, 10_000)
LEVELS = st.sampled_from([1, 3, 1000])  # few levels: many ties


def ranked(scores, allowed, k):
    """The first k of the allowed indices by (−score, index)."""
    order = np.lexsort((np.arange(len(scores)), -scores))
    return order[allowed[order]][:k]


def heap(k):
    return np.full(k, -1, np.int64), np.full(k, np.nan)


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 5)), min_size=3, max_size=3))
def test_worse_is_a_strict_order(pairs):
    a, b, c = ((float(score), item) for score, item in pairs)
    assert worse(*a, *b) == ((a[0], -a[1]) < (b[0], -b[1]))
    assert not (worse(*a, *b) and worse(*b, *a))
    if worse(*a, *b) and worse(*b, *c):
        assert worse(*a, *c)


@given(seed=SEEDS, n=st.integers(0, 40), k=st.integers(1, 50), levels=LEVELS)
def test_offers_keep_the_best_with_the_worst_on_top(seed, n, k, levels):
    values = np.random.default_rng(seed).integers(-levels, levels + 1, n).astype(np.float64)
    items, scores = heap(k)
    count = 0
    for item, score in enumerate(values):
        count = offer(items, scores, count, item, score)
        assert count == min(k, item + 1)
        assert items[0] == ranked(values[: item + 1], np.ones(item + 1, bool), k)[-1]
    sort(items, scores, count)
    wanted = ranked(values, np.ones(n, bool), k)
    np.testing.assert_array_equal(items[:count], wanted)
    np.testing.assert_array_equal(scores[:count], values[wanted])
    assert (items[count:] == -1).all()


@given(seed=SEEDS, n=st.integers(0, 40), k=st.integers(1, 50), levels=LEVELS)
def test_offers_in_any_order_keep_the_best(seed, n, k, levels):
    rng = np.random.default_rng(seed)
    values = rng.integers(-levels, levels + 1, n).astype(np.float64)
    items, scores = heap(k)
    count = 0
    for item in rng.permutation(n):
        count = offer(items, scores, count, item, values[item])
    sort(items, scores, count)
    np.testing.assert_array_equal(items[:count], ranked(values, np.ones(n, bool), k))


@given(seed=SEEDS, n=st.integers(1, 60), share=st.sampled_from([0.0, 0.5, 1.0]), tile=st.integers(1, 70))
def test_close_marks_the_mask_and_the_list(seed, n, share, tile):
    rng = np.random.default_rng(seed)
    values, mask = rng.standard_normal(n), rng.random(n) < share
    out = np.flatnonzero(rng.random(n) < 0.3)
    total = values.copy()
    for first in range(0, n, tile):
        exclude(total[first : first + tile], first, mask, out)
    allowed = mask & ~np.isin(np.arange(n), out)
    np.testing.assert_array_equal(total, np.where(allowed, values, -np.inf))


@given(seed=SEEDS, n=st.integers(1, 60), share=st.sampled_from([0.0, 0.3, 1.0]), tile=st.integers(1, 70))
def test_keep_leaves_the_list_alone(seed, n, share, tile):
    rng = np.random.default_rng(seed)
    values, only = rng.standard_normal(n), np.flatnonzero(rng.random(n) < share)
    total = values.copy()
    for first in range(0, n, tile):
        exclude_all_but(total[first : first + tile], first, only)
    np.testing.assert_array_equal(total, np.where(np.isin(np.arange(n), only), values, -np.inf))


@given(
    seed=SEEDS,
    n=st.integers(1, 300),
    k=st.integers(1, 310),
    levels=LEVELS,
    share=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    tile=st.sampled_from([1, 63, 64, 65, 128, 300]),
)
def test_select_in_tiles_is_the_sort(seed, n, k, levels, share, tile):
    rng = np.random.default_rng(seed)
    values, allowed = rng.integers(-levels, levels + 1, n).astype(np.float64), rng.random(n) < share
    total = np.where(allowed, values, -np.inf)
    items, scores = heap(k)
    count = 0
    for first in range(0, n, tile):
        count = select(total[first : first + tile], first, items, scores, count)
    sort(items, scores, count)
    wanted = ranked(values, allowed, k)
    assert count == min(k, allowed.sum())
    np.testing.assert_array_equal(items[:count], wanted)
    np.testing.assert_array_equal(scores[:count], values[wanted])


def test_all_ties_go_to_the_lowest_indices():
    items, scores = heap(5)
    count = select(np.full(200, 7.0), 0, items, scores, 0)
    sort(items, scores, count)
    assert items.tolist() == [0, 1, 2, 3, 4]
