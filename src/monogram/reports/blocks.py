"""What a report is made of, whatever it is written as."""

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
    """A paragraph; `code` for a command, shown as it is typed."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Grid:
    """A table; the first column names the rows. `numbers` are the columns set to the right."""

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """An SVG with what it shows in words; `name` is its file's, without the ending."""

    name: str
    alt: str
    svg: bytes


Block = Heading | Text | Items | Grid | Picture


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings for people: l2 100, dropout 0.3."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )
