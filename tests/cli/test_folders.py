"""Commands that take a log take a folder of Parquet files too, also one with more rows than memory may hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import monogram as mg
from monogram.data import gather
from monogram.errors import DataError, StorageError


@pytest.fixture
def folder(pairs, tmp_path):
    users, items = zip(*pairs, strict=True)
    whole = pa.table({"customer": users, "sku": items})
    for number, start in enumerate(range(0, len(pairs), 20)):
        place = tmp_path / "log" / f"day={number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(whole.slice(start, 20), place / f"{number}.parquet")
    return tmp_path / "log"


@pytest.mark.parametrize("room", [2**28, 100])
def test_fit_on_a_folder(program, folder, fitted, tmp_path, monkeypatch, room):
    monkeypatch.setattr(gather, "WHOLE", room)
    monkeypatch.setattr(gather, "BLOCK", room)
    done = program("fit", folder, "-o", tmp_path / "a.mono", "--l2", 2, "--user-column", "customer")
    assert done.code == 0, done.err
    assert 'item column "sku" (guessed; name it with --item-column)' in done.err
    model = mg.load(tmp_path / "a.mono")
    assert model.log_.users == fitted.log_.users
    np.testing.assert_array_equal(model.log_.matrix.toarray(), fitted.log_.matrix.toarray())


def test_the_other_commands_on_a_folder(program, folder):
    assert program("plan", folder).code == 0
    done = program("evaluate", folder, "--model", "ease", "--metrics", "recall@2", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)
    done = program("tune", folder, "--model", "ease", "--budget", "2 settings", "--metric", "ndcg@2")
    assert done.code == 0, done.err


def test_a_bad_folder_is_a_line_and_an_exit_code(program, folder, tmp_path):
    (tmp_path / "none").mkdir()
    done = program("fit", tmp_path / "none", "-o", tmp_path / "a.mono")
    assert done.code == DataError.exit_code
    assert "is a folder without .parquet files" in done.err
    (folder / "day=0" / "x.parquet").write_bytes(b"PAR1")
    done = program("fit", folder, "-o", tmp_path / "a.mono")
    assert done.code == DataError.exit_code
    assert "x.parquet is not readable as Parquet" in done.err
    assert not (tmp_path / "a.mono").exists()


def test_no_room_to_put_rows_aside(program, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(gather, "WHOLE", 100)
    monkeypatch.setattr(gather, "BLOCK", 100)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    done = program("fit", folder, "-o", tmp_path / "a.mono")
    assert done.code == StorageError.exit_code
    assert "set TMPDIR" in done.err
    assert not (tmp_path / "a.mono").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_fit_leaves_nothing(folder, tmp_path, number, code):
    (tmp_path / "scratch").mkdir()
    program = """
        import sys, time
        from monogram.cli import app
        from monogram.data import gather, spill
        gather.WHOLE = gather.BLOCK = 100
        def waiting(self, *_):
            print("merging", flush=True)
            time.sleep(60)
        spill.Spill._pairs = waiting
        sys.argv[0] = "monogram"
        app.main()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), "fit", str(folder), "-o", str(tmp_path / "a.mono")]
    scratch = os.environ | {"TMPDIR": str(tmp_path / "scratch")}
    with subprocess.Popen(command, env=scratch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "merging\n"
        process.send_signal(number)
        _, printed = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in printed
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not (tmp_path / "a.mono").exists()
