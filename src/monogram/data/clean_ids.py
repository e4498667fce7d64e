"""One column of one batch: values become checked arrays, and what is wrong is named row by row.

Good batches are checked with array operations; Python looks at single values only where a batch fails.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monogram.data.source import Column
from monogram.data.vocabulary import Kind, compact, is_text, kind_of
from monogram.errors import DataError

Rows: TypeAlias = npt.NDArray[np.int64]
Style: TypeAlias = Literal["number", "date"]

MISSING_ID = "the id is missing"
MISSING_WEIGHT = "the weight is missing"
MISSING_TIME = "the time is missing"
NO_NUMBER = "the weight is not a number"
NO_TIME = "the time cannot be read"
NO_UTF8 = "the id is not UTF-8 text"
NOT_INTEGRAL = "the id is a float that is not an integer"
TOO_BIG = "the id does not fit 64 bits"
_EXACT = 2.0**53  # up to here every integral float is one integer
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)|nan", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """A reason, and the rows of the batch it applies to."""

    reason: str
    rows: Rows


@dataclass(frozen=True)
class Ids:
    """Ids of a batch: `values[codes]`, with code −1 at faulty rows. `values` may hold unused ones."""

    codes: npt.NDArray[np.int32]
    values: Any
    faults: list[Fault] = field(default_factory=list)
    from_floats: bool = False

    @property
    def kind(self) -> Kind | None:
        """What the ids are; None when the batch has no usable id."""
        return kind_of(self.values.type) if len(self.values) else None


def clean_ids(column: Column, kind: Kind | None) -> Ids:
    """Check the ids of a batch; `kind` is what earlier batches held."""
    if isinstance(column, list):
        return _ids_of_objects(column, kind)
    array = _plain(column)
    refused = _refused_id_type(array.type)
    if refused is not None:
        return _all_faulty(array, refused)
    encoded = array.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    values, reasons = _values(encoded.dictionary)
    if kind is not None and len(values) and kind_of(values.type) != kind:
        reasons = [(_mixed(kind_of(values.type), kind), np.ones(len(values), dtype=bool)), *reasons]
    faults = _faults(codes, reasons)
    return Ids(codes, values, faults, from_floats=pa.types.is_floating(array.type))


def clean_weights(column: Column) -> tuple[npt.NDArray[np.float32], list[Fault]]:
    """Check the weights of a batch: finite float32, not negative; zeros are left for the caller."""
    numbers, missing = _numbers(column)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        weights = numbers.astype(np.float32)
    # NaN passes through min and max, so this settles a good batch without temporaries.
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
    if not isinstance(column, list) and isinstance(_plain(column).type, pa.BaseExtensionType):
        return _no_times(column, style)
    done = None if isinstance(column, list) else _times_of_arrow(_plain(column))
    if done is None or (style is not None and done[1] != style):
        return _times_of_objects(column if isinstance(column, list) else _pylist(_plain(column)), style)
    values, found = done
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        missing |= np.isnan(values)
    endless = ~np.isfinite(values) & ~missing
    masks = ((MISSING_TIME, missing), (NO_TIME, endless))
    return values, found, [Fault(reason, np.flatnonzero(mask)) for reason, mask in masks if mask.any()]


def _no_times(column: Any, style: Style | None) -> tuple[npt.NDArray[Any], Style | None, list[Fault]]:
    """Refuse a type of which only the storage is known: the numbers behind a pandas period are no times."""
    missing = column.is_null().to_numpy(zero_copy_only=False)
    reason = f"times of type {column.type.extension_name} are not supported (use dates or numbers)"
    masks = ((MISSING_TIME, missing), (reason, ~missing))
    faults = [Fault(why, np.flatnonzero(mask)) for why, mask in masks if mask.any()]
    return np.zeros(len(column), dtype=np.int64), style, faults


def _plain(array: Any) -> Any:
    """Decode dictionaries, open the UUID extension, and give text one type."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if isinstance(array.type, pa.UuidType):
        return array.storage
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def _refused_id_type(type_: Any) -> str | None:
    whole = pa.types.is_decimal(type_) and type_.scale == 0
    number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_null(type_) or whole
    if number or is_text(type_) or type_ == pa.binary(16):
        return None
    return f"ids of type {type_} are not supported (use strings, integers or UUIDs)"


def _all_faulty(array: Any, reason: str) -> Ids:
    codes = np.full(len(array), -1, dtype=np.int32)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    masks = ((MISSING_ID, missing), (reason, ~missing))
    faults = [Fault(why, np.flatnonzero(mask)) for why, mask in masks if mask.any()]
    return Ids(codes, pa.array([], pa.large_string()), faults)


Reasons: TypeAlias = list[tuple[str, npt.NDArray[np.bool_]]]


def _values(values: Any) -> tuple[Any, Reasons]:
    """Distinct ids in storage form, and which of them are no ids after all."""
    type_ = values.type
    if is_text(type_):
        return _text_values(values)
    if pa.types.is_floating(type_):
        return _float_values(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    if pa.types.is_null(type_):
        return pa.array([], pa.large_string()), []
    if pa.types.is_decimal(type_):
        return _decimal_values(values)
    if pa.types.is_integer(type_):
        return compact(values.cast(pa.uint64() if pa.types.is_unsigned_integer(type_) else pa.int64())), []
    return values, []


def _text_values(values: Any) -> tuple[Any, Reasons]:
    raw = values.cast(pa.large_binary())
    try:
        text, broken = raw.cast(pa.large_string()), None  # from bytes, so that the UTF-8 is checked
    except pa.ArrowInvalid:
        decoded = [_decoded(value) for value in raw.to_pylist()]
        text = pa.array(decoded, pa.large_string())
        broken = np.array([value is None for value in decoded])
    blank = pc.equal(pc.binary_length(pc.utf8_trim_whitespace(text)), 0).fill_null(False)
    masks = ((NO_UTF8, broken), (MISSING_ID, blank.to_numpy(zero_copy_only=False)))
    return text, [(reason, mask) for reason, mask in masks if mask is not None and mask.any()]


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _float_values(values: npt.NDArray[np.float64]) -> tuple[Any, Reasons]:
    with np.errstate(invalid="ignore"):
        inside = np.abs(values) <= _EXACT
        whole = inside & (values == np.trunc(values))
    missing = np.isnan(values)
    masks = (
        (MISSING_ID, missing),
        (NOT_INTEGRAL, ~whole & inside),
        ("the id is a float too large to be one exact integer", ~inside & ~missing),
    )
    return pa.array(np.where(whole, values, 0).astype(np.int64)), [(r, m) for r, m in masks if m.any()]


def _decimal_values(values: Any) -> tuple[Any, Reasons]:
    numbers = [int(value) for value in values.to_pylist()]
    bad = np.array([not -(2**63) <= number < 2**63 for number in numbers], dtype=bool)
    kept = [0 if wrong else number for number, wrong in zip(numbers, bad, strict=True)]
    return pa.array(kept, pa.int64()), [(TOO_BIG, bad)] if bad.any() else []


def _mixed(found: Kind, kind: Kind) -> str:
    return f"the id is {found} where the ids before are {kind}"


def _faults(codes: npt.NDArray[np.int32], reasons: Reasons) -> list[Fault]:
    """Rows of each reason over distinct values; a missing value has code −1."""
    rows = np.flatnonzero(codes < 0) if codes.size and codes.min() < 0 else np.empty(0, dtype=np.int64)
    faults = [Fault(MISSING_ID, rows)] if rows.size else []
    return faults + [Fault(why, np.flatnonzero(np.append(mask, False)[codes])) for why, mask in reasons]


def _ids_of_objects(values: list[Any], kind: Kind | None) -> Ids:
    """Look at each object; for batches Arrow cannot hold."""
    codes = np.full(len(values), -1, dtype=np.int32)
    wrong: dict[str, list[int]] = {}
    keys: dict[Any, int] = {}
    floats = False
    for row, value in enumerate(values):
        found, key = _object_id(value)
        if found is not None and kind is not None and found != kind:
            key, found = _mixed(found, kind), None
        if found is None:
            wrong.setdefault(key, []).append(row)
            continue
        kind = found
        floats |= isinstance(value, (float, np.floating))
        codes[row] = keys.setdefault(key, len(keys))
    faults = [Fault(reason, np.array(rows)) for reason, rows in wrong.items()]
    return Ids(codes, _key_array(list(keys), kind), faults, floats)


def _key_array(keys: list[Any], kind: Kind | None) -> Any:
    if kind != "integer":
        return pa.array(keys, pa.binary(16) if kind == "uuid" else pa.large_string())
    if max(keys) >= 2**63 and min(keys) < 0:
        raise DataError(f"the ids {min(keys)} and {max(keys)} do not fit one 64-bit integer type together.")
    return pa.array(keys, pa.uint64() if max(keys) >= 2**63 else pa.int64())


def _object_id(value: Any) -> tuple[Kind | None, Any]:
    """Kind and storage key of one object, or None and the reason why it is no id."""
    if is_missing(value):
        return None, MISSING_ID
    if isinstance(value, str):
        return _string_id(value)
    if isinstance(value, UUID):
        return "uuid", value.bytes
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return ("integer", int(value)) if -(2**63) <= int(value) < 2**64 else (None, TOO_BIG)
    if isinstance(value, (float, np.floating)):
        whole = abs(float(value)) <= _EXACT and float(value).is_integer()
        return ("integer", int(value)) if whole else (None, NOT_INTEGRAL)
    return None, f"ids of type {type(value).__name__} are not supported (use strings, integers or UUIDs)"


def _string_id(value: str) -> tuple[Kind | None, Any]:
    if not value.strip():
        return None, MISSING_ID
    try:
        value.encode()
    except UnicodeEncodeError:
        return None, NO_UTF8
    return "string", str(value)


def is_missing(value: Any) -> bool:
    """Whether an object stands for no value: None, NaN, and what pandas has for them."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def _numbers(column: Column) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Numbers of a column, NaN where there is none; and where nothing was given at all."""
    if not isinstance(column, list):
        array = _plain(column)
        number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
        if number or is_text(array.type) or pa.types.is_decimal(array.type) or pa.types.is_null(array.type):
            try:
                values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
                return values, array.is_null().to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                column = _pylist(array)
        else:
            return np.full(len(array), np.nan), array.is_null().to_numpy(zero_copy_only=False)
    values = np.array([_number(value) for value in column], dtype=np.float64)
    return values, np.array([_blank(value) for value in column], dtype=bool)


def _pylist(array: Any) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)  # nanoseconds would need pandas
    try:
        return cast("list[Any]", array.to_pylist())
    except UnicodeDecodeError:
        raw = array.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="replace") for value in raw]


def _blank(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, str) and not value.strip())


def _number(value: Any) -> float:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value.strip()) else math.nan
    if isinstance(value, (int, float, np.integer, np.floating, Decimal)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return math.nan


def _times_of_arrow(array: Any) -> tuple[npt.NDArray[Any], Style] | None:
    """Return times of a batch that Arrow can convert as a whole (0 where missing), else None."""
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
        moment = _moment(value)
        if moment is not None and style is not None and moment[1] != style:
            reason = f"the time is a {moment[1]} where the times before are {style}s"
            moment = None
        else:
            reason = MISSING_TIME if _blank(value) else NO_TIME
        if moment is None:
            wrong.setdefault(reason, []).append(row)
        else:
            style = moment[1]
        numbers.append(0 if moment is None else moment[0])
    whole = all(isinstance(number, int) for number in numbers)
    times = np.array(numbers, dtype=np.int64 if whole else np.float64)
    return times, style, [Fault(reason, np.array(rows)) for reason, rows in wrong.items()]


def _moment(value: Any) -> tuple[int | float, Style] | None:
    """One time as a number and its style, or None."""
    if isinstance(value, str):
        return _spelled_moment(value.strip())
    if isinstance(value, datetime):
        return _micros(value), "date"
    if isinstance(value, date):
        return _micros(datetime(value.year, value.month, value.day)), "date"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return (int(value), "number") if -(2**63) <= int(value) < 2**63 else None
    if isinstance(value, (float, np.floating, Decimal)) and math.isfinite(float(value)):
        return float(value), "number"
    return None


def _spelled_moment(text: str) -> tuple[int | float, Style] | None:
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text), "number"
    if _NUMBER.fullmatch(text):
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
