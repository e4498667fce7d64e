"""The program as it is called: output, exit codes, no traceback."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time

import pytest
import typer

import monogram as mg
from monogram.cli import app

ADD = """import sys, types
from monogram.cli import app
def add(name, command):
    module = types.ModuleType(name)
    module.command = command
    sys.modules[f'monogram.cli.{name}'] = module
    app.COMMANDS[name] = name
"""


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "monogram", *arguments], capture_output=True, text=True, **options)


def test_the_demo_runs_to_the_end():
    done = run("demo")
    assert done.returncode == 0, done.stderr
    for word in ("events of", "chosen", "EASE(", "DEQL(", "Popularity(", "Recommendations", "because of"):
        assert word in done.stdout
    assert done.stderr == ""


def test_the_version():
    assert run("--version").stdout == f"monogram {mg.__version__}\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["recomend"], "recommend"), (["fit", "x.csv", "-o", "x.mono", "--model", "eaze"], "ease"),
     (["evaluate", "x.csv", "--protocol", "strongg"], "strong")],
)  # fmt: skip
def test_a_typing_error_is_answered_with_what_was_meant(program, words, meant):
    done = program(*words)
    assert done.code == 2
    assert f"did you mean {meant}?" in done.err


@pytest.mark.parametrize(("flags", "traceback"), [([], False), (["--debug"], True)])
def test_an_error_is_a_line_and_its_exit_code(flags, traceback):
    script = (
        "import sys; from monogram.cli import app; from monogram.errors import DataError\n"
        "def broken():\n    raise DataError('row 3: no user')\n"
        f"{ADD}add('broken', broken)\n"
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
        f"{ADD}add('wait', lambda: (print('ready', flush=True), time.sleep(60))[0])\n"
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


def test_the_help_names_every_command_and_imports_none():
    done = run("--help")
    assert all(name in done.stdout and text in " ".join(done.stdout.split()) for name, text in app.COMMANDS.items())
    script = "import sys, monogram.cli; print([m for m in ('numpy', 'pyarrow', 'numba') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("name", app.COMMANDS)
def test_each_command_says_what_the_list_says(program, name):
    module = importlib.import_module(f"monogram.cli.{name}")
    text = module.command.info.help if isinstance(module.command, typer.Typer) else module.command.__doc__
    assert text.splitlines()[0] == app.COMMANDS[name]
    assert program(name, "--help").code == 0


@pytest.mark.skipif(os.name == "nt", reason="bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("monogram fi", "fit"),
        ("monogram fit --dro", "--dropout"),
        ("monogram fit --model ed", "edlae"),
        ("monogram evaluate --model ease,de", "ease,deql"),
        ("monogram evaluate --protocol te", "temporal"),
    ],
)
def test_the_shell_completes(words, offered):
    environment = {**os.environ, "_MONOGRAM_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split()) - 1)
    script = "import sys; sys.argv = ['monogram']; from monogram.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert offered in done.stdout.split()


HALF_MADE = """
import signal, sys
from monogram.cli.app import stoppable

class Half:
    def __del__(self):
        raise AttributeError("half made")

try:
    with stoppable():
        held = Half()
        try:
            {}
        finally:
            del held
except (KeyboardInterrupt, SystemExit) as stop:
    print(type(stop).__name__, getattr(stop, "code", ""))
Half()
"""


@pytest.mark.parametrize(
    ("does", "out", "silent"),
    [
        ("signal.raise_signal(signal.SIGINT)", "KeyboardInterrupt \n", True),
        ("signal.raise_signal(signal.SIGTERM)", "SystemExit 143\n", True),
        ("pass", "", False),
    ],
)
def test_what_a_signal_leaves_half_made_ends_in_silence(does, out, silent):
    done = subprocess.run(
        [sys.executable, "-c", HALF_MADE.format(does)], capture_output=True, text=True, check=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert done.stdout == out
    assert done.stderr.count("half made") == (0 if silent else 2)
