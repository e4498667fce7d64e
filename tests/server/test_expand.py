"""Dual models in the server: slow ones are expanded, or a line says why not and what to do."""

from __future__ import annotations

import json
import logging
import re

import numpy as np
import pytest

import monogram as mg
from monogram.engine.runtime import memory
from monogram.errors import MemoryBudgetError, NumericalError
from monogram.models import expansion
from monogram.server import app
from monogram.server.settings import Settings

from .conftest import USERS, pairs

NOT_EXPANDED = "this dual model ranks slowly for new histories; its weights are not expanded"


@pytest.fixture
def dual(tmp_path, monkeypatch):
    """The file of a dual model, which counts as slow."""
    monkeypatch.setattr(expansion, "SLOW", 0.0)
    mg.DEQL(l2=2, dropout=0.2).fit(pairs(), solver="dual").save(tmp_path / "shop.mono")
    return tmp_path / "shop.mono"


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO, "monogram.server")

    def fields(message: str) -> list[dict]:
        return [record.fields for record in caplog.records if record.message.startswith(message)]

    return fields


def opened(path, **settings):
    return app.prepare(Settings({"shop": str(path)}, **settings))


def test_slow_models_are_expanded_with_a_line_that_says_so(dual, logged):
    before = dual.read_bytes()
    served = opened(dual).registry.get("shop").model
    assert served.weights_.kind == "dense"
    assert not served.weights_.matrix.flags.writeable
    [line] = logged("expanding the weights of a dual model")
    assert line.keys() == {"model", "about_seconds", "memory"}
    assert logged("expanded")[0]["model"] == "shop"
    assert dual.read_bytes() == before, "the file stays as it is"
    expected = mg.DEQL(l2=2, dropout=0.2).fit(pairs(), solver="primal")
    np.testing.assert_allclose(served.item_weights(), expected.item_weights(), atol=1e-5)


def test_quick_models_stay_as_they_are(dual, logged, monkeypatch):
    monkeypatch.setattr(expansion, "SLOW", 60.0)  # seconds for a list: no load reaches it
    assert opened(dual).registry.get("shop").model.weights_.kind == "dual"
    assert not logged("expand")
    assert not logged(NOT_EXPANDED)


def test_it_can_be_turned_off(dual, logged):
    assert opened(dual, expand=False).registry.get("shop").model.weights_.kind == "dual"
    assert not logged("expand")
    assert not logged(NOT_EXPANDED)


@pytest.mark.parametrize(
    ("settings", "free", "reason"),
    [
        ({}, 100, "need .* but .* can be used"),
        ({"workers": 2}, 2**40, "each of the 2 workers would hold a copy"),
    ],
)
def test_where_it_cannot_a_line_says_what_to_do(dual, logged, monkeypatch, settings, free, reason):
    monkeypatch.setattr(memory, "available", lambda: free)
    registry = opened(dual, **settings).registry
    assert registry.get("shop").model.weights_.kind == "dual"
    [line] = logged(NOT_EXPANDED)
    assert "fit --expand" in line["advice"]
    assert re.search(reason, line["reason"])


def test_updates_keep_the_form_of_the_file(dual, logged, tmp_path):
    state = opened(dual, events=str(tmp_path / "events.db"))
    try:
        assert state.registry.get("shop").model.weights_.kind == "dual"
        [line] = logged(NOT_EXPANDED)
        assert "--updates" in line["reason"]
    finally:
        app.close(state)


def test_a_reloaded_model_is_expanded_too(dual, logged):
    registry = opened(dual).registry
    mg.EASE(l2=3).fit(pairs(5), solver="dual").save(dual)
    registry.reload()
    served = registry.get("shop").model
    assert isinstance(served, mg.EASE)
    assert served.weights_.kind == "dense"
    assert len(logged("expanded")) == 2


def test_the_flag_is_known_to_the_command(start, tmp_path):
    """In a process of its own, where the model is small and therefore not expanded."""
    mg.EASE(l2=3).fit(pairs(), solver="dual").save(tmp_path / "shop.mono")
    server = start(tmp_path / "shop.mono", "--no-expand")
    answer = server.post("/v1/recommend", {"users": USERS[:2], "k": 3})
    assert answer.status_code == 200
    assert json.loads(answer.content)


@pytest.mark.parametrize("error", [MemoryBudgetError("too large now"), MemoryError(), NumericalError("not finite")])
def test_a_failed_expansion_leaves_the_dual_model(dual, logged, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(expansion, "expand", fail)
    assert opened(dual).registry.get("shop").model.weights_.kind == "dual"
    assert logged(NOT_EXPANDED)[0]["reason"] == (str(error) or "out of memory")


def test_one_file_under_two_names(dual, logged):
    app.prepare(Settings({"shop": str(dual), "copy": str(dual)}))
    assert [line["model"] for line in logged("expanded")] == ["shop", "copy"]
