"""The program `monogram`: finds the command, and turns errors into a line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from monogram._version import __version__
from monogram.cli.demo import demo
from monogram.errors import MonogramError

app = typer.Typer(
    name="monogram",
    help="Closed-form recommenders: a log of who-used-what goes in; ranked, explained items come out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(demo)


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
    """Run the program."""
    try:
        app()
    except MonogramError as error:
        if os.environ.get("MONOGRAM_DEBUG"):
            raise
        print(f"monogram: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("monogram: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        sys.exit(141)
