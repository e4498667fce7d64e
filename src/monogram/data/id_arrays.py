"""Ids as Arrow arrays: their kinds, the type they are stored in, and the keys they are looked up by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monogram.errors import DataError

Id: TypeAlias = str | int | UUID
Kind: TypeAlias = Literal["string", "integer", "uuid"]
_STRING_LIMIT = 2**31 - 1  # bytes of text that 32-bit offsets can address
_INT64_MAX = 2**63 - 1


def kind_of(type_: Any) -> Kind:
    """Kind of id that an Arrow storage type holds."""
    if pa.types.is_integer(type_):
        return "integer"
    return "uuid" if pa.types.is_fixed_size_binary(type_) else "string"


def compact(array: Any) -> Any:
    """Ids in the smallest storage type that can represent them: string before large_string, int64 before uint64."""
    if pa.types.is_large_string(array.type) and _text_bytes(array) <= _STRING_LIMIT:
        return array.cast(pa.string())
    if pa.types.is_uint64(array.type) and (len(array) == 0 or pc.max(array).as_py() <= _INT64_MAX):
        return array.cast(pa.int64())
    return array


def decimal_key(text: str) -> int | None:
    """The integer of which `text` is the canonical decimal form, else None."""
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        return None
    number = int(text)
    return number if str(number) == text else None


def _text_bytes(array: Any) -> int:
    return int(pc.sum(pc.binary_length(array)).as_py() or 0)


def as_uuids(storage: Any) -> Any:
    """An Arrow array of 16 bytes each as Arrow's UUID type."""
    if storage.type != pa.binary(16):
        raise DataError(f"a UUID has 16 bytes, got ids of Arrow type {storage.type}.")
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def to_arrow(ids: Any) -> Any:
    """Any sequence of ids as one Arrow array, of its own type."""
    if isinstance(ids, pa.ChunkedArray):
        wide = ids.cast(pa.large_string()) if pa.types.is_string(ids.type) else ids
        return wide.combine_chunks()
    if isinstance(ids, pa.Array):
        return ids
    if isinstance(ids, (str, bytes)):
        raise DataError(f"ids must be a sequence of ids, got the single value {ids!r}.")
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu" and ids.ndim == 1:
        return pa.array(ids)
    if hasattr(ids, "__arrow_c_stream__") and hasattr(ids, "dtype"):  # a series of some data frame
        return to_arrow(pa.chunked_array(ids))
    return _from_objects(list(elements(ids)))


def arrow_numbers(array: npt.NDArray[Any]) -> Any:
    """Numbers as an Arrow array over the same memory, in native byte order. `pa.array` would import pandas."""
    array = np.ascontiguousarray(array)
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [None, pa.py_buffer(array)])


def arrow_keys(keys: Iterable[Any], type_: Any) -> tuple[list[Any], Any]:
    """The keys that may be among ids of a storage type, and an Arrow array of them. `pa.array` would import pandas."""
    fitting = [key for key in keys if key is not None]
    if pa.types.is_integer(type_):
        limits = np.iinfo(np.uint64 if pa.types.is_unsigned_integer(type_) else np.int64)
        fitting = [key for key in fitting if limits.min <= key <= limits.max]
        return fitting, arrow_numbers(np.array(fitting, limits.dtype))
    if pa.types.is_fixed_size_binary(type_):
        return fitting, pa.Array.from_buffers(type_, len(fitting), [None, pa.py_buffer(b"".join(fitting))])
    texts = [key.encode(errors="surrogatepass") for key in fitting]  # half of a surrogate pair is in no id
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64 if pa.types.is_large_string(type_) else np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    return fitting, pa.Array.from_buffers(type_, len(fitting), buffers)


def elements(ids: Any) -> Iterable[Any]:
    """Any sequence of ids as Python objects."""
    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        return cast("list[Any]", ids.to_pylist())
    if isinstance(ids, np.ndarray):
        return cast("list[Any]", ids.tolist())
    return (id_.as_py() if isinstance(id_, pa.Scalar) else id_ for id_ in ids)


def _from_objects(values: list[Any]) -> Any:
    kinds = [_object_kind(value) for value in values]
    for position, kind in enumerate(kinds):
        if kind is None:
            raise DataError(
                f"id {values[position]!r} at position {position} is {type(values[position]).__name__}; "
                "ids are strings, integers or UUIDs."
            )
        if kind != kinds[0]:
            raise DataError(
                f"ids must be of one kind: position 0 is {kinds[0]} ({values[0]!r}), "
                f"position {position} is {kind} ({values[position]!r})."
            )
    return _pack(values, (kinds[0] if kinds else None) or "string")


def _object_kind(value: object) -> Kind | None:
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return "integer"
    return "uuid" if isinstance(value, UUID) else None


def _pack(values: list[Any], kind: Kind) -> Any:
    if kind == "uuid":
        return as_uuids(pa.array([value.bytes for value in values], pa.binary(16)))
    try:
        if kind == "string":
            return pa.array(values, pa.large_string())
        top = max(map(int, values))
        return pa.array(list(map(int, values)), pa.uint64() if top > _INT64_MAX else pa.int64())
    except (OverflowError, pa.ArrowException) as error:
        raise DataError("integer ids must all fit 64 bits, signed or all unsigned.") from error
    except UnicodeEncodeError as error:
        raise DataError(f"a string id cannot be written as UTF-8: {error}") from error


def to_storage(array: Any) -> Any:
    """Arrow ids of any supported type in the type that a vocabulary stores."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.null_count:
        position = pc.index(pc.is_null(array), True).as_py()
        raise DataError(f"the id at position {position} is missing; every id must have a value.")
    if isinstance(array.type, pa.UuidType):
        return array.storage
    if pa.types.is_integer(array.type):
        unsigned = pa.types.is_unsigned_integer(array.type)
        return compact(array.cast(pa.uint64())) if unsigned else array.cast(pa.int64())
    if is_text(array.type) or (pa.types.is_null(array.type) and len(array) == 0):
        return compact(array.cast(pa.large_string()))
    raise DataError(f"ids of Arrow type {array.type} are not supported; use strings, integers or UUIDs.")


def is_text(type_: Any) -> bool:
    """Whether an Arrow type is one of the three that hold text."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def check_unique(array: Any) -> None:
    """Raise `DataError` naming the first id that occurs more than once."""
    if len(pc.unique(array)) == len(array):
        return
    counts = pc.value_counts(array)
    first = pc.index(pc.greater(counts.field(1), 1), True).as_py()
    value = counts.field(0)[first].as_py()
    shown = UUID(bytes=value) if isinstance(value, bytes) else value
    times = counts.field(1)[first].as_py()
    raise DataError(f"id {shown!r} occurs {times} times; every id of a vocabulary must be unique.")


def fits_type(key: Any, type_: Any) -> bool:
    """Whether an Arrow type can represent a key."""
    try:
        pa.array([key], type_)
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        return False
    return True


def _integer_key(value: object) -> int | None:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, (float, np.floating)):  # integers with missing values are floats in pandas
        return int(value) if value.is_integer() else None
    return decimal_key(value) if isinstance(value, str) else None


def _string_key(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else None


def _uuid_key(value: object) -> bytes | None:
    if isinstance(value, UUID):
        return value.bytes
    if not (isinstance(value, str) and len(value) == 36):
        return None
    try:
        parsed = UUID(value)
    except ValueError:
        return None
    return parsed.bytes if str(parsed) == value.lower() else None


KEYS: dict[Kind, Callable[[object], Any]] = {
    "integer": _integer_key,
    "string": _string_key,
    "uuid": _uuid_key,
}
