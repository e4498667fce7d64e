"""One model file: a safetensors file whose metadata holds one JSON document; memory-mapped, never pickle.

The document under the metadata key ``monogram`` is::

    {"format": 1, "library": "0.1.0", "header": {…}, "checksum": "…",
     "tensors": {name: {"dtype": "float32", "shape": [3, 4], "sha256": ["…", …]}}}

``sha256`` has one digest for each 16 MiB of the tensor's bytes, so that a single large tensor is hashed on
all cores. ``checksum`` covers the rest of the document and the order of the tensors in the file, which with
their types and shapes fixes every offset. The same content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save as safetensors_bytes
from safetensors.numpy import save_file

from monogram._version import __version__
from monogram.errors import ModelFileError, ParameterError, StorageError

__all__ = ["FORMAT", "JSON", "Stored", "load", "read_header", "save"]

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Array: TypeAlias = NDArray[Any]

FORMAT = 1

_KEY = "monogram"
_RESERVED = "__metadata__"
_PREFIX = 8  # bytes of the header's length, little-endian
_HEADER_LIMIT = 100_000_000  # safetensors itself refuses to read more
_DOCUMENT_LIMIT = _HEADER_LIMIT // 2  # safetensors' own table is never longer than our document
_COPY_LIMIT = 64 << 20
_CHUNK = 16 << 20  # part of the format: digests are taken over pieces of this many bytes

_DTYPES: dict[str, tuple[str, np.dtype[Any]]] = {
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


@dataclass(frozen=True, slots=True)
class Stored:
    """What a model file holds.

    Attributes
    ----------
    header : dict
        The caller's header, as it was given to `save`.
    tensors : dict of str to ndarray
        Read-only arrays over the memory-mapped file; nothing is read before it is used.
    """

    header: dict[str, Any]
    tensors: dict[str, Array]


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    digests: list[str]


@dataclass(frozen=True, slots=True)
class _Contents:
    header: dict[str, Any]
    entries: dict[str, _Entry]


class _Refused(Exception):
    """Why a file cannot be read; `_opened` adds which file."""


def save(
    path: str | os.PathLike[str],
    header: Mapping[str, JSON],
    tensors: Mapping[str, Array],
    *,
    mark: str = "",
    check: Callable[[], None] | None = None,
) -> None:
    """Write one model file, whole or not at all.

    The file is written under a temporary name beside `path`, flushed to the disk, and then renamed: a reader
    sees the former file or the new one, and arrays mapped from the former one stay valid.

    Parameters
    ----------
    path : str or path-like
        The file to make or replace. Its folder must exist.
    header : mapping
        Anything JSON holds exactly: string keys, finite numbers, lists rather than tuples.
    tensors : mapping of str to ndarray
        C-contiguous arrays of float, int, uint or bool type. Others are copied when they are small.
    mark : str
        Part of the temporary name, by which `leftovers` finds what a killed process left behind.
    check : callable
        Called when all is written and nothing replaced yet; what it raises leaves the former file.

    Raises
    ------
    ParameterError
        The header or a tensor cannot be stored as it is.
    StorageError
        The file could not be written; a former file at `path` is untouched.
    """
    arrays = {name: _storable(name, tensor) for name, tensor in tensors.items()}
    plain = _plain(header)
    with _storage_errors(path):
        target = _target(path)
        _write(target, arrays, _document(plain, arrays), mark, check)


def leftovers(path: str | os.PathLike[str], mark: str) -> list[Path]:
    """What a `save` with this mark leaves beside a file when its process is killed."""
    target = Path(os.path.realpath(path))
    begin = _temporary(target, mark).name[: -len("00000000.tmp")]
    return [one for one in target.parent.iterdir() if one.name.startswith(begin) and one.name.endswith(".tmp")]


def load(path: str | os.PathLike[str], *, verify: bool = True) -> Stored:
    """Open a model file; its tensors are mapped, not read.

    Parameters
    ----------
    path : str or path-like
        A file made by `save`.
    verify : bool, default True
        Compare every tensor with its checksums, which reads the whole file. Without it a big model opens
        at once, and only the header and the file's size are checked.

    Returns
    -------
    Stored
        The header and the tensors.

    Raises
    ------
    ModelFileError
        The file is missing, truncated, altered, newer than this library, or not one of ours.
    """
    with _opened(path) as file:
        contents = _contents(file)
        mapping = np.memmap(file, dtype=np.uint8, mode="r")
        tensors = {name: _view(mapping, entry) for name, entry in contents.entries.items()}
        if verify:
            _verify(tensors, contents.entries)
    return Stored(contents.header, tensors)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the caller's header alone; the tensors' bytes are not touched.

    Parameters
    ----------
    path : str or path-like
        A file made by `save`.

    Returns
    -------
    dict
        The header as it was given to `save`.

    Raises
    ------
    ModelFileError
        As `load` does, save that altered tensors go unnoticed.
    """
    with _opened(path) as file:
        return _contents(file).header


# Writing


def _storable(name: str, tensor: Array) -> Array:
    if not isinstance(name, str) or name == _RESERVED or not _is_text(name):
        raise ParameterError(f"tensor name {name!r} cannot be stored: use a plain string, not {_RESERVED!r}")
    if not isinstance(tensor, np.ndarray):
        raise ParameterError(f"tensor {name!r} is a {type(tensor).__name__}, expected a numpy array")
    if tensor.dtype.name not in _DTYPES:
        raise ParameterError(f"tensor {name!r} is of type {tensor.dtype}, expected one of {', '.join(_DTYPES)}")
    dtype = _DTYPES[tensor.dtype.name][1]
    if tensor.flags.c_contiguous and tensor.dtype == dtype:
        return tensor
    if tensor.nbytes > _COPY_LIMIT:
        raise ParameterError(
            f"tensor {name!r} ({tensor.nbytes / 1e6:,.0f} MB) is not C-contiguous and little-endian, "
            f"and is too big to copy unasked: pass numpy.ascontiguousarray(tensor, dtype={dtype.str!r})"
        )
    return np.asarray(tensor, dtype=dtype, order="C")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(header: Mapping[str, JSON]) -> dict[str, Any]:
    given = dict(header)
    try:
        plain: dict[str, Any] = json.loads(_canonical(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(f"the header cannot be written as JSON ({error}): use plain values") from error
    if plain != given:
        raise ParameterError(
            "the header would not come back as it was given: use string keys, and lists rather than tuples"
        )
    return plain


def _document(header: dict[str, Any], arrays: Mapping[str, Array]) -> str:
    digests = _digests(arrays)
    tensors = {
        name: {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": digests[name]}
        for name, array in arrays.items()
    }
    rest = {"format": FORMAT, "library": __version__, "header": header, "tensors": tensors}
    text = _canonical(rest | {"checksum": _checksum(rest, _file_order(arrays))})
    length = len(json.dumps(text))
    if length > _DOCUMENT_LIMIT:
        raise ParameterError(
            f"the header takes {length / 1e6:,.0f} MB, at most {_DOCUMENT_LIMIT / 1e6:,.0f} MB can be "
            "stored: put what is large into tensors"
        )
    return text


def _file_order(arrays: Mapping[str, Array]) -> list[str]:
    # The order in the file is safetensors' own and may differ between its versions: ask it.
    probe = safetensors_bytes({name: np.empty(0, array.dtype) for name, array in arrays.items()})
    length = int.from_bytes(probe[:_PREFIX], "little")
    return list(json.loads(probe[_PREFIX : _PREFIX + length]))


def _target(path: str | os.PathLike[str]) -> Path:
    if "\0" in os.fspath(path):
        raise StorageError(f"{path!r} was not saved: a file's name cannot hold a zero character")
    # Through symbolic links, as an ordinary write goes: the rename must not replace the link.
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise StorageError(f"{path} was not saved: there is no folder {target.parent}; make it first")
    if target.exists() and not target.is_file():
        raise StorageError(f"{path} was not saved: it is not a file; give a file's name")
    return target


def _temporary(target: Path, mark: str) -> Path:
    return target.with_name(f".{target.name[:50]}.{mark}{secrets.token_hex(4)}.tmp")


def _write(target: Path, arrays: dict[str, Array], document: str, mark: str, check: Callable[[], None] | None) -> None:
    temporary = _temporary(target, mark)
    try:
        mode = _reserve(temporary)
        save_file(arrays, temporary, metadata={_KEY: document})
        temporary.chmod(mode)  # safetensors makes its files private
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        if check is not None:
            check()
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _reserve(path: Path) -> int:
    """Make an empty file and return its mode: what the umask leaves, found without changing the umask."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not every system opens a folder; the file itself is already on the disk
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(
            f"{path} was not saved: {reason}. What was there before is untouched; "
            "check the space on the disk and that the folder may be written to"
        ) from error


# Reading


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    try:
        if "\0" in os.fspath(path):
            raise _Refused("a file's name cannot hold a zero character")
        if not stat.S_ISREG(os.stat(path).st_mode):  # before opening: a named pipe would wait for ever
            raise _Refused("it is not a file; give the name of a file made by save")
        with open(path, "rb") as file:
            yield file
    except _Refused as refusal:
        raise ModelFileError(f"cannot load {path}: {refusal}") from None
    except FileNotFoundError:
        raise ModelFileError(f"cannot load {path}: there is no such file; check the name") from None
    except OSError as error:
        raise ModelFileError(f"cannot load {path}: {error.strerror or error}") from error
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise ModelFileError(
            f"cannot load {path}: its header cannot be read; "
            "it is damaged or not a Monogram model file. Save the model again"
        ) from error


def _contents(file: BinaryIO) -> _Contents:
    size = os.fstat(file.fileno()).st_size
    text = _header_text(file, size)
    table = _parsed(text)
    document = _parsed(_document_text(table))
    _check_format(document)
    table.pop(_RESERVED)
    _check_document(document, list(table))
    entries = _entries(document["tensors"], table, _PREFIX + len(text))
    end = _PREFIX + len(text) + sum(_nbytes(entry) for entry in entries.values())
    if end != size:
        state = "truncated" if size < end else "followed by other bytes"
        raise _Refused(f"it is {state}: {size:,} bytes, expected {end:,}. Copy or save the model again")
    return _Contents(document["header"], entries)


def _header_text(file: BinaryIO, size: int) -> bytes:
    length = int.from_bytes(file.read(_PREFIX), "little")
    if size < _PREFIX or length > min(size - _PREFIX, _HEADER_LIMIT):
        what = "empty" if size == 0 else f"truncated or not a Monogram model file ({size:,} bytes)"
        raise _Refused(f"it is {what}; expected a file made by save")
    text = file.read(length)
    if len(text) != length or not text.startswith(b"{"):
        raise _Refused("it is not a Monogram model file; expected a file made by save")
    return text


def _parsed(text: bytes | str) -> dict[str, Any]:
    value = json.loads(
        text.decode() if isinstance(text, bytes) else text,  # json would guess the encoding of bytes
        object_pairs_hook=_unique,
        parse_constant=_no_constant,
    )
    if not isinstance(value, dict):
        raise _Refused("its header is not a JSON object; save the model again")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Refused("its header has the same key twice; save the model again")
    return result


def _no_constant(name: str) -> None:
    raise _Refused(f"its header holds {name}, which is not JSON; save the model again")


def _document_text(table: dict[str, Any]) -> str:
    metadata = table.get(_RESERVED)
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_KEY), str):
        raise _Refused(
            "it is a safetensors file of another program: its metadata has no text under "
            f"{_KEY!r}. Load it with safetensors, or give a file made by save"
        )
    if len(metadata) > 1:
        raise _Refused(f"its metadata was altered: only {_KEY!r} was expected. Save the model again")
    return str(metadata[_KEY])


def _check_format(document: dict[str, Any]) -> None:
    # Before the checksum, which a newer format may take another way.
    number = document.get("format")
    if type(number) is not int or number < 1:
        raise _Refused(f"its format is {str(number)[:40]!r}, expected a number up to {FORMAT}; save it again")
    if number > FORMAT:
        library = str(document.get("library"))[:40]
        raise _Refused(
            f"written by format {number} (monogram {library}); this library reads up to {FORMAT}: upgrade monogram"
        )


def _check_document(document: dict[str, Any], order: list[str]) -> None:
    rest = {key: value for key, value in document.items() if key != "checksum"}
    if document.get("checksum") != _checksum(rest, order):
        raise _Refused("its header was altered: the checksum does not match. Copy or save the model again")
    header, tensors = document.get("header"), document.get("tensors")
    if not isinstance(header, dict) or not isinstance(tensors, dict) or tensors.keys() != set(order):
        raise _Refused("its header does not describe its tensors; save the model again")


def _entries(tensors: dict[str, Any], table: dict[str, Any], position: int) -> dict[str, _Entry]:
    """Place the tensors one after the other in the table's order, and refuse a table that says otherwise."""
    entries: dict[str, _Entry] = {}
    first = position
    for name, row in table.items():
        entry = _entry(name, tensors[name], position)
        position += _nbytes(entry)
        code = _DTYPES[entry.dtype.name][0]
        offsets = [entry.start - first, position - first]
        if row != {"dtype": code, "shape": list(entry.shape), "data_offsets": offsets}:
            raise _Refused(f"tensor {name!r} is not where its header says; save the model again")
        entries[name] = entry
    return entries


def _entry(name: str, description: Any, start: int) -> _Entry:
    match description:
        case {"dtype": str(dtype), "shape": list(shape), "sha256": list(digests)} if dtype in _DTYPES and all(
            type(length) is int and length >= 0 for length in shape
        ):
            return _Entry(_DTYPES[dtype][1], tuple(shape), start, digests)
    raise _Refused(f"tensor {name!r} has a type or shape that cannot be read; save the model again")


def _nbytes(entry: _Entry) -> int:
    return math.prod(entry.shape) * entry.dtype.itemsize


def _view(mapping: NDArray[np.uint8], entry: _Entry) -> Array:
    return np.ndarray(entry.shape, entry.dtype, buffer=mapping.data, offset=entry.start)


def _verify(tensors: Mapping[str, Array], entries: Mapping[str, _Entry]) -> None:
    for name, digests in _digests(tensors).items():
        if digests != entries[name].digests:
            raise _Refused(f"tensor {name!r} was altered: its checksum differs. Copy or save the model again")


# Both ways


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(rest: Mapping[str, Any], order: Sequence[str]) -> str:
    return hashlib.sha256(_canonical({"document": rest, "order": order}).encode()).hexdigest()


def _digests(arrays: Mapping[str, Array]) -> dict[str, list[str]]:
    with ThreadPoolExecutor() as pool:  # hashing releases the GIL
        return {name: list(pool.map(_sha256, _chunks(array))) for name, array in arrays.items()}


def _chunks(array: Array) -> list[NDArray[np.uint8]]:
    raw = array.reshape(-1).view(np.uint8)
    return [raw[start : start + _CHUNK] for start in range(0, raw.size, _CHUNK)]


def _sha256(raw: NDArray[np.uint8]) -> str:
    return hashlib.sha256(raw.data).hexdigest()
