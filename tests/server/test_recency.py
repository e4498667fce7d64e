"""Recency over HTTP: histories in order or with times, the time of asking, and the parameters of one request."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.server.app import application
from monogram.server.http.routes import AppState
from monogram.server.metrics import Metrics
from monogram.server.model_registry import ModelRegistry
from monogram.server.queries.batching import Load
from monogram.server.settings import Settings

ITEMS = [f"i{number}" for number in range(9)]
USERS = [f"u{number}" for number in range(30)]
DAY = np.timedelta64(1, "D")
START = np.datetime64("2026-01-01")


def matrix():
    rng = np.random.default_rng(0)
    used = rng.random((len(USERS), len(ITEMS))) < 0.5
    used[:, 0] |= ~used.any(axis=1)
    return sp.csr_array(used.astype(np.float32))


def days():
    """A day of 2026 for each event, all different."""
    return np.random.default_rng(1).permutation(matrix().nnz)


@pytest.fixture(scope="module")
def log():
    return mg.Interactions.from_csr(matrix(), USERS, ITEMS, times=START + days() * DAY)


@pytest.fixture(scope="module")
def models(log):
    return {
        "plain": mg.EASE(l2=2).fit(log),
        "power": mg.EASE(l2=2, recency=0.8).fit(log),
        "days": mg.EASE(l2=2, half_life="30d").fit(log),
        "head": mg.DEQL(l2=2, dropout=0.3, b=0.5).fit(log),
        "seconds": mg.EASE(l2=2, half_life=86_400).fit(replace(log, times=log.times // 10**6, time_unit=None)),
        "order": mg.EASE(l2=2).fit(mg.Interactions.from_csr(matrix(), USERS, ITEMS, order=days())),
        "blind": mg.EASE(l2=2).fit(mg.Interactions.from_csr(matrix(), USERS, ITEMS)),
    }


@pytest.fixture(scope="module")
def post(models):
    """Ask the application, in this process."""
    registry = ModelRegistry(Settings(dict.fromkeys(models, "none.mono")), Metrics(), Load())
    for name, model in models.items():
        registry.put(name, model, {})
    units = {name: registry.get(name).card(None).time_unit for name in models}
    assert units == {name: {"seconds": "s", "order": None, "blind": None}.get(name, "us") for name in models}
    app = application(AppState(registry, registry.metrics))

    def ask(path, body, status=200):
        async def send():
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.post(f"/v1/{path}", json=body)

        answer = asyncio.run(send())
        assert answer.status_code == status, answer.text
        return answer.json()

    yield ask
    registry.pool.shutdown()


def lists(answer):
    return [[(row["item"], row["score"]) for row in one["items"]] for one in answer["results"]]


def expected(recommendations):
    found: dict = {}
    for row in recommendations:
        found.setdefault(row["user"], []).append((row["item"], row["score"]))
    return list(found.values())


def events_of(log, user):
    """The events of a user, the oldest first: item and ISO date."""
    row = USERS.index(user)
    part = slice(*log.matrix.indptr[row : row + 2])
    order = np.argsort(log.times[part])
    dates = log.times[part][order].astype("datetime64[us]")
    return [(ITEMS[item], str(date)) for item, date in zip(log.matrix.indices[part][order], dates, strict=True)]


@pytest.mark.parametrize("name", ["power", "days"])
def test_a_user_gets_the_list_of_the_same_history_with_times_in_any_order(post, log, models, name):
    histories = [[{"item": item, "time": time} for item, time in events_of(log, user)] for user in USERS[:4]]
    by_user = post("recommend", {"model": name, "users": USERS[:4]})
    assert lists(by_user) == expected(models[name].recommend(USERS[:4]))
    for order in (slice(None), slice(None, None, -1)):
        given = post("recommend", {"model": name, "histories": [history[order] for history in histories]})
        assert lists(given) == lists(by_user)


def test_a_list_is_in_order_the_oldest_first(post, log, models):
    history = [item for item, _ in events_of(log, "u3")]
    forms = [history, dict.fromkeys(history, 1.0), [{"item": item} for item in history], [history[0], *history]]
    for form in forms:
        assert lists(post("recommend", {"model": "power", "histories": [form]})) == expected(
            models["power"].recommend(["u3"])
        )
    reverse = lists(post("recommend", {"model": "power", "histories": [history[::-1]]}))
    assert reverse != expected(models["power"].recommend(["u3"]))


def test_a_half_life_without_a_unit_on_unix_times_takes_dates_as_the_page_sends_them(post):
    """The page's clicks are of one moment: a date where the card has a `time_unit`."""
    for time, status in (("2000-01-01", 200), (0, 422)):
        clicks = [{"item": item, "time": time} for item in ITEMS[:3]]
        answer = post("recommend", {"model": "seconds", "histories": [clicks], "with_history": True}, status)
    assert "not between 1980 and 2100" in answer["error"]["message"]


@pytest.mark.parametrize("name", ["plain", "power", "days", "head"])
@pytest.mark.parametrize("changed", [{"recency": 0.5}, {"half_life": "10d"}, {"half_life": "3e12us"}, {"recency": 0}])
def test_a_recency_for_one_request_is_that_of_the_changed_model(post, models, name, changed):
    model = models[name]
    own = {"recency": 0.0, "half_life": None} | changed
    wanted = type(model)(**(model.params() | own)).fit(model.log_)
    answer = post("recommend", {"model": name, "users": ["u1", "u2"], "parameters": changed})
    assert lists(answer) == expected(wanted.recommend(["u1", "u2"]))
    scores = post("score", {"model": name, "users": ["u1"], "items": ITEMS, "parameters": changed})["results"][0]
    [history] = [[{"item": item, "time": time} for item, time in events_of(model.log_, "u1")]]
    np.testing.assert_allclose(scores["scores"], wanted.score([history], ITEMS)[0], rtol=1e-6, atol=1e-7)
    assert lists(post("recommend", {"model": name, "users": ["u1"]})) == expected(model.recommend(["u1"]))


def test_the_head_and_the_recency_of_one_request(post, models):
    changed = {"recency": 0.5, "b": 0.9}
    answer = post("recommend", {"model": "head", "users": ["u1"], "parameters": changed})
    wanted = mg.DEQL(l2=2, dropout=0.3, **changed).fit(models["head"].log_).recommend(["u1"])
    [mine], [theirs] = lists(answer), expected(wanted)
    assert [item for item, _ in mine] == [item for item, _ in theirs]
    np.testing.assert_allclose([score for _, score in mine], [score for _, score in theirs], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("at", ["2027-01-01", "2027-01-01T02:00:00+02:00", 1798761600000000])
def test_the_time_of_asking(post, log, models, at):
    assert lists(post("recommend", {"model": "days", "users": ["u5"], "at": at})) == expected(
        models["days"].recommend(["u5"], at="2027-01-01")
    )
    answer = post("explain", {"model": "days", "user": "u5", "item": "i1", "at": at})
    factors = {
        item: 0.5 ** ((np.datetime64("2027-01-01") - np.datetime64(time)) / DAY / 30)
        for item, time in events_of(log, "u5")
    }
    assert {share["item"]: share["weight"] for share in answer["shares"]} == pytest.approx(factors, rel=1e-6)
    assert sum(share["share"] for share in answer["shares"]) + answer["rest"] == pytest.approx(answer["score"])


def test_the_history_is_shown_in_order_with_its_weights(post, log):
    events = events_of(log, "u7")
    oldest_first = [item for item, _ in events]
    body = {"with_history": True, "explain": 3, "k": 2}
    asked = (
        {"model": "power", "users": ["u7"]},
        {"model": "power", "histories": [oldest_first]},
        {"model": "power", "histories": [[oldest_first[-1], *oldest_first]]},
        {"model": "power", "histories": [[{"item": item, "time": time} for item, time in events[::-1]]]},
        {"model": "order", "users": ["u7"], "parameters": {"recency": 0.8}},
    )
    weights = [(1 + age) ** -0.8 for age in range(len(events))][::-1]
    for one in asked:
        [answer] = post("recommend", body | one)["results"]
        assert [seen["item"] for seen in answer["seen"]] == oldest_first
        assert [seen["weight"] for seen in answer["seen"]] == pytest.approx(weights)
        shown = {seen["item"]: seen["weight"] for seen in answer["seen"]}
        assert all(share["weight"] == shown[share["item"]] for row in answer["items"] for share in row["because"])


def test_a_model_without_recency_shows_weights_of_one(post):
    answer = post("explain", {"model": "blind", "user": "u7", "item": "i1"})
    assert {share["weight"] for share in answer["shares"]} == {1.0}


WRONG = [
    ({"histories": [[{"item": "i1", "time": 5}, {"item": "i2"}]]}, "history 0 has a time for 1 of its 2 events"),
    ({"histories": [["i1"], ["i1", {"item": "i2", "time": 5}]]}, "history 1 has a time for 1 of its 2 events"),
    ({"histories": [[{"item": "i1", "time": "now"}]]}, "history 0 has the time 'now'; expected a date such as"),
    ({"histories": [[{"item": "i1", "time": "2026-13-01"}]]}, "expected a date such as '2026-05-01'"),
    ({"histories": [[{"item": "i1", "time": 1e30}]]}, "$.histories[0][0].time"),
    ({"histories": [[{"item": "i1", "time": True}]]}, "Expected `float | str | null`, got `bool`"),
    ({"histories": [[{"item": "i1", "time": "9" * 50}]]}, "length <= 40"),
    ({"histories": [[{"item": "i1", "weight": -1}]]}, ">= 0"),
    ({"histories": [[{"time": 5}]]}, "missing required field `item`"),
    ({"histories": [[{"item": "i1", "when": 5}]]}, "unknown field `when`"),
    ({"users": ["u1"], "at": "NaT"}, "at = 'NaT'; expected a date such as"),
    ({"users": ["u1"], "at": 1e30}, "$.at"),
    ({"users": ["u1"], "parameters": {"recency": -1}}, "recency = -1"),
    ({"users": ["u1"], "parameters": {"recency": "1"}}, "recency = '1'; expected a number"),
    ({"users": ["u1"], "parameters": {"recency": True}}, "recency = True; expected a number"),
    ({"users": ["u1"], "parameters": {"half_life": "3 foo"}}, "half_life = '3 foo'; expected a duration"),
    ({"users": ["u1"], "parameters": {"half_life": True}}, "half_life = True; expected a duration"),
    ({"users": ["u1"], "parameters": {"recency": 1, "half_life": "3d"}}, "both given"),
    ({"users": ["u1"], "parameters": {"recency_unit": "3d"}}, "'recency_unit' of this EASE cannot be changed"),
    ({"users": ["u1"], "parameters": {"recency": 1}, "at": "2026-05-01"}, "at = '2026-05-01', but the age"),
    ({"histories": [["i1"]], "parameters": {"half_life": "3d"}}, "history 0 has no times"),
    ({"model": "blind", "users": ["u1"], "parameters": {"recency": 1}}, "its log has no times"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "words"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_request_is_422(post, body, words):
    error = post("recommend", {"model": "plain"} | body, 422)["error"]
    assert error["kind"] in ("parameter", "data")
    assert words in error["message"]


def test_a_recency_that_is_not_there_is_wrong_for_similar_items_too(post):
    assert post("similar", {"model": "power", "items": ["i1"], "parameters": {"recency": 1}})["results"]
    post("similar", {"model": "blind", "items": ["i1"], "parameters": {"recency": 1}}, 422)


def test_times_of_120_years_give_finite_scores_and_other_numbers_are_422(post):
    first, last = 315_532_800_000_000, 4_101_000_000_000_000
    for times in ([first, last], [first, first], [last, first + 0.5]):
        history = [{"item": item, "time": time} for item, time in zip(ITEMS, times, strict=False)]
        for more in ({}, {"at": first}, {"at": last}):
            body = {"model": "days", "histories": [history], "items": ITEMS} | more
            [row] = post("score", body)["results"]
            assert np.isfinite(row["scores"]).all()
    for number in (-(2**62), 0, 1e-300, 1_736_467_200, 1e18):
        history = [{"item": ITEMS[0], "time": number}]
        post("score", {"model": "days", "histories": [history], "items": ITEMS}, 422)
        post("score", {"model": "days", "users": [], "items": ITEMS, "at": number}, 422)
