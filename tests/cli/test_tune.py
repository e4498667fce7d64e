"""`monogram tune`: a log in, the best setting and its model out."""

from __future__ import annotations

import json
import sys

import pytest

import monogram as mg
from monogram.cli import tune as tune_
from monogram.tuning import group_runner


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    rows = [(u, i) for u, row in enumerate(mg.sample().matrix[:80]) for i in row.indices if i < 60]
    path = tmp_path_factory.mktemp("log") / "events.csv"
    path.write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in rows))
    return path


FAST = ["--metric", "ndcg@5", "--budget", "20 settings"]


def test_the_best_is_shown_and_written(program, log, tmp_path):
    done = program("tune", log, "--model", "deql", *FAST, "-o", tmp_path / "shop.mono", "--study", tmp_path / "study")
    assert done.code == 0, done.err
    assert "DEQL(" in done.out
    assert "on test" in done.out
    assert isinstance(mg.load(tmp_path / "shop.mono"), mg.DEQL)
    assert len((tmp_path / "study").read_text().splitlines()) == 21
    assert "\x1b" not in done.err  # no live table but on a terminal
    assert "coarse grid: 20 settings" in done.err
    assert done.err.index("coarse grid") < done.err.index("wrote")


def test_json(program, log, tmp_path):
    flags = ["--model", "ease,edlae", *FAST, "--dropout", 0.3, "--json", "-o", tmp_path / "shop.mono"]
    done = program("tune", log, *flags)
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert printed["protocol"]["name"] == "holdout"
    assert printed["output"] == str(tmp_path / "shop.mono")
    assert {row["parameters"]["dropout"] for row in printed["settings"] if row["model"] == "edlae"} == {0.3}
    assert printed["best"] in printed["settings"]
    assert mg.load(tmp_path / "shop.mono").params() == printed["best"]["parameters"]
    assert json.loads(program("inspect", tmp_path / "shop.mono", "--json").out)["metrics"] == {
        f"{printed['metric']} on test": printed["test"][0]["value"]
    }


def test_interrupted_and_resumed(program, log, tmp_path, monkeypatch):
    flags = ["tune", log, "--model", "edlae", *FAST, "--study", tmp_path / "study", "--json"]
    real, runs = group_runner.GroupRunner.run, []

    def run(self, group):
        runs.append(len(group))
        if len(runs) == 3:
            raise KeyboardInterrupt
        return real(self, group)

    monkeypatch.setattr(group_runner.GroupRunner, "run", run)
    assert program(*flags).code == 130
    done = program(*flags)
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["settings"]) == 20
    assert sum(runs) - runs[2] == 20, "what was finished is not tried again"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--budget", "soon"], 2, "20m"),
        (["--model", "easy"], 2, "did you mean ease"),
        (["--model", ""], 2, "model"),
        (["--model", "ease", "--dropout", "0.2"], 2, "--dropout"),
        (["--metric", "coverage@5"], 2, "catalogue"),
        (["--protocol", "weak"], 2, "expected one of holdout"),
        (["--protocol", "temporal"], 3, "--time-column"),
        (["-o", "no/shop.mono"], 10, "no"),
        (["--study", "no/study"], 10, "--study"),
        (["--memory", "1 kB"], 5, "nothing was allocated"),
    ],
)
def test_an_error_is_one_line(program, log, arguments, code, text):
    done = program("tune", log, *FAST, *arguments)
    assert done.code == code, done.err
    assert text in done.err


def test_a_study_of_other_data_is_refused(program, log, tmp_path):
    (tmp_path / "study").write_text('{"study": 1, "version": "0"}\n')
    done = program("tune", log, "--model", "ease", *FAST, "--study", tmp_path / "study")
    assert done.code == 3
    assert "it has version = '0'" in done.err


def test_the_table_on_a_terminal(program, log, monkeypatch):
    shown, real = [], tune_.table
    monkeypatch.setattr(tune_, "table", lambda *given: shown.append(real(*given)) or shown[-1])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    done = program("tune", log, "--model", "ease", *FAST)
    assert done.code == 0, done.err
    assert "settings left" in shown[-1].title
    assert shown[-1].row_count == 5


def test_a_report_for_people(program, log, tmp_path):
    done = program(
        "tune", log, "--model", "edlae", *FAST, "--report", tmp_path / "r.html", "--report", tmp_path / "r.md"
    )
    assert done.code == 0, done.err
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "On the test part" in (tmp_path / "r.md").read_text(encoding="utf-8")
    refused = program("tune", log, "--report", tmp_path / "r.pdf")
    assert refused.code == 2
    assert ".md or .html" in refused.err


def test_ratio811_has_a_validation_part_of_its_own(program, log):
    flags = ["--model", "ease", "--l2", 10, "--metric", "ndcg@5", "--budget", "1 settings"]
    done = program("tune", log, *flags, "--protocol", "ratio811", "--json")
    assert done.code == 0, done.err
    value = json.loads(done.out)["best"]["value"]
    split = mg.splits.ratio811(mg.read(log, quiet=True), seed=1, part="validation")
    assert value == pytest.approx(mg.evaluate(mg.EASE(l2=10), split, "ndcg@5").value("ease", "ndcg@5"))


def test_one_file_for_two_things(program, log, tmp_path):
    done = program("tune", log, "--study", tmp_path / "a", "-o", tmp_path / "a")
    assert done.code == 2
    assert "given twice" in done.err


def test_a_power_of_popularity(program, log, tmp_path):
    timed = tmp_path / "timed.csv"
    lines = log.read_text().splitlines()
    timed.write_text("user,item,when\n" + "".join(f"{row},{n * 7919 % 1000}\n" for n, row in enumerate(lines[1:])))
    how = ["--model", "tempered", "--l2", 10, "--dropout", 0.3, "--metric", "ndcg@5", "--budget", "60 settings"]
    done = program("tune", log, *how, "--json")
    assert done.code == 0, done.err
    assert "warning: item_power of tempered is not searched, and stays at 0" in done.err
    assert {row["parameters"].get("item_power", 0.0) for row in json.loads(done.out)["settings"]} == {0.0}
    done = program("tune", timed, *how, "--protocol", "temporal", "--time-column", "when", "--json")
    assert done.code == 0, done.err
    assert "item_power" not in done.err
    assert len({row["parameters"].get("item_power") for row in json.loads(done.out)["settings"]}) > 10
    done = program("tune", log, *how, "--item-power", -0.2, "--json")
    assert "item_power" not in done.err
    assert json.loads(done.out)["best"]["parameters"]["item_power"] == -0.2
