"""A progress bar for reading that takes a while, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

_T = TypeVar("_T")
PATIENCE = 1.0  # seconds before a bar appears


def watched(
    steps: Iterable[_T],
    total: int,
    unit: str,
    quiet: bool,
    what: str = "reading",
    done: Callable[[_T], int] | None = None,
) -> Iterator[_T]:
    """Pass the steps on; after a second, show on a terminal's stderr how far it has come.

    `done` says how much of the total is behind a step; without it, each counts 1.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield from steps
        return
    begun, bar, task = time.monotonic(), None, None
    try:
        for number, step in enumerate(steps, 1):
            yield step
            if bar is None and time.monotonic() - begun > PATIENCE:
                bar = _bar(unit)
                task = bar.add_task(what, total=total or None)
                bar.start()
            if bar is not None:
                bar.update(task, completed=number if done is None else done(step))
    finally:
        if bar is not None:
            bar.stop()


def _bar(unit: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    text = TextColumn("{task.description}")
    return Progress(text, BarColumn(), amount, Remaining(), console=Console(stderr=True), transient=True)
