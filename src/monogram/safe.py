"""Durable writes: a temporary file beside the target, fsync, rename, fsync of the folder.

Every file that the library writes goes through this module, except the tiles of a fit on disk and SQLite databases,
which have their own guarantees.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from monogram.errors import StorageError

_SUFFIX = ".tmp"
_RANDOM_BYTES = 4


@contextmanager
def atomic_replace(
    path: str | os.PathLike[str], *, mark: str = "", check: Callable[[], None] | None = None
) -> Iterator[Path]:
    """Replace a file atomically: the block writes to the temporary path that it receives.

    When the block ends without an error, the temporary file is flushed to disk and renamed to `path`: readers see
    the former file or the complete new one. After an error the temporary file is deleted and `path` is unchanged.

    Parameters
    ----------
    path : file to create or replace; its folder must exist; a symbolic link is followed
    mark : part of the temporary name, by which `leftovers` finds the files of a process that was killed
    check : called after the write and before the rename; an exception from it cancels the rename

    Raises
    ------
    StorageError
        The file could not be written.
    """
    with _storage_errors(path):
        target = _target(path)
        temporary = target.with_name(f"{_temporary_prefix(target, mark)}{secrets.token_hex(_RANDOM_BYTES)}{_SUFFIX}")
        try:
            mode = _create(temporary)
            yield temporary
            temporary.chmod(mode)  # safetensors creates private files
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


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name only when the block ends without an error."""
    with atomic_replace(path) as temporary, temporary.open("wb") as file:
        yield file


def append(path: Path, content: bytes) -> None:
    """Append to a file and flush it to disk, creating the file where there is none."""
    is_new = not path.exists()
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _sync_folder(path.parent)


def leftovers(path: str | os.PathLike[str], mark: str) -> list[Path]:
    """Temporary files beside `path` that killed processes left from an `atomic_replace` with this mark."""
    target = Path(os.path.realpath(path))
    prefix = _temporary_prefix(target, mark)
    length = len(prefix) + 2 * _RANDOM_BYTES + len(_SUFFIX)
    return [
        entry
        for entry in target.parent.iterdir()
        if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX) and len(entry.name) == length
    ]


def make_folder(path: Path, advice: str) -> None:
    """Create a folder and its parents where they do not exist; `advice` ends the error message."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the folder {path} cannot be created: {error.strerror or error}; {advice}") from error


@contextmanager
def _storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an `OSError` inside into a `StorageError` that names the file; a closed pipe is not one of the file."""
    try:
        yield
    except (StorageError, BrokenPipeError):
        raise
    except OSError as error:
        raise StorageError(
            f"{path} was not written: {error.strerror or error}. The former file, if any, is unchanged; "
            "check the free disk space and the permissions of the folder"
        ) from error


def _target(path: str | os.PathLike[str]) -> Path:
    """The file to replace, with symbolic links resolved: the rename must not replace a link."""
    if "\0" in os.fspath(path):
        raise StorageError(f"{path!r} was not written: a file name cannot contain a zero character")
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise StorageError(f"{path} was not written: there is no folder {target.parent}; create it first")
    if target.exists() and not target.is_file():
        raise StorageError(f"{path} was not written: it exists and is not a file; give the name of a file")
    return target


def _temporary_prefix(target: Path, mark: str) -> str:
    return f".{target.name[:50]}.{mark}"


def _create(path: Path) -> int:
    """Create an empty file and return its mode, which is what the umask leaves of 0o666."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Flush a rename to disk. Some systems cannot open a folder; the content of the file is on disk already."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
