"""Monogram: one Gram matrix, every linear recommender.

Public names only. Each is imported on first use, so that `import monogram` stays fast; type checkers and editors see
the imports under `TYPE_CHECKING`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from monogram._version import __version__
from monogram.models.builtin import BUILTIN

if TYPE_CHECKING:
    from monogram import testing as testing
    from monogram.data import splits as splits
    from monogram.data.interactions import Interactions as Interactions
    from monogram.data.readers import read as read
    from monogram.data.sample import sample as sample
    from monogram.evaluation.protocol import evaluate as evaluate
    from monogram.evaluation.shift import shift as shift
    from monogram.models.base import Recommender as Recommender
    from monogram.models.builtin import *  # noqa: F403 (the classes of all models)
    from monogram.models.files import load as load
    from monogram.models.inverse import Inverse as Inverse
    from monogram.models.moments import Moments as Moments
    from monogram.models.recipe import GramRecipe as GramRecipe
    from monogram.models.recipe import Penalties as Penalties
    from monogram.models.registry import register as register
    from monogram.models.spectral_models import vlae_as_lrr as vlae_as_lrr
    from monogram.models.spectrum import Spectrum as Spectrum
    from monogram.tuning.search import tune as tune

_SUBMODULES = {"splits": "monogram.data.splits", "testing": "monogram.testing"}
_MODULE_OF: dict[str, str] = {
    "GramRecipe": "monogram.models.recipe",
    "Interactions": "monogram.data.interactions",
    "Inverse": "monogram.models.inverse",
    "Moments": "monogram.models.moments",
    "Penalties": "monogram.models.recipe",
    "Recommender": "monogram.models.base",
    "Spectrum": "monogram.models.spectrum",
    "evaluate": "monogram.evaluation.protocol",
    "load": "monogram.models.files",
    "read": "monogram.data.readers",
    "register": "monogram.models.registry",
    "sample": "monogram.data.sample",
    "shift": "monogram.evaluation.shift",
    "tune": "monogram.tuning.search",
    "vlae_as_lrr": "monogram.models.spectral_models",
}

_MODULE_OF |= {name: module for module, name in (path.split(":") for path in BUILTIN.values())}

__all__ = ["__version__", *_MODULE_OF, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module(_SUBMODULES[name])
    raise AttributeError(f"module 'monogram' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
