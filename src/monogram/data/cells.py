"""Values of a column as they come from a source: missing or not, plain Arrow or Python objects, and faults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True)
class Fault:
    """Why rows of a batch cannot be used, and which rows."""

    reason: str
    rows: npt.NDArray[np.int64]


def plain(array: Any) -> Any:
    """The array without dictionary encoding, UUIDs as their 16 bytes, views of text as `large_string`."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if isinstance(array.type, pa.UuidType):
        return array.storage
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def as_list(array: Any) -> list[Any]:
    """The values as Python objects; bytes that are not UTF-8 are replaced, nanoseconds are cut to microseconds."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)  # nanoseconds would need pandas
    try:
        return cast("list[Any]", array.to_pylist())
    except UnicodeDecodeError:
        raw = array.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="replace") for value in raw]


def is_missing(value: Any) -> bool:
    """Whether an object means a missing value: None, NaN, or pandas' NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def is_blank(value: Any) -> bool:
    """Whether a value is missing, or text without a character other than spaces."""
    return is_missing(value) or (isinstance(value, str) and not value.strip())
