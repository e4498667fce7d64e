"""Text files: CSV, TSV and JSON lines as batches of Arrow columns."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from monogram.data.parquet import parquet_file, parquet_folder
from monogram.data.source import Batch, Lost, Source, packed
from monogram.errors import DataError

_T = TypeVar("_T")
_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
CSV_BLOCK = 4 * 2**20
JSON_BLOCK = 8 * 2**20
_JSON = (".jsonl", ".ndjson", ".json")
_HEAD = 2**20  # bytes read to find the columns
_SAMPLE = 1_000  # rows of JSON from which the keys are taken
KNOWN = ".csv, .tsv, .parquet, .jsonl, .ndjson, .json (each but Parquet also .gz or .zst), .npz"


def file_source(path: Path, named: Sequence[str] = ()) -> Source:
    """Open a file, or a folder of Parquet files, as a source; `named` are the columns that the caller named."""
    if path.is_dir():
        return parquet_folder(path)
    suffix = kind_suffix(path)
    if suffix not in _OPENERS and suffix not in _JSON:
        raise DataError(f"{path}: files ending in {suffix or 'nothing'!r} are not supported; use one of {KNOWN}.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty: expected a header line and at least one row.")
    return _json_source(path, named) if suffix in _JSON else _OPENERS[suffix](path)


def kind_suffix(path: Path) -> str:
    """The extension that names the format: ".csv" of "events.csv.gz"."""
    name = Path(path.stem) if path.suffix.lower() in _CODECS else path
    return name.suffix.lower()


class _Input:
    """A file opened for Arrow, decompressed while it is read; `done` is the number of bytes read from the file."""

    def __init__(self, path: Path) -> None:
        self.raw = pa.OSFile(str(path))
        codec = _CODECS.get(path.suffix.lower())
        self.stream = pa.CompressedInputStream(self.raw, codec) if codec else self.raw

    def done(self) -> int:
        return 0 if self.raw.closed else int(self.raw.tell())


def _readable(path: Path, rows: Iterator[_T], hint: str) -> Iterator[_T]:
    """Convert the exceptions of Arrow and of the file system to `DataError`."""
    try:
        yield from rows
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}.{hint}") from error


def _head(path: Path) -> bytes:
    try:
        with _Input(path).stream as stream:
            return bytes(stream.read(_HEAD))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _csv_source(path: Path) -> Source:
    text = _head(path).decode("utf-8-sig", errors="replace")
    line = next((line for line in text.splitlines() if line.strip()), "")
    if not line:
        raise DataError(f"{path} is empty: expected a header line and at least one row.")
    quoted = kind_suffix(path) != ".tsv"  # in a TSV file a quote is an ordinary character
    delimiter = _delimiter(line) if quoted else "\t"
    names = _header(path, text, delimiter, quoted)
    if any("\ufffd" in name or "\0" in name for name in names):
        raise DataError(f"{path}: the header line is not UTF-8 text; save the file as UTF-8.")
    notes = (f"delimiter {delimiter!r} found in the header",) if quoted and delimiter != "," else ()
    reader = partial(_csv_batches, path, delimiter, quoted)
    return Source(str(path), names, reader, path.stat().st_size, "bytes", textual=True, notes=notes)


def _header(path: Path, text: str, delimiter: str, quoted: bool) -> list[str]:
    rows = io.StringIO(text, newline="")
    try:
        plain = csv.reader(rows, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        lines = csv.reader(rows, delimiter=delimiter) if quoted else plain
        return next(row for row in lines if row)
    except csv.Error as error:
        raise DataError(f"{path}: the header line cannot be read ({error}); expected the names of columns.") from error


def _delimiter(header: str) -> str:
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(",;\t|", key=unquoted.count)  # a tie, or no delimiter at all, gives the comma


def _csv_batches(path: Path, delimiter: str, quoted: bool, column_names: list[str]) -> Iterator[Batch]:
    hint = " Is there a quote that is never closed?" if quoted else ""
    return _readable(path, _csv_rows(path, delimiter, quoted, column_names), hint)


def _csv_rows(path: Path, delimiter: str, quoted: bool, column_names: list[str]) -> Iterator[Batch]:
    lost: list[Lost] = []

    def lose(row: Any) -> str:
        reason = f"the line has {row.actual_columns} columns where {row.expected_columns} are expected"
        if "\n" in row.text:
            reason += " (it runs over several lines: is a quote never closed?)"
        lost.append(Lost(row.number - 1, reason, row.text[:100]))
        return "skip"

    source, start = _Input(path), 0
    reader = _csv_reader(source.stream, delimiter, quoted, column_names, lose)
    for rows in reader:
        lost_here, lost[:] = list(lost), []
        yield Batch({name: rows.column(name) for name in column_names}, start, source.done(), lost_here)
        start += rows.num_rows + len(lost_here)
    if lost:
        yield Batch({}, start, source.done(), lost)


def _csv_reader(stream: Any, delimiter: str, quoted: bool, column_names: list[str], lose: Callable[[Any], str]) -> Any:
    # Arrow reports the number of a bad row with a single thread only. UTF-8 is checked later, on the distinct ids.
    reading = pacsv.ReadOptions(use_threads=False, block_size=CSV_BLOCK)
    quoting = {"quote_char": '"' if quoted else False, "newlines_in_values": quoted}
    parsing = pacsv.ParseOptions(delimiter=delimiter, invalid_row_handler=lose, **quoting)
    types = dict.fromkeys(column_names, pa.string())
    converting = pacsv.ConvertOptions(include_columns=column_names, column_types=types, check_utf8=False)
    try:
        return pacsv.open_csv(stream, reading, parsing, converting)
    except pa.ArrowInvalid as error:
        if "Empty CSV file or block" in str(error):  # a header without a line break
            return ()
        raise


def _json_source(path: Path, named: Sequence[str]) -> Source:
    head = _head(path)
    if head.lstrip()[:1] == b"[":
        raise DataError(f"{path} is one JSON array; expected JSON lines, one object on each line.")
    objects = [_parsed(line)[0] for line in head.split(b"\n")[:_SAMPLE]]
    samples = [row for row in objects if row is not None]
    if not samples:
        raise DataError(f"{path}: no JSON object found; expected one object on each line.")
    absent = [name for name in named if not any(name in row for row in samples)]
    samples += _late_rows(path, absent)
    names = list(dict.fromkeys(name for row in samples for name in row))
    rows = lambda column_names: _readable(path, _json_rows(path, column_names, samples), "")  # noqa: E731
    return Source(str(path), names, rows, path.stat().st_size, "bytes")


def _late_rows(path: Path, absent: list[str]) -> list[dict[str, Any]]:
    """The first row with each of these keys, from a pass over the file; none for a key that never occurs."""
    first_rows: dict[str, dict[str, Any]] = {}
    blocks = _readable(path, _line_blocks(_Input(path).stream), "") if absent else iter(())
    for line in (line for block in blocks for line in block.split(b"\n")):
        missing = [name for name in absent if name not in first_rows]
        if not missing:
            break
        row = _parsed(line)[0] if any(_may_name(line, name) for name in missing) else None
        first_rows.update({name: row for name in missing if row is not None and name in row})
    return list(first_rows.values())


def _may_name(line: bytes, name: str) -> bool:
    """Whether a line may contain a key: literally, or with JSON escapes."""
    return b'"' + name.encode(errors="replace") + b'"' in line or b"\\" in line


def _parsed(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The JSON object of a line, or None and the reason."""
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError:
        return None, "the line is not UTF-8 text"
    except (ValueError, RecursionError):
        return None, "the line is not JSON"
    return (value, "") if isinstance(value, dict) else (None, "the line is not a JSON object")


def _json_rows(path: Path, column_names: list[str], samples: list[dict[str, Any]]) -> Iterator[Batch]:
    schema, source, start = _json_schema(column_names, samples), _Input(path), 0
    for block in _line_blocks(source.stream):
        batch = _json_fast(block, column_names, schema, start, source.done())
        batch = batch or _json_slow(block, column_names, start, source.done())
        yield batch
        start += len(batch.columns[column_names[0]]) + len(batch.lost)


def _line_blocks(stream: Any) -> Iterator[bytes]:
    remainder = b""
    while block := stream.read(JSON_BLOCK):
        end = block.rfind(b"\n") + 1
        if end:
            yield remainder + block[:end]
        remainder = block[end:] if end else remainder + block
    if remainder.strip():
        yield remainder


def _json_schema(column_names: list[str], samples: list[dict[str, Any]]) -> Any:
    """Types of the sampled values, so that text that looks like a date stays text; None when they differ."""
    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    fields = []
    for name in column_names:
        seen = {type(row[name]) for row in samples if row.get(name) is not None}
        if len(seen) != 1 or not seen <= set(types):
            return None
        fields.append((name, types[seen.pop()]))
    return pa.schema(fields)


def _json_fast(block: bytes, column_names: list[str], schema: Any, start: int, done: int) -> Batch | None:
    if schema is None:
        return None
    try:
        block.decode()
        table = pajson.read_json(
            pa.BufferReader(block),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return None
    return Batch({name: table.column(name).combine_chunks() for name in column_names}, start, done)


def _json_slow(block: bytes, column_names: list[str], start: int, done: int) -> Batch:
    """Parse line by line, to name the lines that Arrow could not parse."""
    rows: list[dict[str, Any]] = []
    lost: list[Lost] = []
    lines = [line for line in block.split(b"\n") if line.strip()]
    for number, line in enumerate(lines, start=start + 1):
        row, why = _parsed(line)
        if row is None:
            lost.append(Lost(number, why, line.decode(errors="backslashreplace")))
        else:
            rows.append(row)
    columns = {name: packed([row.get(name) for row in rows]) for name in column_names}
    return Batch(columns, start, done, lost)


_OPENERS: dict[str, Callable[[Path], Source]] = {
    ".csv": _csv_source,
    ".tsv": _csv_source,
    ".parquet": parquet_file,
    ".pq": parquet_file,
}
