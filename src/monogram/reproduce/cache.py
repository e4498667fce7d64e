"""A cache of results in a folder, one JSON file for each, so that an interrupted run resumes."""

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

FORMAT = 1  # of the files


def default_folder() -> Path:
    """A folder inside the cache folder of the operating system."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "monogram" / "reproduce"


class Cache:
    """Results by their source: everything that a result depends on.

    Parameters
    ----------
    folder : created when the first result is stored
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def get(self, source: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result of a source; None where there is none, or where its file cannot be read."""
        full = _full(source)
        try:
            stored = json.loads(self._path(full).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(stored, dict) or stored.get("source") != full or not isinstance(stored.get("result"), dict):
            return None
        result: dict[str, Any] = stored["result"]
        return result

    def put(self, source: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Store the result of a source."""
        full = _full(source)
        make_folder(self.folder, "give another with --cache")
        with whole_file(self._path(full)) as file:
            file.write(json.dumps({"source": full, "result": dict(result)}, indent=1, sort_keys=True).encode())

    def _path(self, full: Mapping[str, Any]) -> Path:
        return self.folder / (hashlib.sha256(json.dumps(full, sort_keys=True).encode()).hexdigest()[:40] + ".json")


def _full(source: Mapping[str, Any]) -> dict[str, Any]:
    """The source with the version of the library and of the format, as JSON returns it."""
    full: dict[str, Any] = json.loads(json.dumps({**source, "version": __version__, "format": FORMAT}))
    return full
