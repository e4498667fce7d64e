"""`monogram explain`: the contribution of each item of a history to the score of one item."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from monogram.cli.history import advice, asked_at, parse_history
from monogram.cli.output import print_json, print_stderr, print_table, print_unknown_ids
from monogram.cli.shared_options import AskedAt, Json
from monogram.cli.suggestions import suggestion
from monogram.errors import ParameterError, UnknownIdError

EVERYONE = "(everyone)"


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as written by fit.")],
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Id of the item to explain.")],
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="Explain for this known user.")] = None,
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="A,B",
            help='Explain for this history, the oldest first, such as a,b or "a, with comma",b.',
        ),
    ] = None,
    at: AskedAt = None,
    as_json: Json = False,
) -> None:
    """Explain why an item is recommended.

    Shows each item of the history with its weight at the time of asking and its exact share of the score; the shares
    sum to the score.
    """
    from monogram.models.files import load

    if (user is None) == (history is None):
        raise ParameterError("neither or both of --user and --history were given; expected --user ID or --history a,b")
    items = None if history is None else parse_history(history)
    fitted = load(model)
    explanation = _explained(fitted, user, items, item)
    unknown = explanation.unknown_items
    print_unknown_ids("items", unknown, advice([history or ""], unknown, fitted.log_.items))
    if as_json:
        print_json(_document(explanation))
    else:
        print_table(
            [{"item": EVERYONE if source is None else source, "share": share} for source, share in _pairs(explanation)]
        )
        print_stderr(f"{explanation.item}: score {explanation.score:.4f}")


def _explained(fitted: Any, user: str | None, items: list[str] | None, item: str) -> Any:
    """The explanation; the error for an unknown id suggests similar known ids."""
    try:
        return fitted.explain(fitted.history(user) if items is None else items, item)
    except UnknownIdError as error:
        unknown_user = user is not None and user not in fitted.log_.users
        similar = suggestion([user], fitted.log_.users) if unknown_user else suggestion([item], fitted.log_.items)
        raise UnknownIdError(f"{error}{similar}") from error


def _pairs(explanation: Any) -> list[tuple[Any, float]]:
    return [(row["item"], row["share"]) for row in explanation.rows()]


def _document(explanation: Any) -> dict[str, Any]:
    return {
        "item": explanation.item,
        "score": explanation.score,
        "base": explanation.base,
        "shares": [{"item": source, "share": share} for source, share in _pairs(explanation) if source is not None],
        "unknown_items": list(explanation.unknown_items),
    }
