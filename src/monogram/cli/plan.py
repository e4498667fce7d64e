"""`monogram plan`: solver, bytes, flops and seconds of a fit, without fitting."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from monogram.cli.flags import Expand, KeepGram, Neighbours, Solver, column_flags, make_model, model_flags, split_solver
from monogram.cli.output import print_json, read_log
from monogram.cli.shared_options import ClusterAddress, Json, Memory, ModelName, Scratch, Threads
from monogram.errors import ParameterError


@model_flags
@column_flags
def command(
    log: Annotated[
        str | None, typer.Argument(metavar="LOG", help="Log to plan for, a file or folder; or give --size.")
    ] = None,
    model: ModelName = "ease",
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="USERS,ITEMS,EVENTS", help="Plan without a log, such as 30000,40000,800000."),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or float64.")] = "float32",
    memory: Memory = None,
    solver: Solver = None,
    keep_gram: KeepGram = False,
    neighbours: Neighbours = None,
    expand: Expand = False,
    scratch: Scratch = None,
    threads: Threads = None,
    cluster: ClusterAddress = None,
    as_json: Json = False,
    *,
    parameters: dict[str, Any],
    columns: dict[str, Any],
) -> None:
    """Show the memory and time that a fit would take, without fitting.

    A plan above the memory budget is shown too; the exit code is then that of a fit refused for its memory.
    """
    from monogram.models import clusters

    if (log is None) == (size is None):
        raise ParameterError(
            "neither or both of a log and --size were given; expected a log, or --size users,items,events"
        )
    chosen = split_solver(model, solver, parameters)
    recommender = make_model(model, parameters)
    log_or_size = parse_size(size) if size is not None else read_log(str(log), columns)
    options: dict[str, Any] = {"dtype": dtype, "memory": memory, "threads": threads, "keep_gram": keep_gram}
    options |= {"neighbours": neighbours, "expand": "file" if expand else False}
    with clusters.connection(cluster) as connected:
        plan = recommender.plan(log_or_size, **options, solver=chosen, scratch=scratch, cluster=connected)
    if as_json:
        print_json(_document(model, recommender, plan))
    else:
        print(plan, flush=True)
    plan.require()


def parse_size(text: str) -> tuple[int, int, int]:
    """Three whole numbers from a text such as 30000,40000,800000."""
    try:
        users, items, events = (int(number) for number in text.split(","))
    except ValueError:
        raise ParameterError(
            f"--size {text!r}: expected three whole numbers, users,items,events, such as 30000,40000,800000"
        ) from None
    return users, items, events


def _document(name: str, model: Any, plan: Any) -> dict[str, Any]:
    return {
        "model": name,
        "parameters": model.params(),
        "users": plan.users,
        "items": plan.items,
        "events": plan.events,
        "dtype": plan.dtype,
        "budget": plan.budget,
        "fits": plan.fits,
        "chosen": plan.chosen.solver,
        "costs": plan.rows(),
    }
