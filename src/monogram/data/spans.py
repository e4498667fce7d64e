"""Spans of time: a number of events, a number in the unit of a log's times, or a duration such as "7d"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.errors import DataError, Message, Option, ParameterError

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 6 * 10**10, "h": 36 * 10**11, "d": 864 * 10**11}
TIME_UNITS = tuple(NANOSECONDS)  # of the times of a log
UNIX = (3.155e8, 4.102e9)  # seconds from 1970 to 1980 and to 2100: numbers in between are taken as Unix times
EXPECTED = (
    f"a duration such as '7d', '12h' or '30min' (its unit one of {', '.join(SECONDS)}), a number of events such as "
    "'5 events', or a number"
)
LONGEST = 40  # characters of a text
_TEXT = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True)
class Span:
    """A length on the time axis of a history.

    Parameters
    ----------
    amount : above 0
    unit : "events" (positions in the history), "s" (seconds) or "" (the unit of the log's times)
    """

    amount: float
    unit: str = "events"

    @property
    def in_events(self) -> bool:
        """Whether the span counts events."""
        return self.unit == "events"

    def __str__(self) -> str:
        if self.in_events:
            return f"{self.amount:.12g} event{'' if self.amount == 1 else 's'}"
        if self.unit == "":
            return f"{self.amount:.12g}"
        name = next((name for name in ("d", "h", "min") if self.amount % SECONDS[name] == 0), "s")
        return f"{self.amount / SECONDS[name]:.12g}{name}"


EVENT = Span(1.0)


def parse_span(value: Any, name: str = "span") -> Span:
    """A span from a text, a number or a Span; ParameterError, which calls it `name`, for anything else."""
    if isinstance(value, Span):
        return value
    amount, unit = _parts(value)
    amount *= SECONDS.get(unit or "", 1.0)
    if not 0 < amount < float("inf") or unit is None:
        shown = repr(value)
        shown = shown if len(shown) <= LONGEST + 2 else f"{shown[:LONGEST]}…"
        raise ParameterError(f"{name} = {shown}; expected {EXPECTED}, above 0")
    return Span(amount, "s" if unit in SECONDS else unit)


def _parts(value: Any) -> tuple[float, str | None]:
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return 0.0 if isinstance(value, int) and abs(value) > 10**300 else float(value), ""
    match = _TEXT.fullmatch(value) if isinstance(value, str) and len(value) <= LONGEST else None
    if match is None:
        return 0.0, None
    unit = match[2].lower()
    unit = "events" if unit in ("event", "events") else unit
    return float(match[1]), unit if unit in ("", "events", *SECONDS) else None


def in_unit_of(span: Span, times: NDArray[Any], time_unit: str | None) -> float:
    """A span that counts no events, as a number in the unit of the times of a log.

    Where the log does not say its unit, numbers in the range of Unix times (1980 to 2100) in seconds, milliseconds,
    microseconds or nanoseconds are taken as such. ParameterError for a span without a unit where the times are dates
    (microseconds).
    """
    if span.unit == "" and time_unit == "us":
        raise ParameterError(
            f"{span} is a span of time without a unit (half_life, recency_unit, trend_half_life, training_half_life or "
            f"decay_unit), but the log's times are dates, in microseconds; expected a duration: '{span}d' for days, "
            f"'{span}us' for microseconds"
        )
    if span.unit == "":
        return span.amount
    unit = time_unit or unix_unit(times)
    if unit is None:
        raise DataError(
            Message(
                f"{span} is a duration, but the unit of this log's times is not known: they are numbers and no Unix "
                "times. Name their unit when the log is read, with ",
                Option("time_unit", '"s"'),
                f" (one of {', '.join(TIME_UNITS)}), or give a number in that unit",
            )
        )
    return span.amount / (1e-9 if unit == "ns" else SECONDS[unit])


def unix_unit(times: NDArray[Any]) -> str | None:
    """The unit of times that all look like Unix times, else None."""
    low, high = (float(times.min()), float(times.max())) if len(times) else (0.0, 0.0)
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if UNIX[0] * scale <= low and high <= UNIX[1] * scale:
            return unit
    return None


def in_common_unit(
    times: NDArray[Any], unit: str | None, others: NDArray[Any], unit_of_others: str | None
) -> tuple[NDArray[Any], str | None]:
    """Times in the unit of others, and that unit; units that are not given are recognised where possible.

    DataError where one unit is known and the other is not.
    """
    if not len(times) or not len(others):
        return times, unit_of_others if unit_of_others is not None else unit
    known, wanted = unit or unix_unit(times), unit_of_others or unix_unit(others)
    if known == wanted:
        return times, wanted if unit or unit_of_others else None
    if known is None or wanted is None:
        raise DataError(
            Message(
                f"the times of two logs are put together: of one the unit is {known or wanted}, of the other it "
                "is not known (they are numbers and no Unix times); name it when the log is read, with ",
                Option("time_unit", '"s"'),
                f" (one of {', '.join(TIME_UNITS)})",
            )
        )
    factor, rest = divmod(NANOSECONDS[known], NANOSECONDS[wanted])
    exact = times.dtype.kind == "i" and not rest and float(np.abs(times).max()) * factor < 2.0**62
    return times * factor if exact else times * (NANOSECONDS[known] / NANOSECONDS[wanted]), wanted


def check_time_unit(unit: Any) -> None:
    """Raise ParameterError unless a unit of times is None or known."""
    if unit is not None and unit not in TIME_UNITS:
        raise ParameterError(f"time_unit = {unit!r}; expected one of {', '.join(TIME_UNITS)}")
