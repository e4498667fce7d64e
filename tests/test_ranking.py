"""Rules and requests: what may be asked, and what an answer may hold."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.errors import MissingExtraError, ParameterError

ITEMS = [f"item {number}" for number in range(12)]
USERS = [f"user {number}" for number in range(15)]


def fitted(solver="primal"):
    dense = (np.random.default_rng(0).random((15, 12)) < 0.35).astype(np.float32)
    log = mg.Interactions.from_csr(sp.csr_array(dense), users=USERS, items=ITEMS)
    return mg.EASE(l2=1).fit(log, solver=solver)


MODELS = {solver: fitted(solver) for solver in ("primal", "dual")}
ids = st.lists(st.sampled_from([*ITEMS, "unheard of"]), max_size=14)
rules = st.none() | ids


@given(
    solver=st.sampled_from(["primal", "dual"]),
    history=ids,
    allow=rules,
    deny=rules,
    k=st.integers(1, 15),
    seen=st.booleans(),
)
def test_allow_and_deny(solver, history, allow, deny, k, seen):
    model = MODELS[solver]
    result = model.recommend(histories=[history], k=k, allow=allow, deny=deny, exclude_seen=seen)
    eligible = [
        item
        for item in ITEMS
        if (allow is None or item in allow) and (deny is None or item not in deny) and not (seen and item in history)
    ]
    scores = dict(zip(ITEMS, model.score([[one for one in history if one in ITEMS]])[0], strict=True))
    got = [row["item"] for row in result.rows()]
    assert len(got) == len(set(got)) == min(k, len(eligible))
    assert set(got) <= set(eligible)
    best = sorted((scores[item] for item in eligible), reverse=True)[:k]
    np.testing.assert_allclose([row["score"] for row in result.rows()], best, atol=1e-6)
    asked = [*history, *(allow or []), *(deny or [])]
    assert set(result.unknown_items) == ({"unheard of"} & set(asked))


@given(
    solver=st.sampled_from(["primal", "dual"]),
    requests=st.lists(st.tuples(ids, ids, ids), min_size=1, max_size=20),
)
def test_rules_by_request_are_the_rules_one_by_one(solver, requests):
    model = MODELS[solver]
    histories, allow, deny = (list(part) for part in zip(*requests, strict=True))
    together = model.recommend(histories=histories, allow=allow, deny=deny, k=4).rows()
    for position, (history, allowed, denied) in enumerate(requests):
        alone = model.recommend(histories=[history], allow=allowed, deny=denied, k=4).rows()
        mine = [row for row in together if row["user"] == position]
        np.testing.assert_allclose([r["score"] for r in mine], [r["score"] for r in alone], atol=1e-6)
        assert {r["item"] for r in mine} <= set(allowed) - set(denied) - set(history)


def test_one_id_is_a_list_of_one():
    model = MODELS["primal"]
    assert model.recommend("user 3", k=2).rows() == model.recommend(["user 3"], k=2).rows()
    assert model.similar("item 3", k=2).rows() == model.similar(["item 3"], k=2).rows()
    assert {row["item"] for row in model.recommend("user 3", allow="item 5").rows()} <= {"item 5"}


def test_users_come_back_in_the_order_asked_also_twice():
    rows = MODELS["primal"].recommend(["user 9", "user 2", "user 9"], k=1).rows()
    assert [row["user"] for row in rows] == ["user 9", "user 2", "user 9"]


def test_a_history_counts_as_the_log_was_merged():
    pairs = [("ann", "x"), ("ann", "x"), ("ann", "y"), ("bob", "y"), ("bob", "z"), ("cy", "x"), ("cy", "z")]
    binary = mg.EASE(l2=1).fit(mg.read(pairs))
    assert binary.score([["x", "x"]]).tolist() == binary.score([["x"]]).tolist()
    counted = mg.EASE(l2=1).fit(mg.read(pairs, merge="sum"))
    np.testing.assert_allclose(counted.score([["x", "x"]]), 2 * counted.score([["x"]]))
    assert counted.recommend(histories=[{"x": 2, "y": 1}], k=3).rows()[0]["item"] == "z"
    assert (
        counted.recommend(["ann"]).rows()[0]["score"]
        == counted.recommend(histories=[{"x": 2, "y": 1}]).rows()[0]["score"]
    )


def test_a_log_can_be_the_histories():
    model = MODELS["primal"]
    others = mg.read([("new", "item 1"), ("new", "item 2"), ("other", "item 7")])
    rows = model.recommend(histories=others, k=2).rows()
    assert rows == model.recommend(histories=[["item 1", "item 2"], ["item 7"]], k=2).rows()


@pytest.mark.parametrize(
    "histories",
    ["item 1", ["item 1", "item 2"], [5], [None], 7, {"item 1": 1}, [["item 1"], "item 2"], [{"item 1": float("nan")}]],
)
def test_histories_that_are_not_lists_of_lists_are_explained(histories):
    with pytest.raises(ParameterError, match="histor"):
        MODELS["primal"].recommend(histories=histories)


@pytest.mark.parametrize("k", [0, -3, 1.5, "ten", None, True])
def test_k_must_be_a_whole_number(k):
    with pytest.raises(ParameterError, match="k = "):
        MODELS["primal"].recommend(k=k)


def test_mixed_rules_are_refused():
    with pytest.raises(ParameterError, match="mixes"):
        MODELS["primal"].recommend(k=1, allow=["item 1", ["item 2"]])
    with pytest.raises(ParameterError, match="1 lists for 15 requests"):
        MODELS["primal"].recommend(k=1, deny=[["item 2"]])


def test_the_table_goes_everywhere():
    result = MODELS["primal"].recommend(["user 1", "stranger"], k=3)
    rows = result.rows()
    assert list(rows[0]) == ["user", "rank", "item", "score"]
    assert len(result) == len(list(result)) == 3
    assert result.to_pandas().to_dict("records") == rows
    assert result.to_polars().to_dicts() == rows
    assert result.to_arrow().to_pylist() == rows
    text = repr(result)
    assert "unknown users: stranger" in text
    assert rows[0]["item"] in text
    assert "more rows" in repr(MODELS["primal"].recommend(k=12))


def test_markup_in_an_id_is_only_text():
    log = mg.read([("[red]ann", "[bold]x"), ("bob", "[bold]x"), ("bob", "[/]y")])
    assert "[red]ann" in repr(mg.EASE(l2=1).fit(log).recommend(k=1))


def test_uuids_go_to_polars_as_text():
    people = [uuid.UUID(int=number) for number in range(3)]
    log = mg.read([(people[0], people[1]), (people[1], people[1]), (people[1], people[2])])
    result = mg.EASE(l2=1).fit(log).recommend(k=1)
    assert result.rows()[0]["item"] == people[2]
    assert result.to_polars()["item"].to_list() == [str(people[2])]


def test_a_missing_library_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        MODELS["primal"].recommend(k=1).to_pandas()


def test_an_empty_request_is_an_empty_table():
    for request in ({"users": []}, {"histories": []}, {"users": ["nobody"]}):
        for model in MODELS.values():
            result = model.recommend(**request)
            assert len(result) == 0
            assert result.to_arrow().column_names == ["user", "rank", "item", "score"]
            assert isinstance(repr(result), str)
