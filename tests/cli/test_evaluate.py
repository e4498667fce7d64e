"""`monogram evaluate`: named models, named protocols, a table or JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import monogram as mg


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("log") / "events.csv"
    rows = {
        (u, i): int(rng.integers(0, 10**6))
        for u, i in zip(rng.integers(0, 60, 900), rng.integers(0, 30, 900), strict=True)
    }
    path.write_text("user,item,when\n" + "".join(f"{u},{i},{t}\n" for (u, i), t in rows.items()))
    return path


def run(*arguments):
    command = [sys.executable, "-m", "monogram", "evaluate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("protocol", ["holdout", "strong", "ratio811", "temporal", "latest", "leave_last", "sessions"])
def test_every_protocol(program, log, protocol):
    done = program("evaluate", log, "--model", "ease,deql", "--protocol", protocol, "--time-column", "when", "--json")
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert {row["model"] for row in printed["results"]} == {"ease", "deql", "popularity"}
    assert printed["protocol"]["name"] == protocol
    assert printed["audit"]["events"] > 0
    assert "held out" in done.err
    assert ("not an estimate of production" in done.err) is (protocol == "leave_last")


def test_table_markdown_csv(program, log):
    table = program("evaluate", log, "--model", "ease", "--metrics", "recall@5, ndcg@5", "--l2", 10)
    assert table.out.splitlines()[0].split() == ["model", "recall@5", "ndcg@5"]
    assert program("evaluate", log, "--model", "ease", "--format", "markdown").out.startswith("| model |")
    assert program("evaluate", log, "--model", "ease", "--format", "csv").out.startswith("model,metric,value")


@pytest.mark.filterwarnings("ignore::monogram.errors.MonogramWarning")  # rg2's: it has not converged
def test_settings_of_one_model_alone(program, log):
    asked = "ease:l2=1,ease:l2=1000,rg2:rank=4:l2=0.1:solver=als,ease"
    done = program("evaluate", log, "--model", asked, "--metrics", "ndcg@5", "--l2", 10, "--json")
    assert done.code == 0, done.err
    values = {row["model"]: row["value"] for row in json.loads(done.out)["results"]}
    assert set(values) == {*asked.split(","), "popularity"}
    together = program(
        "evaluate", log, "--model", "rg2:solver=als", "--penalty", "plain", "--l2", "0.001", "--rank", 3, "--json"
    )
    assert together.code == 0, together.err
    alone = json.loads(program("evaluate", log, "--model", "ease", "--metrics", "ndcg@5", "--l2", 1, "--json").out)
    assert values["ease:l2=1"] == next(row["value"] for row in alone["results"] if row["model"] == "ease")


def test_public_lists(tmp_path):
    np.savez(
        tmp_path / "x.npz",
        train_indptr=np.array([0, 2, 4, 6]), train_indices=np.array([0, 2, 0, 1, 1, 3]),
        test_indptr=np.array([0, 1, 2, 3]), test_indices=np.array([1, 2, 0]), shape=np.array([3, 4]),
    )  # fmt: skip
    done = run(tmp_path / "x.npz", "--protocol", "lightgcn", "--model", "ease", "--metrics", "recall@2", "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["results"][0]["users"] == 3
    assert printed["protocol"] == {"name": "lightgcn", "arguments": {}}


@pytest.mark.parametrize(
    ("protocol", "flags", "arguments"),
    [
        ("strong", ["--users", 15, "--seed", 3], {"users": 15, "share": 0.2, "seed": 3}),
        ("strong", ["--users", 0.5], {"users": 0.5, "share": 0.2, "seed": 1}),
        ("temporal", ["--at", 500_000], {"at": 500_000, "share": 0.2}),
        ("ratio811", ["--part", "validation"], {"part": "validation", "seed": 1}),
    ],
)
def test_the_arguments_of_a_protocol(program, log, protocol, flags, arguments):
    common = ["--model", "popularity", "--time-column", "when", "--json"]
    done = program("evaluate", log, "--protocol", protocol, *flags, *common)
    assert done.code == 0, done.err
    assert json.loads(done.out)["protocol"] == {"name": protocol, "arguments": arguments}


def test_a_date_as_the_moment(program, tmp_path):
    rows = [f"u{n % 5},i{n % 7},2025-0{1 + n // 10}-10" for n in range(30)]
    (tmp_path / "dated.csv").write_text("user,item,when\n" + "\n".join(rows) + "\n")
    flags = ["--protocol", "temporal", "--at", "2025-02-01", "--time-column", "when", "--model", "popularity"]
    done = program("evaluate", tmp_path / "dated.csv", *flags, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["audit"]["after"] == 0


def test_the_values_of_each_user(program, log, tmp_path):
    flags = [log, "--model", "popularity", "--metrics", "recall@5", "--json"]
    for ending, read in (("csv", pacsv.read_csv), ("parquet", pq.read_table), ("json", table_of_json)):
        path = tmp_path / f"users.{ending}"
        done = program("evaluate", *flags, "--per-user", path)
        assert done.code == 0, done.err
        found = read(path)
        assert found.column_names == ["model", "user", "recall@5"]
        mean = json.loads(done.out)["results"][0]["value"]
        assert np.mean(found.column("recall@5").to_pylist()) == pytest.approx(mean)
    for path, code, word in (
        (tmp_path / "x.txt", 2, "--per-user"),
        (tmp_path / "no" / "x.csv", 10, "--per-user"),
        (log, 2, "input"),
    ):
        done = program("evaluate", *flags, "--per-user", path)
        assert done.code == code
        assert word in done.err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["users.csv", "users.json", "users.parquet"]


def table_of_json(path):
    return pa.Table.from_pylist(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--protocol", "weak"], 2, "expected one of holdout"),
        (["--metrics", "recal@5"], 2, "did you mean recall?"),
        (["--model", "ease,easy"], 2, "easy"),
        (["--model", ""], 2, "model"),
        (["--model", "ease", "--dropout", "0.2"], 2, "--dropout"),
        (["--protocol", "ratio811", "--share", "0.5"], 2, "--share"),
        (["--protocol", "temporal"], 3, "name their column when it is read, with --time-column\n"),
        (["--protocol", "public"], 3, "is not an .npz file"),
        (["--format", "pdf"], 2, "pdf"),
        (["--share", "2"], 2, "share"),
        (["--users", "10"], 2, "the protocol holdout has no --users: its own flags are --share"),
        (["--protocol", "leave_last", "--at", "5"], 2, "the protocol leave_last has no --at: its split is fixed"),
        (["--protocol", "strong", "--users", "many"], 2, "a number of users"),
        (["--protocol", "temporal", "--at", "soon"], 2, "a date such as"),
        (["--protocol", "temporal", "--at", "5", "--share", "0.1"], 2, "both"),
        (["--protocol", "ratio811", "--part", "train"], 2, "'validation'"),
        (["--protocol", "public", "--user-column", "user"], 2, "no columns"),
        (["--seed", "-1"], 2, "seed"),
        (["--model", "ease,ease"], 2, "twice"),
        (["--model", "ease:l2"], 2, "'l2' is not a parameter with a value; expected text such as ease:l2=100"),
        (["--model", "ease:l2=1:l2=2"], 2, "sets l2 twice"),
        (["--model", "ease:l3=1"], 2, "ease has no --l3"),
        (["--model", "ease:l2=much"], 2, "l2 = 'much'; expected a number"),
        (["--json", "--format", "csv"], 2, "both"),
        (["--metrics", "recall@99999999999999999999"], 2, "recall@20"),
    ],
)
def test_an_error_is_one_line(program, log, arguments, code, text):
    done = program("evaluate", log, *arguments)
    assert done.code == code, done.err
    assert text in done.err


def test_the_shift_of_a_split(program, log):
    printed = json.loads(program("evaluate", log, "--model", "ease", "--shift", "--json").out)
    split = mg.splits.holdout(mg.read(log, quiet=True), seed=1)
    assert printed["shift"] == mg.shift(split).document()
    done = program("evaluate", log, "--model", "ease", "--shift")
    assert done.code == 0, done.err
    table, shift = done.out.split("\n\n")
    assert table.startswith("model")
    assert shift.strip() == str(mg.shift(split))
    assert "shift" not in json.loads(program("evaluate", log, "--model", "ease", "--json").out)
    refused = program("evaluate", log, "--model", "ease", "--shift", "--format", "csv")
    assert refused.code == 2
    assert "use table or json" in refused.err


def test_time_order_does_not_change_the_sessions_of_a_file(program, tmp_path):
    items = [[0, 1, 0, 2], [2, 1], [1, 0, 3, 0, 1], [3, 1, 3]]
    users = [number for number, own in enumerate(items) for _ in own]
    path = tmp_path / "s.npz"
    np.savez(path, user=users, item=[item for own in items for item in own], n_train_users=2, shape=[4, 4])
    flags = ("--protocol", "sessions", "--model", "popularity", "--json")
    plain, ordered = program("evaluate", path, *flags), program("evaluate", path, *flags, "--time-order")
    assert plain.code == ordered.code == 0, ordered.err
    assert plain.out == ordered.out
