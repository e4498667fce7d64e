"""The ids of one batch: checked arrays, and the rows that have no usable id.

Good batches are checked with array operations; single values are looked at only where a batch fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monogram.data.cells import Fault, is_missing, plain
from monogram.data.id_arrays import Kind, compact, is_text, kind_of
from monogram.data.source import Column
from monogram.errors import DataError

MISSING_ID = "the id is missing"
NO_UTF8 = "the id is not UTF-8 text"
NOT_INTEGRAL = "the id is a float that is not an integer"
TOO_BIG = "the id does not fit 64 bits"
_EXACT = 2.0**53  # up to here every float with an integral value is exactly one integer
Reasons: TypeAlias = list[tuple[str, npt.NDArray[np.bool_]]]


@dataclass(frozen=True)
class Ids:
    """Ids of a batch: `values[codes]`, with code −1 for faulty rows; `values` may contain ids that no row has."""

    codes: npt.NDArray[np.int32]
    values: Any
    faults: list[Fault] = field(default_factory=list)
    from_floats: bool = False

    @property
    def kind(self) -> Kind | None:
        """Kind of the ids; None when the batch has no usable id."""
        return kind_of(self.values.type) if len(self.values) else None


def clean_ids(column: Column, kind: Kind | None) -> Ids:
    """Check the ids of a batch; `kind` is the kind of ids of earlier batches."""
    if isinstance(column, list):
        return _ids_of_objects(column, kind)
    array = plain(column)
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


def _values(values: Any) -> tuple[Any, Reasons]:
    """Distinct values as ids in storage form, and masks of the values that are not ids, by reason."""
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
    return pa.array(np.where(whole, values, 0).astype(np.int64)), [
        (reason, mask) for reason, mask in masks if mask.any()
    ]


def _decimal_values(values: Any) -> tuple[Any, Reasons]:
    numbers = [int(value) for value in values.to_pylist()]
    bad = np.array([not -(2**63) <= number < 2**63 for number in numbers], dtype=bool)
    usable = [0 if wrong else number for number, wrong in zip(numbers, bad, strict=True)]
    return pa.array(usable, pa.int64()), [(TOO_BIG, bad)] if bad.any() else []


def _mixed(id_kind: Kind, kind: Kind) -> str:
    return f"the id is {id_kind} where the ids before are {kind}"


def _faults(codes: npt.NDArray[np.int32], reasons: Reasons) -> list[Fault]:
    """From masks of distinct values to the rows of each reason; a missing value has code −1."""
    rows = np.flatnonzero(codes < 0) if codes.size and codes.min() < 0 else np.empty(0, dtype=np.int64)
    faults = [Fault(MISSING_ID, rows)] if rows.size else []
    return faults + [Fault(why, np.flatnonzero(np.append(mask, False)[codes])) for why, mask in reasons]


def _ids_of_objects(values: list[Any], kind: Kind | None) -> Ids:
    """Check each object, for batches that Arrow cannot represent."""
    codes = np.full(len(values), -1, dtype=np.int32)
    wrong: dict[str, list[int]] = {}
    keys: dict[Any, int] = {}
    floats = False
    for row, value in enumerate(values):
        id_kind, key = _object_id(value)
        if id_kind is not None and kind is not None and id_kind != kind:
            key, id_kind = _mixed(id_kind, kind), None
        if id_kind is None:
            wrong.setdefault(key, []).append(row)
            continue
        kind = id_kind
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
    """Kind and storage key of one object, or None and the reason why it is not an id."""
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
