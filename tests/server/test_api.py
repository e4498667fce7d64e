"""Every route of a real server, compared with the results of the library."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

import monogram as mg
from monogram.server.http import schemas
from monogram.server.queries import responses

from .conftest import ITEMS, TITLES, USERS, pairs


@pytest.fixture(scope="module")
def server(start, shop):
    return start(shop / "shop.mono", f"second={shop / 'other.mono'}", "--items", shop / "items.csv")


def lists(answer):
    return [[(row["item"], row["score"]) for row in one["items"]] for one in answer.json()["results"]]


def expected(found, name):
    out: dict = {}
    for row in found:
        out.setdefault(row[name], []).append((row["item" if name == "user" else "similar"], row["score"]))
    return list(out.values())


def test_users_get_the_lists_of_the_library(server, model):
    answer = server.post("/v1/recommend", {"users": ["ann", "nobody", "u03"], "k": 4})
    assert answer.status_code == 200
    assert lists(answer) == expected(model.recommend(["ann", "u03"], k=4), "user")
    said = answer.json()
    assert said["model"] == "shop"
    assert said["unknown_users"] == ["nobody"]
    assert [one["user"] for one in said["results"]] == ["ann", "u03"]
    assert [row["rank"] for row in said["results"][0]["items"]] == [1, 2, 3, 4]
    assert all(row.get("columns", {}).get("title") == TITLES.get(row["item"]) for row in said["results"][0]["items"])


def test_histories_with_rules_get_the_lists_of_the_library(server, model):
    histories = [["tea", "jam"], {"cup": 2.0, "what": 1.0}, []]
    rules = {"k": 20, "allow": ITEMS[:7], "deny": ["honey", "else"], "exclude_seen": False}
    answer = server.post("/v1/recommend", {"histories": histories, **rules})
    assert lists(answer) == expected(model.recommend(histories=histories, **rules), "user")
    assert answer.json()["unknown_items"] == ["what", "else"]
    assert answer.json()["empty"] == [2]
    assert [one["history"] for one in answer.json()["results"]] == [0, 1, 2]


def test_reasons_for_too_much_are_refused(model, monkeypatch):
    monkeypatch.setattr(schemas, "SHARES", 19)
    entry = SimpleNamespace(model=model, weights=lambda _: model.weights_, recency=lambda _: model.recency_rule())
    asked = schemas.Recommend(histories=[["tea", "jam"], ["cup", "what"]], k=6, explain=True)
    assert responses.ListsJob(entry, schemas.Recommend(histories=asked.histories, k=6)).query().k == 6
    assert responses.ListsJob(entry, msgspec.structs.replace(asked, k=5)).query().k == 5
    with pytest.raises(mg.errors.ParameterError, match="histories of 3 items in all for 7 items each"):
        responses.ListsJob(entry, msgspec.structs.replace(asked, k=7)).query()


def test_a_boolean_is_not_a_number(server):
    assert server.post("/v1/recommend", {"users": ["ann"], "parameters": {"b": 1}}).status_code == 200
    assert server.post("/v1/recommend", {"users": ["ann"], "parameters": {"b": True}}).status_code == 422


def test_the_head_alone(server):
    for path in ("/", "/healthz", "/readyz"):
        answer = server.client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


def test_another_model_by_name(server, other):
    answer = server.post("/v1/recommend", {"model": "second", "users": ["ann"]})
    assert lists(answer) == expected(other.recommend(["ann"]), "user")
    assert answer.json()["model"] == "second"
    missing = server.post("/v1/recommend", {"model": "third", "users": ["ann"]})
    assert missing.status_code == 404
    assert "shop, second" in missing.json()["error"]["message"]


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_parameters_for_one_answer(server, model, exclude_seen):
    body = {"users": ["ann", "u07"], "k": 5, "exclude_seen": exclude_seen}
    answer = server.post("/v1/recommend", {**body, "parameters": {"b": 0.9}})
    changed = model.changed(b=0.9).recommend(["ann", "u07"], k=5, exclude_seen=exclude_seen)
    for mine, theirs in zip(lists(answer), expected(changed, "user"), strict=True):
        assert [one for one, _ in mine] == [one for one, _ in theirs]
        np.testing.assert_allclose([s for _, s in mine], [s for _, s in theirs], rtol=1e-5, atol=1e-6)
    assert lists(server.post("/v1/recommend", body)) != lists(answer), "the model itself stays as it is"


def test_our_own_models_are_served(start, tmp_path):
    """Tempered by both solvers with its free parameters, TwoStep as it is."""
    models = {
        "primal": mg.Tempered(l2=2).fit(pairs(), solver="primal"),
        "dual": mg.Tempered(l2=2).fit(pairs(), solver="dual"),
        "two": mg.TwoStep(l2=2).fit(pairs(), solver="dual"),
    }
    for name, one in models.items():
        one.save(tmp_path / f"{name}.mono")
    server = start(*(tmp_path / f"{name}.mono" for name in models))
    body = {"users": ["ann", "u07"], "k": 5}
    for name, one in models.items():
        assert lists(server.post("/v1/recommend", {**body, "model": name})) == expected(
            one.recommend(["ann", "u07"], k=5), "user"
        )
        changed = {"model": name, "parameters": {"item_power": -0.7, "b": 0.4}}
        answer = server.post("/v1/recommend", body | changed)
        if name == "two":
            assert answer.status_code == 422
            continue
        other = one.changed(**changed["parameters"]).recommend(["ann", "u07"], k=5)
        for mine, theirs in zip(lists(answer), expected(other, "user"), strict=True):
            assert [item for item, _ in mine] == [item for item, _ in theirs]
            np.testing.assert_allclose([s for _, s in mine], [s for _, s in theirs], rtol=1e-5, atol=1e-6)


def test_parameters_that_need_a_factorisation_are_refused(server):
    answer = server.post("/v1/recommend", {"users": ["ann"], "parameters": {"l2": 5}})
    assert answer.status_code == 422
    assert "expected one of a, b, zero_diagonal" in answer.json()["error"]["message"]
    answer = server.post("/v1/recommend", {"users": ["ann"], "parameters": {"b": -1}})
    assert answer.status_code == 422


def test_a_list_with_reasons_and_history(server, model):
    answer = server.post("/v1/recommend", {"users": ["ann"], "k": 2, "explain": 2, "with_history": True})
    [one] = answer.json()["results"]
    for row in one["items"]:
        assert row["because"] == model.explain(model.history("ann"), row["item"]).rows()[:2]
    assert {row["item"]: row["weight"] for row in one["seen"]} == model.history("ann")
    shown = server.post("/v1/recommend", {"users": ["ann"], "k": 2, "explain": True})
    assert len(shown.json()["results"][0]["items"][0]["because"]) == 3
    assert server.post("/v1/recommend", {"users": USERS * 10, "k": 1000, "explain": True}).status_code == 422


def test_similar(server, model):
    answer = server.post("/v1/similar", {"items": ["tea", "x", "jam"], "k": 3})
    assert lists(answer) == expected(model.similar(["tea", "jam"], k=3), "item")
    assert [one["item"] for one in answer.json()["results"]] == ["tea", "jam"]
    assert answer.json()["unknown_items"] == ["x"]
    assert server.post("/v1/similar", {"items": ["x"]}).json()["results"] == []


def test_explain(server, model):
    for who, history in (({"user": "ann"}, model.history("ann")), ({"history": ["tea", "x"]}, ["tea", "x"])):
        answer = server.post("/v1/explain", {**who, "item": "honey", "top": 2}).json()
        reason = model.explain(history, "honey")
        assert answer["shares"] == reason.rows()[:2]
        assert answer["score"] == pytest.approx(reason.score)
        assert sum(one["share"] for one in answer["shares"]) + answer["rest"] == pytest.approx(reason.score)
    assert answer["unknown_items"] == ["x"]
    assert answer["columns"]["title"] == "The Honey"
    assert server.post("/v1/explain", {"user": "nobody", "item": "tea"}).status_code == 404
    assert server.post("/v1/explain", {"user": "ann", "item": "x"}).status_code == 404


def test_score(server, model):
    answer = server.post("/v1/score", {"histories": [["tea"], ["jam", "x"]], "items": ["honey", "y", "cup"]}).json()
    table = [one["scores"] for one in answer["results"]]
    assert [[row[0], row[2]] for row in table] == model.score([["tea"], ["jam"]], ["honey", "cup"]).tolist()
    assert [row[1] for row in table] == [None, None]
    assert answer["unknown_items"] == ["x", "y"]
    known = server.post("/v1/score", {"users": ["ann", "who"], "items": ["tea"]}).json()
    assert known["unknown_users"] == ["who"]
    assert known["results"][0]["scores"] == model.score([model.history("ann")], ["tea"])[0].tolist()
    assert server.post("/v1/score", {"users": USERS * 20, "items": ITEMS * 500}).status_code == 422


def test_models_and_the_card(server, model):
    first, second = server.client.get("/v1/models").json()["models"]
    assert (first["name"], first["kind"], first["default"]) == ("shop", "DEQL", True)
    assert (second["name"], second["kind"], second["live"]) == ("second", "EASE", [])
    assert first["updates"] is None
    card = server.client.get("/v1/models/shop").json()
    assert card["parameters"] == model.params()
    assert card["live"] == {"a": 1.0, "b": 0.5, "zero_diagonal": False}
    assert card["events"] == model.log_.n_events
    assert card["report"]["residual"] == model.report_.residual
    assert card["columns"] == ["title", "shelf"]
    assert server.client.get("/v1/models/none").status_code == 404


def test_search(server, model):
    def search(**query):
        return server.client.get("/v1/items", params=query).json()

    assert {one["item"] for one in search(query="CAFE")["items"]} == {"café noir"}
    assert [one["item"] for one in search(query="tee")["items"]] == ["Tee/Kanne"]
    everything = search()
    assert everything["total"] == len(ITEMS)
    uses = [one["uses"] for one in everything["items"]]
    assert uses == sorted(uses, reverse=True)
    assert sum(uses) == model.log_.n_events
    assert [search(limit=3, offset=at)["items"] for at in (0, 3)] == [everything["items"][:3], everything["items"][3:6]]
    assert search(query="e")["items"][0]["item"] == "earl grey", "what begins with it comes first"
    assert {one["item"] for one in search(query="the s")["items"]} == {"saucer", "spoon"}
    assert search(query="tea")["items"][0]["columns"] == {"title": "The Tea", "shelf": 0}
    for wrong in ({"limit": 0}, {"limit": "x"}, {"what": 1}, {"offset": -1}):
        assert server.client.get("/v1/items", params=wrong).status_code == 422
    assert server.client.get("/v1/items?limit=1&limit=2").status_code == 422


def test_health_metrics_and_the_page(server):
    assert server.client.get("/healthz").json() == {"status": "ok"}
    assert server.client.get("/readyz").json() == {"status": "ready"}
    text = server.client.get("/metrics").text
    for name in ("requests_total", "request_seconds_bucket", "kernel_seconds_total", "batch_rows_bucket", "model_info"):
        assert f"monogram_{name}{{" in text
    page = server.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert server.client.get("/page/index.html").status_code == 200
    assert server.client.get("/page/../app.py").status_code == 404


def test_without_updates_events_are_refused(server):
    assert server.post("/v1/events", {"events": [{"user": "ann", "item": "tea"}]}).status_code == 409
    assert server.client.delete("/v1/users/ann").status_code == 409


def test_ids_come_back_as_they_are(start, tmp_path):
    rng = np.random.default_rng(0)
    rows = [(user, item) for user in range(12) for item in rng.choice(8, 3, replace=False).tolist()]
    mg.EASE(l2=1).fit(rows).save(tmp_path / "numbers.mono")
    names = [uuid.UUID(int=number + 1) for number in range(8)]
    mg.EASE(l2=1).fit([(f"u{user}", names[item]) for user, item in rows]).save(tmp_path / "uuids.mono")
    server = start(tmp_path / "numbers.mono", tmp_path / "uuids.mono")
    first = server.post("/v1/recommend", {"users": [3, "4"], "k": 1}).json()["results"]
    assert [one["user"] for one in first] == [3, 4]
    assert type(first[0]["items"][0]["item"]) is int
    by_text = server.post("/v1/recommend", {"histories": [{"1": 1.0}, [1]], "k": 2}).json()["results"]
    assert by_text[0]["items"] == by_text[1]["items"]
    found = server.post("/v1/recommend", {"model": "uuids", "histories": [[str(names[0])]], "k": 1}).json()
    assert found["unknown_items"] == []
    assert found["results"][0]["items"][0]["item"] in [str(one) for one in names]
