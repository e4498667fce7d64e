"""The layout of a model file: constants, element types, canonical JSON and checksums, for writing and reading.

A model file is a safetensors file whose metadata holds one JSON document under the key ``monogram``::

    {"format": 1, "library": "0.1.0", "header": {…}, "checksum": "…",
     "tensors": {name: {"dtype": "float32", "shape": [3, 4], "sha256": ["…", …]}}}

``sha256`` has one digest for each 16 MiB of the tensor's bytes, so that a single large tensor is hashed on
all cores. ``checksum`` covers the other keys of the document and the order of the tensors in the file, which
together with their types and shapes determines every offset. The same content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Array: TypeAlias = NDArray[Any]


@runtime_checkable
class RowSource(Protocol):
    """A matrix that is computed while it is written, some rows at a time, and is never in memory as a whole."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""

    @property
    def rows(self) -> int:
        """How many rows to compute at once."""

    def fill(self, out: Array, first: int) -> None:
        """Fill `out` with the rows that start at `first`."""


FORMAT = 1
KEY = "monogram"
RESERVED = "__metadata__"
PREFIX = 8  # bytes of the header's length, little-endian
HEADER_LIMIT = 100_000_000  # bytes; safetensors refuses to read more
DOCUMENT_LIMIT = HEADER_LIMIT // 2  # safetensors' own table is never longer than the document
CHUNK = 16 << 20  # bytes under one digest; part of the format

DTYPES: dict[str, tuple[str, np.dtype[Any]]] = {
    "float64": ("F64", np.dtype("<f8")),
    "float32": ("F32", np.dtype("<f4")),
    "float16": ("F16", np.dtype("<f2")),
    "int64": ("I64", np.dtype("<i8")),
    "int32": ("I32", np.dtype("<i4")),
    "int16": ("I16", np.dtype("<i2")),
    "int8": ("I8", np.dtype("i1")),
    "uint64": ("U64", np.dtype("<u8")),
    "uint32": ("U32", np.dtype("<u4")),
    "uint16": ("U16", np.dtype("<u2")),
    "uint8": ("U8", np.dtype("u1")),
    "bool": ("BOOL", np.dtype("?")),
}


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def checksum(content: Mapping[str, Any], order: Sequence[str]) -> str:
    """Digest of a document without its checksum, and of the order of its tensors in the file."""
    return hashlib.sha256(canonical({"document": content, "order": order}).encode()).hexdigest()


def digests_of(arrays: Mapping[str, Array]) -> dict[str, list[str]]:
    """Digests of the chunks of each array."""
    with ThreadPoolExecutor() as pool:  # hashing releases the GIL
        return {name: list(pool.map(_sha256, _chunks(array))) for name, array in arrays.items()}


def written_digests(path: Path, start: int, nbytes: int) -> list[str]:
    """Digests of the chunks of a tensor in a file; each chunk is mapped for as long as it is hashed."""

    def digest(at: int) -> str:
        return _sha256(np.memmap(path, np.uint8, "r", offset=at, shape=(min(CHUNK, start + nbytes - at),)))

    with ThreadPoolExecutor() as pool:
        return list(pool.map(digest, range(start, start + nbytes, CHUNK)))


def _chunks(array: Array) -> list[NDArray[np.uint8]]:
    raw = array.reshape(-1).view(np.uint8)
    return [raw[start : start + CHUNK] for start in range(0, raw.size, CHUNK)]


def _sha256(raw: NDArray[np.uint8]) -> str:
    return hashlib.sha256(raw.data).hexdigest()
