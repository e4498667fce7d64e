"""Write model files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save as safetensors_bytes
from safetensors.numpy import save_file

from monogram._version import __version__
from monogram.errors import ParameterError
from monogram.safe import atomic_replace
from monogram.store.format import (
    DOCUMENT_LIMIT,
    DTYPES,
    FORMAT,
    JSON,
    KEY,
    PREFIX,
    RESERVED,
    Array,
    canonical,
    checksum,
    digests_of,
)

COPY_LIMIT = 64 << 20  # bytes; larger arrays are not copied into another layout without the caller's consent


def save(
    path: str | os.PathLike[str],
    header: Mapping[str, JSON],
    tensors: Mapping[str, Array],
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
        C-contiguous arrays of float, int, uint or bool type. Others are copied when they are small.
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
    arrays = {name: _storable(name, tensor) for name, tensor in tensors.items()}
    plain = _plain(header)
    with atomic_replace(path, mark=mark, check=check) as temporary:
        document = _document(plain, arrays)
        try:
            save_file(arrays, temporary, metadata={KEY: document})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def _storable(name: str, tensor: Array) -> Array:
    """The tensor as C-contiguous and little-endian; a large one is refused rather than copied."""
    if not isinstance(name, str) or name == RESERVED or not _is_text(name):
        raise ParameterError(f"tensor name {name!r} cannot be stored: use a plain string, not {RESERVED!r}")
    if not isinstance(tensor, np.ndarray):
        raise ParameterError(f"tensor {name!r} is a {type(tensor).__name__}, expected a numpy array")
    if tensor.dtype.name not in DTYPES:
        raise ParameterError(f"tensor {name!r} is of type {tensor.dtype}, expected one of {', '.join(DTYPES)}")
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


def _document(header: dict[str, Any], arrays: Mapping[str, Array]) -> str:
    digests = digests_of(arrays)
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


def _file_order(arrays: Mapping[str, Array]) -> list[str]:
    """The order that safetensors writes the tensors in, which may differ between its versions."""
    probe = safetensors_bytes({name: np.empty(0, array.dtype) for name, array in arrays.items()})
    length = int.from_bytes(probe[:PREFIX], "little")
    return list(json.loads(probe[PREFIX : PREFIX + length]))
