"""`--history`: item ids on one line of CSV, and what may have been meant where an id is unknown."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from monogram.cli.alike import alike
from monogram.cli.common import few
from monogram.errors import ParameterError

RULE = "ids in --history are separated by commas, and an id with a comma stands in double quotes, as in CSV"
JOINED = 5  # pieces between commas that may be one id


def parse_history(text: str, flag: str = "--history") -> list[str]:
    """Ids from one line of CSV: an id with a comma stands in double quotes; nothing is an empty list."""
    try:
        found = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ParameterError(
            f'{flag} {text!r} cannot be read ({error}); expected ids such as a,b or, with a comma inside, "a, b",c'
        ) from error
    return [one for one in found[0] if one] if found else []


def advice(texts: Iterable[str], unknown: Iterable[Any], items: Any) -> str:
    """What to say after the unknown items: nothing if none is from a history, else the rule and known ids like them."""
    lost = set(unknown)
    asked = [text for text in texts if lost.intersection(parse_history(text))]
    if not asked:
        return ""
    meant = [one for text in asked for one in _meant(text, items)]
    return f"; {RULE}" + (f". Did you mean {few(meant)}, as in --history {_quoted(meant[0])}?" if meant else "")


def _meant(text: str, items: Any) -> list[Any]:
    """Known ids that the text may hold beside those it was read as."""
    read = parse_history(text)
    return [one for one in alike([*_runs(text.split(",")), *read], items) if str(one) not in read]


def _runs(pieces: Sequence[str]) -> Iterator[str]:
    """Neighbours joined by their commas again."""
    for start in range(len(pieces)):
        for stop in range(start + 1, min(start + JOINED, len(pieces)) + 1):
            yield ",".join(pieces[start:stop])


def _quoted(one: Any) -> str:
    """An id as it is written on a command line."""
    text = str(one)
    plain = '"' not in text and parse_history(text) == [text]
    return shlex.quote(text if plain else '"' + text.replace('"', '""') + '"')
