"""A progress bar for reading that takes a while, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from monogram.data.source import Batch

PATIENCE = 1.0  # seconds before a bar appears


def watched(batches: Iterator[Batch], total: int, unit: str, quiet: bool) -> Iterator[Batch]:
    """Pass the batches on; after a second, show on a terminal's stderr how far reading has come."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield from batches
        return
    begun, bar, task = time.monotonic(), None, None
    try:
        for batch in batches:
            yield batch
            if bar is None and time.monotonic() - begun > PATIENCE:
                bar = _bar(unit)
                task = bar.add_task("reading", total=total or None)
                bar.start()
            if bar is not None:
                bar.update(task, completed=batch.done)
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
