"""What the commands share: options that several have, and where output goes.

Data goes to stdout, talk to stderr; tables are drawn for people, `--json` is for programs.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.flags import flag_of
from monogram.errors import MonogramWarning, ParameterError, StorageError, render


def names_of_models(incomplete: str) -> list[str]:
    """What a shell offers for a model, or for the last of several by commas."""
    from monogram.models.registry import MODELS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in MODELS if name.startswith(last)]


ModelName = Annotated[str, typer.Option("--model", help="Name of the model.", autocompletion=names_of_models)]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads to use; all cores when not given.")]
Scratch = Annotated[
    Path | None,
    typer.Option(
        "--scratch", help="Folder for the large files of a fit on disk; named, it is used when memory is short."
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Dask scheduler to work on, tcp://host:port; or local, local:N to start one.",
    ),
]
Memory = Annotated[str | None, typer.Option("--memory", help="What a fit may take, such as '8 GB'.")]


def read_log(path: str, columns: dict[str, Any]) -> Any:
    """The log at a path; what reading did is told on stderr."""
    from monogram.data.readers import read

    log = read(path, **columns, tell=lambda text: talk(render(text, flag_of)))
    talk(f"{log.n_events:,} events of {log.n_users:,} users with {log.n_items:,} items")
    for note in log.notes:
        if "guessed" not in note:  # that was shown while reading
            talk(f"  {note}")
    return log


@contextmanager
def telling() -> Iterator[None]:
    """Inside, what the library warns of is told in a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", MonogramWarning)
        warnings.showwarning = lambda message, *_: talk(f"warning: {render(message, flag_of)}")
        yield


def talk(text: str) -> None:
    """Say something to a person, on stderr; that nobody can hear it must not cost the work."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def not_over(output: Any, *inputs: Any, flag: str = "--output") -> None:
    """Refuse to write over what is read, and what cannot be written to, before any work is done."""
    path = Path(output)
    for one in inputs:
        if one is not None and path.exists() and Path(one).exists() and path.samefile(one):
            raise ParameterError(f"the output {path} is also an input; give another {flag}")
    if path.exists() and not path.is_file():
        raise StorageError(f"the output {path} is not a file; give the name of one")
    if not path.parent.is_dir():
        raise StorageError(f"the folder {path.parent} is not there; make it, or give another {flag}")
    if not os.access(path.parent, os.W_OK):
        raise StorageError(f"the folder {path.parent} may not be written to; give another {flag}")


def answer(value: Any) -> None:
    """Print a value as JSON on stdout; ids that JSON does not know (UUIDs) as text."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    # What is not UTF-8 on a command line becomes a JSON escape; flushed here, a closed pipe is noticed in time.
    print(text.encode(errors="backslashreplace").decode(), flush=True)


def screen(**options: Any) -> Any:
    """Where to draw: a console of rich that leaves a closed pipe to the program, as everything else does."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Screen(highlight=False, **options)


def draw(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table on stdout."""
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
    screen(markup=False, emoji=False, width=width).print(table)


def few(ids: Sequence[Any], number: int | None = None) -> str:
    """The first ids of a list, in quotes so that spaces are seen, and how many more there are of that number."""
    from monogram.ranking import shorten

    more = (len(ids) if number is None else number) - len(ids[:5])
    return ", ".join(repr(shorten(one)) for one in ids[:5]) + (f" and {more:,} more" if more else "")


def tell_unknown(what: str, ids: Sequence[Any], advice: str = "") -> None:
    """Say which ids were left out because the model does not know them, and what may help."""
    if ids:
        talk(f"unknown {what}, left out: {few(ids)}{advice}")
