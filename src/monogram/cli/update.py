"""`monogram update`: users come and go in a model file, without a refit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.common import Json, Memory, Threads, answer, few, not_over, read_log, talk
from monogram.cli.flags import column_flags
from monogram.cli.history import parse_history
from monogram.cli.recommend import read_ids
from monogram.errors import ParameterError, UnknownIdError


@column_flags
def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file of a full-rank model, as written by fit.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="The model file to write; may be MODEL itself, which stays till then."),
    ],
    columns: dict[str, Any],
    add: Annotated[
        str | None, typer.Option("--add", metavar="LOG", help="File with new events, of new or known users.")
    ] = None,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="A,B", help="Users to forget, such as ann,bob.")
    ] = None,
    forget_file: Annotated[
        str | None, typer.Option("--forget-file", metavar="FILE", help="File of users to forget, one a line.")
    ] = None,
    new_items: Annotated[
        bool, typer.Option("--new-items", help="Add items the model does not know; else they are an error.")
    ] = False,
    penalties: Annotated[
        str, typer.Option("--penalties", help="followed (equal to a refit) or frozen (quicker, with dropout).")
    ] = "followed",
    on_drift: Annotated[
        str, typer.Option("--on-drift", help="When rounding has added up: refit, error or warn.")
    ] = "refit",
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Add events to a model file, or forget users, without a refit.

    What is written equals a fit on the changed log. With --forget it holds nothing of those users; other copies of the
    model, its log and its backups are not touched.
    """
    from monogram.models import updates
    from monogram.models.change import UpdateOptions
    from monogram.models.files import load

    names = parse_history(forget, "--forget") if forget is not None else []
    names += read_ids(forget_file) or []
    if add is None and not names:
        raise ParameterError("nothing to change: give --add LOG, --forget A,B or --forget-file FILE")
    not_over(output, add, forget_file)
    how = {"penalties": penalties, "on_drift": on_drift, "memory": memory, "threads": threads}
    UpdateOptions(penalties, on_drift, memory, threads)  # wrong options, before reading
    made: Any = load(model)
    updates.check(made)
    log = None if add is None else read_log(add, columns)
    both = [] if log is None else [name for name in names if name in log.users]
    if both:
        raise ParameterError(
            f"{few(both)} would be forgotten and added at once; leave them out of --forget or of --add"
        )
    if names:
        made.forget_users(names, **how)
        talk(f"forgot {len(set(names)):,} users")
    if log is not None:
        _add(made, log, new_items, how)
    made.save(output)
    talk(str(made.report_))
    talk(f"wrote {output}")
    if as_json:
        sizes = {"users": made.log_.n_users, "items": made.log_.n_items, "events": made.log_.n_events}
        answer({"model": made.name, "output": str(output)} | sizes | dataclasses.asdict(made.report_))


def _add(model: Any, log: Any, new_items: bool, how: dict[str, Any]) -> None:
    """What the library says about new items, in the words of the command."""
    try:
        model.add_users(log, new_items=new_items, **how)
    except UnknownIdError as error:
        raise UnknownIdError(f"{str(error).rpartition(';')[0]}; add them with --new-items") from error
