"""Optuna's own record of a search: a journal file beside the study file, which optuna-dashboard can read.

A search does not need it to resume: `tpe.Proposals` adds missing trials from the study file, which is written first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monogram.errors import DataError, StorageError

SUFFIX = ".optuna"
GRACE = 5  # seconds; an older lock was left by a crash


class OptunaJournal:
    """The storage of Optuna's studies.

    Parameters
    ----------
    study : the study file; the journal is made beside it. None: in memory

    Attributes
    ----------
    storage : the storage object of Optuna
    """

    def __init__(self, study: Path | None) -> None:
        import optuna

        self.study, self.path = study, None if study is None else study.with_name(study.name + SUFFIX)
        if self.path is None:
            self.storage: Any = optuna.storages.InMemoryStorage()
            return
        with self.errors_named():
            _whole_lines(self.path)
            self.storage = self._read(optuna.storages, str(self.path))

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Convert errors of the journal file inside the block to a StorageError that names the file."""
        try:
            yield
        except (OSError, RuntimeError, json.JSONDecodeError) as error:  # RuntimeError: a lock or a trial was taken away
            why = getattr(error, "strerror", None) or error
            raise StorageError(
                f"Optuna's journal {self.path} cannot be read or written: {why}; all trials are in {self.study}"
            ) from error

    def _read(self, storages: Any, path: str) -> Any:
        """The storage with all lines of its file."""
        lock = storages.journal.JournalFileOpenLock(path, GRACE)  # its default, a symlink, is refused on Windows
        try:
            if Path(path).exists():
                json.loads(b"[" + Path(path).read_bytes().strip().replace(b"\n", b",") + b"]")  # Optuna skips the last
            return storages.JournalStorage(storages.journal.JournalFileBackend(path, lock_obj=lock))
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            raise DataError(
                f"{path} is not a journal of Optuna ({type(error).__name__}: {error}); move it away: "
                f"it is made again from {self.study}, which has all trials"
            ) from error


def _whole_lines(path: Path) -> None:
    """Remove an incomplete last line, which a crash left and Optuna would append to."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content) and content.startswith(b'{"op_code"'):  # another file is not touched
            os.truncate(path, whole)
