"""`monogram plan`."""

from __future__ import annotations

import json

import pytest

import monogram as mg


@pytest.fixture
def log(tmp_path, pairs):
    path = tmp_path / "log.tsv"
    path.write_text("user\titem\n" + "".join(f"{user}\t{item.replace(chr(34), '')}\n" for user, item in pairs), "utf-8")
    return path


def test_a_log(program, log):
    done = program("plan", log, "--model", "edlae", "--l2", "10", "--dropout", "0.2")
    assert done.code == 0
    assert "34 users × 8 items" in done.out
    assert "← chosen" in done.out
    assert "events of" in done.err


def test_a_size_as_json(program):
    done = program("plan", "--size", "30000,40000,800000", "--memory", "100 GB", "--dtype", "float64", "--json")
    found = json.loads(done.out)
    assert done.code == 0
    assert (found["users"], found["items"], found["events"], found["dtype"]) == (30_000, 40_000, 800_000, "float64")
    assert found["fits"] is True
    assert found["parameters"] == mg.EASE().params()
    assert [row["solver"] for row in found["costs"]] == ["primal", "dual", "disk", "local", "matrix_free"]


def test_a_kept_gram_is_counted(program):
    asked = ("plan", "--size", "60000,10000,800000", "--memory", "100 GB", "--json")
    plain, kept = (json.loads(program(*asked, *more).out) for more in ((), ("--keep-gram",)))
    assert plain["chosen"] == kept["chosen"] == "primal"
    assert kept["costs"][0]["bytes"] - plain["costs"][0]["bytes"] == 4 * 10_000**2


def test_over_budget_is_shown_and_has_its_code(program):
    asked = ("plan", "--size", "300000,400000,8000000", "--memory", "1 GB", "--model", "low_rank_edlae")
    done = program(*asked)
    assert done.code == 5
    assert "over budget" in done.out
    assert "What would fit" in done.err
    assert json.loads(program(*asked, "--json").out)["fits"] is False
    assert program(*asked[:-2], "--solver", "primal").code == 5


def test_matrix_free_where_nothing_dense_fits(program):
    done = program("plan", "--size", "300000,400000,8000000", "--memory", "2 GB", "--model", "dlae")
    assert done.code == 0
    assert "matrix_free: nothing dense fits 2 GB" in done.out
    done = program("plan", "--size", "30,40,80", "--solver", "matrix_free", "--json")
    assert json.loads(done.out)["chosen"] == "matrix_free"


def test_a_model_without_solver(program):
    assert program("plan", "--size", "30,40,80", "--model", "popularity").code == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "--size"),
        (["log.tsv", "--size", "3,4,5"], "--size"),
        (["--size", "3,4"], "users,items,events"),
        (["--size", "a,b,c"], "users,items,events"),
        (["--size", "0,4,5"], "at least 1"),
        (["--size", "3,4,5", "--model", "eese"], "ease"),
        (["--size", "3,4,5", "--model", "ease", "--dropout", "0.2"], "--dropout"),
        (["--size", "3,4,5", "--dtype", "float16"], "float32"),
        (["--size", "3,4,5", "--solver", "fast"], "primal"),
        (["--size", "3,4,5", "--solver", "matrix_free", "--model", "slim"], "expected one of auto, primal, dual"),
        (["--size", "3,4,5", "--memory", "lots"], "8 GB"),
        (["--size", "3,4,5", "--memry", "8 GB"], "--memory"),
    ],
)
def test_wrong_flags(program, arguments, word):
    done = program("plan", *arguments)
    assert done.code == 2
    assert word in done.err


def test_a_missing_log(program, tmp_path):
    assert program("plan", tmp_path / "none.csv").code == 3
