"""Lists from solved columns against a dense formula and a sort: with slack, without it, and when a list is certain."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.topk.best import Eligible
from monogram.engine.topk.bounds import Terms, best_by_columns, rescored


def ranked(scores, allowed, k):
    """The first k of the allowed indices by (−score, index)."""
    order = np.lexsort((np.arange(len(scores)), -scores))
    return order[allowed[order]][:k]


@st.composite
def cases(draw):
    """Whole numbers, so that every order of summation gives the same bits; some histories are empty."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n, users, slack = draw(st.integers(1, 90)), draw(st.integers(1, 5)), draw(st.sampled_from([0, 1, 3]))
    histories = rng.integers(0, 4, (users, n)) * (rng.random((users, n)) < draw(st.sampled_from([0.0, 0.2])))
    solution = rng.integers(-5, 6, (n, users)).astype(np.float64)
    scale, own = (rng.integers(0, 5, n).astype(np.float64) for _ in range(2))
    slacks = (rng.integers(0, slack + 1, n).astype(np.float64) for _ in range(2))
    mask, out = rng.random(n) < draw(st.sampled_from([0.0, 0.3, 1.0])), rng.random((users, n)) < 0.2
    outside = sp.csr_array(out)
    none = np.zeros(0, np.int64)
    eligible = Eligible(mask, outside.indptr.astype(np.int64), outside.indices.astype(np.int64), none, none)
    return histories, solution, Terms(scale, own, *slacks), eligible, mask & ~out, draw(st.integers(1, n + 5))


def dense(histories, solution, terms):
    """Scores without slack and the highest with it."""
    exact = terms.own * histories - (terms.scale[:, None] * solution).T
    return exact, exact + terms.own_slack * histories + (terms.scale_slack[:, None] * np.abs(solution)).T


@given(case=cases(), threads=st.sampled_from([1, 2]))
def test_columns_are_ranked_by_their_upper_bounds(case, threads):
    histories, solution, terms, eligible, allowed, k = case
    best = best_by_columns(solution, terms, sp.csr_array(histories.astype(np.float32)), eligible, k, threads=threads)
    upper = dense(histories, solution, terms)[1]
    for user, count in enumerate(best.counts):
        wanted = ranked(upper[user], allowed[user], k)
        np.testing.assert_array_equal(best.items[user, :count], wanted)
        np.testing.assert_array_equal(best.scores[user, :count], upper[user, wanted])


@given(case=cases(), spare=st.integers(0, 8))
def test_rescored_lists_and_certainty(case, spare):
    histories, solution, terms, eligible, allowed, k = case
    rows = sp.csr_array(histories.astype(np.float32))
    candidates = best_by_columns(solution, terms, rows, eligible, k + spare)
    best, certain = rescored(candidates, solution, terms, rows, k)
    exact, upper = dense(histories, solution, terms)
    for user, count in enumerate(best.counts):
        among = np.zeros_like(allowed[user])
        among[candidates.items[user, : candidates.counts[user]]] = True
        wanted = ranked(exact[user], among, k)
        np.testing.assert_array_equal(best.items[user, :count], wanted)
        np.testing.assert_array_equal(best.scores[user, :count], exact[user, wanted])
        true = ranked(exact[user], allowed[user], k)
        if certain[user]:
            np.testing.assert_array_equal(wanted, true)
        if allowed[user].sum() < k + spare or (upper[user] == exact[user]).all():
            assert certain[user], "all items are candidates, or there is no slack"


def test_a_list_that_slack_may_change_is_not_certain():
    """Item 0 is the only candidate by its slack of 3, and item 1 has the higher score."""
    terms = Terms(np.array([1.0, 1.0]), np.zeros(2), np.array([3.0, 0.0]), np.zeros(2))
    solution, nobody = np.array([[-1.0], [-2.0]]), sp.csr_array((1, 2), dtype=np.float32)
    candidates = best_by_columns(solution, terms, nobody, Eligible.all_but(nobody), 1)
    assert candidates.items.tolist() == [[0]]
    best, certain = rescored(candidates, solution, terms, nobody, 1)
    assert best.scores.tolist() == [[1.0]]
    assert not certain[0]
