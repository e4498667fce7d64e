"""`monogram explain`."""

from __future__ import annotations

import json

import pytest

import monogram as mg


def test_a_known_user(program, shop, fitted):
    done = program("explain", shop, "café, noir", "--user", "bob smith", "--json")
    found = json.loads(done.out)
    expected = fitted.explain(fitted.history("bob smith"), "café, noir")
    assert done.code == 0
    assert found["item"] == "café, noir"
    assert found["score"] == pytest.approx(expected.score)
    assert [row["item"] for row in found["shares"]] == [row["item"] for row in expected.rows()]
    assert sum(row["share"] for row in found["shares"]) + found["base"] == pytest.approx(found["score"])


def test_a_history_as_a_table(program, shop):
    done = program("explain", shop, "tea", "--history", '"café, noir",42,ghost')
    assert done.code == 0
    lines = done.out.splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["item", "weight", "share"]
    sizes = [abs(float(line.split()[-1])) for line in lines[1:]]
    assert sizes == sorted(sizes, reverse=True)
    assert "unknown items, left out: 'ghost'; ids in --history are separated by commas" in done.err
    assert "tea: score" in done.err


def test_differences_are_not_called_shares(program, pairs, tmp_path):
    pytest.importorskip("torch", reason="the extra torch is not installed")
    model = mg.Factorization(rank=4, epochs=2, batch=64).fit(pairs, threads=1)
    model.save(tmp_path / "trained.mono")
    asked = "explain", tmp_path / "trained.mono", "tea", "--history", "42,:cat:"
    done = program(*asked)
    assert done.code == 0
    assert done.out.splitlines()[0].split() == ["item", "weight", "difference"]
    assert "not shares: how much the score falls without the one item; the numbers need not sum" in done.err
    found = json.loads(program(*asked, "--json").out)
    assert found["additive"] is False
    assert found["score"] == pytest.approx(model.score([["42", ":cat:"]], ["tea"])[0, 0])


def test_what_everyone_gets(program, pairs, tmp_path):
    mg.Popularity().fit(pairs).save(tmp_path / "popular.mono")
    done = program("explain", tmp_path / "popular.mono", "tea", "--history", "")
    assert done.code == 0
    assert "(everyone)" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["tea"], 2, "--user"),
        (["tea", "--user", "ann", "--history", "42"], 2, "--user"),
        (["tea", "--user", "nobody"], 4, "nobody"),
        (["ghost", "--user", "ann"], 4, "ghost"),
        (["tea", "--usr", "ann"], 2, "--user"),
    ],
)
def test_errors(program, shop, arguments, code, word):
    done = program("explain", shop, *arguments)
    assert (done.code, done.out) == (code, "")
    assert word in done.err


def test_an_unknown_id_is_answered_with_one_like_it(program, shop):
    for words, meant in ((["Tea", "--user", "ann"], "'tea'"), (["tea", "--user", "Ann"], "'ann'")):
        done = program("explain", shop, *words)
        assert done.code == 4
        assert f"Did you mean {meant}?" in done.err
