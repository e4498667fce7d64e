"""Cells of a report in a JSON file, from which the report can be written again without a fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monogram._version import __version__
from monogram.errors import DataError
from monogram.reproduce.cells import Cell
from monogram.safe import whole_file

FORMAT = 1


@dataclass(frozen=True)
class CellsFile:
    """Cells, and the command that measured them."""

    cells: list[Cell]
    command: str


def save(path: str | Path, paper: str, cells: Sequence[Cell], command: str) -> Path:
    """Write the cells of a paper; returns the path."""
    document = {"format": FORMAT, "version": __version__, "paper": paper, "command": command}
    lines = ",\n".join(json.dumps(cell.document(), ensure_ascii=False) for cell in cells)
    head = json.dumps(document, ensure_ascii=False)[:-1]
    with whole_file(path) as file:
        file.write(f'{head}, "cells": [\n{lines}\n]}}\n'.encode())
    return Path(path)


def load(path: str | Path, paper: str) -> CellsFile:
    """The cells of a file; a DataError where it has none, or those of another paper."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        own, found = (document["format"], document["paper"]), (FORMAT, paper)
        result = CellsFile([Cell.of(cell) for cell in document["cells"]], str(document["command"]))
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}; expected a file of reproduce -o FILE.json"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} has no cells ({error}); expected a file of reproduce -o FILE.json") from error
    if own != found:
        raise DataError(f"{path} has format and paper {own}; expected {found}")
    return result
