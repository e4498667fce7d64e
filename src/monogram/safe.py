"""Files that appear whole or not at all, and folders to put them in."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from monogram.errors import StorageError


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to that appears under its name when the block ends well, and not at all when it does not."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise StorageError(f"{path} was not written: there is no folder {target.parent}; make it first")
    if target.exists() and not target.is_file():
        raise StorageError(f"{path} was not written: it is not a file; give a file's name")
    temporary = target.with_name(f".{target.name[:50]}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError) or isinstance(error, StorageError | BrokenPipeError):
            raise
        raise StorageError(
            f"{path} was not written: {error.strerror or error}. What was there before is untouched; "
            "check the space on the disk and that the folder may be written to"
        ) from error


def folder(path: Path, advice: str) -> None:
    """Make a folder where there is none."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the folder {path} cannot be made: {error.strerror or error}; {advice}") from error
