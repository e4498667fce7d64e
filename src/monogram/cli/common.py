"""What the commands share: options that several have, and where output goes.

Data goes to stdout, talk to stderr; tables are drawn for people, `--json` is for programs.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

UserColumn = Annotated[str | None, typer.Option("--user-column", help="Column of the users; guessed when not given.")]
ItemColumn = Annotated[str | None, typer.Option("--item-column", help="Column of the items; guessed when not given.")]
WeightColumn = Annotated[str | None, typer.Option("--weight-column", help="Column of weights; none when not given.")]
TimeColumn = Annotated[str | None, typer.Option("--time-column", help="Column of times; none when not given.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave unreadable rows out, and count them.")]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads to use; all cores when not given.")]
Memory = Annotated[str | None, typer.Option("--memory", help="What a fit may take, such as '8 GB'.")]


def read_log(
    path: str, user: str | None, item: str | None, weight: str | None, time: str | None, skip: bool = False
) -> Any:
    """The log at a path; what reading did is told on stderr."""
    from monogram.data.readers import read

    log = read(path, user, item, weight, time, on_error="skip" if skip else "raise", quiet=False)
    talk(f"{log.n_events:,} events of {log.n_users:,} users with {log.n_items:,} items")
    for note in log.notes:
        talk(f"  {note}")
    return log


def talk(text: str) -> None:
    """Say something to a person, on stderr."""
    print(text, file=sys.stderr)


def answer(value: Any) -> None:
    """Print a value as JSON on stdout; ids that JSON does not know (UUIDs) as text."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


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
        table.add_column(name, justify="right" if name in numbers else "left")
    for row in rows:
        table.add_row(*[f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()])
    Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty()).print(table)
