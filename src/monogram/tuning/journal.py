"""Optuna's own record of a search, in a journal beside the study file, where optuna-dashboard can read it.

It is not needed to go on: `tpe.Proposals` adds what it lacks from the study file, which is always written first.
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
GRACE = 5  # seconds; a lock that stands longer was left by a crash


class Journal:
    """Where Optuna keeps its studies.

    Parameters
    ----------
    study : the study file that it lies beside; None keeps it in memory

    Attributes
    ----------
    storage : of Optuna
    """

    def __init__(self, study: Path | None) -> None:
        import optuna

        self.study, self.path = study, None if study is None else study.with_name(study.name + SUFFIX)
        if self.path is None:
            self.storage: Any = optuna.storages.InMemoryStorage()
            return
        with self.used():
            _whole_lines(self.path)
            self.storage = self._read(optuna.storages, str(self.path))

    @contextmanager
    def used(self) -> Iterator[None]:
        """Say clearly what went wrong with the file inside the block."""
        try:
            yield
        except (OSError, RuntimeError, json.JSONDecodeError) as error:  # RuntimeError: a lock or a trial was taken away
            why = getattr(error, "strerror", None) or error
            raise StorageError(
                f"Optuna's journal {self.path} cannot be read or written: {why}; what was tried is in {self.study}"
            ) from error

    def _read(self, storages: Any, path: str) -> Any:
        """The storage, all lines of its file replayed."""
        lock = storages.journal.JournalFileOpenLock(path, GRACE)  # its default, a symlink, is refused on Windows
        try:
            if Path(path).exists():
                json.loads(b"[" + Path(path).read_bytes().strip().replace(b"\n", b",") + b"]")  # Optuna skips the last
            return storages.JournalStorage(storages.journal.JournalFileBackend(path, lock_obj=lock))
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            raise DataError(
                f"{path} is not a journal of Optuna ({type(error).__name__}: {error}); move it away: "
                f"it is made anew from {self.study}, which has all that was tried"
            ) from error


def _whole_lines(path: Path) -> None:
    """Cut off what a crash left of a line, which Optuna would write on."""
    if path.exists():
        held = path.read_bytes()
        whole = held.rfind(b"\n") + 1
        if whole < len(held) and held.startswith(b'{"op_code"'):  # else it is not a journal: nothing of it is touched
            os.truncate(path, whole)
