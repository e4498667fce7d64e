"""A progress bar for long reads, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

_T = TypeVar("_T")
DELAY = 1.0  # seconds before the bar appears


def with_progress(
    steps: Iterable[_T],
    total: int,
    unit: str,
    quiet: bool,
    title: str = "reading",
    done: Callable[[_T], int] | None = None,
) -> Iterator[_T]:
    """Yield the steps; after a second, show the progress on stderr if it is a terminal.

    `done` gives the part of the total that is done after a step; without it, each step counts 1.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield from steps
        return
    started, bar, task = time.monotonic(), None, None
    try:
        for number, step in enumerate(steps, 1):
            yield step
            if bar is None and time.monotonic() - started > DELAY:
                bar = _bar(unit)
                task = bar.add_task(title, total=total or None)
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
