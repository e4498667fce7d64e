"""The program as it is called: output, exit codes, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import monogram as mg


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "monogram", *arguments], capture_output=True, text=True, **options)


def test_the_demo_goes_the_whole_way():
    done = run("demo")
    assert done.returncode == 0, done.stderr
    for word in ("events of", "chosen", "EASE(", "DEQL(", "Popularity(", "is offered", "because of"):
        assert word in done.stdout
    assert done.stderr == ""


def test_the_version():
    assert run("--version").stdout == f"monogram {mg.__version__}\n"


def test_a_typing_error_is_answered_with_what_was_meant():
    done = run("demoo")
    assert done.returncode == 2
    assert "demo" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("flags", "traceback"), [([], False), (["--debug"], True)])
def test_an_error_is_a_line_and_its_exit_code(flags, traceback):
    script = (
        "import sys; from monogram.cli import app; from monogram.errors import DataError\n"
        "def broken():\n    raise DataError('row 3: no user')\n"
        "app.app.command('broken')(broken)\n"
        f"sys.argv = ['monogram', *{flags}, 'broken']; app.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "row 3: no user" in done.stderr
    assert ("Traceback" in done.stderr) is traceback
    assert traceback or done.returncode == 3


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_is_quiet():
    script = (
        "import sys, time; from monogram.cli import app\n"
        "app.app.command('wait')(lambda: (print('ready', flush=True), time.sleep(60))[0])\n"
        "sys.argv = ['monogram', 'wait']; app.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in talk
