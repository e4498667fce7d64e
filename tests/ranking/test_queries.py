"""Rules and requests: what may be asked, and what an answer may hold."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
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


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_lists_of_unknown_users_are_dropped(model):
    asked = ["nobody", "user 3", "no one", "user 9"]
    allow = [["item 1"], ITEMS[:6], [], ITEMS[6:]]
    deny = [[], ["item 2"], ["lost"], ["item 7"]]
    result = model.recommend(asked, k=12, allow=allow, deny=deny, exclude_seen=False)
    known = model.recommend(asked[1::2], k=12, allow=allow[1::2], deny=deny[1::2], exclude_seen=False)
    assert result.rows() == known.rows()
    assert {row["item"] for row in result if row["user"] == "user 9"} == set(ITEMS[6:]) - {"item 7"}
    assert result.unknown_users == ("nobody", "no one")
    assert len(model.recommend(["nobody"], allow=[["item 1"]], deny=[[]])) == 0
    with pytest.raises(ParameterError, match="allow has 2 lists for 4 requests"):
        model.recommend(asked, allow=allow[1::2])


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"histories": [[["item 1"]]]}, "history 0 holds .'item 1'."),
        ({"histories": [[], [{"a": 1}]]}, "history 1 holds {'a': 1}"),
        ({"histories": [[("item 1", 2.0, 3.0)]]}, "history 0 holds"),
        ({"histories": [{"item 1": "x"}]}, "history 0 gives item 1 the weight 'x'"),
        ({"histories": [{"item 1": [1, 2]}]}, "the weight .1, 2."),
        ({"histories": [{"item 1": 1e300}]}, "the weight 1e"),
        ({"histories": [["item 1"]], "allow": [[["item 1"]]]}, "allow holds .'item 1'."),
        ({"histories": [["item 1"]], "deny": [[{"item 1": 1}, "item 2"]]}, "deny holds"),
        ({"allow": object()}, "allow is <object"),
        ({"users": [["user 1"]]}, "list of users holds .'user 1'."),
        ({"users": np.eye(3)}, "not an id"),
        ({"histories": sp.csr_array(np.eye(12))}, "matrix .csr_array.; expected a list .* or an Interactions"),
        ({"histories": np.eye(12)}, "matrix .ndarray.; expected a list .* or an Interactions"),
        ({"histories": [sp.csr_array(np.eye(12))]}, "history 0 is"),
    ],
)
def test_what_is_not_an_id_is_named(request_, text):
    with pytest.raises(ParameterError, match=text):
        MODELS["primal"].recommend(**request_)


def test_a_list_is_not_an_item():
    with pytest.raises(ParameterError, match=r"holds .'item 1'."):
        MODELS["primal"].similar([["item 1"]])


def test_any_other_scalar_is_an_unknown_id():
    odd = (None, 1.5, b"x", True)
    result = MODELS["primal"].recommend("user 1", allow=odd)
    assert len(result) == 0
    assert result.unknown_items == odd
    assert MODELS["primal"].recommend("user 1", allow=np.int64(4)).unknown_items == (4,)
    assert MODELS["primal"].recommend(odd).unknown_users == odd


@pytest.fixture(scope="module")
def numbered():
    return mg.EASE(l2=1).fit(mg.read([(1, 1), (1, 2), (2, 2), (2, 3), (3, 1), (3, 3), (3, 4)]))


@pytest.mark.parametrize("one", [np.int64(3), np.array(3), 3.0, pa.scalar(3), "3"])
def test_one_id_of_any_make(numbered, one):
    expected = numbered.recommend([3]).rows()
    assert numbered.recommend(one).rows() == numbered.recommend([one]).rows() == expected
    assert numbered.similar(one).rows() == numbered.similar(3).rows()
    assert numbered.recommend(2, deny=one).rows() == numbered.recommend(2, deny=[3]).rows()
    assert numbered.recommend(histories=[[one]]).rows() == numbered.recommend(histories=[[3]]).rows()


@pytest.mark.parametrize("one", [np.int64(3), 3.0, pa.scalar(3), "3"])
def test_one_item_of_any_make_is_explained(numbered, one):
    assert numbered.explain(pa.array([1]), one).item == 3
    assert numbered.history(one) == numbered.history(3)


@pytest.mark.parametrize("make", [np.array, pa.array, lambda ids: pa.chunked_array([ids]), lambda ids: map(float, ids)])
def test_ids_of_any_make(numbered, make):
    assert numbered.recommend(make([3, 1])).rows() == numbered.recommend([3, 1]).rows()
    assert numbered.recommend(allow=make([3, 1])).rows() == numbered.recommend(allow=[3, 1]).rows()
    assert numbered.recommend(deny=make([3, 1])).rows() == numbered.recommend(deny=[3, 1]).rows()
    assert numbered.recommend(histories=[make([3, 1])]).rows() == numbered.recommend(histories=[[3, 1]]).rows()
    assert numbered.recommend([1, 2], allow=[make([3]), make([])]).rows() == numbered.recommend(1, allow=3).rows()


def test_our_own_columns_are_ids():
    model = MODELS["primal"]
    table = model.recommend(k=1).to_arrow()
    assert model.recommend(table["user"], k=1).to_arrow().equals(table)
    got = {row["item"] for row in model.recommend(allow=table["item"])}
    assert got <= set(table["item"].to_pylist())
    nested = pa.array([["item 1", "item 2"], ["item 7"]])
    assert model.recommend(histories=nested).rows() == model.recommend(histories=nested.to_pylist()).rows()


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
