"""`monogram similar`: items like the given ones."""

from __future__ import annotations

from typing import Annotated

import typer

from monogram.cli.alike import hint
from monogram.cli.common import Json, Threads, answer, draw, few, tell_unknown
from monogram.errors import UnknownIdError


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as written by fit.")],
    item: Annotated[list[str], typer.Argument(metavar="ITEM", help="Ids of one or more items.")],
    k: Annotated[int, typer.Option("-k", metavar="N", help="How many items for each.")] = 10,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Items like the given ones.

    The measure is the model's own: the score of the other item for someone whose whole history is this one.
    """
    from monogram.models.files import load

    fitted = load(model)
    found = fitted.similar(item, k, threads=threads)
    meant = hint(found.unknown_items, fitted.log_.items)
    if len(found.unknown_items) == len(item):
        raise UnknownIdError(f"the model knows no item {few(item)}{meant}")
    tell_unknown("items", found.unknown_items, meant)
    if as_json:
        answer(found.rows())
    else:
        draw(found.rows())
