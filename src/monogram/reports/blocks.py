"""The blocks of a report, independent of the format in which it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Tone = Literal["", "good", "bad", "neutral", "absent"]


@dataclass(frozen=True)
class Heading:
    """A heading of a level, 1 for the title."""

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph; with `code`, a command in a code block; with `lead`, larger than other text."""

    text: str
    code: bool = False
    lead: bool = False


@dataclass(frozen=True)
class Items:
    """A bullet list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Contents:
    """A list of links to the headings of level 2 below it."""


@dataclass(frozen=True)
class GridCell:
    """A cell of a table: a text, a smaller detail below it, and a tone that colours it.

    A tone is never the only sign of a meaning: the text has words or a symbol too.
    """

    text: str
    detail: str = ""
    tone: Tone = ""

    def __str__(self) -> str:
        return f"{self.text} {self.detail}".strip()


@dataclass(frozen=True)
class Grid:
    """A table; the first column names the rows. `numbers` are the columns that are aligned to the right."""

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str | GridCell]]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """An SVG picture; `name` is the end of its file name without the suffix, `alt` the text alternative."""

    name: str
    alt: str
    svg: bytes


@dataclass(frozen=True)
class Pictures:
    """Pictures side by side where the page is wide enough, with one caption."""

    pictures: Sequence[Picture]
    caption: str = ""


@dataclass(frozen=True)
class Fold:
    """Blocks that a reader opens; in Markdown they follow the summary."""

    summary: str
    blocks: Sequence[Block]


Block = Heading | Text | Items | Contents | Grid | Picture | Pictures | Fold


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings as text: "l2 100, dropout 0.3"."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )
