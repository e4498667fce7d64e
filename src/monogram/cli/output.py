"""Output of the commands: results to stdout as a table or JSON, diagnostics to stderr."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from monogram.cli.flags import flag_of
from monogram.errors import MonogramWarning, ParameterError, StorageError, render


def read_log(path: str, columns: dict[str, Any]) -> Any:
    """Read the log at a path; its size and the notes of the reader go to stderr."""
    from monogram.data.readers import read

    log = read(path, **columns, tell=lambda text: print_stderr(render(text, flag_of)))
    print_stderr(f"{log.n_events:,} events of {log.n_users:,} users with {log.n_items:,} items")
    for note in log.notes:
        if "guessed" not in note:  # printed while reading
            print_stderr(f"  {note}")
    return log


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Inside, each warning of the library is one line on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", MonogramWarning)
        warnings.showwarning = lambda message, *_: print_stderr(f"warning: {render(message, flag_of)}")
        yield


def print_stderr(text: str) -> None:
    """Print a diagnostic to stderr; a closed stderr is ignored, so that the command continues."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def check_output(output: Any, *inputs: Any, flag: str = "--output") -> None:
    """Refuse an output that is also an input, or that cannot be written, before any work is done."""
    path = Path(output)
    for source in inputs:
        if source is not None and path.exists() and Path(source).exists() and path.samefile(source):
            raise ParameterError(f"the output {path} is also an input; give another {flag}")
    if path.exists() and not path.is_file():
        raise StorageError(f"the output {path} is not a file; give the name of a file")
    if not path.parent.is_dir():
        raise StorageError(f"the folder {path.parent} does not exist; create it, or give another {flag}")
    if not os.access(path.parent, os.W_OK):
        raise StorageError(f"the folder {path.parent} is not writable; give another {flag}")


def print_json(value: Any) -> None:
    """Print a value as JSON to stdout; UUIDs, which JSON does not have, as text."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    # Bytes of the command line that are not UTF-8 become JSON escapes. The flush reports a closed pipe here.
    print(text.encode(errors="backslashreplace").decode(), flush=True)


def console(**options: Any) -> Any:
    """A console of rich that raises `BrokenPipeError` for a closed pipe, as `print` does."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipeConsole(highlight=False, **options)


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table to stdout."""
    from rich.table import Table

    if not rows:
        print_stderr("nothing to show")
        return
    numeric = {
        name for name, value in rows[0].items() if isinstance(value, int | float) and not isinstance(value, bool)
    }
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in rows[0]:
        table.add_column(name, justify="right" if name in numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*[f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()])
    # In a pipe the table is as wide as its content: no id is cut or wrapped.
    width = None if sys.stdout.isatty() else 1_000_000
    console(markup=False, emoji=False, width=width).print(table)


def quoted_ids(ids: Sequence[Any], number: int | None = None) -> str:
    """The first five ids, in quotes so that spaces are visible, and how many more there are.

    `number` is the number of all ids where `ids` holds only the first of them.
    """
    from monogram.ranking import shorten

    more = (len(ids) if number is None else number) - len(ids[:5])
    return ", ".join(repr(shorten(id_)) for id_ in ids[:5]) + (f" and {more:,} more" if more else "")


def print_unknown_ids(kind: str, ids: Sequence[Any], advice: str = "") -> None:
    """Print the ids that were left out because the model does not know them, and advice."""
    if ids:
        print_stderr(f"unknown {kind}, left out: {quoted_ids(ids)}{advice}")
