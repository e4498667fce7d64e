"""`monogram plan`: solver, bytes, flops and seconds of a fit that is not done."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from monogram.cli.common import ClusterAddress, Json, Memory, ModelName, Scratch, Threads, answer, read_log
from monogram.cli.flags import KeepGram, Solver, column_flags, make, model_flags, split_solver
from monogram.errors import ParameterError


@model_flags
@column_flags
def command(
    log: Annotated[
        str | None, typer.Argument(metavar="LOG", help="Log that would be fitted, a file or folder; or give --size.")
    ] = None,
    model: ModelName = "ease",
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="USERS,ITEMS,EVENTS", help="When there is no log yet: 30000,40000,800000."),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or float64.")] = "float32",
    memory: Memory = None,
    solver: Solver = None,
    keep_gram: KeepGram = False,
    scratch: Scratch = None,
    threads: Threads = None,
    cluster: ClusterAddress = None,
    as_json: Json = False,
    *,
    parameters: dict[str, Any],
    columns: dict[str, Any],
) -> None:
    """What a fit would cost, before it costs anything.

    A plan over the memory budget is still shown; the exit code then is that of a fit refused for its memory.
    """
    from monogram.models import clusters

    if (log is None) == (size is None):
        raise ParameterError("plan for what? give either a log or --size users,items,events")
    chosen = split_solver(model, solver, parameters)
    recommender = make(model, parameters)
    given = parse_size(size) if size is not None else read_log(str(log), columns)
    how: dict[str, Any] = {"dtype": dtype, "memory": memory, "threads": threads, "keep_gram": keep_gram}
    with clusters.connection(cluster) as held:
        found = recommender.plan(given, **how, solver=chosen, scratch=scratch, cluster=held)
    if as_json:
        answer(_document(model, recommender, found))
    else:
        print(found, flush=True)
    found.require()


def parse_size(text: str) -> tuple[int, int, int]:
    """Three whole numbers from a text such as 30000,40000,800000."""
    try:
        users, items, events = (int(one) for one in text.split(","))
    except ValueError:
        raise ParameterError(
            f"--size {text!r}: expected three whole numbers, users,items,events, such as 30000,40000,800000"
        ) from None
    return users, items, events


def _document(name: str, model: Any, found: Any) -> dict[str, Any]:
    return {
        "model": name,
        "parameters": model.params(),
        "users": found.users,
        "items": found.items,
        "events": found.events,
        "dtype": found.dtype,
        "budget": found.budget,
        "fits": found.fits,
        "chosen": found.chosen.solver,
        "costs": found.rows(),
    }
