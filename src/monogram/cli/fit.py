"""`monogram fit`: a log in, a model file out."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.common import (
    ClusterAddress,
    Json,
    Memory,
    ModelName,
    Scratch,
    Threads,
    answer,
    not_over,
    read_log,
    talk,
    telling,
)
from monogram.cli.flags import KeepGram, Solver, column_flags, make, model_flags, split_solver


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
    """Learn from a log and write a model file."""
    from monogram.models import clusters

    chosen = split_solver(model, solver, parameters)
    if chosen == "disk" and scratch is None:
        scratch = output.absolute().parent
    how: dict[str, Any] = {"dtype": dtype, "memory": memory, "threads": threads, "keep_gram": keep_gram}
    how |= {"solver": chosen, "scratch": scratch}
    made = make(model, parameters)
    not_over(output, log)
    made.plan((1, 1, 1), **how)  # wrong options, before reading
    clusters.check(made, cluster, chosen)
    with clusters.connection(cluster) as held:
        data = read_log(log, columns)
        plan = made.plan(data, **how, cluster=held)
        talk(str(plan))
        with resumable(scratch if plan.chosen.disk else None):
            with live(plan) as progress, telling():
                made.fit(data, **how, progress=progress, cluster=held)
            made.save(output)
    talk(str(made.report_))
    talk(f"wrote {output}")
    if json:
        answer({"model": model, "parameters": made.params(), "output": str(output)} | dataclasses.asdict(made.report_))


@contextmanager
def resumable(scratch: Path | None) -> Iterator[None]:
    """Inside, a fit on disk that is stopped says where it goes on from."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if scratch is not None and any(scratch.glob("monogram-*/journal.jsonl")):
            talk(f"stopped: what is finished is kept in {scratch}/monogram-…; the same command goes on from there")
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
