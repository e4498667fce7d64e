"""`monogram fit`: fit a model to a log, and write a model file."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.flags import Expand, KeepGram, Neighbours, Solver, column_flags, make_model, model_flags, split_solver
from monogram.cli.output import check_output, print_json, print_stderr, read_log, warnings_on_stderr
from monogram.cli.shared_options import ClusterAddress, Json, Memory, ModelName, Scratch, Threads


@model_flags
@column_flags
def command(
    log: Annotated[
        str, typer.Argument(help="File of events (csv, tsv, parquet, json lines, npz), or a folder of Parquet files.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model file to write.")],
    parameters: dict[str, Any],
    columns: dict[str, Any],
    model: ModelName = "ease",
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or float64.")] = "float32",
    solver: Solver = None,
    keep_gram: KeepGram = False,
    neighbours: Neighbours = None,
    expand: Expand = False,
    memory: Memory = None,
    scratch: Scratch = None,
    threads: Threads = None,
    cluster: ClusterAddress = None,
    json: Json = False,
) -> None:
    """Fit a model to a log and write a model file."""
    from monogram.models import clusters
    from monogram.models.report import EXPANDED

    chosen = split_solver(model, solver, parameters)
    if chosen == "disk" and scratch is None:
        scratch = output.absolute().parent
    options: dict[str, Any] = {"dtype": dtype, "memory": memory, "threads": threads, "keep_gram": keep_gram}
    options |= {"neighbours": neighbours, "expand": "file" if expand else False}
    options |= {"solver": chosen, "scratch": scratch}
    recommender = make_model(model, parameters)
    check_output(output, log)
    recommender.plan((1, 1, 1), **options)  # reports wrong options before the log is read
    clusters.check(recommender, cluster, chosen)
    with clusters.connection(cluster) as connected:
        data = read_log(log, columns)
        with live() as progress, resumable(scratch, progress):
            with warnings_on_stderr():
                recommender.fit(data, **options, progress=progress, cluster=connected)
            progress.stop()
            report = dataclasses.asdict(recommender.report_)
            print_stderr(str(recommender.report_))
            start = time.perf_counter()
            recommender.save(output, expand=expand, threads=threads)
    if expand and recommender.weights_.expansion is not None:
        report["solver"], report["seconds"] = EXPANDED, report["seconds"] | {"expand": time.perf_counter() - start}
        print_stderr(f"expanded the dual weights into the file in {report['seconds']['expand']:.2f} s")
    print_stderr(f"wrote {output}")
    if json:
        summary = {"model": model, "parameters": recommender.params(), "output": str(output)}
        print_json(summary | report)


class FitProgress:
    """What `fit` calls: prints the plan, then on a terminal the progress of each stage and the time left."""

    def __init__(self) -> None:
        self.plan: Any = None
        self.stored: Path | None = None
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}

    def planned(self, plan: Any) -> None:
        """Print the plan of the fit; its stages are those that are shown."""
        self.plan = plan
        print_stderr(str(plan))
        if sys.stderr.isatty() and plan.fits:
            self._bar = _bar()
            self._bar.start()

    def __call__(self, stage: str, amount: float) -> None:
        """Add to the work done in a stage."""
        sizes = {} if self._bar is None else {name: (work, unit) for name, work, unit in self.plan.chosen.stages}
        if stage not in sizes:
            return
        total, unit = sizes[stage]
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=total, done="")
        task = self._bar.tasks[self._tasks[stage]]
        done = min(task.completed + amount, total)
        self._bar.update(self._tasks[stage], completed=done, done=_done(unit, done, total))

    def validated(self, how: str) -> None:
        """Print on which events the metric of early stopping is measured."""
        print_stderr(f"early stopping is measured on {how}")

    def measured(self, metric: str, value: float) -> None:
        """Show a validation metric beside the bar of the epochs."""
        if self._bar is not None and "epochs" in self._tasks:
            self._bar.update(self._tasks["epochs"], description=f"{metric} {value:.4f}")

    def checkpoint(self, path: Path) -> None:
        """Remember where the training stores its checkpoint."""
        self.stored = path

    def stop(self) -> None:
        """Remove the bars from the terminal."""
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def live() -> Iterator[FitProgress]:
    """The progress of a fit, which leaves nothing on the terminal at the end."""
    progress = FitProgress()
    try:
        yield progress
    finally:
        progress.stop()


@contextmanager
def resumable(scratch: Path | None, progress: FitProgress) -> Iterator[None]:
    """Inside, a fit on disk, or with checkpoints, that is interrupted prints how to resume it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        on_disk = progress.plan is not None and progress.plan.chosen.disk
        if on_disk and scratch is not None and any(scratch.glob("monogram-*/journal.jsonl")):
            progress.stop()
            print_stderr(f"stopped: finished work is in {scratch}/monogram-…; run the same command to resume")
        elif progress.stored is not None and progress.stored.exists():
            progress.stop()
            print_stderr(f"stopped: the last checkpoint is {progress.stored}; run the same command to resume")
        raise


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:8}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _done(unit: str, done: float, total: float) -> str:
    if unit == "flops":
        return f"{done / 1e9:,.0f} of {total / 1e9:,.0f} GFLOP"
    return f"{done:,.0f} of {total:,.0f} {unit}"
