"""`monogram explain`: what each item of a history adds to one item's score."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from monogram.cli.alike import hint
from monogram.cli.common import Json, answer, draw, talk, tell_unknown
from monogram.cli.history import advice, parse_history
from monogram.errors import ParameterError, UnknownIdError

EVERYONE = "(everyone)"


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as written by fit.")],
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Id of the item to explain.")],
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="For this known user.")] = None,
    history: Annotated[
        str | None,
        typer.Option("--history", metavar="A,B", help='For someone who used these, such as a,b or "a, with comma",b.'),
    ] = None,
    as_json: Json = False,
) -> None:
    """Why an item is recommended.

    Each item of the history with its exact share of the score; the shares sum to the score.
    """
    from monogram.models.files import load

    if (user is None) == (history is None):
        raise ParameterError("for whom? give either --user ID or --history a,b")
    used = None if history is None else parse_history(history)
    fitted = load(model)
    reason = _explained(fitted, user, used, item)
    unknown = reason.unknown_items
    tell_unknown("items", unknown, advice([history or ""], unknown, fitted.log_.items))
    if as_json:
        answer(_document(reason))
    else:
        draw([{"item": EVERYONE if one is None else one, "share": share} for one, share in _pairs(reason)])
        talk(f"{reason.item}: score {reason.score:.4f}")


def _explained(fitted: Any, user: str | None, used: list[str] | None, item: str) -> Any:
    """The reason; an unknown id is answered with known ones like it."""
    try:
        return fitted.explain(fitted.history(user) if used is None else used, item)
    except UnknownIdError as error:
        unknown_user = user is not None and user not in fitted.log_.users
        meant = hint([user], fitted.log_.users) if unknown_user else hint([item], fitted.log_.items)
        raise UnknownIdError(f"{error}{meant}") from error


def _pairs(reason: Any) -> list[tuple[Any, float]]:
    return [(row["item"], row["share"]) for row in reason.rows()]


def _document(reason: Any) -> dict[str, Any]:
    return {
        "item": reason.item,
        "score": reason.score,
        "base": reason.base,
        "shares": [{"item": one, "share": share} for one, share in _pairs(reason) if one is not None],
        "unknown_items": list(reason.unknown_items),
    }
