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
    from monogram.models.base import Recommender
    from monogram.models.baselines import Popularity
    from monogram.models.files import load
    from monogram.models.full_rank import DEQL, DLAE, EASE, EDLAE

_HOMES: dict[str, str] = {
    "DEQL": "monogram.models.full_rank",
    "DLAE": "monogram.models.full_rank",
    "EASE": "monogram.models.full_rank",
    "EDLAE": "monogram.models.full_rank",
    "Interactions": "monogram.data.interactions",
    "Popularity": "monogram.models.baselines",
    "Recommender": "monogram.models.base",
    "load": "monogram.models.files",
    "read": "monogram.data.readers",
    "sample": "monogram.data.sample",
}

__all__ = [
    "DEQL",
    "DLAE",
    "EASE",
    "EDLAE",
    "Interactions",
    "Popularity",
    "Recommender",
    "__version__",
    "load",
    "read",
    "sample",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'monogram' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
