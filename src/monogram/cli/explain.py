"""`monogram explain`: the contribution of each item of a history to the score of one item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from monogram.cli.history import advice, asked_at, check_times, with_times
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
    times: Annotated[
        str | None,
        typer.Option(
            "--times",
            metavar="A,B",
            help="Times of the items of --history, one for each: dates, or numbers in the unit of the log's times.",
        ),
    ] = None,
    at: AskedAt = None,
    as_json: Json = False,
) -> None:
    """Explain why an item is recommended.

    Shows each item of the history with its weight at the time of asking and its exact share of the score; the shares
    sum to the score. For a model without additive shares it shows how much the score falls without each item.
    """
    from monogram.models.files import load

    if (user is None) == (history is None):
        raise ParameterError("neither or both of --user and --history were given; expected --user ID or --history a,b")
    if times is not None and history is None:
        raise ParameterError("--times was given without --history; expected both, or --user ID alone")
    given = None if history is None else with_times([history], [] if times is None else [times])[0]
    asked = Asked(user, given, item, asked_at(at))
    fitted = load(model)
    if history is not None and times is None:
        check_times(fitted, [history], [])
    explanation = _explained(fitted, asked)
    unknown = explanation.unknown_items
    print_unknown_ids("items", unknown, advice([history or ""], unknown, fitted.log_.items))
    if as_json:
        print_json(_document(explanation))
    else:
        number = "share" if explanation.additive else "difference"
        print_table([_shown(row, number) for row in explanation.rows()])
        print_stderr(f"{explanation.item}: score {explanation.score:.4f}")
        if not explanation.additive:
            from monogram.ranking import DIFFERENCES

            print_stderr(f"{DIFFERENCES}; the numbers need not sum to the score")


@dataclass(frozen=True)
class Asked:
    """An item to explain at a time of asking, for a known user or for a history."""

    user: str | None
    history: Any
    item: str
    at: Any


def _explained(fitted: Any, asked: Asked) -> Any:
    """The explanation; the error for an unknown id suggests similar known ids."""
    log = fitted.log_
    try:
        return fitted.explain(asked.history, asked.item, user=asked.user, at=asked.at)
    except UnknownIdError as error:
        unknown_user = asked.user is not None and asked.user not in log.users
        similar = suggestion([asked.user], log.users) if unknown_user else suggestion([asked.item], log.items)
        raise UnknownIdError(f"{error}{similar}") from error


def _shown(row: dict[str, Any], number: str) -> dict[str, Any]:
    """A row of the table, with the name of its last column; what everyone gets has no weight."""
    item = EVERYONE if row["item"] is None else row["item"]
    return {"item": item, "weight": "" if row["weight"] is None else row["weight"], number: row["share"]}


def _document(explanation: Any) -> dict[str, Any]:
    return {
        "item": explanation.item,
        "score": explanation.score,
        "base": explanation.base,
        "additive": explanation.additive,
        "shares": [row for row in explanation.rows() if row["item"] is not None],
        "unknown_items": list(explanation.unknown_items),
    }
