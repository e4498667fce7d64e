"""`monogram evaluate`: named models, named protocols, a table or JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest


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


@pytest.mark.parametrize("protocol", ["holdout", "strong", "ratio811", "temporal", "leave_last"])
def test_every_protocol(log, protocol):
    done = run(log, "--model", "ease,deql", "--protocol", protocol, "--time-column", "when", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["model"] for row in rows} == {"ease", "deql", "popularity"}
    assert "held back" in done.stderr
    assert ("not an estimate of production" in done.stderr) is (protocol == "leave_last")


def test_table_markdown_csv(log):
    table = run(log, "--model", "ease", "--metrics", "recall@5, ndcg@5", "--l2", 10)
    assert table.stdout.splitlines()[0].split() == ["model", "recall@5", "ndcg@5"]
    assert run(log, "--model", "ease", "--format", "markdown").stdout.startswith("| model |")
    assert run(log, "--model", "ease", "--format", "csv").stdout.startswith("model,metric,value")


def test_public_lists(tmp_path):
    np.savez(
        tmp_path / "x.npz",
        train_indptr=np.array([0, 2, 4, 6]), train_indices=np.array([0, 2, 0, 1, 1, 3]),
        test_indptr=np.array([0, 1, 2, 3]), test_indices=np.array([1, 2, 0]), shape=np.array([3, 4]),
    )  # fmt: skip
    done = run(tmp_path / "x.npz", "--protocol", "lightgcn", "--model", "ease", "--metrics", "recall@2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["users"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--protocol", "weak"], 2, "expected one of holdout"),
        (["--metrics", "recal@5"], 2, "recal@5"),
        (["--model", "ease,easy"], 2, "easy"),
        (["--model", ""], 2, "model"),
        (["--model", "ease", "--dropout", "0.2"], 2, "--dropout"),
        (["--protocol", "ratio811", "--share", "0.5"], 2, "--share"),
        (["--protocol", "temporal"], 3, "time"),
        (["--format", "pdf"], 2, "pdf"),
        (["--share", "2"], 2, "share"),
        (["--seed", "-1"], 2, "seed"),
        (["--model", "ease,ease"], 2, "twice"),
        (["--json", "--format", "csv"], 2, "both"),
        (["--metrics", "recall@99999999999999999999"], 2, "recall@20"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(log, arguments, code, text):
    done = run(log, *arguments)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr
