"""The header of a model file: parsed and checked before any tensor is mapped."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from monogram.store.format import DTYPES, FORMAT, HEADER_LIMIT, KEY, PREFIX, RESERVED, checksum


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Type, shape, position in the file and checksums of one tensor."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    digests: list[str]


@dataclass(frozen=True, slots=True)
class FileContents:
    """The caller's header, and the tensors by name."""

    header: dict[str, Any]
    entries: dict[str, TensorEntry]


class UnreadableFile(Exception):
    """Why a file cannot be read; `reader` adds the name of the file."""


def read_contents(file: BinaryIO) -> FileContents:
    """Parse and check the header of an open file; the tensors' bytes are not read."""
    size = os.fstat(file.fileno()).st_size
    text = _header_text(file, size)
    table = _parsed(text)
    document = _parsed(_document_text(table))
    _check_format(document)
    table.pop(RESERVED)
    _check_document(document, list(table))
    entries = _entries(document["tensors"], table, PREFIX + len(text))
    end = PREFIX + len(text) + sum(_nbytes(entry) for entry in entries.values())
    if end != size:
        state = "truncated" if size < end else "followed by other bytes"
        raise UnreadableFile(f"it is {state}: {size:,} bytes, expected {end:,}. Copy or save the model again")
    return FileContents(document["header"], entries)


def _header_text(file: BinaryIO, size: int) -> bytes:
    length = int.from_bytes(file.read(PREFIX), "little")
    if size < PREFIX or length > min(size - PREFIX, HEADER_LIMIT):
        state = "empty" if size == 0 else f"truncated or not a Monogram model file ({size:,} bytes)"
        raise UnreadableFile(f"it is {state}; expected a file made by save")
    text = file.read(length)
    if len(text) != length or not text.startswith(b"{"):
        raise UnreadableFile("it is not a Monogram model file; expected a file made by save")
    return text


def _parsed(text: bytes | str) -> dict[str, Any]:
    value = json.loads(
        text.decode() if isinstance(text, bytes) else text,  # json would guess the encoding of bytes
        object_pairs_hook=_unique,
        parse_constant=_no_constant,
    )
    if not isinstance(value, dict):
        raise UnreadableFile("its header is not a JSON object; save the model again")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise UnreadableFile("its header has the same key twice; save the model again")
    return result


def _no_constant(name: str) -> None:
    raise UnreadableFile(f"its header holds {name}, which is not JSON; save the model again")


def _document_text(table: dict[str, Any]) -> str:
    metadata = table.get(RESERVED)
    if not isinstance(metadata, dict) or not isinstance(metadata.get(KEY), str):
        raise UnreadableFile(
            "it is a safetensors file of another program: its metadata has no text under "
            f"{KEY!r}. Load it with safetensors, or give a file made by save"
        )
    if len(metadata) > 1:
        raise UnreadableFile(f"its metadata was altered: only {KEY!r} was expected. Save the model again")
    return str(metadata[KEY])


def _check_format(document: dict[str, Any]) -> None:
    """Refuse a newer format before the checksum is compared: a newer format may compute it differently."""
    number = document.get("format")
    if type(number) is not int or number < 1:
        raise UnreadableFile(
            f"its format is {str(number)[:40]!r}, expected a number up to {FORMAT}; save the model again"
        )
    if number > FORMAT:
        library = str(document.get("library"))[:40]
        raise UnreadableFile(
            f"written by format {number} (monogram {library}); this library reads up to {FORMAT}: upgrade monogram"
        )


def _check_document(document: dict[str, Any], order: list[str]) -> None:
    content = {key: value for key, value in document.items() if key != "checksum"}
    if document.get("checksum") != checksum(content, order):
        raise UnreadableFile("its header was altered: the checksum does not match. Copy or save the model again")
    header, tensors = document.get("header"), document.get("tensors")
    if not isinstance(header, dict) or not isinstance(tensors, dict) or tensors.keys() != set(order):
        raise UnreadableFile("its header does not describe its tensors; save the model again")


def _entries(tensors: dict[str, Any], table: dict[str, Any], position: int) -> dict[str, TensorEntry]:
    """Compute the tensors' positions, one after the other in the table's order; refuse a table that differs."""
    entries: dict[str, TensorEntry] = {}
    first = position
    for name, row in table.items():
        entry = _entry(name, tensors[name], position)
        position += _nbytes(entry)
        code = DTYPES[entry.dtype.name][0]
        offsets = [entry.start - first, position - first]
        if row != {"dtype": code, "shape": list(entry.shape), "data_offsets": offsets}:
            raise UnreadableFile(f"tensor {name!r} is not where its header says; save the model again")
        entries[name] = entry
    return entries


def _entry(name: str, description: Any, start: int) -> TensorEntry:
    match description:
        case {"dtype": str(dtype), "shape": list(shape), "sha256": list(digests)} if dtype in DTYPES and all(
            type(length) is int and length >= 0 for length in shape
        ):
            return TensorEntry(DTYPES[dtype][1], tuple(shape), start, digests)
    raise UnreadableFile(f"tensor {name!r} has a type or shape that cannot be read; save the model again")


def _nbytes(entry: TensorEntry) -> int:
    return math.prod(entry.shape) * entry.dtype.itemsize
