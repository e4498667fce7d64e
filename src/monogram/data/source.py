"""The interface between sources and the reader: named columns, read in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa

BATCH_ROWS = 131_072

# An Arrow array, or a list of Python objects that Arrow cannot represent.
Column: TypeAlias = Any


@dataclass(frozen=True)
class Lost:
    """A row that could not be split into columns; `row` counts from 1."""

    row: int
    reason: str
    text: str


@dataclass(frozen=True)
class Batch:
    """Some rows: the wanted columns by name, the number of rows before them, and rows that could not be split.

    `label` names the file in messages, where the source has several; `start` counts the rows of that file.
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
        Its name in messages.
    columns
        Names of all columns.
    open
        Function from the names of the wanted columns to batches.
    total
        The last value of `Batch.done`, in `unit` ("bytes" or "rows"); 0 when unknown.
    textual
        Whether ids are untyped text, so that integers must be recognised at the end.
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
        """Number of rows, where it is known in advance."""
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
    """A value as a message shows it, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def value_at(column: Column, row: int) -> object:
    """One value of a column as a Python object; text that is not UTF-8 as bytes."""
    if isinstance(column, list):
        return column[row]
    scalar = column[row]
    if pa.types.is_temporal(scalar.type):
        return str(scalar)  # nanoseconds as Python objects would need pandas
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes()
