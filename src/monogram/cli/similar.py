"""`monogram similar`: the items most similar to given items."""

from __future__ import annotations

from typing import Annotated

import typer

from monogram.cli.output import print_json, print_table, print_unknown_ids, quoted_ids
from monogram.cli.shared_options import Json, Threads
from monogram.cli.suggestions import suggestion
from monogram.errors import UnknownIdError


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as written by fit.")],
    item: Annotated[list[str], typer.Argument(metavar="ITEM", help="Ids of one or more items.")],
    k: Annotated[int, typer.Option("-k", metavar="N", help="Number of similar items for each item.")] = 10,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """List the items most similar to given items.

    Similarity is the score of the other item for a history that consists of the given item alone.
    """
    from monogram.engine.topk.few import one_request
    from monogram.models.files import load

    fitted = load(model)
    with one_request():
        result = fitted.similar(item, k, threads=threads)
    similar = suggestion(result.unknown_items, fitted.log_.items)
    if len(result.unknown_items) == len(item):
        raise UnknownIdError(f"the model knows no item {quoted_ids(item)}{similar}")
    print_unknown_ids("items", result.unknown_items, similar)
    if as_json:
        print_json(result.rows())
    else:
        print_table(result.rows())
