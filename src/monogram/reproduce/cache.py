"""Results kept in a folder, one JSON file each: a second run is instant, an interrupted one goes on."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monogram._version import __version__
from monogram.safe import make_folder, whole_file

FORMAT = 1  # of what is kept


def usual_folder() -> Path:
    """Where this system keeps what can be made again."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "monogram" / "reproduce"


class Cache:
    """Results by what they were made from.

    Parameters
    ----------
    folder : made when the first result is kept
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = usual_folder() if folder is None else Path(folder)

    def get(self, source: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result made from this; None where there is none, or none that can be read."""
        full = _full(source)
        try:
            kept = json.loads(self._path(full).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(kept, dict) or kept.get("source") != full or not isinstance(kept.get("result"), dict):
            return None
        result: dict[str, Any] = kept["result"]
        return result

    def put(self, source: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Keep a result."""
        full = _full(source)
        make_folder(self.folder, "give another with --cache")
        with whole_file(self._path(full)) as file:
            file.write(json.dumps({"source": full, "result": dict(result)}, indent=1, sort_keys=True).encode())

    def _path(self, full: Mapping[str, Any]) -> Path:
        return self.folder / (hashlib.sha256(json.dumps(full, sort_keys=True).encode()).hexdigest()[:40] + ".json")


def _full(source: Mapping[str, Any]) -> dict[str, Any]:
    """The source with the versions, as JSON gives it back."""
    full: dict[str, Any] = json.loads(json.dumps({**source, "version": __version__, "format": FORMAT}))
    return full
