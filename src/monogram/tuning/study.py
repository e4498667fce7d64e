"""The trials of a search, in memory and optionally in a file from which an interrupted search resumes.

The file has JSON lines: a header (version, metric, protocol, checksum of the data), then a line for each trial. The
lines of a group are appended in one write. An incomplete last line, which a crash leaves, is removed on reading.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from monogram.data.parts import timing
from monogram.data.splits import Split
from monogram.errors import DataError, StorageError
from monogram.safe import append
from monogram.tuning.settings import Setting, Trial, best_of

FORMAT = 1


def fingerprint(split: Split) -> str:
    """A checksum of the data of a split: the matrices of train, histories and targets, their times and order where they
    have them, and the ids of the items.
    """
    digest = hashlib.sha256()
    for part in (split.train, split.histories, split.targets):
        matrix = part.matrix
        digest.update(repr(matrix.shape).encode())
        for array in (matrix.indptr, matrix.indices, matrix.data):
            digest.update(array.tobytes())
        for name, values in timing(part, slice(None)).items():
            if values is not None:
                digest.update(name.encode() + values.tobytes())
    digest.update(repr(list(split.train.items)).encode())
    return digest.hexdigest()


class Study:
    """The trials of a search, in their order.

    To resume a search, `rewind` moves all trials ahead of the current position. The search then runs as at the first
    time: `replay` returns a trial from ahead in place of trying its setting again.

    Parameters
    ----------
    about : the header: what is searched. A file with another header is refused
    path : the file; it is created if it does not exist
    """

    def __init__(self, about: dict[str, Any], path: str | os.PathLike[str] | None = None) -> None:
        self.about = {"study": FORMAT} | about
        self.path = None if path is None else Path(path)
        self.trials: list[Trial] = []
        self._ahead: dict[Setting, Trial] = {}
        if self.path is not None:
            self._open(self.path)
        self._done = {trial.setting for trial in self.trials}

    def __contains__(self, setting: Setting) -> bool:
        return setting in self._done

    @property
    def seconds(self) -> float:
        """The seconds of all trials, those ahead included."""
        return sum(trial.seconds for trial in (*self.trials, *self._ahead.values()))

    @property
    def tried(self) -> int:
        """The number of trials, those ahead included."""
        return len(self.trials) + len(self._ahead)

    def rewind(self) -> None:
        """Move all trials ahead, so that a resumed search replays them."""
        self._ahead = {trial.setting: trial for trial in self.trials}
        self.trials, self._done = [], set()

    def knows(self, setting: Setting) -> bool:
        """Whether a setting was tried, trials ahead included."""
        return setting in self._done or setting in self._ahead

    def replay(self, settings: list[Setting]) -> list[Trial]:
        """Replay the trials ahead of these settings, in the order in which they were made."""
        wanted = set(settings)
        replayed = [self._ahead.pop(setting) for setting in list(self._ahead) if setting in wanted]
        self._append(replayed)
        return replayed

    def ahead(self, model: str) -> Setting | None:
        """The first setting of a model among the trials ahead."""
        return next((setting for setting in self._ahead if setting.model == model), None)

    def forward(self) -> None:
        """Replay all trials ahead."""
        self.replay(list(self._ahead))

    def best(self, models: set[str] | None = None) -> Trial | None:
        """The best trial; with `models`, of these models only."""
        return best_of(self.trials, models)

    def add(self, trials: list[Trial]) -> None:
        """Add trials, to the file too."""
        if self.path is not None:
            self._write(self.path, [_line(trial) for trial in trials])
        self._append(trials)

    def _append(self, trials: list[Trial]) -> None:
        self.trials.extend(trials)
        self._done.update(trial.setting for trial in trials)

    def _open(self, path: Path) -> None:
        if not path.exists():
            self._write(path, [self.about])
            return
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StorageError(f"the study {path} cannot be read: {error.strerror}") from error
        header = json.dumps(self.about).encode()
        if header.startswith(content):  # an empty file, or an incomplete header that a crash left
            self._truncate(path, 0)
            self._write(path, [self.about])
            return
        _check_header(path, content.split(b"\n", 1)[0], self.about)
        complete = content[: content.rfind(b"\n") + 1]
        if len(complete) < len(content):  # a crash in the middle of a line
            self._truncate(path, len(complete))
        self._read(path, complete)

    def _truncate(self, path: Path, size: int) -> None:
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
            append(path, text.encode())
        except OSError as error:
            raise StorageError(f"the study {path} cannot be written: {error.strerror}") from error


def _line(trial: Trial) -> dict[str, Any]:
    """A line of the file; a trial whose training was observed has two more entries."""
    return trial.row() | ({"epochs": trial.epochs, "stopped": trial.stopped} if trial.epochs else {})


def _trial(row: dict[str, Any]) -> Trial:
    setting, seconds = Setting.of(row["model"], row["parameters"]), float(row["seconds"])
    epochs = tuple((int(number), float(value)) for number, value in row.get("epochs", ()))
    return Trial(setting, row["value"], seconds, row["note"], epochs, bool(row.get("stopped", False)))


def _check_header(path: Path, line: bytes, about: dict[str, Any]) -> None:
    """Raise DataError for a file that is not the study of this search; the file is not changed."""
    try:
        header = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path} is not a study of monogram ({error}); give another file") from error
    if header != about:
        raise DataError(f"{path} is not the study of this search: {_reason(header, about)}; give another file")


def _reason(header: Any, expected: dict[str, Any]) -> str:
    """How the header of a file differs from the expected one."""
    if not isinstance(header, dict) or "study" not in header:
        return "its first line is not the header of a study"
    for name, value in expected.items():
        if header.get(name) != value:
            return "it has other data" if name == "data" else f"it has {name} = {header.get(name)!r}, not {value!r}"
    return "its header has other entries"
