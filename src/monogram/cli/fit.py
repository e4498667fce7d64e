"""`monogram fit`: fit a model to a log, and write a model file."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.flags import KeepGram, Solver, column_flags, make_model, model_flags, split_solver
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
    memory: Memory = None,
    scratch: Scratch = None,
    threads: Threads = None,
    cluster: ClusterAddress = None,
    json: Json = False,
) -> None:
    """Fit a model to a log and write a model file."""
    from monogram.models import clusters

    chosen = split_solver(model, solver, parameters)
    if chosen == "disk" and scratch is None:
        scratch = output.absolute().parent
    options: dict[str, Any] = {"dtype": dtype, "memory": memory, "threads": threads, "keep_gram": keep_gram}
    options |= {"solver": chosen, "scratch": scratch}
    recommender = make_model(model, parameters)
    check_output(output, log)
    recommender.plan((1, 1, 1), **options)  # reports wrong options before the log is read
    clusters.check(recommender, cluster, chosen)
    with clusters.connection(cluster) as held:
        data = read_log(log, columns)
        plan = recommender.plan(data, **options, cluster=held)
        print_stderr(str(plan))
        with resumable(scratch if plan.chosen.disk else None):
            with live(plan) as progress, warnings_on_stderr():
                recommender.fit(data, **options, progress=progress, cluster=held)
            recommender.save(output)
    print_stderr(str(recommender.report_))
    print_stderr(f"wrote {output}")
    if json:
        summary = {"model": model, "parameters": recommender.params(), "output": str(output)}
        print_json(summary | dataclasses.asdict(recommender.report_))


@contextmanager
def resumable(scratch: Path | None) -> Iterator[None]:
    """Inside, a fit on disk that is interrupted prints how to resume it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if scratch is not None and any(scratch.glob("monogram-*/journal.jsonl")):
            print_stderr(f"stopped: finished work is in {scratch}/monogram-…; run the same command to resume")
        raise


@contextmanager
def live(plan: Any) -> Iterator[Callable[[str, float], None]]:
    """Progress by stage on a terminal: the work done, its speed, and the time left."""
    if not sys.stderr.isatty():
        from monogram.engine.runtime.progress import silent

        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    total = {stage: work for stage, work, _ in plan.chosen.stages}
    unit = {stage: what for stage, _, what in plan.chosen.stages}
    columns = (
        TextColumn("{task.description:8}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def step(stage: str, amount: float) -> None:
            if stage not in total:
                return
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total[stage], done="")
            task = bar.tasks[tasks[stage]]
            done = min(task.completed + amount, total[stage])
            bar.update(tasks[stage], completed=done, done=_done(unit[stage], done, total[stage]))

        yield step


def _done(unit: str, done: float, total: float) -> str:
    if unit == "flops":
        return f"{done / 1e9:,.0f} of {total / 1e9:,.0f} GFLOP"
    return f"{done:,.0f} of {total:,.0f} {unit}"
