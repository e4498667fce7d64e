"""`monogram update`: add events to a model file and forget users, without a refit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.flags import column_flags
from monogram.cli.history import parse_history
from monogram.cli.output import check_output, print_json, print_stderr, quoted_ids, read_log
from monogram.cli.recommend import read_ids
from monogram.cli.shared_options import Json, Memory, Threads
from monogram.errors import ParameterError


@column_flags
def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file of a full-rank model, as written by fit.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="The model file to write; may be MODEL itself, which is then replaced."),
    ],
    columns: dict[str, Any],
    add: Annotated[
        str | None, typer.Option("--add", metavar="LOG", help="Log of new events, of new or known users.")
    ] = None,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="A,B", help="Users to forget, such as ann,bob.")
    ] = None,
    forget_file: Annotated[
        str | None, typer.Option("--forget-file", metavar="FILE", help="File of users to forget, one per line.")
    ] = None,
    new_items: Annotated[
        bool, typer.Option("--new-items", help="Add items that the model does not know, instead of refusing them.")
    ] = False,
    penalties: Annotated[
        str, typer.Option("--penalties", help="followed (equal to a refit) or frozen (faster with dropout).")
    ] = "followed",
    on_drift: Annotated[
        str, typer.Option("--on-drift", help="When accumulated rounding errors are too large: refit, error or warn.")
    ] = "refit",
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Add events to a model file, or forget users, without a refit.

    The written model equals a fit on the changed log. With --forget it contains no data of those users; other copies
    of the model, the log and backups are not changed.
    """
    from monogram.models import updates
    from monogram.models.change import UpdateOptions
    from monogram.models.files import load

    names = parse_history(forget, "--forget") if forget is not None else []
    names += read_ids(forget_file) or []
    if add is None and not names:
        raise ParameterError("nothing to change: give --add LOG, --forget A,B or --forget-file FILE")
    check_output(output, add, forget_file)
    options = {"penalties": penalties, "on_drift": on_drift, "memory": memory, "threads": threads}
    UpdateOptions(penalties, on_drift, memory, threads)  # reports wrong options before reading
    recommender: Any = load(model)
    updates.check(recommender)
    log = None if add is None else read_log(add, columns)
    shared = [] if log is None else [name for name in names if name in log.users]
    if shared:
        raise ParameterError(
            f"{quoted_ids(shared)} would be forgotten and added in one command; remove them from --forget or from --add"
        )
    if names:
        recommender.forget_users(names, **options)
        print_stderr(f"forgot {len(set(names)):,} users")
    if log is not None:
        recommender.add_users(log, new_items=new_items, **options)
    recommender.save(output)
    print_stderr(str(recommender.report_))
    print_stderr(f"wrote {output}")
    if as_json:
        sizes = {
            "users": recommender.log_.n_users,
            "items": recommender.log_.n_items,
            "events": recommender.log_.n_events,
        }
        print_json({"model": recommender.name, "output": str(output)} | sizes | dataclasses.asdict(recommender.report_))
