"""Parquet: one file or a folder of files, read by row group; errors name the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from monogram.data.id_arrays import decimal_key
from monogram.data.source import BATCH_ROWS, Batch, Source
from monogram.errors import DataError

SUFFIXES = (".parquet", ".pq")
_BUFFER = 2**18  # bytes per column; without a buffer size a whole row group is read into memory
_ABSENT = "__HIVE_DEFAULT_PARTITION__"  # the value of a folder name that means a missing value


@dataclass(frozen=True)
class _Part:
    """One file: its columns, its number of rows, and the columns in the names of its folders."""

    path: Path
    columns: list[str]
    rows: int
    partitions: dict[str, Any] = field(default_factory=dict)


def parquet_file(path: Path) -> Source:
    """Open one file as a source."""
    return _source(path, [_part(path)])


def parquet_folder(folder: Path) -> Source:
    """Open a folder as a source: its Parquet files at any depth, and columns in names such as `day=2025-01-31/`."""
    files = sorted(file for file in folder.rglob("*") if _belongs(file.relative_to(folder)) and file.is_file())
    if not files:
        raise DataError(f"{folder} is a folder without .parquet files; name a file, or a folder of Parquet files.")
    texts = [_partition_texts(file.relative_to(folder)) for file in files]
    types = {key: _type([text[key] for text in texts if key in text]) for text in texts for key in text}
    partitions = [{key: _scalar(value, types[key]) for key, value in text.items()} for text in texts]
    return _source(folder, [_part(file, columns) for file, columns in zip(files, partitions, strict=True)])


def _belongs(path: Path) -> bool:
    """Whether a path inside the folder is part of the log; names with a leading dot or underscore are not."""
    return path.suffix.lower() in SUFFIXES and not any(name.startswith((".", "_")) for name in path.parts)


def _partition_texts(path: Path) -> dict[str, str | None]:
    """Columns in the names of folders, such as `day=2025-01-31`."""
    pairs = (name.partition("=") for name in path.parts[:-1] if "=" in name)
    return {unquote(key): None if value == _ABSENT else unquote(value) for key, _, value in pairs if key}


def _type(values: Sequence[str | None]) -> Any:
    """Integer when every value is the text of a 64-bit integer, else text."""
    numbers = [decimal_key(value) for value in values if value is not None]
    whole = all(number is not None and -(2**63) <= number < 2**63 for number in numbers)
    return pa.int64() if whole else pa.string()


def _scalar(value: str | None, type_: Any) -> Any:
    return pa.scalar(int(value) if value is not None and pa.types.is_int64(type_) else value, type_)


def _part(path: Path, partitions: dict[str, Any] | None = None) -> _Part:
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        columns = list(metadata.schema.to_arrow_schema().names)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not readable as Parquet: {error}") from error
    others = {key: value for key, value in (partitions or {}).items() if key not in columns}
    return _Part(path, columns, metadata.num_rows, others)


def _source(label: Path, parts: list[_Part]) -> Source:
    names = list(parts[0].columns)
    names += dict.fromkeys(name for part in parts for name in (*part.columns, *part.partitions) if name not in names)

    def rows(column_names: list[str]) -> Iterator[Batch]:
        _check_columns(parts, column_names)
        return _rows(parts, column_names)

    return Source(str(label), names, rows, sum(part.rows for part in parts))


def _check_columns(parts: list[_Part], column_names: list[str]) -> None:
    """Refuse a folder in which a file lacks a column, before the first file is read."""
    for name in column_names:
        having = [part for part in parts if name in part.columns or name in part.partitions]
        lacking = [part for part in parts if part not in having]
        if lacking:
            raise DataError(f"{lacking[0].path} has no column {name!r}, unlike {having[0].path}.")


def _rows(parts: list[_Part], column_names: list[str]) -> Iterator[Batch]:
    done = 0
    for part in parts:
        start = 0
        for columns, size in _columns(part, column_names):
            yield Batch(columns, start, done + start + size, label=str(part.path))
            start += size
        done += start


def _columns(part: _Part, column_names: list[str]) -> Iterator[tuple[dict[str, Any], int]]:
    """The columns of one file and their number of rows, batch by batch."""
    import pyarrow.parquet as pq

    stored = [name for name in column_names if name not in part.partitions]
    try:
        with pq.ParquetFile(part.path, buffer_size=_BUFFER, pre_buffer=False) as file:
            _check_periods(part.path, file.schema_arrow, stored)
            for rows in file.iter_batches(BATCH_ROWS, columns=stored, use_threads=False):
                constant = {
                    name: pa.repeat(part.partitions[name], rows.num_rows)
                    for name in column_names
                    if name in part.partitions
                }
                yield {name: rows.column(name) for name in stored} | constant, rows.num_rows
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{part.path} cannot be read: {error}.") from error


def _check_periods(path: Path, schema: Any, column_names: list[str]) -> None:
    """Refuse periods of pandas, which Arrow reads as plain numbers unless pandas is imported."""
    for name in column_names:
        if (schema.field(name).metadata or {}).get(b"ARROW:extension:name") == b"pandas.period":
            raise DataError(f"{path}: column {name!r} holds periods of pandas, which are not supported; use dates.")
