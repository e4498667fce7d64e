"""Read model files: the header is checked, the tensors are memory-mapped."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from monogram.errors import ModelFileError
from monogram.store.document import TensorEntry, UnreadableFile, read_contents
from monogram.store.format import Array, digests_of


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The contents of a model file.

    Attributes
    ----------
    header : dict
        The header that was passed to `save`.
    tensors : dict of str to ndarray
        Read-only arrays over the memory-mapped file; their bytes are read on first use.
    """

    header: dict[str, Any]
    tensors: dict[str, Array]


def load(path: str | os.PathLike[str], *, verify: bool = True) -> StoredFile:
    """Open a model file; its tensors are mapped, not read.

    Parameters
    ----------
    path : str or path-like
        A file made by `save`.
    verify : bool, default True
        Compare every tensor with its checksums, which reads the whole file. Without it a large model opens
        at once, and only the header and the file size are checked.

    Returns
    -------
    StoredFile
        The header and the tensors.

    Raises
    ------
    ModelFileError
        The file is missing, truncated, altered, newer than this library, or not a Monogram file.
    """
    with _opened(path) as file:
        contents = read_contents(file)
        mapping = np.memmap(file, dtype=np.uint8, mode="r")
        tensors = {name: _view(mapping, entry) for name, entry in contents.entries.items()}
        if verify:
            _verify(tensors, contents.entries)
    return StoredFile(contents.header, tensors)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the header alone; the tensors' bytes are not read.

    Parameters
    ----------
    path : str or path-like
        A file made by `save`.

    Returns
    -------
    dict
        The header that was passed to `save`.

    Raises
    ------
    ModelFileError
        As for `load`, except that altered tensors are not detected.
    """
    with _opened(path) as file:
        return read_contents(file).header


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a model file; every failure inside becomes a `ModelFileError` that names the file."""
    try:
        if "\0" in os.fspath(path):
            raise UnreadableFile("a file name cannot contain a zero character")
        if not stat.S_ISREG(os.stat(path).st_mode):  # before opening: opening a named pipe would block
            raise UnreadableFile("it is not a file; give the name of a file made by save")
        with open(path, "rb") as file:
            yield file
    except UnreadableFile as refusal:
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


def _view(mapping: NDArray[np.uint8], entry: TensorEntry) -> Array:
    return np.ndarray(entry.shape, entry.dtype, buffer=mapping.data, offset=entry.start)


def _verify(tensors: Mapping[str, Array], entries: Mapping[str, TensorEntry]) -> None:
    for name, actual in digests_of(tensors).items():
        if actual != entries[name].digests:
            raise UnreadableFile(f"tensor {name!r} was altered: its checksum differs. Copy or save the model again")
