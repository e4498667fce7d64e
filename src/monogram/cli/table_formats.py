"""Tables to a file or to stdout: csv, json or parquet, batch by batch, whole or not at all."""

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
    """What the answer looks like."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


def by_ending(path: str, flag: str = "--output", otherwise: str = "") -> Format:
    """The format that the name of a file asks for."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in ("csv", "json", "parquet"):
        raise ParameterError(f"{flag} {path}: expected a name ending in .csv, .json or .parquet{otherwise}")
    return Format(ending)


def text_of(tables: Iterator[Any], form: Format) -> Iterator[str]:
    """The tables as pieces of one CSV or JSON text."""
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
    before = "[\n"
    for table in tables:
        rows = [encode(row) for row in table.to_pylist()]
        if rows:
            yield before + ",\n".join(rows)
            before = ",\n"
    yield "\n]\n" if before == ",\n" else "[]\n"


def print_text(pieces: Iterator[str]) -> None:
    """Pieces of text to stdout; flushed here, so that a closed pipe is noticed in time."""
    for piece in pieces:
        sys.stdout.write(piece)
    sys.stdout.flush()


def write(tables: Iterator[Any], form: Format, output: str) -> None:
    """The tables to a file, whole or not at all."""
    with whole_file(output) as file:
        if form is Format.parquet:
            _parquet(tables, file)
        else:
            for piece in text_of(tables, form):
                file.write(piece.encode())


def _parquet(tables: Iterator[Any], file: Any) -> None:
    import pyarrow.parquet as pq

    first = next(tables)
    with pq.ParquetWriter(file, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)
