"""The program `monogram`: finds the command, and turns errors into a line and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from monogram._version import __version__
from monogram.cli.common import talk
from monogram.cli.flags import flag_of
from monogram.errors import MonogramError, StorageError, one_of, render

# Each command is a module here with a `command`; it is imported when it is called, so that the help is quick.
COMMANDS = {
    "demo": "The whole way on the embedded sample, in a few seconds.",
    "fit": "Learn from a log and write a model file.",
    "update": "Add events to a model file, or forget users, without a refit.",
    "recommend": "Ranked items for known users, a history, or everyone.",
    "similar": "Items like the given ones.",
    "explain": "Why an item is recommended.",
    "evaluate": "Measure models on a log, with intervals.",
    "tune": "Find the best setting for a log, within a budget.",
    "serve": "Serve models over HTTP, with a web page.",
    "plan": "What a fit would cost, before it costs anything.",
    "inspect": "What is in a model file, without loading it.",
    "reproduce": "The papers' tables: their numbers beside ours.",
    "data": "The public data sets the papers use.",
}


# Exit codes that shells give for the signals PIPE and TERM.
CLOSED_PIPE, TERMINATED = 141, 143


class Commands(TyperGroup):
    """The commands, imported one by one as they are asked for."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line."""
        with _pipe():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _pipe():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the way a user goes."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name."""
        if cmd_name not in COMMANDS:
            return None if ctx.resilient_parsing else ctx.fail(f"No command {cmd_name!r}; {one_of(cmd_name, COMMANDS)}")
        command = importlib.import_module(f"monogram.cli.{cmd_name}").command
        if not isinstance(command, typer.Typer):
            function, command = (
                command,
                typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False),
            )
            command.command(name=cmd_name)(function)
        found = typer.main.get_command(command)
        found.name = cmd_name
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list in the help, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@contextmanager
def _pipe() -> Iterator[None]:
    """A closed pipe has its exit code here: typer would answer it with 1, as it answers an error."""
    try:
        yield
    except BrokenPipeError as error:
        raise typer.Exit(CLOSED_PIPE) from error


app = typer.Typer(
    name="monogram",
    cls=Commands,
    help="Closed-form recommenders: a log of who-used-what goes in; ranked, explained items come out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every command."""
    if version:
        print(f"monogram {__version__}")
        raise typer.Exit
    os.environ["MONOGRAM_DEBUG"] = "1" if debug else ""


def main() -> None:
    """Run the program: every way it can end is here, but for wrong usage and Ctrl-C (130), which typer answers."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an id the terminal cannot show is no reason to stop
    try:
        with stoppable():
            try:
                app()
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
    except MonogramError as error:
        if os.environ.get("MONOGRAM_DEBUG"):
            raise
        talk(f"monogram: {render(error, flag_of)}")
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise
        _unplug()
        if error.errno == errno.EPIPE:
            sys.exit(CLOSED_PIPE)
        talk(f"monogram: the output cannot be written: {error.strerror}")
        sys.exit(StorageError.exit_code)


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, SIGTERM is an exit that lets files be cleaned up; what a signal leaves half made ends in silence."""
    stopped, complain = False, sys.unraisablehook

    def stop(number: int, frame: Any) -> None:
        nonlocal stopped
        stopped = True
        if number == signal.SIGTERM:
            sys.exit(TERMINATED)
        signal.default_int_handler(number, frame)

    def tell(what: Any) -> None:
        if not stopped:
            complain(what)

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    sys.unraisablehook = tell
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if not stopped:
            sys.unraisablehook = complain


def _unplug() -> None:
    """Send what is left in the buffer of stdout nowhere, or Python complains about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
