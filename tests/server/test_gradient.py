"""A gradient-trained model is served like any other; its explanations are differences, and say so."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

import monogram as mg
from monogram.models.registry import MODELS
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


NAMES = sorted(name for name, kind in MODELS.items() if kind.needs_torch)


@pytest.fixture(scope="module")
def fitted():
    small = {"rank": 4, "hidden": 6, "batch": 64, "negatives": 3, "epochs": 3, "learning_rate": 0.05}
    chosen = {name: {key: value for key, value in small.items() if key in MODELS[name]().params()} for name in NAMES}
    return {name: MODELS[name](**chosen[name]).fit(pairs(), threads=1) for name in NAMES}


@pytest.fixture(scope="module")
def every(start, fitted, tmp_path_factory):
    """A server of all gradient-trained models, in a process that cannot import torch."""
    folder = tmp_path_factory.mktemp("every")
    for name, model in fitted.items():
        model.save(folder / f"{name}.mono")
    (folder / "torch.py").write_text("raise ModuleNotFoundError(name='torch')\n")
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return start(*(folder / f"{name}.mono" for name in NAMES), env={"PYTHONPATH": paths})


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_served_without_torch(every, fitted, name):
    model, history = fitted[name], ["tea", "jam", "cup"]
    found = every.post("/v1/recommend", {"model": name, "users": ["ann", "bob smith"], "k": 3}).json()["results"]
    listed = [(row["item"], row["score"]) for result in found for row in result["items"]]
    assert listed == [(row["item"], row["score"]) for row in model.recommend(["ann", "bob smith"], k=3).rows()]
    found = every.post("/v1/recommend", {"model": name, "histories": [history], "k": 3}).json()["results"][0]
    expected = model.recommend(histories=[history], k=3).rows()
    assert [(row["item"], row["score"]) for row in found["items"]] == [(row["item"], row["score"]) for row in expected]
    answer = every.post("/v1/explain", {"model": name, "history": history, "item": "honey"}).json()
    explained = model.explain(history, "honey")
    assert answer.get("additive", True) is explained.additive is model.additive_shares
    assert answer["score"] == pytest.approx(explained.score, rel=1e-6, abs=1e-9)
    assert {row["item"]: row["share"] for row in answer["shares"]} == pytest.approx(dict(explained.shares))
    assert ("rest" in answer) == explained.additive


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
