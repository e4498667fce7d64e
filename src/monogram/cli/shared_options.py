"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def complete_model(incomplete: str) -> list[str]:
    """Shell completion of a model name, or of the last one of a comma-separated list."""
    from monogram.models.registry import MODELS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in MODELS if name.startswith(last)]


ModelName = Annotated[str, typer.Option("--model", help="Name of the model.", autocompletion=complete_model)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Number of threads; by default all cores.")]
Scratch = Annotated[
    Path | None,
    typer.Option(
        "--scratch",
        help="Folder for the large files of a fit on disk, which is used when memory is too small, and for the "
        "checkpoints of a gradient-trained fit.",
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Dask scheduler, tcp://host:port; or local or local:N to start one.",
    ),
]
AskedAt = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Time of asking, from which the ages of events count: a date such as 2026-05-01, or a number in the unit "
        "of the log's times; by default the time of the latest event.",
    ),
]
HistoryTimes = Annotated[
    list[str] | None,
    typer.Option(
        "--times",
        metavar="A,B",
        help="Times of the items of --history, one for each: dates, or numbers in the unit of the log's times; may be "
        "repeated, once for each history.",
    ),
]
Memory = Annotated[str | None, typer.Option("--memory", help="Memory budget of a fit, such as '8 GB'.")]
