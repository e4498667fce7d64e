"""A gradient-trained model is served like any other; its explanations are differences, and say so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import monogram as mg
from monogram.server.http import schemas
from monogram.server.queries import responses

from .conftest import pairs

pytest.importorskip("torch", reason="the extra torch is not installed")


@pytest.fixture(scope="module")
def model():
    return mg.LightGCN(rank=4, layers=2, epochs=5, batch=64, learning_rate=0.05).fit(pairs())


@pytest.fixture(scope="module")
def server(start, model, tmp_path_factory):
    path = tmp_path_factory.mktemp("gradient") / "graph.mono"
    model.save(path)
    return start(path)


def test_lists_are_those_of_the_library(server, model):
    answer = server.post("/v1/recommend", {"users": ["ann"], "k": 3}).json()
    expected = model.recommend(["ann"], k=3).rows()
    found = answer["results"][0]["items"]
    assert [(row["item"], row["score"]) for row in found] == [(row["item"], row["score"]) for row in expected]
    strangers = server.post("/v1/recommend", {"histories": [["tea", "jam"]], "k": 2}).json()
    expected = [row["item"] for row in model.recommend(histories=[["tea", "jam"]], k=2).rows()]
    assert [row["item"] for row in strangers["results"][0]["items"]] == expected


def test_explanations_are_differences(server, model):
    answer = server.post("/v1/explain", {"history": ["tea", "jam", "cup"], "item": "honey"}).json()
    expected = model.explain(["tea", "jam", "cup"], "honey")
    assert answer["additive"] is False
    assert answer["score"] == expected.score
    assert "rest" not in answer
    assert {row["item"]: row["share"] for row in answer["shares"]} == dict(expected.shares)
    listed = server.post("/v1/recommend", {"users": ["ann"], "k": 1, "explain": 2}).json()["results"][0]["items"][0]
    assert listed["additive"] is False
    assert len(listed["because"]) == 2


def test_reasons_that_take_the_square_of_a_history_are_limited_by_it(model, monkeypatch):
    monkeypatch.setattr(schemas, "DIFFERENCES", 40)
    entry = SimpleNamespace(
        model=model, weights=lambda _: model.weights_, recency=lambda _: model.recency_rule(), name="graph"
    )
    entry.catalogue = SimpleNamespace(columns=lambda _: {})
    asked = schemas.Recommend(histories=[["tea", "jam"], ["cup", "honey"]], k=5, explain=True)
    assert responses.ListsJob(entry, asked).query().k == 5
    refused = schemas.Recommend(histories=[["tea", "jam"], ["cup", "honey"]], k=6, explain=True)
    with pytest.raises(mg.errors.ParameterError, match="at most 2 events of one history"):
        responses.ListsJob(entry, refused).query()
    short, long = (["tea", "jam", "cup", "spoon", "saucer", "earl grey", "42"][:number] for number in (6, 7))
    assert responses.explain(entry, schemas.Explain(item="honey", history=short))
    with pytest.raises(mg.errors.ParameterError, match="at most 6 events of one history"):
        responses.explain(entry, schemas.Explain(item="honey", history=long))
    popularity = mg.Popularity().fit(pairs()).weights_
    responses._check_differences(popularity, SimpleNamespace(pointers=[0, 1000]), 1000)
