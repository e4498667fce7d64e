"""What the commands share: options that several have, and where output goes.

Data goes to stdout, talk to stderr; tables are drawn for people, `--json` is for programs.
"""

from __future__ import annotations

import csv
import json
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from monogram.errors import DataError, ParameterError, StorageError


def names_of_models(incomplete: str) -> list[str]:
    """What a shell offers for a model, or for the last of several by commas."""
    from monogram.models.registry import MODELS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in MODELS if name.startswith(last)]


ModelName = Annotated[str, typer.Option("--model", help="Name of the model.", autocompletion=names_of_models)]
UserColumn = Annotated[str | None, typer.Option("--user-column", help="Column of the users; guessed when not given.")]
ItemColumn = Annotated[str | None, typer.Option("--item-column", help="Column of the items; guessed when not given.")]
WeightColumn = Annotated[str | None, typer.Option("--weight-column", help="Column of weights; none when not given.")]
TimeColumn = Annotated[str | None, typer.Option("--time-column", help="Column of times; none when not given.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave unreadable rows out, and count them.")]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads to use; all cores when not given.")]
Memory = Annotated[str | None, typer.Option("--memory", help="What a fit may take, such as '8 GB'.")]


# What an error of reading says to Python, and what it says here.
FLAGS = {
    'on_error="skip"': "--skip-bad-rows",
    "user=": "--user-column ",
    "item=": "--item-column ",
    "weight=": "--weight-column ",
    "time=": "--time-column ",
}


def spelled(text: str) -> str:
    """A message of the library in the words of the commands."""
    for said, flag in FLAGS.items():
        text = text.replace(said, flag)
    return text


def read_log(
    path: str, user: str | None, item: str | None, weight: str | None, time: str | None, skip: bool = False
) -> Any:
    """The log at a path; what reading did is told on stderr."""
    from monogram.data.readers import read

    try:
        log = read(path, user, item, weight, time, on_error="skip" if skip else "raise", quiet=False)
    except DataError as error:
        raise DataError(spelled(str(error))) from error
    talk(f"{log.n_events:,} events of {log.n_users:,} users with {log.n_items:,} items")
    for note in log.notes:
        if "guessed" not in note:  # that was shown while reading
            talk(f"  {note}")
    return log


def talk(text: str) -> None:
    """Say something to a person, on stderr; that nobody can hear it must not cost the work."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def not_over(output: Any, *inputs: Any) -> None:
    """Refuse to write over what is read, and what cannot be written to, before any work is done."""
    path = Path(output)
    for one in inputs:
        if one is not None and path.exists() and Path(one).exists() and path.samefile(one):
            raise ParameterError(f"the output {path} is also an input; give another --output")
    if path.exists() and not path.is_file():
        raise StorageError(f"the output {path} is not a file; give the name of one")
    if not path.parent.is_dir():
        raise StorageError(f"the folder {path.parent} is not there; make it, or give another --output")
    if not os.access(path.parent, os.W_OK):
        raise StorageError(f"the folder {path.parent} may not be written to; give another --output")


def answer(value: Any) -> None:
    """Print a value as JSON on stdout; ids that JSON does not know (UUIDs) as text."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    # What is not UTF-8 on a command line becomes a JSON escape; flushed here, a closed pipe is noticed in time.
    print(text.encode(errors="backslashreplace").decode(), flush=True)


def draw(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table on stdout."""
    from rich.console import Console
    from rich.table import Table

    if not rows:
        talk("nothing to show")
        return
    numbers = {
        name for name, value in rows[0].items() if isinstance(value, int | float) and not isinstance(value, bool)
    }
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in rows[0]:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*[f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()])
    # In a pipe a table is as wide as it must be: no id is cut or broken.
    width = None if sys.stdout.isatty() else 1_000_000
    Console(highlight=False, markup=False, emoji=False, width=width).print(table)


def few(ids: Sequence[Any]) -> str:
    """The first ids of a list, and how many more there are."""
    return ", ".join(map(str, ids[:5])) + (f" and {len(ids) - 5:,} more" if len(ids) > 5 else "")


def parse_history(text: str) -> list[str]:
    """Item ids from one line of CSV: an id with a comma stands in double quotes; nothing is an empty history."""
    try:
        found = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ParameterError(
            f'--history {text!r} cannot be read ({error}); expected ids such as a,b or, with a comma inside, "a, b",c'
        ) from error
    return [one for one in found[0] if one] if found else []


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to that appears under its name when the block ends well, and not at all when it does not."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise StorageError(f"{path} was not written: there is no folder {target.parent}; make it first")
    if target.exists() and not target.is_file():
        raise StorageError(f"{path} was not written: it is not a file; give a file's name")
    temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError) or isinstance(error, StorageError | BrokenPipeError):
            raise
        raise StorageError(
            f"{path} was not written: {error.strerror or error}. What was there before is untouched; "
            "check the space on the disk and that the folder may be written to"
        ) from error
