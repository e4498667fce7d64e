"""Moments: a number or a date as a number in the unit of the times of a log."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import numpy as np

from monogram.data.interactions import Interactions
from monogram.data.spans import Span, in_unit_of
from monogram.errors import ParameterError

SECOND = Span(1.0, "s")
LARGEST = 2**63  # of a time, before and after 0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH = re.compile(r"\d{4}-\d{2}")
EXPECTED = "a date such as '2026-05-01' or '2026-05-01T12:00:00Z', or a number in the unit of the log's times"


def moment_in(log: Interactions, value: Any, subject: str = "at = {}") -> int | float:
    """A moment on the time axis of a log; ParameterError for anything else.

    Parameters
    ----------
    log : a date becomes a number in the unit of its times, or microseconds since 1970 where it has none
    value : a number in that unit, or a date as an ISO text or an object; a date without a zone is UTC
        Where all times of the log are between 1980 and 2100, a number must be so too.
    subject : what the error message says of the value
    """
    number = _number(value)
    if number is not None:
        _check_range(log, number, subject)
        return number
    check_moment(value, subject)
    moment = cast("datetime", _date(value))
    zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    micros = (zoned - EPOCH) // timedelta(microseconds=1)
    latest, unit = log.latest, log.unit_of_times
    if latest is None or unit == "us":
        return micros
    if unit is None:
        raise ParameterError(
            f"{subject.format(_shown(value))}, a date, but the times of the log are numbers in an unknown unit; give a "
            "number, or name the unit when the log is read"
        )
    return micros * 1000 if unit == "ns" else micros / (1e6 / in_unit_of(SECOND, latest, unit))


def check_moment(value: Any, subject: str = "at = {}") -> None:
    """Raise ParameterError for anything but a date or a number."""
    if _number(value) is None and _date(value) is None:
        raise ParameterError(f"{subject.format(_shown(value))}; expected {EXPECTED}")


def range_of(log: Interactions) -> str:
    """The first and the last time of a log, as dates where its times are Unix times."""
    assert log.latest is not None
    ends = [values.item() for values in (log.times.min(), log.latest.max())]  # type: ignore[union-attr]
    if log.unix_range is None:
        return f"{ends[0]} … {ends[1]}"
    second = in_unit_of(SECOND, log.latest, log.unit_of_times)
    return " … ".join(f"{EPOCH + timedelta(seconds=end / second):%Y-%m-%d %H:%M:%S} UTC" for end in ends)


def _check_range(log: Interactions, number: int | float, subject: str) -> None:
    """Raise ParameterError for a number outside 1980 to 2100 where the times of a log are in between."""
    if log.unix_range is None or log.unix_range[0] <= number <= log.unix_range[1]:
        return
    assert log.latest is not None
    raise ParameterError(
        f"{subject.format(_shown(number))}, but the log's times are numbers of the unit {log.unit_of_times} since "
        "1970, and as such it is not between 1980 and 2100; give a date such as '2026-05-01', or a number in that unit "
        f"such as {log.latest.max()}"
    )


def _number(value: Any) -> int | float | None:
    """The value where it is a finite number that 64 bits hold."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -LARGEST < value < LARGEST else None


def _date(value: Any) -> datetime | None:
    if isinstance(value, np.datetime64):
        value = None if np.isnat(value) else value.astype("datetime64[us]").item()
    if isinstance(value, str):
        text = value.strip()
        try:
            return datetime.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return value if value == value else None  # NaT of pandas is a datetime that differs from itself
    return datetime(value.year, value.month, value.day) if isinstance(value, date) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
