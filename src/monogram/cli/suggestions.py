"""Ids that may have been meant: the same but for capitals, accents and spaces."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any


def bare(one: Any) -> str:
    """An id without what is easily mistyped."""
    parts = unicodedata.normalize("NFKD", str(one).casefold())
    return " ".join("".join(part for part in parts if not unicodedata.combining(part)).split())


def alike(ids: Iterable[Any], known: Iterable[Any]) -> list[Any]:
    """Known ids that only differ from the given ones in what is easily mistyped."""
    wanted = {bare(one) for one in ids}
    return [one for one in known if bare(one) in wanted]


def hint(ids: Iterable[Any], known: Iterable[Any]) -> str:
    """A question to end a message about unknown ids with, where there are such."""
    from monogram.cli.common import few

    meant = alike(ids, known)
    return f". Did you mean {few(meant)}?" if meant else ""
