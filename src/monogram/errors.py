"""Exceptions, each kind with the exit code of a command and the status of an HTTP response.

A message says what was given, what was expected, and what to do. Where it mentions options of the library, it is a
`Message`: Python code reads `user="customer"`, and the command line renders `--user-column "customer"` from the same
parts.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Option:
    """An option that a message mentions: its name in Python, and its value as it is to be shown, if any."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class Message(str):
    """Text with the options it mentions; as a string it spells them as keyword arguments of Python.

    Parameters
    ----------
    parts : pieces of text, options, and other messages

    Examples
    --------
    >>> message = Message("did you mean ", Option("user", '"customer"'), "?")
    >>> print(message)
    did you mean user="customer"?
    >>> message.render(lambda option: f"--{option.name} {option.value}")
    'did you mean --user "customer"?'
    """

    parts: tuple[str | Option, ...]

    def __new__(cls, *parts: str | Option) -> Message:
        """Join the parts."""
        message = super().__new__(cls, "".join(map(str, parts)))
        message.parts = parts
        return message

    def render(self, spell: Callable[[Option], str]) -> str:
        """The text with each option as `spell` gives it."""
        return "".join(render(part, spell) if isinstance(part, str) else spell(part) for part in self.parts)


def render(text: object, spell: Callable[[Option], str]) -> str:
    """The text of a string, error or warning, with the options that it mentions as `spell` gives them."""
    if isinstance(text, BaseException) and text.args and isinstance(text.args[0], Message):
        return text.args[0].render(spell)
    return text.render(spell) if isinstance(text, Message) else str(text)


class MonogramError(Exception):
    """Base of every error that the library raises deliberately."""

    exit_code: int = 1
    http_status: int = 500


class ParameterError(MonogramError, ValueError):
    """A parameter, flag or argument has a value that is not allowed."""

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
    """A computation would exceed its memory budget; nothing was allocated."""

    exit_code = 5
    http_status = 507


class ModelFileError(MonogramError):
    """A model file is truncated, altered, newer than this library, or not a Monogram file."""

    exit_code = 6
    http_status = 422


class NotFittedError(MonogramError, RuntimeError):
    """The model was used before `fit`."""

    exit_code = 7
    http_status = 409


class NumericalError(MonogramError, ArithmeticError):
    """The computation is not possible with these numbers, such as a matrix that is not positive definite."""

    exit_code = 8
    http_status = 422


class MissingExtraError(MonogramError, ImportError):
    """An optional dependency is needed; the message names the command that installs it."""

    exit_code = 9
    http_status = 501


class StorageError(MonogramError, OSError):
    """A file could not be written (disk full, read-only folder); a former file is unchanged."""

    exit_code = 10
    http_status = 507


class ClusterError(MonogramError, RuntimeError):
    """A cluster cannot be reached, has no workers, or lost them all; nothing was written."""

    exit_code = 11
    http_status = 503


class MonogramWarning(UserWarning):
    """Something the user should know about a result that is valid."""


def one_of(unknown: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known names, and the one nearest to it."""
    known = list(names)
    near = difflib.get_close_matches(unknown.lower(), known, 1)
    return f"expected one of {', '.join(known)}" + (f"; did you mean {near[0]}?" if near else "")


def warn(text: str) -> None:
    """Give a MonogramWarning at the line of the first caller outside the package."""
    package, frame, level = str(Path(__file__).parent), sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith((package, contextlib.__file__)):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, MonogramWarning, stacklevel=level)
