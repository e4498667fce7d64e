"""Lists from float32 candidates are bit-identical to those of float64 sums of all items."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.topk import by_panels, by_rows
from monogram.engine.topk.best import Best, Eligible, empty
from monogram.engine.topk.by_rows import best_by_rows


@pytest.fixture(autouse=True)
def few_entries_are_enough(monkeypatch):
    monkeypatch.setattr(by_panels, "ENTRIES", 0)


def by_float64(weights, histories, eligible, k):
    """The lists from complete float64 sums, as for a few users."""
    users, n = histories.shape
    best = empty(users, k, 1)
    by_rows._rank(weights, np.zeros(n), np.empty((0, n)), histories, eligible, best, np.arange(users), 1)
    return Best(*(array[0] for array in best))


def by_float32(weights, histories, eligible, k, threads=1):
    """The lists of `rank_by_panels`, and the users without one."""
    best = tuple(array[0] for array in empty(histories.shape[0], k, 1))
    remaining = by_panels.rank_by_panels(weights, histories, eligible, best, threads=threads)
    return Best(*best), remaining


def same(found, wanted, users=slice(None)):
    for name in ("items", "scores", "counts"):
        assert getattr(found, name)[users].tobytes() == getattr(wanted, name)[users].tobytes()


def weights_of(rng, kind, n, dtype):
    """Square weights: many ties, scores that float32 cannot tell apart, extreme sizes."""
    with np.errstate(over="ignore", under="ignore"):
        match kind:
            case "any":
                out = rng.standard_normal((n, n)) * 10.0 ** rng.uniform(-3, 3, (n, 1))
            case "ties":
                out = rng.integers(-2, 3, (n, n)) * 0.1
            case "near ties":
                out = 1 + rng.integers(-4, 5, (n, n)) * (2.0**-23 if dtype == np.float32 else 1e-12)
            case "equal columns":
                out = np.repeat(rng.standard_normal((n, -(-n // 5))), 5, axis=1)[:, :n]
            case "cancellation":
                out = rng.standard_normal((n, n)) * 1e-3 + np.where(np.arange(n) % 2, 1e4, -1e4)[:, None]
            case "zeros":
                out = np.zeros((n, n)) * rng.choice([-1.0, 1.0], (n, n))
            case "huge":
                out = rng.standard_normal((n, n)) * 1e38
            case _:
                out = rng.integers(-9, 10, (n, n)) * (1e-45 if dtype == np.float32 else 1e-50)
        return np.ascontiguousarray(out.clip(-3e38, 3e38), dtype)


KINDS = ("any", "ties", "near ties", "equal columns", "cancellation", "zeros", "huge", "tiny")


@st.composite
def cases(draw):
    n, users, k = draw(st.integers(30, 200)), draw(st.integers(1, 40)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    weights = weights_of(rng, draw(st.sampled_from(KINDS)), n, dtype)
    factors = draw(st.sampled_from([[1.0], [1.0, 0.5, 3.0], [-1.0, 1.0, 0.1], [1e-40, 1e-42, 1.0], [1e30, 1e-30]]))
    density = draw(st.sampled_from([0.02, 0.1, 0.5]))
    dense = rng.choice(factors, (users, n)) * (rng.random((users, n)) < density)
    histories = sp.csr_array(dense.astype(draw(st.sampled_from([np.float32, np.float64]))))
    out = sp.csr_array(rng.random((users, n)) < draw(st.sampled_from([0.0, 0.1, 0.9, 1.0])))
    none = np.zeros(0, np.int64)
    only = none, none
    if draw(st.integers(0, 4)) == 0:
        allowed = sp.csr_array(rng.random((users, n)) < 0.5)
        only = allowed.indptr.astype(np.int64), allowed.indices.astype(np.int64)
    mask = rng.random(n) < draw(st.sampled_from([1.0, 0.5, 0.05]))
    return weights, histories, Eligible(mask, out.indptr.astype(np.int64), out.indices.astype(np.int64), *only), k


@given(
    case=cases(),
    threads=st.sampled_from([1, 2, 3]),
    spare=st.integers(0, 2),
    reuse=st.sampled_from([0, 1, 2]),
    candidates=st.sampled_from([64, 1 << 20]),
    panels=st.sampled_from([1, 1 << 16]),
)
def test_lists_are_bit_identical_to_those_of_float64_sums(case, threads, spare, reuse, candidates, panels):
    weights, histories, eligible, k = case
    weights.setflags(write=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_panels, "SPARE", spare)
        patch.setattr(by_panels, "REUSE", reuse)
        patch.setattr(by_panels, "CANDIDATES", candidates)
        patch.setattr(by_panels, "PANELS", panels)
        found = best_by_rows(weights, histories, eligible, k, threads=threads)
    same(found, by_float64(weights, histories, eligible, k))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [128, 129, 200])
def test_float32_is_enough_where_scores_differ(n, dtype):
    """The faster way makes all lists but that of the empty history, and they are right."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((n, n)).astype(dtype)
    histories = sp.csr_array(((rng.random((90, n)) < 0.1) * rng.uniform(0.5, 2, (90, n))).astype(np.float32))
    histories = sp.csr_array(histories.multiply(np.arange(90)[:, None] != 17))
    eligible = Eligible.all_but(histories)
    found, remaining = by_float32(weights, histories, eligible, 3, threads=2)
    assert remaining.tolist() == [17]
    wanted = by_float64(weights, histories, eligible, 3)
    same(found, wanted, np.delete(np.arange(90), 17))


@pytest.mark.parametrize("kind", ["near ties", "cancellation", "zeros", "huge"])
def test_users_whose_scores_float32_cannot_tell_apart_remain(kind):
    rng = np.random.default_rng(1)
    weights = weights_of(rng, kind, 200, np.float32)
    histories = sp.csr_array((rng.random((60, 200)) < 0.1).astype(np.float32))
    _, remaining = by_float32(weights, histories, Eligible.all_but(histories), 5)
    assert len(remaining) > 30


def test_histories_that_share_few_rows_remain():
    """One user of each item: copying rows does not pay."""
    histories = sp.csr_array(np.eye(100, dtype=np.float32))
    _, remaining = by_float32(np.eye(100), histories, Eligible.all_but(histories), 3)
    assert remaining.tolist() == list(range(100))


def test_few_short_histories_remain(monkeypatch):
    monkeypatch.setattr(by_panels, "ENTRIES", 100)
    weights = np.random.default_rng(0).standard_normal((100, 100))
    for users, number in ((99, 99), (100, 0)):
        histories = sp.csr_array(np.eye(100, dtype=np.float32)[[3] * users])
        _, remaining = by_float32(weights, histories, Eligible.all_but(histories), 3)
        assert len(remaining) == number


@given(
    seed=st.integers(0, 10_000),
    terms=st.integers(1, 200),
    kind=st.sampled_from([kind for kind in KINDS if kind != "huge"]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_the_bound_of_the_errors(seed, terms, kind, dtype):
    """|float32 sum − float64 sum| is at most the bound, for each order of the terms that numpy may use."""
    rng = np.random.default_rng(seed)
    weights = weights_of(rng, kind, max(terms, 64), dtype)[:terms]
    factors = rng.choice([1.0, -1.0, 0.1, 1e-41, 3e4], terms)
    with np.errstate(under="ignore"):
        rounded, small = factors.astype(np.float32), weights.astype(np.float32)
        rough = [np.zeros(weights.shape[1], np.float32) for _ in range(2)]
        for p in range(terms):
            rough[0] += rounded[p] * small[p]
            rough[1] += rounded[-1 - p] * small[-1 - p]
    total = np.zeros(weights.shape[1])
    by_panels.add_at(weights, np.arange(terms), factors, np.arange(weights.shape[1]), total)
    bound = by_panels._error(factors, np.arange(terms, dtype=np.int32), np.abs(small).max(axis=1))
    assert np.isfinite(bound)
    for one in rough:
        assert np.abs(one.astype(np.float64) - total).max() <= bound


def test_the_bound_is_infinite_where_float32_may_overflow():
    places = np.zeros(1, np.int32)
    for factor, largest in ((1e20, 1e20), (1e300, 0.0), (1.0, np.inf), (0.0, np.nan)):
        assert by_panels._error(np.array([factor]), places, np.array([largest], np.float32)) == np.inf


@pytest.mark.parametrize("seed", range(5))
def test_the_floor_of_a_user_never_falls(seed, monkeypatch):
    """Few levels and no spare candidates: all candidates are often equal, and all are dropped at once."""
    monkeypatch.setattr(by_panels, "SPARE", 0)
    rng = np.random.default_rng(seed)
    weights = weights_of(rng, "ties", 100, np.float32)
    histories = sp.csr_array((rng.random((300, 100)) < 0.02).astype(np.float32))
    eligible = Eligible.all_but(histories)
    found, remaining = by_float32(weights, histories, eligible, 1)
    same(found, by_float64(weights, histories, eligible, 1), np.setdiff1d(np.arange(300), remaining))


@given(
    scores=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=60),
    levels=st.sampled_from([None, 1, 3]),
    keep=st.integers(1, 60),
    more=st.integers(0, 5),
)
def test_a_floor_is_below_the_highest_scores(scores, levels, keep, more):
    array = np.array(scores, np.float32)
    if levels is not None:  # ties
        array = (np.arange(len(array)) % levels).astype(np.float32)
    with np.errstate(over="ignore"):
        floor = by_panels._floor(array, keep, more)
    number = (array > floor).sum()
    assert number >= keep or floor == array.min()
    spread = np.float64(array.max()) - np.float64(array.min())
    if spread < 1e38 and len(np.unique(array)) == len(array) and keep <= len(array):
        assert (
            number <= keep + more or np.nextafter(floor, np.float32(np.inf), dtype=np.float32) >= np.sort(array)[-keep]
        )
