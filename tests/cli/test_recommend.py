"""`monogram recommend`: the same rows as in Python, in every format, and no partial file."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest

import monogram as mg
from monogram import ranking
from monogram.cli import recommend


def rows_of(text):
    """CSV rows with their types back."""
    return [
        {"user": row["user"], "rank": int(row["rank"]), "item": row["item"], "score": float(row["score"])}
        for row in csv.DictReader(io.StringIO(text, newline=""))
    ]


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_known_users_as_json(program, shop, fitted):
    done = program("recommend", shop, "--user", "bob smith", "--user", "o'hara, jr", "-k", 3, "--json")
    assert done.code == 0
    assert json.loads(done.out) == fitted.recommend(["bob smith", "o'hara, jr"], k=3).rows()
    assert done.err == ""


def test_a_table_shows_ids_as_they_are(program, shop, fitted):
    done = program("recommend", shop, "--user", "élodie", "-k", 8, "--keep-seen")
    assert done.code == 0
    for item in fitted.log_.items:
        assert item in done.out


def test_histories(program, shop, fitted):
    done = program("recommend", shop, "--history", '"café, noir", earl grey', "--history", "42", "--format", "csv")
    expected = fitted.recommend(histories=[["café, noir", "earl grey"], ["42"]]).rows()
    assert [row | {"user": int(row["user"])} for row in rows_of(done.out)] == expected


def test_an_empty_history_is_ranked_and_reported(program, shop):
    done = program("recommend", shop, "--history", "", "--json", "-k", 2)
    assert done.code == 0
    assert len(json.loads(done.out)) == 2
    assert "histories without a known item, whose scores are not personal: ''" in done.err


def test_unknown_ids_are_reported(program, shop):
    done = program("recommend", shop, "--user", "ann", "--user", "nobody", "--json")
    assert done.code == 0
    assert {row["user"] for row in json.loads(done.out)} == {"ann"}
    assert "unknown users, left out: 'nobody'" in done.err
    done = program("recommend", shop, "--history", "tea,thé", "--json")
    assert done.code == 0
    assert "unknown items, left out: 'thé'; ids in --history are separated by commas" in done.err


def test_when_every_user_is_unknown(program, shop, tmp_path):
    done = program("recommend", shop, "--user", "no one", "--user", "nobody", "-o", tmp_path / "out.csv")
    assert done.code == 4
    assert "'no one', 'nobody'" in done.err
    assert (
        "Did you mean 'bob smith', 'élodie'?"
        in program("recommend", shop, "--user", "Elodie", "--user", "Bob  Smith ").err
    )
    assert names(tmp_path) == ["shop.mono"]


def test_allow_and_deny(program, shop, tmp_path):
    (tmp_path / "allow").write_bytes("\ufefftea\r\n\r\ncafé, noir\r\nghost\r\n42".encode())
    (tmp_path / "deny").write_text("42\n \n", encoding="utf-8")
    done = program("recommend", shop, "--history", "earl grey", "--json", "--allow", tmp_path / "allow")
    assert {row["item"] for row in json.loads(done.out)} == {"tea", "café, noir", "42"}
    assert "unknown items, left out: 'ghost'\n" in done.err, "not from --history, so without its rule"
    done = program("recommend", shop, "--history", "earl grey", "--json", "--deny", tmp_path / "deny")
    assert "42" not in {row["item"] for row in json.loads(done.out)}


def test_an_empty_allow_list_allows_nothing(program, shop, tmp_path):
    (tmp_path / "none").write_text("\n")
    for form, expected in (("json", "[]\n"), ("csv", "user,rank,item,score\n"), ("table", "")):
        done = program("recommend", shop, "--user", "ann", "--allow", tmp_path / "none", "--format", form)
        assert (done.code, done.out) == (0, expected)


@pytest.mark.parametrize(("content", "word"), [(None, "cannot be read"), (b"tea\n\xff\n", "UTF-8")])
def test_a_bad_allow_file(program, shop, tmp_path, content, word):
    if content is not None:
        (tmp_path / "allow").write_bytes(content)
    done = program("recommend", shop, "--user", "ann", "--allow", tmp_path / "allow")
    assert done.code == 3
    assert word in done.err


@pytest.mark.parametrize("batch", [1, 7, 2_000])
def test_everyone_in_batches(program, shop, fitted, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(recommend, "BATCH_USERS", batch)
    asked = []
    real = ranking.recommend

    def watched(weights, histories, *others, **rules):
        asked.append(histories.matrix.shape[0])
        return real(weights, histories, *others, **rules)

    expected = fitted.recommend().rows()
    monkeypatch.setattr(ranking, "recommend", watched)
    assert rows_of(program("recommend", shop, "--format", "csv").out) == expected
    assert max(asked) == min(batch, fitted.log_.n_users)
    assert json.loads(program("recommend", shop, "--json").out) == expected
    done = program("recommend", shop, "-o", tmp_path / "all.csv")
    assert (done.code, done.out) == (0, "")
    assert f"{len(expected):,} rows" in done.err
    assert rows_of((tmp_path / "all.csv").read_bytes().decode()) == expected
    assert program("recommend", shop, "-o", tmp_path / "all.json").code == 0
    assert json.loads((tmp_path / "all.json").read_text("utf-8")) == expected
    assert program("recommend", shop, "-o", tmp_path / "all.parquet").code == 0
    assert pq.read_table(tmp_path / "all.parquet").to_pylist() == expected
    assert names(tmp_path) == ["all.csv", "all.json", "all.parquet", "shop.mono"]


def test_a_large_k_makes_smaller_batches(program, shop, monkeypatch):
    whole = program("recommend", shop, "--format", "csv", "-k", 8).out
    asked, real = [], ranking.recommend

    def watched(weights, histories, *others, **rules):
        asked.append(histories.matrix.shape[0])
        return real(weights, histories, *others, **rules)

    monkeypatch.setattr(ranking, "recommend", watched)
    monkeypatch.setattr(recommend, "BATCH_ROWS", 20)
    assert program("recommend", shop, "--format", "csv", "-k", 8).out == whole
    assert max(asked) == 2


def test_a_table_of_everyone_shows_the_first(program, shop, fitted):
    done = program("recommend", shop, "-k", 1)
    assert done.code == 0
    assert len(done.out.splitlines()) == 1 + recommend.TABLE_USERS
    assert f"the first {recommend.TABLE_USERS} of {fitted.log_.n_users} users" in done.err
    assert "--output" in done.err


def test_ids_of_other_kinds(program, tmp_path):
    numbers = [(user, item) for user in range(1, 5) for item in range(40, 44) if (user + item) % 3]
    mg.EASE(l2=1).fit(numbers).save(tmp_path / "numbers.mono")
    done = program("recommend", tmp_path / "numbers.mono", "--user", "2", "--json")
    assert {row["user"] for row in json.loads(done.out)} == {2}
    mg.EASE(l2=1).fit([(UUID(int=user), UUID(int=item)) for user, item in numbers]).save(tmp_path / "uuids.mono")
    done = program("recommend", tmp_path / "uuids.mono", "--user", UUID(int=2), "--json")
    assert {row["user"] for row in json.loads(done.out)} == {str(UUID(int=2))}
    assert program("recommend", tmp_path / "uuids.mono", "-o", tmp_path / "uuids.parquet").code == 0
    assert pq.read_table(tmp_path / "uuids.parquet").column("user")[0].as_py() == UUID(int=1)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--user", "ann", "--history", "tea"], "--history"),
        (["--format", "parquet"], "--output"),
        (["--format", "csv", "--json"], "contradict"),
        (["--format", "table", "-o", "out.csv"], "stdout"),
        (["-o", "out.txt"], ".parquet"),
        (["-k", "0"], "k = 0"),
        (["--threads", "0"], "threads"),
        (["--format", "xml"], "xml"),
        (["--alow", "x"], "--allow"),
    ],
)
def test_wrong_flags(program, shop, tmp_path, monkeypatch, flags, word):
    monkeypatch.chdir(tmp_path)
    done = program("recommend", shop, *flags)
    assert done.code == 2
    assert word in done.err
    assert names(tmp_path) == ["shop.mono"]


@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "text", "folder"])
def test_a_bad_model_file(program, shop, tmp_path, damage):
    path = Path(shop)
    whole = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes({"cut": whole[:-10], "empty": b"", "text": b"user,item\nann,tea\n"}[damage])
    done = program("recommend", shop, "--user", "ann")
    assert done.code == 6
    assert "shop.mono" in done.err


def test_a_folder_that_is_not_there(program, shop, tmp_path):
    done = program("recommend", shop, "-o", tmp_path / "none" / "out.csv")
    assert done.code == 10
    assert "does not exist" in done.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(program, shop, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = program("recommend", shop, "-o", closed / "out.csv")
    assert done.code == 10
    assert "Permission" in done.err


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_leaves_what_was_there(program, shop, tmp_path, monkeypatch, form, failure):
    target = tmp_path / f"out.{form}"
    target.write_text("before")

    def full(_):
        raise OSError(failure, os.strerror(failure))

    monkeypatch.setattr("monogram.safe.os.fsync", full)
    done = program("recommend", shop, "-o", target)
    assert done.code == 10
    assert os.strerror(failure) in done.err
    assert target.read_text() == "before"
    assert names(tmp_path) == [target.name, "shop.mono"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_interrupt_leaves_no_file(program, shop, tmp_path, monkeypatch, form):
    monkeypatch.setattr(recommend, "BATCH_USERS", 5)
    real, calls = ranking.recommend, []

    def stopped(*arguments, **rules):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **rules)

    monkeypatch.setattr(ranking, "recommend", stopped)
    assert program("recommend", shop, "-o", tmp_path / f"out.{form}").code == 130
    assert names(tmp_path) == ["shop.mono"]


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(("sent", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_streaming_leaves_no_file(shop, tmp_path, sent, code):
    script = (
        "import sys, time; from monogram import ranking; from monogram.cli import app, recommend\n"
        "recommend.BATCH_USERS, real = 1, ranking.recommend\n"
        "ranking.recommend = lambda *a, **k: (time.sleep(0.5), real(*a, **k))[1]\n"
        f"sys.argv = ['monogram', 'recommend', {str(shop)!r}, '-o', {str(tmp_path / 'out.csv')!r}]; app.main()"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(names(tmp_path)) == 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(names(tmp_path)) == 2
    process.send_signal(signal.Signals[sent])
    _, talk = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in talk
    assert names(tmp_path) == ["shop.mono"]


@pytest.mark.skipif(os.name == "nt", reason="pipes")
@pytest.mark.parametrize(
    "words",
    ["recommend shop.mono --format csv", "recommend shop.mono", "inspect shop.mono --json", "fit --help", "--help"],
)
def test_a_closed_pipe_is_silent(shop, tmp_path, words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "monogram", *words.split()]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_help_names_every_flag(program):
    done = program("recommend", "--help")
    assert done.code == 0
    for flag in ("--user", "--history", "-k", "--allow", "--deny", "--keep-seen", "--format", "--output", "--threads"):
        assert flag in done.out
