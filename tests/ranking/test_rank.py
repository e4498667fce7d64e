"""Ranking several queries at once gives the bits of single queries; requests are merged as the log was."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import monogram as mg
from monogram import ranking
from monogram.models import live
from monogram.ranking import Query, Rules

ITEMS = ["tea", "earl grey", "café noir", "jam", "honey", "cup", "saucer", "42", "spoon", "Tee/Kanne"]
USERS = ["ann", "bob smith", "élodie", *(f"u{number:02}" for number in range(40))]


def pairs(seed: int = 3) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    used = rng.random((len(USERS), len(ITEMS))) < 0.4
    used[:, 0] |= ~used.any(axis=1)
    return [(USERS[user], ITEMS[item]) for user, item in np.argwhere(used)]


FITS = {
    "dense": lambda log: mg.DEQL(l2=2).fit(log),
    "tempered": lambda log: mg.Tempered(l2=2).fit(log),
    "two-step dual": lambda log: mg.TwoStep(l2=2).fit(log, solver="dual"),
    "pruned": lambda log: mg.EASE(l2=2).fit(log).prune(4),
    "dual": lambda log: mg.EASE(l2=2).fit(log, solver="dual"),
    "matrix-free": lambda log: mg.EASE(l2=2).fit(log, solver="matrix_free"),
    "popularity": lambda log: mg.Popularity().fit(log),
    "factors": lambda log: mg.LRR(rank=3).fit(log),
    "fold-in": lambda log: mg.WRMF(rank=3, epochs=2).fit(log),
}


@cache
def fitted(name: str):
    return FITS[name](pairs())


def histories_of(lists, log):
    return ranking.merged_histories([(ids, None, None) for ids in lists], log)


requests = st.lists(
    st.tuples(
        st.lists(st.lists(st.sampled_from([*ITEMS, "strange"]), max_size=6), min_size=1, max_size=4),
        st.integers(1, 12),
        st.booleans(),
        st.sampled_from([None, ("tea", "jam", "cup", "honey", "strange"), ()]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("name", FITS)
@settings(max_examples=20)
@given(requests=requests)
def test_queries_ranked_together_have_the_bits_of_single_queries(name, requests):
    model = fitted(name)
    log, weights = model.log_, model.weights_
    other_head = live.weights(model, {"b": 0.9}) if model.name in ("deql", "tempered") else weights
    queries = [
        Query(histories_of(lists, log), other_head if other else weights, k, Rules(allow, None, exclude_seen))
        for lists, k, exclude_seen, allow, other in requests
    ]
    together, calls = ranking.rank(queries, log.items, 2)
    assert sum(call.rows for call in calls) == sum(len(query.histories) for query in queries)
    for query, lists in zip(queries, together, strict=True):
        [alone], _ = ranking.rank([query], log.items, 1)
        for array in ("items", "scores", "counts"):
            np.testing.assert_array_equal(getattr(lists.best, array), getattr(alone.best, array))
        assert lists.best.items.shape[1] == min(query.k, log.n_items)
        assert lists.unknown_items == (("strange",) if query.rules.allow else ())


@pytest.mark.parametrize("name", FITS)
def test_a_ranked_query_is_the_table_of_recommend(name):
    model = fitted(name)
    log = model.log_
    query = Query(ranking.user_histories(["ann", "nobody", "u03"], log), model.weights_, 4, Rules(deny=("jam",)))
    [lists], _ = ranking.rank([query], log.items, 2)
    table = model.recommend(["ann", "nobody", "u03"], k=4, deny=["jam"], threads=2)
    rows = [
        {"user": label, "rank": rank, "item": log.items[int(index)], "score": score}
        for label, indices, scores, count in zip(
            query.histories.labels(), lists.best.items, lists.best.scores, lists.best.counts, strict=True
        )
        for rank, (index, score) in enumerate(zip(indices[:count], scores[:count], strict=True), 1)
    ]
    assert table.rows() == rows
    assert table.unknown_users == query.histories.unknown_users == ("nobody",)


def test_batch_invariant_weights_with_the_same_rules_share_one_call():
    model = fitted("dense")
    assert model.weights_.batch_invariant
    tea = histories_of([["tea"]], model.log_)
    queries = [Query(tea, model.weights_, k) for k in (1, 3, 5)]
    queries.append(Query(tea, model.weights_, 3, Rules(deny=("jam",))))
    assert [call.rows for call in ranking.rank(queries, model.log_.items, 1)[1]] == [3, 1]
    dual = fitted("dual")
    assert not dual.weights_.batch_invariant
    queries = [Query(histories_of([["tea"]], dual.log_), dual.weights_, 3)] * 2
    assert [call.rows for call in ranking.rank(queries, dual.log_.items, 1)[1]] == [1, 1]


history = st.lists(st.sampled_from([*ITEMS, "strange", 42]), max_size=8) | st.dictionaries(
    st.sampled_from([*ITEMS, "strange"]), st.floats(0, 1e6), max_size=8
)


@pytest.mark.parametrize("merge", ["binary", "sum"])
@given(histories=st.lists(history, min_size=1, max_size=5))
def test_given_histories_are_merged_as_the_log(merge, histories):
    log = mg.Interactions.from_csr(np.eye(10), items=ITEMS, merge=merge)
    expected, unknown = np.zeros((len(histories), len(ITEMS)), np.float64), {}
    for row, ids in enumerate(histories):
        for id_ in ids:
            weight = ids[id_] if isinstance(ids, dict) else 1.0
            if str(id_) not in ITEMS:
                unknown[id_] = None
            elif weight > 0:
                expected[row, ITEMS.index(str(id_))] += weight
    if merge == "binary":
        expected = (expected > 0).astype(float)
    rows = ranking.given_histories(histories, log)
    np.testing.assert_array_equal(rows.matrix.toarray(), expected.astype(np.float32))
    assert rows.unknown_items == tuple(unknown)
    assert rows.labels() == list(range(len(histories)))
    for row in range(len(rows)):
        items = rows.items[rows.span(row)]
        assert (np.diff(items) > 0).all(), "sorted, each item once"
        np.testing.assert_array_equal(rows.row_matrix(row).toarray(), rows.matrix.toarray()[row : row + 1])


@pytest.mark.parametrize("few", [0, 256])
def test_users_have_their_training_rows(few, monkeypatch):
    monkeypatch.setattr("monogram.ranking.requests.FEW", few)
    log = fitted("dense").log_
    rows = ranking.known_users(["u05", "who", "ann", "ann"], log)
    names = ["u05", "ann", "ann"]
    np.testing.assert_array_equal(rows.matrix.toarray(), log.matrix.toarray()[log.users.index(names)])
    assert rows.labels() == names
    assert rows.unknown_users == ("who",)
    assert rows.positions.tolist() == [0, 2, 3]


def test_an_item_history_holds_the_item_alone():
    log = fitted("dense").log_
    rows = ranking.item_histories(["jam", "strange", "tea"], log)
    np.testing.assert_array_equal(rows.matrix.toarray(), np.eye(10)[log.items.index(["jam", "tea"])])
    assert (rows.labels(), rows.unknown_items) == (["jam", "tea"], ("strange",))


@pytest.mark.parametrize("base", [0.0, -2.0])
def test_the_largest_shares_are_the_rows_of_an_explanation(base):
    values = np.array([0.5, -3.0, 0.5, 1.0])
    shares = ranking.Shares(values, base)
    pairs = tuple(zip("abcd", values.tolist(), strict=True))
    explanation = ranking.Explanation("x", pairs, base)
    rows = [(None if at is None else "abcd"[at], share) for at, share in shares.largest(10)]
    assert rows == [(row["item"], row["share"]) for row in explanation.rows()]
    assert shares.largest(2) == shares.largest(10)[:2]
    assert shares.score == explanation.score
