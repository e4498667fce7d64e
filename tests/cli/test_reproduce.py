"""`monogram reproduce`: the list, a report, JSON, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    train = rng.random((30, 25)) < 0.3
    test = (rng.random((30, 25)) < 0.1) & ~train
    arrays = {
        f"{name}_{what}": array
        for name, part in (("train", train), ("test", test))
        for what, array in (
            ("indptr", np.concatenate([[0], np.cumsum(part.sum(axis=1))])),
            ("indices", np.nonzero(part)[1]),
        )
    }
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "gowalla.npz", shape=np.array([30, 25]), **arrays)
    return tmp_path / "data"


def test_the_list(program):
    done = program("reproduce", "list")
    assert done.code == 0, done.err
    for word in ("deql", "landscape", "closed_form_edlae", "rg2", "edlae", "table 1", "gowalla"):
        assert word in done.out
    assert json.loads(program("reproduce", "list", "--json").out)[0]["name"] == "deql"


def test_a_row_as_a_table_json_and_reports(program, folder, tmp_path):
    flags = ["reproduce", "deql", "--data", folder, "--dataset", "gowalla", "--row", "EASE", "--cache", tmp_path / "c"]
    shown = program(*flags)
    assert shown.code == 0, shown.err
    assert "0.1765" in shown.out
    cells = json.loads(program(*flags, "--json").out)
    assert [(one["row"], one["metric"], one["printed"]) for one in cells] == [
        ("EASE", "recall@20", 0.1765),
        ("EASE", "ndcg@20", 0.1467),
    ]
    done = program(*flags, "-o", tmp_path / "r.md", "-o", tmp_path / "r.html")
    assert done.code == 0, done.err
    assert "reproduce deql --data DIR --dataset gowalla --row EASE" in (tmp_path / "r.md").read_text(encoding="utf-8")
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert str(folder) not in (tmp_path / "r.md").read_text(encoding="utf-8")
    assert program(*flags, "-o", tmp_path / "r.json").code == 0
    again = program("reproduce", "deql", "--cells", tmp_path / "r.json", "-o", tmp_path / "again.md")
    assert again.code == 0, again.err
    assert (tmp_path / "again.md").read_text() == (tmp_path / "r.md").read_text().replace("](r-", "](again-")
    refused = program("reproduce", "deql", "--cells", tmp_path / "r.json", "--row", "EASE")
    assert refused.code == 2
    assert "--cells takes all cells" in refused.err


def test_without_data_the_rows_are_still_there(program, tmp_path):
    done = program("reproduce", "edlae", "--data", tmp_path, "--cache", tmp_path / "c", "--json")
    cells = json.loads(done.out)
    assert {one["verdict"] for one in cells} == {"no data"}
    assert "MULT-VAE" in {one["row"] for one in cells}
    assert any("monogram data download ml-20m" in one["reason"] for one in cells)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["deqll"], 2, "did you mean deql?"),
        (["deql", "--peers"], 2, "--peers is not available yet"),
        (["deql", "-o", "report.pdf"], 2, ".md or .html"),
        (["deql", "-o", "no/such/report.md"], 10, "no/such"),
        (["deql", "--data", "no-such-folder"], 2, "no such folder"),
        (["deql", "--row", "EASY"], 2, "has no row 'EASY'"),
        (["deql", "--dataset", "ml-20m"], 2, "has no data set"),
    ],
)
def test_what_is_refused(program, arguments, code, text):
    done = program("reproduce", *arguments)
    assert done.code == code, done.err
    assert text in done.err


def test_settings_are_chosen_on_a_cut_of_train(program, folder, tmp_path):
    flags = ["--data", folder, "--dataset", "gowalla", "--row", "DEQL(L2+zero-diag)", "--cache", tmp_path / "c"]
    done = program("reproduce", "deql", "--tune", "--budget", "9 settings", *flags, "--json")
    assert done.code == 0, done.err
    (settings,) = {json.dumps(one["settings"]) for one in json.loads(done.out)}
    assert json.loads(settings)["zero_diagonal"] is True
    assert "the best of 9 settings" in done.err
    again = program("reproduce", "deql", "--tune", "--budget", "9 settings", *flags, "--json")
    assert again.out == done.out
    assert program("reproduce", "deql", "--tune", "--budget", "soon", *flags).code == 2
    without = program("reproduce", "deql", "--budget", "9 settings", *flags)
    assert without.code == 2
    assert "needs --tune" in without.err
