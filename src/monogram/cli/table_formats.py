"""Tables as CSV, JSON or Parquet, to a file or to stdout, batch by batch."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from monogram.errors import ParameterError
from monogram.safe import whole_file


class Format(StrEnum):
    """Format of a result."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


def format_of_name(path: str, flag: str = "--output", otherwise: str = "") -> Format:
    """The format that the extension of a file name says."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in ("csv", "json", "parquet"):
        raise ParameterError(f"{flag} {path}: expected a name ending in .csv, .json or .parquet{otherwise}")
    return Format(ending)


def text_chunks(tables: Iterator[Any], form: Format) -> Iterator[str]:
    """The tables as one CSV or JSON text, in chunks."""
    return _csv(tables) if form is Format.csv else _json(tables)


def _csv(tables: Iterator[Any]) -> Iterator[str]:
    for number, table in enumerate(tables):
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if number == 0:
            writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
        yield text.getvalue()


def _json(tables: Iterator[Any]) -> Iterator[str]:
    encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
    separator = "[\n"
    for table in tables:
        rows = [encode(row) for row in table.to_pylist()]
        if rows:
            yield separator + ",\n".join(rows)
            separator = ",\n"
    yield "\n]\n" if separator == ",\n" else "[]\n"


def print_text(chunks: Iterator[str]) -> None:
    """Print chunks of text to stdout; the flush reports a closed pipe here."""
    for chunk in chunks:
        sys.stdout.write(chunk)
    sys.stdout.flush()


def write(tables: Iterator[Any], form: Format, output: str) -> None:
    """Write the tables to a file, atomically."""
    with whole_file(output) as file:
        if form is Format.parquet:
            _parquet(tables, file)
        else:
            for chunk in text_chunks(tables, form):
                file.write(chunk.encode())


def _parquet(tables: Iterator[Any], file: Any) -> None:
    import pyarrow.parquet as pq

    first = next(tables)
    with pq.ParquetWriter(file, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)
