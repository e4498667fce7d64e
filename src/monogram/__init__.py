"""Monogram: one Gram matrix, every linear recommender.

Public names only, each imported when it is first used, so that `import monogram` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from monogram._version import __version__

if TYPE_CHECKING:
    from monogram.data.interactions import Interactions
    from monogram.data.readers import read
    from monogram.data.sample import sample

_HOMES: dict[str, str] = {
    "Interactions": "monogram.data.interactions",
    "read": "monogram.data.readers",
    "sample": "monogram.data.sample",
}

__all__ = ["Interactions", "__version__", "read", "sample"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'monogram' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
