"""Parquet: one file or a folder of them, read row group by row group; what is wrong is named with its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from monogram.data.source import BATCH_ROWS, Batch, Source
from monogram.data.vocabulary import decimal_key
from monogram.errors import DataError

SUFFIXES = (".parquet", ".pq")
_BUFFER = 2**18  # of each column; else its whole row group is held
_ABSENT = "__HIVE_DEFAULT_PARTITION__"  # how the name of a folder says that there is no value


@dataclass(frozen=True)
class _Part:
    """One file: its columns, its rows, and the columns that the names of its folders give it."""

    path: Path
    columns: list[str]
    rows: int
    given: dict[str, Any] = field(default_factory=dict)


def parquet_file(path: Path) -> Source:
    """Open one file as a source."""
    return _source(path, [_part(path)])


def parquet_folder(folder: Path) -> Source:
    """Open a folder as a source: its Parquet files, however deep, and columns in names such as `day=2025-01-31/`."""
    files = sorted(file for file in folder.rglob("*") if _belongs(file.relative_to(folder)) and file.is_file())
    if not files:
        raise DataError(f"{folder} is a folder without .parquet files; name a file, or a folder of Parquet files.")
    named = [_named(file.relative_to(folder)) for file in files]
    types = {key: _type([one[key] for one in named if key in one]) for one in named for key in one}
    given = [{key: _scalar(value, types[key]) for key, value in one.items()} for one in named]
    return _source(folder, [_part(file, columns) for file, columns in zip(files, given, strict=True)])


def _belongs(path: Path) -> bool:
    """Whether a path inside the folder is a part of the log; what begins with a dot or a line is left to others."""
    return path.suffix.lower() in SUFFIXES and not any(name.startswith((".", "_")) for name in path.parts)


def _named(path: Path) -> dict[str, str | None]:
    """Columns in the names of folders, such as `day=2025-01-31`."""
    pairs = (name.partition("=") for name in path.parts[:-1] if "=" in name)
    return {unquote(key): None if value == _ABSENT else unquote(value) for key, _, value in pairs if key}


def _type(values: Sequence[str | None]) -> Any:
    """Integers where every name of a folder spells one of 64 bits, else text."""
    numbers = [decimal_key(value) for value in values if value is not None]
    whole = all(number is not None and -(2**63) <= number < 2**63 for number in numbers)
    return pa.int64() if whole else pa.string()


def _scalar(value: str | None, type_: Any) -> Any:
    return pa.scalar(int(value) if value is not None and pa.types.is_int64(type_) else value, type_)


def _part(path: Path, given: dict[str, Any] | None = None) -> _Part:
    try:
        head = pq.read_metadata(path)
        columns = list(head.schema.to_arrow_schema().names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not readable as Parquet: {error}") from error
    return _Part(path, columns, head.num_rows, {key: one for key, one in (given or {}).items() if key not in columns})


def _source(label: Path, parts: list[_Part]) -> Source:
    names = list(parts[0].columns)
    names += dict.fromkeys(name for part in parts for name in (*part.columns, *part.given) if name not in names)

    def rows(wanted: list[str]) -> Iterator[Batch]:
        _check_columns(parts, wanted)
        return _rows(parts, wanted)

    return Source(str(label), names, rows, sum(part.rows for part in parts))


def _check_columns(parts: list[_Part], wanted: list[str]) -> None:
    """Refuse a file that lacks a column before the first of many is read."""
    for name in wanted:
        having = [part for part in parts if name in part.columns or name in part.given]
        lacking = [part for part in parts if part not in having]
        if lacking:
            raise DataError(f"{lacking[0].path} has no column {name!r}, unlike {having[0].path}.")


def _rows(parts: list[_Part], wanted: list[str]) -> Iterator[Batch]:
    done = 0
    for part in parts:
        start = 0
        for columns, size in _columns(part, wanted):
            yield Batch(columns, start, done + start + size, label=str(part.path))
            start += size
        done += start


def _columns(part: _Part, wanted: list[str]) -> Iterator[tuple[dict[str, Any], int]]:
    """Columns of one file, and the number of rows, batch by batch."""
    stored = [name for name in wanted if name not in part.given]
    try:
        with pq.ParquetFile(part.path, buffer_size=_BUFFER, pre_buffer=False) as file:
            _check_periods(part.path, file.schema_arrow, stored)
            for rows in file.iter_batches(BATCH_ROWS, columns=stored, use_threads=False):
                same = {name: pa.repeat(part.given[name], rows.num_rows) for name in wanted if name in part.given}
                yield {name: rows.column(name) for name in stored} | same, rows.num_rows
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{part.path} cannot be read: {error}.") from error


def _check_periods(path: Path, schema: Any, wanted: list[str]) -> None:
    """Refuse periods of pandas, which are bare numbers to whoever has not imported pandas."""
    for name in wanted:
        if (schema.field(name).metadata or {}).get(b"ARROW:extension:name") == b"pandas.period":
            raise DataError(f"{path}: column {name!r} holds periods of pandas, which are not supported; use dates.")
