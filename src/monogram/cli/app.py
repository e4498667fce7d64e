"""The program `monogram`: dispatches to the commands, and reports errors as a message and an exit code."""

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
from monogram.cli.flags import flag_of
from monogram.cli.output import print_stderr
from monogram.errors import MonogramError, StorageError, one_of, render

# Each command is a module of this package with a `command`. It is imported on use, so that the help is fast.
COMMANDS = {
    "demo": "A tour on the embedded sample, in a few seconds.",
    "fit": "Fit a model to a log and write a model file.",
    "update": "Add events to a model file, or forget users, without a refit.",
    "recommend": "Recommend items for known users, a history, or all users.",
    "similar": "List the items most similar to given items.",
    "explain": "Explain why an item is recommended.",
    "evaluate": "Evaluate models on a log, with confidence intervals.",
    "tune": "Find the best hyperparameters for a log, within a budget.",
    "serve": "Serve models over HTTP, with a web page.",
    "models": "List the models, with what each needs.",
    "plan": "Show the memory and time that a fit would take, without fitting.",
    "inspect": "Show the header of a model file, without loading the model.",
    "reproduce": "Reproduce the tables of papers: published numbers beside measured ones.",
    "data": "List, describe and download the public data sets of the papers.",
}


# Exit codes that shells give for the signals PIPE and TERM.
CLOSED_PIPE, TERMINATED = 141, 143


class Commands(TyperGroup):
    """The group of commands; each is imported when it is called."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line."""
        with _pipe():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _pipe():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of a typical workflow."""
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
        click_command = typer.main.get_command(command)
        click_command.name = cmd_name
        return click_command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list in the help, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@contextmanager
def _pipe() -> Iterator[None]:
    """Inside, a closed pipe ends the program with its own exit code; typer would exit with 1, as for an error."""
    try:
        yield
    except BrokenPipeError as error:
        raise typer.Exit(CLOSED_PIPE) from error


app = typer.Typer(
    name="monogram",
    cls=Commands,
    help="Closed-form recommenders: from a log of user-item events to ranked, explained items.",
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
    """Run the program and exit with its code. Wrong usage (2) and Ctrl-C (130) are handled by typer."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an id that the terminal cannot show is escaped
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
        print_stderr(f"monogram: {render(error, flag_of)}")
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise
        _discard_stdout()
        if error.errno == errno.EPIPE:
            sys.exit(CLOSED_PIPE)
        print_stderr(f"monogram: the output cannot be written: {error.strerror}")
        sys.exit(StorageError.exit_code)


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, SIGTERM raises `SystemExit`, so that temporary files are removed; finalizers fail silently."""
    stopped, original_hook = False, sys.unraisablehook

    def stop(number: int, frame: Any) -> None:
        nonlocal stopped
        stopped = True
        if number == signal.SIGTERM:
            sys.exit(TERMINATED)
        signal.default_int_handler(number, frame)

    def hook(error: Any) -> None:
        if not stopped:
            original_hook(error)

    handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, stop)
    sys.unraisablehook = hook
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if not stopped:
            sys.unraisablehook = original_hook


def _discard_stdout() -> None:
    """Redirect stdout to the null device: Python would report the unwritten buffer at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
