"""`monogram fit`: plan first, residual last, and no partial file whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import monogram as mg
from monogram import store
from monogram.models.registry import MODELS

LOG = "customer,sku,stars\n" + "".join(
    f"user {u % 13},{'crème brûlée' if i == 3 else f'item {i}'},{1 + i % 5}\n"
    for u in range(40)
    for i in range(u % 7, 12, 1 + u % 3)
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(LOG, encoding="utf-8")
    return path


def run(*arguments, **options):
    command = [sys.executable, "-m", "monogram", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_a_model_is_written_and_diagnostics_are_on_stderr(log, tmp_path):
    done = run("fit", log, "-o", tmp_path / "shop.mono", "--model", "deql", "--l2", 5, "--b", 0.7)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.index("chosen") < done.stderr.index("residual") < done.stderr.index("wrote")
    assert "customer" in done.stderr
    model = mg.load(tmp_path / "shop.mono")
    assert model.params() == mg.DEQL(l2=5, b=0.7).params()
    assert "crème brûlée" in model.log_.items


def test_a_flag_of_several_numbers_and_a_solver_of_the_models_own(program, log, tmp_path):
    done = program("fit", log, "-o", tmp_path / "a.mono", "--model", "vlae", "--rank", 3, "--weights", "0.1,0.3,0.2")
    assert done.code == 0, done.err
    assert mg.load(tmp_path / "a.mono").params() == mg.VLAE(rank=3, weights=(0.1, 0.3, 0.2)).params()
    own = ("--model", "rg2", "--rank", 3, "--l2", 0.05, "--solver")
    done = program("fit", log, "-o", tmp_path / "b.mono", *own, "als", "--json")
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert printed["solver"] == "als"
    assert printed["parameters"]["solver"] == "als"
    assert printed["objectives"] == sorted(printed["objectives"], reverse=True)
    assert program("fit", log, "-o", tmp_path / "c.mono", *own, "dual").code == 0
    assert mg.load(tmp_path / "c.mono").report_.solver.startswith("dual")


def test_without_a_square_array(program, log, tmp_path):
    done = program("fit", log, "-o", tmp_path / "free.mono", "--model", "dlae", "--solver", "matrix_free", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["solver"] == "matrix_free"
    assert mg.load(tmp_path / "free.mono").weights_.kind == "free"


def test_what_a_fit_warns_of_is_a_line(program, log, tmp_path):
    done = program("fit", log, "-o", tmp_path / "m.mono", "--model", "regularized_pca", "--l2", "1e9")
    assert done.code == 0, done.err
    assert "\nwarning: no direction passes the filter" in done.err
    assert "MonogramWarning" not in done.err


def test_with_its_gram(program, log, tmp_path):
    done = program("fit", log, "-o", tmp_path / "a.mono", "--model", "edlae", "--l2", 5, "--keep-gram", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["solver"] == "primal"
    found = mg.load(tmp_path / "a.mono").changed(l2=9).item_weights()
    expected = mg.EDLAE(l2=9).fit(mg.read(log, quiet=True), solver="primal").item_weights()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_expanded_weights_go_to_the_file(program, log, tmp_path):
    done = program("fit", log, "-o", tmp_path / "a.mono", "--l2", 5, "--expand", "--solver", "dual", "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary["solver"] == "dual, expanded"
    assert summary["seconds"]["expand"] > 0
    assert "expanded the dual weights into the file" in done.err
    found = mg.load(tmp_path / "a.mono")
    assert found.weights_.kind == "dense"
    expected = mg.EASE(l2=5).fit(mg.read(log, quiet=True), solver="primal").item_weights()
    np.testing.assert_allclose(found.item_weights(), expected, atol=1e-5)
    shown = program("inspect", tmp_path / "a.mono").out
    assert "dual, expanded" in shown
    assert "dense" in shown


def test_a_primal_fit_needs_no_expansion(program, log, tmp_path):
    done = program("fit", log, "-o", tmp_path / "a.mono", "--l2", 5, "--expand", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["solver"] == "primal", "the log has more users than items"
    assert "expanded the dual weights" not in done.err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ("--model", "lrr", "--expand"),
            "--expand, but LRR has no dual weights to expand; leave it out, or use one of EASE",
        ),
        (("--solver", "primal", "--expand"), "with solver='primal', which computes no dual inverse"),
        (("--model", "lrr", "--keep-gram"), "LRR keeps no Gram; leave keep_gram out, or use one of EASE"),
        (
            ("--model", "ease", "--keep-gram", "--solver", "dual"),
            "keep_gram=True with solver='dual', which computes no Gram",
        ),
        (("--model", "lrr", "--l2", "1,x"), "expected a number, or numbers separated by commas"),
        (("--model", "ease", "--l2", "1,2"), "l2 = (1.0, 2.0); expected a number"),
        (("--model", "rg2", "--solver", "guess"), "expected one of auto, primal, dual, closed_form, als, newton_cg"),
        (
            ("--model", "ease", "--solver", "als"),
            "expected one of auto, primal, dual, disk, local, matrix_free",
        ),
    ],
)
def test_flags_that_make_no_sense(program, log, tmp_path, flags, expected):
    done = program("fit", log, "-o", tmp_path / "x.mono", *flags)
    assert done.code == 2 or done.code == 3
    assert expected in " ".join(done.err.split())
    assert not (tmp_path / "x.mono").exists()


def test_guessed_columns_are_printed_as_flags(program, log, tmp_path):
    printed = program("fit", log, "-o", tmp_path / "x.mono").err
    assert (
        'user column "customer", item column "sku" (guessed; name them with --user-column and --item-column)' in printed
    )
    assert "user=" not in printed
    named = program("fit", log, "-o", tmp_path / "x.mono", "--user-column", "customer", "--item-column", "sku").err
    assert "(guessed" not in named


def test_json_on_stdout(program, log, tmp_path):
    done = program("fit", log, "-o", tmp_path / "x.mono", "--json", "--dtype", "float64", "--solver", "dual")
    printed = json.loads(done.out)
    assert printed["model"] == "ease"
    assert printed["solver"] == "dual"
    assert printed["dtype"] == "float64"
    assert printed["residual"] < 1e-8


@pytest.mark.filterwarnings("ignore::monogram.errors.MonogramWarning")  # rg2's: it has not converged
@pytest.mark.parametrize("name", MODELS)
def test_every_model_with_its_defaults(program, log, tmp_path, name):
    done = program("fit", log, "-o", tmp_path / "x.mono", "--model", name)
    assert done.code == 0, done.err
    assert store.read_header(tmp_path / "x.mono")["parameters"] == MODELS[name]().params()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--model", "easy"], 2, "expected one of ease"),
        (["--l2", "-1"], 2, "l2 = -1"),
        (["--l2", "much"], 2, "--l2"),
        (["--dropout", "0.5"], 2, "ease has no --dropout"),
        (["--l22", "5"], 2, "--l2"),
        (["--dtype", "float16"], 2, "float16"),
        (["--solver", "qr"], 2, "qr"),
        (["--memory", "lots"], 2, "lots"),
        (["--threads", "0"], 2, "threads"),
        (["--user-column", "custommer"], 3, '--user-column "customer"'),
        (["--memory", "1 kB"], 5, "would fit"),
    ],
)
def test_an_error_is_one_line(program, log, tmp_path, arguments, code, text):
    done = program("fit", log, "-o", tmp_path / "x.mono", *arguments)
    assert done.code == code, done.err
    assert text in done.err
    assert not (tmp_path / "x.mono").exists()


def test_a_log_that_is_not_there_and_a_folder_that_is_not_there(log, tmp_path):
    assert run("fit", tmp_path / "no.csv", "-o", tmp_path / "x.mono").returncode == 3
    done = run("fit", log, "-o", tmp_path / "no" / "x.mono")
    assert done.returncode == 10
    assert "folder" in done.stderr
    assert run("--debug", "fit", tmp_path / "no.csv", "-o", tmp_path / "x.mono").stderr.count("Traceback") >= 1


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_leaves_what_was_there(log, tmp_path):
    target = tmp_path / "shop.mono"
    target.write_bytes(b"the old one")
    script = (
        "import sys, time\n"
        "def slow(*a, **k):\n    print('working', flush=True)\n    time.sleep(60)\n"
        "import monogram.models.full_rank as full_rank\n"
        "full_rank.FullRank._fit = slow\n"
        f"sys.argv = ['monogram', 'fit', {str(log)!r}, '-o', {str(target)!r}]\n"
        "from monogram.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "working\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in talk
    assert target.read_bytes() == b"the old one"
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["events.csv", "shop.mono"]


def test_flags_are_the_parameters_of_the_models(program):
    text = program("fit", "--help").out
    for kind in MODELS.values():
        for name in kind().params():
            assert f"--{name.replace('_', '-')}" in text


def test_the_log_is_never_written_over(program, log, tmp_path):
    before = log.read_bytes()
    done = program("fit", log, "-o", log)
    assert done.code == 2
    assert "also an input" in done.err
    assert log.read_bytes() == before
    assert program("fit", log, "-o", tmp_path).code == 10, "a folder, refused before the work"


@pytest.mark.skipif(os.name == "nt", reason="shell")
def test_a_closed_stderr_does_not_lose_the_model(log, tmp_path):
    for number, ending in enumerate(("2>/dev/full", ">&-", "2>&1 | head -1")):
        target = tmp_path / f"x{number}.mono"
        subprocess.run(
            f"{sys.executable} -m monogram fit '{log}' -o '{target}' {ending}", shell=True, capture_output=True
        )
        assert target.exists(), ending


def test_a_terminal_without_accents(log, tmp_path):
    assert run("fit", log, "-o", tmp_path / "x.mono").returncode == 0
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run("similar", tmp_path / "x.mono", "crème brûlée", env=environment)
    assert done.returncode == 0, done.stderr
    assert "cr\\xe8me" in done.stdout
