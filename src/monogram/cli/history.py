"""`--history`: item ids on one line of CSV, and what may have been meant where an id is unknown."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from monogram.cli.common import few
from monogram.errors import ParameterError

RULE = "ids in --history are separated by commas, and an id with a comma stands in double quotes, as in CSV"
JOINED = 5  # pieces between commas that may be one id


def parse_history(text: str) -> list[str]:
    """Item ids from one line of CSV: an id with a comma stands in double quotes; nothing is an empty history."""
    try:
        found = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ParameterError(
            f'--history {text!r} cannot be read ({error}); expected ids such as a,b or, with a comma inside, "a, b",c'
        ) from error
    return [one for one in found[0] if one] if found else []


def advice(texts: Iterable[str], unknown: Iterable[Any], items: Any) -> str:
    """What to say after the unknown items: nothing if none is from a history, else the rule and known ids like them."""
    lost = set(unknown)
    asked = [text for text in texts if lost.intersection(parse_history(text))]
    if not asked:
        return ""
    meant = [one for text in asked for one in _meant(text, lost, items)]
    return f"; {RULE}" + (f". Did you mean {few(meant)}, as in --history {_quoted(meant[0])}?" if meant else "")


def _meant(text: str, lost: set[Any], items: Any) -> list[str]:
    """Known ids that the text may hold beside those it was read as."""
    tries = dict.fromkeys([*_runs(text.split(",")), *(one.strip() for one in parse_history(text) if one in lost)])
    candidates = [one for one in tries if one not in parse_history(text)]
    return [one for one, at in zip(candidates, items.index(candidates), strict=True) if at >= 0]


def _runs(pieces: Sequence[str]) -> Iterator[str]:
    """Neighbours joined by their commas again, with and without the spaces around, the longest first."""
    for length in range(min(JOINED, len(pieces)), 0, -1):
        for start in range(len(pieces) - length + 1):
            joined = ",".join(pieces[start : start + length])
            yield from (joined, joined.strip())


def _quoted(one: str) -> str:
    """An id as it is written on a command line."""
    inside = one.replace('"', '""')
    return f"'\"{inside}\"'" if "," in one or one != one.strip() else f"'{one}'"
