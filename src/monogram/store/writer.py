"""Write model files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save as safetensors_bytes
from safetensors.numpy import save_file

from monogram._version import __version__
from monogram.errors import ParameterError
from monogram.safe import atomic_replace
from monogram.store.format import (
    CHUNK,
    DOCUMENT_LIMIT,
    DTYPES,
    FORMAT,
    JSON,
    KEY,
    PREFIX,
    RESERVED,
    Array,
    RowSource,
    canonical,
    checksum,
    digests_of,
    written_digests,
)

ALIGNMENT = 8  # bytes; the header is padded with spaces to a multiple of it
NO_DIGEST = "0" * 64  # takes the place of a digest until the bytes are written
COPY_LIMIT = 64 << 20  # bytes; larger arrays are not copied into another layout without the caller's consent


def save(
    path: str | os.PathLike[str],
    header: Mapping[str, JSON],
    tensors: Mapping[str, Array | RowSource],
    *,
    mark: str = "",
    check: Callable[[], None] | None = None,
) -> None:
    """Write one model file atomically.

    The file is written under a temporary name beside `path`, flushed to the disk, and then renamed: a reader
    sees the former file or the new one, and arrays mapped from the former one stay valid.

    Parameters
    ----------
    path : str or path-like
        The file to create or replace. Its folder must exist.
    header : mapping
        Values that JSON represents exactly: string keys, finite numbers, lists rather than tuples.
    tensors : mapping of str to ndarray
        C-contiguous arrays of float, int, uint or bool type. Others are copied when they are small. A `RowSource` is
        computed while it is written; the file has the same bytes as with an array.
    mark : str
        Part of the temporary name, by which `leftovers` finds the files of a process that was killed.
    check : callable
        Called after the write and before the rename; an exception from it cancels the rename.

    Raises
    ------
    ParameterError
        The header or a tensor cannot be stored as it is.
    StorageError
        The file could not be written; a former file at `path` is unchanged.
    """
    stored = {name: _storable(name, tensor) for name, tensor in tensors.items()}
    arrays = {name: tensor for name, tensor in stored.items() if isinstance(tensor, np.ndarray)}
    plain = _plain(header)
    with atomic_replace(path, mark=mark, check=check) as temporary:
        if len(arrays) < len(stored):
            _write_rows(temporary, plain, stored)
            return
        document = _document(plain, arrays, digests_of(arrays))
        try:
            save_file(arrays, temporary, metadata={KEY: document})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def _write_rows(path: Path, header: dict[str, Any], tensors: Mapping[str, Array | RowSource]) -> None:
    """Write a file some of whose tensors are computed on the way; the digests are those of the written bytes.

    The length of the header does not depend on the digests: it is written without them first, and again at the end.
    """
    order = _file_order(tensors)
    blank = {name: [NO_DIGEST] * -(-_nbytes(tensor) // CHUNK) for name, tensor in tensors.items()}
    head = _head(_document(header, tensors, blank), tensors, order)
    with path.open("r+b") as file:
        file.write(head)
        for name in order:
            _write_tensor(file, tensors[name])
        file.flush()
        digests, start = {}, len(head)
        for name in order:
            digests[name] = written_digests(path, start, _nbytes(tensors[name]))
            start += _nbytes(tensors[name])
        file.seek(0)
        file.write(_head(_document(header, tensors, digests), tensors, order))


def _write_tensor(file: BinaryIO, tensor: Array | RowSource) -> None:
    if isinstance(tensor, np.ndarray):
        file.write(tensor.reshape(-1).view(np.uint8).data)
        return
    block = np.empty((tensor.rows, tensor.shape[1]), DTYPES[tensor.dtype.name][1])
    for first in range(0, tensor.shape[0], tensor.rows):
        rows = block[: tensor.shape[0] - first]
        tensor.fill(rows, first)
        file.write(rows.data)


def _head(document: str, tensors: Mapping[str, Array | RowSource], order: Sequence[str]) -> bytes:
    """The bytes before the tensors, as safetensors writes them."""
    table: dict[str, Any] = {RESERVED: {KEY: document}}
    start = 0
    for name in order:
        end = start + _nbytes(tensors[name])
        code = DTYPES[tensors[name].dtype.name][0]
        table[name] = {"dtype": code, "shape": list(tensors[name].shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(PREFIX, "little") + text


def _nbytes(tensor: Array | RowSource) -> int:
    return math.prod(tensor.shape) * tensor.dtype.itemsize


def _storable(name: str, tensor: Array | RowSource) -> Array | RowSource:
    """The tensor as C-contiguous and little-endian; a large one is refused rather than copied."""
    if not isinstance(name, str) or name == RESERVED or not _is_text(name):
        raise ParameterError(f"tensor name {name!r} cannot be stored: use a plain string, not {RESERVED!r}")
    if not isinstance(tensor, np.ndarray | RowSource):
        raise ParameterError(f"tensor {name!r} is a {type(tensor).__name__}, expected a numpy array")
    if tensor.dtype.name not in DTYPES:
        raise ParameterError(f"tensor {name!r} is of type {tensor.dtype}, expected one of {', '.join(DTYPES)}")
    if not isinstance(tensor, np.ndarray):
        return tensor
    dtype = DTYPES[tensor.dtype.name][1]
    if tensor.flags.c_contiguous and tensor.dtype == dtype:
        return tensor
    if tensor.nbytes > COPY_LIMIT:
        raise ParameterError(
            f"tensor {name!r} ({tensor.nbytes / 1e6:,.0f} MB) is not C-contiguous and little-endian, "
            f"and is too large to be copied implicitly: pass numpy.ascontiguousarray(tensor, dtype={dtype.str!r})"
        )
    return np.asarray(tensor, dtype=dtype, order="C")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(header: Mapping[str, JSON]) -> dict[str, Any]:
    """The header as JSON gives it back; a header that JSON would change is refused."""
    original = dict(header)
    try:
        plain: dict[str, Any] = json.loads(canonical(original))
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(f"the header cannot be written as JSON ({error}): use plain values") from error
    if plain != original:
        raise ParameterError(
            "the header would not be read back as it was written: use string keys, and lists rather than tuples"
        )
    return plain


def _document(header: dict[str, Any], arrays: Mapping[str, Array | RowSource], digests: Mapping[str, list[str]]) -> str:
    tensors = {
        name: {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": digests[name]}
        for name, array in arrays.items()
    }
    content = {"format": FORMAT, "library": __version__, "header": header, "tensors": tensors}
    text = canonical(content | {"checksum": checksum(content, _file_order(arrays))})
    length = len(json.dumps(text))
    if length > DOCUMENT_LIMIT:
        raise ParameterError(
            f"the header takes {length / 1e6:,.0f} MB, at most {DOCUMENT_LIMIT / 1e6:,.0f} MB can be "
            "stored: move large values into tensors"
        )
    return text


def _file_order(arrays: Mapping[str, Array | RowSource]) -> list[str]:
    """The order that safetensors writes the tensors in, which may differ between its versions."""
    probe = safetensors_bytes({name: np.empty(0, array.dtype) for name, array in arrays.items()})
    length = int.from_bytes(probe[:PREFIX], "little")
    return list(json.loads(probe[PREFIX : PREFIX + length]))
