"""The record of a search, in memory and, where asked, in a file that an interrupted search goes on from.

The file is JSON lines: what was searched (checksums of the data, protocol, metric, version), then a line for each
setting. Lines are added a group at a time, in one write; what a crash left of a line is cut off when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from monogram.data.splits import Split
from monogram.errors import DataError, StorageError
from monogram.tuning.settings import Setting, Trial, best_of

FORMAT = 1


def fingerprint(split: Split) -> str:
    """A checksum of what is learned from and measured on: matrices and ids of items."""
    digest = hashlib.sha256()
    for part in (split.train, split.histories, split.targets):
        matrix = part.matrix
        digest.update(repr(matrix.shape).encode())
        for array in (matrix.indptr, matrix.indices, matrix.data):
            digest.update(array.tobytes())
    digest.update(repr(list(split.train.items)).encode())
    return digest.hexdigest()


class Study:
    """Trials in the order they were made.

    Parameters
    ----------
    about : what is searched; a file about something else is refused
    path : the file, made where it is not there
    """

    def __init__(self, about: dict[str, Any], path: str | os.PathLike[str] | None = None) -> None:
        self.about = {"study": FORMAT} | about
        self.path = None if path is None else Path(path)
        self.trials: list[Trial] = []
        self._ahead: dict[Setting, Trial] = {}
        if self.path is not None:
            self._open(self.path)
        self._done = {one.setting for one in self.trials}

    def __contains__(self, setting: Setting) -> bool:
        return setting in self._done

    @property
    def seconds(self) -> float:
        """What the trials took."""
        return sum(one.seconds for one in (*self.trials, *self._ahead.values()))

    @property
    def tried(self) -> int:
        """How many trials there are, those that lie ahead too."""
        return len(self.trials) + len(self._ahead)

    def rewind(self) -> None:
        """Go back to the start: a search that comes by the same way meets its trials again, and decides as it did."""
        self._ahead = {one.setting: one for one in self.trials}
        self.trials, self._done = [], set()

    def knows(self, setting: Setting) -> bool:
        """Whether a setting was tried, on the way so far or ahead."""
        return setting in self._done or setting in self._ahead

    def replay(self, settings: list[Setting]) -> list[Trial]:
        """The trials of settings that lie ahead, in the order they were made; they do not any more."""
        wanted = set(settings)
        found = [self._ahead.pop(one) for one in list(self._ahead) if one in wanted]
        self._keep(found)
        return found

    def ahead(self, model: str) -> Setting | None:
        """The first setting of a model that lies ahead."""
        return next((one for one in self._ahead if one.model == model), None)

    def forward(self) -> None:
        """Go to the end: what was not met again is kept too."""
        self.replay(list(self._ahead))

    def best(self, models: set[str] | None = None) -> Trial | None:
        """The best trial, of some models only where they are named."""
        return best_of(self.trials, models)

    def add(self, trials: list[Trial]) -> None:
        """Keep trials, and write them down."""
        if self.path is not None:
            self._write(self.path, [_line(one) for one in trials])
        self._keep(trials)

    def _keep(self, trials: list[Trial]) -> None:
        self.trials.extend(trials)
        self._done.update(one.setting for one in trials)

    def _open(self, path: Path) -> None:
        if not path.exists():
            self._write(path, [self.about])
            return
        try:
            held = path.read_bytes()
        except OSError as error:
            raise StorageError(f"the study {path} cannot be read: {error.strerror}") from error
        own = json.dumps(self.about).encode()
        if own.startswith(held):  # nothing yet, or what a crash left of the first line
            self._cut(path, 0)
            self._write(path, [self.about])
            return
        _check_first(path, held.split(b"\n", 1)[0], self.about)
        whole = held[: held.rfind(b"\n") + 1]
        if len(whole) < len(held):  # a crash in the middle of a line
            self._cut(path, len(whole))
        self._read(path, whole)

    def _cut(self, path: Path, size: int) -> None:
        try:
            os.truncate(path, size)
        except OSError as error:
            raise StorageError(f"the study {path} cannot be written: {error.strerror}") from error

    def _read(self, path: Path, text: bytes) -> None:
        try:
            trials = [_trial(json.loads(line)) for line in text.splitlines()[1:]]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not a study of monogram ({error}); give another file") from error
        self.trials = trials

    def _write(self, path: Path, rows: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        try:
            with path.open("ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"the study {path} cannot be written: {error.strerror}") from error


def _line(trial: Trial) -> dict[str, Any]:
    """A row of the file; that of a setting watched in training has two more entries."""
    return trial.row() | ({"epochs": trial.epochs, "stopped": trial.stopped} if trial.epochs else {})


def _trial(row: dict[str, Any]) -> Trial:
    setting, seconds = Setting.of(row["model"], row["parameters"]), float(row["seconds"])
    epochs = tuple((int(done), float(value)) for done, value in row.get("epochs", ()))
    return Trial(setting, row["value"], seconds, row["note"], epochs, bool(row.get("stopped", False)))


def _check_first(path: Path, line: bytes, about: dict[str, Any]) -> None:
    """Refuse a file that is not the study of this search, before anything in it is touched."""
    try:
        first = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path} is not a study of monogram ({error}); give another file") from error
    if first != about:
        raise DataError(f"{path} is the study of {_other(first, about)}; give another file, or move it away")


def _other(found: Any, wanted: dict[str, Any]) -> str:
    """What a file is about instead."""
    if not isinstance(found, dict) or "study" not in found:
        return "nothing known here (it has no first line of a study)"
    for name, value in wanted.items():
        if found.get(name) != value:
            return "other data" if name == "data" else f"another {name}: {found.get(name)!r}, not {value!r}"
    return "something else"
