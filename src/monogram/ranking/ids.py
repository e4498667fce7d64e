"""Lists of ids from what a caller passes, and ids shortened for messages."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from monogram.engine.runtime.arrays import Indices
from monogram.errors import ParameterError

IdScalar = str | bytes | int | float | UUID
LONGEST, SHOWN = 60, 5  # characters of an id, and ids of a list, in a message


def id_list(ids: Any, name: str = "the list of ids") -> list[Any]:
    """A list of ids from one id or from a collection of ids; `name` is what an error message calls the list."""
    ids = as_python(ids)
    if isinstance(ids, IdScalar):
        return [ids]
    if not isinstance(ids, Iterable) or is_matrix(ids):
        raise ParameterError(f"{short_repr(ids)} is not an id nor a list of ids")
    values = [as_python(value) for value in ids]
    for value in values:
        if is_collection(value):
            raise ParameterError(f"{name} holds {short_repr(value)}; expected ids: strings, integers or UUIDs")
    return values


def unknown_ids(ids: Sequence[Any], index: Indices) -> list[Any]:
    """The ids whose index in a vocabulary is negative: the vocabulary does not have them."""
    return [id_ for id_, position in zip(ids, index.tolist(), strict=True) if position < 0]


def as_python(value: Any) -> Any:
    """A NumPy or Arrow scalar, or an Arrow array, as the Python value; anything else unchanged."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, pa.Scalar):
        return value.as_py()
    return value.to_pylist() if isinstance(value, pa.Array | pa.ChunkedArray) else value


def as_moment(value: Any) -> Any:
    """A time as `as_python` gives it, but a datetime64 unchanged: of nanoseconds `item()` would be a plain number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    return value if isinstance(value, np.datetime64) else as_python(value)


def is_collection(value: Any) -> bool:
    """Whether a value is a collection; any other value is an id, known or unknown."""
    return not isinstance(value, IdScalar) and (isinstance(value, Iterable) or not isinstance(value, Hashable))


def is_matrix(value: Any) -> bool:
    """Whether a value is a sparse matrix or an array of two or more dimensions."""
    return sp.issparse(value) or getattr(value, "ndim", 1) > 1


def shorten(value: Any) -> str:
    """An id as text for a message, cut where it is long."""
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "…"


def short_repr(value: Any) -> str:
    """The `repr` of a value on one line for a message, cut where it is long."""
    return shorten(" ".join(line.strip() for line in repr(value).splitlines()))


def first_ids(ids: Sequence[Any]) -> str:
    """The first ids of a list for a message, and how many more there are."""
    more = f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else ""
    return ", ".join(shorten(id_) for id_ in ids[:SHOWN]) + more
