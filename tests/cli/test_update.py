"""`monogram update`: a model file changes as the library changes a model, or stays."""

from __future__ import annotations

import json

import numpy as np
import pytest

import monogram as mg


@pytest.fixture
def more(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text('user,item\nzoe,tea\nzoe,42\nann,earl grey\nann,"café, noir"\n', encoding="utf-8")
    return path


def test_users_come_and_go(program, shop, tmp_path, more, fitted):
    done = program("update", shop, "--add", more, "--forget", 'u01,"o\'hara, jr"', "-o", tmp_path / "b.mono", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["users"] == fitted.log_.n_users - 1
    assert "forgot 2 users" in done.err
    found = mg.load(tmp_path / "b.mono")
    expected = mg.load(shop).forget_users(["u01", "o'hara, jr"]).add_users(mg.read(more, quiet=True))
    assert found.history("zoe") == {"tea": 1.0, "42": 1.0}
    np.testing.assert_array_equal(found.item_weights(), expected.item_weights())
    assert "u01" not in found.log_.users
    assert b"o'hara" not in (tmp_path / "b.mono").read_bytes()


def test_over_itself_and_from_a_file_of_names(program, shop, tmp_path):
    (tmp_path / "gone.txt").write_text("u02\nélodie\n\n", encoding="utf-8")
    done = program("update", shop, "--forget-file", tmp_path / "gone.txt", "-o", shop)
    assert done.code == 0, done.err
    assert not {"u02", "élodie"} & set(mg.load(shop).log_.users)
    assert "élodie".encode() not in (tmp_path / "shop.mono").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 2, "nothing to change"),
        (["--forget", "nobody"], 4, "'nobody'"),
        (["--forget", '"a'], 2, "--forget"),
        (["--forget-file", "none.txt"], 3, "none.txt"),
        (["--add", "none.csv"], 3, "does not exist"),
        (["--add", "new.csv", "--forget", "ann"], 2, "'ann' would be forgotten and added"),
        (["--add", "strange.csv"], 4, "'coffee'; add them with --new-items"),
        (["--forget", "ann", "--penalties", "free"], 2, "penalties = 'free'"),
        (["--forget", "ann", "--on-drift", "no"], 2, "on_drift = 'no'"),
        (["--add", "new.csv", "-o", "new.csv"], 2, "is also an input"),
        (["--forget", "ann", "-o", "nowhere/b.mono"], 10, "nowhere"),
    ],
)
def test_bad_input_is_a_line_and_the_file_stays(program, shop, tmp_path, more, monkeypatch, arguments, code, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange.csv").write_text("user,item\nzoe,coffee\n", encoding="utf-8")
    before = (tmp_path / "shop.mono").read_bytes()
    given = arguments if "-o" in arguments else [*arguments, "-o", "shop.mono"]
    done = program("update", "shop.mono", *given)
    assert (done.code, text in done.err) == (code, True), done.err
    assert (tmp_path / "shop.mono").read_bytes() == before


def test_new_items(program, shop, tmp_path):
    (tmp_path / "new.csv").write_text("user,item\nzoe,coffee\nann,coffee\n", encoding="utf-8")
    done = program("update", shop, "--add", tmp_path / "new.csv", "--new-items", "-o", tmp_path / "b.mono")
    assert done.code == 0, done.err
    assert "coffee" in mg.load(tmp_path / "b.mono").log_.items


def test_a_model_that_is_no_inverse_says_so(program, pairs, tmp_path):
    mg.Popularity().fit(pairs).save(tmp_path / "p.mono")
    done = program("update", tmp_path / "p.mono", "--forget", "ann", "-o", tmp_path / "b.mono")
    assert done.code == 2
    assert "models that can: EASE, " in done.err
