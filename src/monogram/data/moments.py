"""Moments: a number or a date as a number in the unit of the times of a log."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from monogram.data.interactions import Interactions
from monogram.data.spans import Span, in_unit_of
from monogram.errors import ParameterError

SECOND = Span(1.0, "s")
LARGEST = 2.0**63  # of a time, before and after 0
EXPECTED = "a date such as '2026-05-01' or '2026-05-01T12:00:00Z', or a finite number in the unit of the log's times"


def moment_in(log: Interactions, value: Any, name: str = "at") -> float:
    """A moment on the time axis of a log; ParameterError, which calls it `name`, for anything else.

    Parameters
    ----------
    log : a date becomes a number in the unit of its times, or seconds since 1970 where it has none
    value : a number in that unit, or a date as an ISO text or an object; a date without a zone is UTC
    """
    number = _number(value)
    if number is not None:
        return number
    moment = _date(value)
    if moment is None:
        raise ParameterError(f"{name} = {_shown(value)}; expected {EXPECTED}")
    zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    micros = (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    second = 1.0 if log.latest is None else in_unit_of(SECOND, log.latest, log.time_unit)
    return micros / (1e6 / second)


def _number(value: Any) -> float | None:
    """The value as a float where it is a finite number of moderate size."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    return float(value) if -LARGEST <= value <= LARGEST else None


def _date(value: Any) -> datetime | None:
    if isinstance(value, np.datetime64):
        value = None if np.isnat(value) else value.astype("datetime64[us]").item()
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day) if isinstance(value, date) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
