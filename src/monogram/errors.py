"""What can go wrong, each kind with the exit code of a command and the status of an HTTP answer.

A message says what was given, what was expected, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MonogramError(Exception):
    """Base of every error this library raises on purpose."""

    exit_code: int = 1
    http_status: int = 500


class ParameterError(MonogramError, ValueError):
    """A parameter, flag or argument is outside what it may be."""

    exit_code = 2
    http_status = 422


class DataError(MonogramError, ValueError):
    """A log, a file or a frame cannot be read as interactions."""

    exit_code = 3
    http_status = 422


class UnknownIdError(MonogramError, KeyError):
    """An id that must be known is not in the vocabulary."""

    exit_code = 4
    http_status = 404

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would show the repr


class MemoryBudgetError(MonogramError, MemoryError):
    """A fit would not fit in the memory it may use; nothing was allocated."""

    exit_code = 5
    http_status = 507


class ModelFileError(MonogramError):
    """A model file is truncated, altered, newer than this library, or not one of ours."""

    exit_code = 6
    http_status = 422


class NotFittedError(MonogramError, RuntimeError):
    """The model was asked for an answer before `fit`."""

    exit_code = 7
    http_status = 409


class NumericalError(MonogramError, ArithmeticError):
    """The mathematics cannot be carried out on these numbers."""

    exit_code = 8
    http_status = 422


class MissingExtraError(MonogramError, ImportError):
    """An optional part is needed; the message names the command that installs it."""

    exit_code = 9
    http_status = 501


class StorageError(MonogramError, OSError):
    """A file could not be written (disk full, read-only folder); what was there before is untouched."""

    exit_code = 10
    http_status = 507


class ClusterError(MonogramError, RuntimeError):
    """A cluster cannot be reached, has no workers, or lost them all; nothing was written."""

    exit_code = 11
    http_status = 503


class MonogramWarning(UserWarning):
    """Something the user should know, while the result still stands."""


def one_of(given: str, names: Iterable[str]) -> str:
    """What was expected instead of a name that is not there, and the nearest to it."""
    known = list(names)
    near = difflib.get_close_matches(given.lower(), known, 1)
    return f"expected one of {', '.join(known)}" + (f"; did you mean {near[0]}?" if near else "")
