"""`monogram similar`."""

from __future__ import annotations

import json


def test_items_like_others(program, shop, fitted):
    done = program("similar", shop, "earl grey", "café, noir", "-k", 3, "--json")
    assert done.code == 0
    assert json.loads(done.out) == fitted.similar(["earl grey", "café, noir"], k=3).rows()


def test_a_table(program, shop):
    done = program("similar", shop, "tea", "-k", 2)
    assert done.code == 0
    assert len(done.out.splitlines()) == 3
    assert done.err == ""


def test_unknown_items(program, shop):
    done = program("similar", shop, "tea", "ghost", "--json")
    assert done.code == 0
    assert {row["item"] for row in json.loads(done.out)} == {"tea"}
    assert "ghost" in done.err
    done = program("similar", shop, "ghost", "thé")
    assert done.code == 4
    assert "'ghost', 'thé'" in done.err
    assert "Did you mean" not in done.err
    assert "Did you mean 'earl grey'?" in program("similar", shop, "Earl Grey ").err
    assert done.out == ""


def test_wrong_flags(program, shop):
    assert program("similar", shop).code == 2
    assert program("similar", shop, "tea", "-k", 0).code == 2
    done = program("similar", shop, "tea", "--jsn")
    assert done.code == 2
    assert "--json" in done.err


def test_a_missing_model(program, tmp_path):
    assert program("similar", tmp_path / "none.mono", "tea").code == 6
