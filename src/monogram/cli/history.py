"""`--history`: item ids as one line of CSV, and suggestions for unknown ids."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from monogram.cli.output import quoted_ids
from monogram.cli.suggestions import similar_ids
from monogram.errors import ParameterError

RULE = (
    "ids in --history are separated by commas, and an id that contains a comma is written in double quotes, as in CSV"
)
MOST_SHOWN = 3  # times of an example
MOST_JOINED = 5  # pieces between commas that are tried as one id


def parse_history(text: str, flag: str = "--history") -> list[str]:
    """Ids from one line of CSV, where an id that contains a comma is quoted; an empty text has no ids."""
    try:
        lines = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ParameterError(
            f'{flag} {text!r} cannot be read ({error}); expected ids such as a,b or, with a comma inside, "a, b",c'
        ) from error
    return [id_ for id_ in lines[0] if id_] if lines else []


def with_times(texts: Sequence[str], times: Sequence[str]) -> list[Any]:
    """The histories of --history; where --times was given, as lists of items with their times.

    Parameters
    ----------
    texts, times : values of the flags; without times, or as many as there are histories
    """
    if times and not texts:
        raise ParameterError(
            "--times was given without --history: it has the times of the items of a history, and those of known users "
            "are in the log"
        )
    if times and len(times) != len(texts):
        raise ParameterError(
            f"--times was given {len(times)} times and --history {len(texts)} times; expected --times once for each"
        )
    histories: list[Any] = [parse_history(text) for text in texts]
    for position, text in enumerate(times):
        moments = [asked_at(moment) for moment in parse_history(text, "--times")]
        if len(moments) != len(histories[position]):
            raise ParameterError(
                f"--times {text!r} has {len(moments)} times for {len(histories[position])} items of --history "
                f"{texts[position]!r}; expected one for each"
            )
        histories[position] = list(zip(histories[position], moments, strict=True))
    return histories


def check_times(model: Any, texts: Sequence[str], times: Sequence[str]) -> None:
    """Raise ParameterError for histories without times where the model measures ages in time."""
    recency = model.recency_rule()
    if times or not recency.active or recency.span.in_events:
        return
    for text in texts:
        items = parse_history(text)
        if items:
            example = ",".join(f"2026-05-{day:02}" for day in range(1, min(len(items), MOST_SHOWN) + 1))
            raise ParameterError(
                f"--history {text!r} has no times, but this model measures the age of an event in time "
                f"({recency.span}); add --times with one for each item: --times {example}"
                f"{',…' if len(items) > MOST_SHOWN else ''}"
            )


def asked_at(text: str | None) -> Any:
    """The value of --at: a number, or the text of a date."""
    if text is None:
        return None
    from monogram.cli.protocols import number_or_text

    return number_or_text((int, float), text)


def advice(texts: Iterable[str], unknown: Iterable[Any], items: Any) -> str:
    """The end of a message about unknown items: for those of a history, the quoting rule and similar known ids."""
    unknown_ids = set(unknown)
    affected = [text for text in texts if unknown_ids.intersection(parse_history(text))]
    if not affected:
        return ""
    similar = [id_ for text in affected for id_ in _similar(text, items)]
    question = f". Did you mean {quoted_ids(similar)}, as in --history {_quoted(similar[0])}?" if similar else ""
    return f"; {RULE}{question}"


def _similar(text: str, items: Any) -> list[Any]:
    """Known ids similar to parts of the text, other than the ids that it was parsed to."""
    parsed = parse_history(text)
    return [id_ for id_ in similar_ids([*_runs(text.split(",")), *parsed], items) if str(id_) not in parsed]


def _runs(pieces: Sequence[str]) -> Iterator[str]:
    """Neighbouring pieces joined by their commas, for ids that contain commas."""
    for start in range(len(pieces)):
        for stop in range(start + 1, min(start + MOST_JOINED, len(pieces)) + 1):
            yield ",".join(pieces[start:stop])


def _quoted(id_: Any) -> str:
    """An id as it is written on the command line."""
    text = str(id_)
    plain = '"' not in text and parse_history(text) == [text]
    return shlex.quote(text if plain else '"' + text.replace('"', '""') + '"')
