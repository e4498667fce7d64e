"""Suggestions for unknown ids: known ids that differ only in case, accents or spaces."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any


def normalized(id_: Any) -> str:
    """An id in lower case, without accents and repeated spaces."""
    characters = unicodedata.normalize("NFKD", str(id_).casefold())
    return " ".join("".join(character for character in characters if not unicodedata.combining(character)).split())


def similar_ids(unknown: Iterable[Any], known: Iterable[Any]) -> list[Any]:
    """Known ids that differ from unknown ones only in case, accents or spaces."""
    wanted = {normalized(id_) for id_ in unknown}
    return [id_ for id_ in known if normalized(id_) in wanted] if wanted else []


def suggestion(unknown: Iterable[Any], known: Iterable[Any]) -> str:
    """The end of a message about unknown ids: the known ids that may have been meant, if any."""
    from monogram.cli.output import quoted_ids

    similar = similar_ids(unknown, known)
    return f". Did you mean {quoted_ids(similar)}?" if similar else ""
