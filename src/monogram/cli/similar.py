"""`monogram similar`: items like the given ones."""

from __future__ import annotations

from typing import Annotated

import typer

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

    found = load(model).similar(item, k, threads=threads)
    if len(found.unknown_items) == len(item):
        raise UnknownIdError(f"the model knows no item {few(item)}")
    tell_unknown("items", found.unknown_items)
    if as_json:
        answer(found.rows())
    else:
        draw(found.rows())
