"""Several heads at once against one sort by NumPy for each head."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.topk.selection import sort
from monogram.engine.topk.several_heads import bounds, reached, select_heads, select_scaled

SEEDS = st.integers(0, 10_000)
SHARES = st.sampled_from([0.0, 0.02, 0.5, 1.0])


def ranked(scores, allowed, k):
    """The first k of the allowed indices by (−score, index)."""
    order = np.lexsort((np.arange(len(scores)), -scores))
    return order[allowed[order]][:k]


def sums(rng, n, kind):
    """Totals of one user: of either sign, all above 0 (then candidates are shared among the heads), or few levels."""
    if kind in ("levels", "positive levels"):
        return rng.integers(-2 if kind == "levels" else 1, 4, n).astype(np.float64)
    return rng.standard_normal(n) if kind == "signed" else rng.random(n) + 0.01


def factors(rng, heads, n, kind):
    if kind in ("levels", "positive levels"):
        return rng.choice([0.5, 1.0, 2.0], (heads, n))
    return rng.choice([-1.5, 0.0, 0.3, 2.0], (heads, n)) if kind == "signed" else rng.uniform(0.1, 3.0, (heads, n))


KINDS = st.sampled_from(["levels", "positive levels", "signed", "positive"])


@given(seed=SEEDS, heads=st.integers(2, 4), n=st.integers(1, 30))
def test_bounds_cover_every_head(seed, heads, n):
    scales = factors(np.random.default_rng(seed), heads, n, "positive")
    sizes, upper = bounds(scales)
    np.testing.assert_allclose(sizes, [row.sum() / n for row in scales])
    assert (upper * (1 + 1e-12) >= scales / sizes[:, None]).all()
    assert any((upper == scales[h] / sizes[h]).any() for h in range(heads))


@pytest.mark.parametrize("scales", [np.ones((0, 4)), np.ones((1, 4)), np.array([[1.0, 2.0], [1.0, 0.0]]),
                                    np.array([[1.0, 2.0], [-1.0, 1.0]])])  # fmt: skip
def test_there_are_no_bounds_for_one_head_or_factors_not_above_zero(scales):
    sizes, upper = bounds(scales)
    assert sizes.tolist() == [1.0] * len(scales)
    assert len(upper) == 0


@given(seed=SEEDS, n=st.integers(1, 40), k=st.integers(1, 10))
def test_reached_lies_just_below_the_lowest_of_the_best(seed, n, k):
    rng = np.random.default_rng(seed)
    total, (before, scale) = sums(rng, n, "signed"), factors(rng, 2, n, "positive")
    items = ranked(total * before, np.ones(n, bool), k)
    lowest = (total * scale)[items].min()
    low = reached(items, (total * before)[items], before, scale)
    assert lowest - 2e-9 * abs(lowest) - 1e-299 <= low < lowest


def test_nothing_is_known_from_a_factor_of_zero():
    assert reached(np.array([1, 0]), np.zeros(2), np.array([1.0, 0.0]), np.ones(2)) == -np.inf


@given(
    seed=SEEDS,
    n=st.integers(1, 200),
    k=st.integers(1, 210),
    kind=KINDS,
    share=SHARES,
    low=st.sampled_from([-np.inf, 0.0]),
    tile=st.sampled_from([1, 64, 65, 200]),
)
def test_a_scaled_selection_is_the_sort(seed, n, k, kind, share, low, tile):
    rng = np.random.default_rng(seed)
    values, (scale,), allowed = sums(rng, n, kind), factors(rng, 1, n, kind), rng.random(n) < share
    total = np.where(allowed, values, -np.inf)
    items, scores = np.zeros(k, np.int64), np.zeros(k)
    count = 0
    for first in range(0, n, tile):
        part = slice(first, first + tile)
        count = select_scaled(total[part], scale[part], low, first, items, scores, count)
    sort(items, scores, count)
    wanted = ranked(values * scale, allowed & (values * scale > low), k)
    np.testing.assert_array_equal(items[:count], wanted)
    np.testing.assert_array_equal(scores[:count], (values * scale)[wanted])


@given(
    seed=SEEDS,
    n=st.integers(1, 200),
    k=st.integers(1, 210),
    heads=st.integers(1, 4),
    kinds=st.tuples(KINDS, KINDS),
    share=SHARES,
    tile=st.sampled_from([7, 64, 200]),
)
def test_every_head_is_its_own_sort(seed, n, k, heads, kinds, share, tile):
    rng = np.random.default_rng(seed)
    values, scales, allowed = sums(rng, n, kinds[0]), factors(rng, heads, n, kinds[1]), rng.random(n) < share
    total = np.where(allowed, values, -np.inf)
    users, user = 3, 1
    items, scores = np.zeros((heads, users, k), np.int64), np.zeros((heads, users, k))
    counts, room = np.zeros((heads, users), np.int64), np.zeros(n, np.int64)
    for first in range(0, n, tile):
        part = total[first : first + tile]
        select_heads(part, first, scales, *bounds(scales), items, scores, counts, user, room)
    for h, scale in enumerate(scales):
        count = counts[h, user]
        if tile < n:  # heaps still; in one tile they are sorted already
            sort(items[h, user], scores[h, user], count)
        wanted = ranked(values * scale, allowed, k)
        np.testing.assert_array_equal(items[h, user, :count], wanted)
        np.testing.assert_array_equal(scores[h, user, :count], (values * scale)[wanted])
    assert not counts[:, [0, 2]].any(), "another user's lists are left alone"
    assert not scores[:, [0, 2]].any()
