"""The blocks of a report, independent of the format in which it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Heading:
    """A heading of a level, 1 for the title."""

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph; with `code`, a command in a code block."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class Items:
    """A bullet list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Grid:
    """A table; the first column names the rows. `numbers` are the columns that are aligned to the right."""

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """An SVG picture; `name` is the end of its file name without the suffix, `alt` the text alternative."""

    name: str
    alt: str
    svg: bytes


Block = Heading | Text | Items | Grid | Picture


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings as text: "l2 100, dropout 0.3"."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )
