"""The weights and times of one batch: checked arrays, and the rows that have no usable number.

Good batches are checked with array operations; single values are looked at only where a batch fails.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from monogram.data.cells import Fault, as_list, is_blank, plain
from monogram.data.id_arrays import is_text
from monogram.data.source import Column

Style: TypeAlias = Literal["number", "date"]
MISSING_WEIGHT = "the weight is missing"
MISSING_TIME = "the time is missing"
NO_NUMBER = "the weight is not a number"
NO_TIME = "the time cannot be read (expected an ISO date such as 2026-05-01 or 2026-05-01 12:00, or a number)"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)|nan", re.IGNORECASE)


def clean_weights(column: Column) -> tuple[npt.NDArray[np.float32], list[Fault]]:
    """Check the weights of a batch: finite float32, not negative. Zeros are allowed here; the caller drops them."""
    numbers, missing = _numbers(column)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        weights = numbers.astype(np.float32)
    # min and max propagate NaN, so this accepts a good batch without temporary arrays.
    if weights.size == 0 or (weights.min() >= 0 and weights.max() < np.inf):
        return weights, []
    masks = (
        (MISSING_WEIGHT, missing),
        (NO_NUMBER, np.isnan(weights) & ~missing),
        ("the weight is infinite in float32", np.isinf(weights)),
        ("the weight is negative", (weights < 0) & np.isfinite(weights)),
    )
    return weights, [Fault(reason, np.flatnonzero(mask)) for reason, mask in masks if mask.any()]


def clean_times(column: Column, style: Style | None) -> tuple[npt.NDArray[Any], Style | None, list[Fault]]:
    """Check the times of a batch; dates become microseconds, numbers stay numbers."""
    if not isinstance(column, list) and isinstance(plain(column).type, pa.BaseExtensionType):
        return _no_times(column, style)
    converted = None if isinstance(column, list) else _times_of_arrow(plain(column))
    if converted is None or (style is not None and converted[1] != style):
        return _times_of_objects(column if isinstance(column, list) else as_list(plain(column)), style)
    values, own_style = converted
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        missing |= np.isnan(values)
    infinite = ~np.isfinite(values) & ~missing
    masks = ((MISSING_TIME, missing), (NO_TIME, infinite))
    return values, own_style, [Fault(reason, np.flatnonzero(mask)) for reason, mask in masks if mask.any()]


def _no_times(column: Any, style: Style | None) -> tuple[npt.NDArray[Any], Style | None, list[Fault]]:
    """Refuse an extension type, whose storage has another meaning: the numbers of a pandas period are not times."""
    missing = column.is_null().to_numpy(zero_copy_only=False)
    reason = f"times of type {column.type.extension_name} are not supported (use dates or numbers)"
    masks = ((MISSING_TIME, missing), (reason, ~missing))
    faults = [Fault(why, np.flatnonzero(mask)) for why, mask in masks if mask.any()]
    return np.zeros(len(column), dtype=np.int64), style, faults


def _numbers(column: Column) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Numbers of a column, NaN where there is none, and a mask of the missing values."""
    if not isinstance(column, list):
        array = plain(column)
        number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
        if number or is_text(array.type) or pa.types.is_decimal(array.type) or pa.types.is_null(array.type):
            try:
                values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
                return values, array.is_null().to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                column = as_list(array)
        else:
            return np.full(len(array), np.nan), array.is_null().to_numpy(zero_copy_only=False)
    values = np.array([_number(value) for value in column], dtype=np.float64)
    return values, np.array([is_blank(value) for value in column], dtype=bool)


def _number(value: Any) -> float:
    if isinstance(value, str):
        return float(value) if NUMBER.fullmatch(value.strip()) else math.nan
    if isinstance(value, (int, float, np.integer, np.floating, Decimal)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return math.nan


def _times_of_arrow(array: Any) -> tuple[npt.NDArray[Any], Style] | None:
    """The times of a batch that Arrow can convert at once (0 where missing), else None."""
    for cast_to, style in _casts(array.type):
        try:
            return cast_to(array).fill_null(0).to_numpy(zero_copy_only=False), style
        except pa.ArrowInvalid:
            continue
    return None


def _casts(type_: Any) -> list[tuple[Callable[[Any], Any], Style]]:
    def micros(zone: str | None) -> Callable[[Any], Any]:
        return lambda a: a.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())

    number: list[tuple[Callable[[Any], Any], Style]] = [
        (lambda a: a.cast(pa.int64()), "number"),
        (lambda a: a.cast(pa.float64()), "number"),
    ]
    if pa.types.is_timestamp(type_):
        return [(micros(type_.tz), "date")]
    if pa.types.is_date(type_):
        return [(micros(None), "date")]
    if pa.types.is_integer(type_):
        return number[:1]
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return number[1:]
    return [*number, (micros(None), "date"), (micros("UTC"), "date")] if is_text(type_) else []


def _times_of_objects(values: list[Any], style: Style | None) -> tuple[npt.NDArray[Any], Style | None, list[Fault]]:
    numbers: list[int | float] = []
    wrong: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        time = _time(value)
        if time is not None and style is not None and time[1] != style:
            reason = f"the time is a {time[1]} where the times before are {style}s"
            time = None
        else:
            reason = MISSING_TIME if is_blank(value) else NO_TIME
        if time is None:
            wrong.setdefault(reason, []).append(row)
        else:
            style = time[1]
        numbers.append(0 if time is None else time[0])
    whole = all(isinstance(number, int) for number in numbers)
    times = np.array(numbers, dtype=np.int64 if whole else np.float64)
    return times, style, [Fault(reason, np.array(rows)) for reason, rows in wrong.items()]


def _time(value: Any) -> tuple[int | float, Style] | None:
    """One object as a time and its style; None when it is not a time."""
    if isinstance(value, str):
        return _parsed_time(value.strip())
    if isinstance(value, datetime):
        return _micros(value), "date"
    if isinstance(value, date):
        return _micros(datetime(value.year, value.month, value.day)), "date"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return (int(value), "number") if -(2**63) <= int(value) < 2**63 else None
    if isinstance(value, (float, np.floating, Decimal)) and math.isfinite(float(value)):
        return float(value), "number"
    return None


def _parsed_time(text: str) -> tuple[int | float, Style] | None:
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text), "number"
    if NUMBER.fullmatch(text):
        return (float(text), "number") if math.isfinite(float(text)) else None
    try:
        return _micros(datetime.fromisoformat(text)), "date"
    except ValueError:
        return None


def _micros(moment: datetime) -> int:
    """Microseconds since 1970; a time without a zone is taken as UTC."""
    zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
