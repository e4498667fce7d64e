"""`monogram inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import monogram as mg
from monogram import store


def test_the_header(program, shop, fitted):
    done = program("inspect", shop)
    assert (done.code, done.err) == (0, "")
    words = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert words["model"] == ["ease"]
    assert words["l2"] == ["2.0"]
    assert words["users"] == ["34"]
    assert words["dtype"] == ["float32"]
    assert words["solver"] == [fitted.report_.solver]
    assert {"residual", "seconds", "size", "items", "events"} <= set(words)


def test_as_json(program, shop, fitted):
    found = json.loads(program("inspect", shop, "--json").out)
    assert found["model"] == "ease"
    assert found["parameters"] == fitted.params()
    assert found["bytes"] == Path(shop).stat().st_size
    assert found["report"]["solver"] == fitted.report_.solver


def test_epochs_and_pruning(program, tmp_path, fitted):
    mg.WRMF(rank=3, epochs=4).fit(fitted.log_).save(tmp_path / "turns.mono")
    assert "after 4 epochs" in program("inspect", tmp_path / "turns.mono").out
    fitted.prune(keep=2).save(tmp_path / "thin.mono")
    assert "pruned: overlap" in program("inspect", tmp_path / "thin.mono").out


def test_the_matrix_is_not_loaded(program, shop, monkeypatch):
    monkeypatch.setattr(store, "load", lambda *_, **__: pytest.fail("loaded"))
    assert program("inspect", shop).code == 0


def test_a_file_with_another_header(program, tmp_path):
    store.save(tmp_path / "other.mono", {"parameters": [], "report": 3, "users": "many"}, {})
    done = program("inspect", tmp_path / "other.mono")
    assert done.code == 0
    assert "unknown" in done.out


@pytest.mark.parametrize("damage", [None, slice(None, -10), slice(None, 20), slice(0, 0)])
def test_bad_files(program, shop, damage):
    path = Path(shop)
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(content[damage])
    done = program("inspect", shop)
    assert (done.code, done.out) == (6, "")
    assert "shop.mono" in done.err
