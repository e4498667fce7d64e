"""Monogram: one Gram matrix, every linear recommender.

Public names only. Each is imported on first use, so that `import monogram` stays fast; type checkers and editors see
the imports under `TYPE_CHECKING`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from monogram._version import __version__

if TYPE_CHECKING:
    from monogram import testing
    from monogram.data import splits
    from monogram.data.interactions import Interactions
    from monogram.data.readers import read
    from monogram.data.sample import sample
    from monogram.evaluation.protocol import evaluate
    from monogram.evaluation.shift import shift
    from monogram.models.base import Recommender
    from monogram.models.baselines import ItemKNN, Popularity
    from monogram.models.factorization import WRMF
    from monogram.models.files import load
    from monogram.models.full_rank import DEQL, DLAE, EASE, EDLAE, Tempered
    from monogram.models.inverse import Inverse
    from monogram.models.recipe import GramRecipe, Penalties
    from monogram.models.registry import register
    from monogram.models.sparse import SLIM
    from monogram.models.spectral import LRR, RG2, VLAE, WLAE, DropoutMF, NuclearPower, RegularizedPCA, vlae_as_lrr
    from monogram.models.spectrum import Spectrum
    from monogram.models.students import LowRankDLAE, LowRankEDLAE
    from monogram.models.two_step import TwoStep
    from monogram.tuning.search import tune

_SUBMODULES = {"splits": "monogram.data.splits", "testing": "monogram.testing"}
_MODULE_OF: dict[str, str] = {
    "DEQL": "monogram.models.full_rank",
    "DLAE": "monogram.models.full_rank",
    "DropoutMF": "monogram.models.spectral",
    "EASE": "monogram.models.full_rank",
    "EDLAE": "monogram.models.full_rank",
    "GramRecipe": "monogram.models.recipe",
    "Interactions": "monogram.data.interactions",
    "Inverse": "monogram.models.inverse",
    "ItemKNN": "monogram.models.baselines",
    "LRR": "monogram.models.spectral",
    "LowRankDLAE": "monogram.models.students",
    "LowRankEDLAE": "monogram.models.students",
    "NuclearPower": "monogram.models.spectral",
    "Penalties": "monogram.models.recipe",
    "Popularity": "monogram.models.baselines",
    "RG2": "monogram.models.spectral",
    "Recommender": "monogram.models.base",
    "RegularizedPCA": "monogram.models.spectral",
    "SLIM": "monogram.models.sparse",
    "Spectrum": "monogram.models.spectrum",
    "Tempered": "monogram.models.full_rank",
    "TwoStep": "monogram.models.two_step",
    "VLAE": "monogram.models.spectral",
    "WLAE": "monogram.models.spectral",
    "WRMF": "monogram.models.factorization",
    "evaluate": "monogram.evaluation.protocol",
    "load": "monogram.models.files",
    "read": "monogram.data.readers",
    "register": "monogram.models.registry",
    "sample": "monogram.data.sample",
    "shift": "monogram.evaluation.shift",
    "tune": "monogram.tuning.search",
    "vlae_as_lrr": "monogram.models.spectral",
}

__all__ = [
    "DEQL",
    "DLAE",
    "EASE",
    "EDLAE",
    "LRR",
    "RG2",
    "SLIM",
    "VLAE",
    "WLAE",
    "WRMF",
    "DropoutMF",
    "GramRecipe",
    "Interactions",
    "Inverse",
    "ItemKNN",
    "LowRankDLAE",
    "LowRankEDLAE",
    "NuclearPower",
    "Penalties",
    "Popularity",
    "Recommender",
    "RegularizedPCA",
    "Spectrum",
    "Tempered",
    "TwoStep",
    "__version__",
    "evaluate",
    "load",
    "read",
    "register",
    "sample",
    "shift",
    "splits",
    "testing",
    "tune",
    "vlae_as_lrr",
]


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
