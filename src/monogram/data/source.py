"""What every source of rows looks like to the reader: named columns that come in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa

BATCH_ROWS = 131_072

# An Arrow array, or a list of Python objects where Arrow cannot hold them together.
Column: TypeAlias = Any


@dataclass(frozen=True)
class Lost:
    """A row that could not even be taken apart into columns; `row` counts from 1."""

    row: int
    reason: str
    text: str


@dataclass(frozen=True)
class Batch:
    """Some rows: the wanted columns by name, the number of rows before, and the rows lost on the way.

    `label` is what messages call the file they are from, where that is not the whole source; `start` counts in it.
    """

    columns: dict[str, Column]
    start: int
    done: int
    lost: list[Lost] = field(default_factory=list)
    label: str = ""


@dataclass(frozen=True)
class Source:
    """Named columns, read in batches when opened.

    Attributes
    ----------
    label
        What messages call it.
    columns
        All column names found.
    open
        From wanted column names to batches.
    total
        What `Batch.done` reaches at the end, in `unit` ("bytes" or "rows"); 0 when unknown.
    textual
        Whether ids come as text without a type, so that integers must be recognised at the end.
    """

    label: str
    columns: list[str]
    open: Callable[[list[str]], Iterator[Batch]]
    total: int = 0
    unit: str = "rows"
    textual: bool = False
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int | None:
        """Number of rows, where it is known before they are read."""
        return self.total if self.unit == "rows" and self.total else None


_PLAIN = {str, int, float, UUID, datetime, date, Decimal}


def packed(values: list[Any]) -> Column:
    """Python objects as an Arrow array when they are all of one plain type, else the list itself."""
    types = set(map(type, values)) - {type(None)}
    if len(types) != 1 or not types <= _PLAIN:
        return values
    for type_ in (None, pa.uint64()) if types == {int} else (None,):
        try:
            return pa.array(values, type_)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            continue
    return values


def shown(value: object) -> str:
    """Offending value for a message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def value_at(column: Column, row: int) -> object:
    """One value of a column as a Python object, even when its bytes are not text."""
    if isinstance(column, list):
        return column[row]
    scalar = column[row]
    if pa.types.is_temporal(scalar.type):
        return str(scalar)  # nanoseconds as Python objects would need pandas
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes()
