"""Every model by its name."""

from __future__ import annotations

from monogram.errors import ParameterError
from monogram.models.base import Recommender
from monogram.models.baselines import Popularity
from monogram.models.full_rank import DEQL, DLAE, EASE, EDLAE

MODELS: dict[str, type[Recommender]] = {
    "ease": EASE,
    "dlae": DLAE,
    "edlae": EDLAE,
    "deql": DEQL,
    "popularity": Popularity,
}


def model_class(name: str) -> type[Recommender]:
    """The class of a model's name."""
    if name not in MODELS:
        raise ParameterError(f"there is no model {name!r}; expected one of {', '.join(MODELS)}")
    return MODELS[name]
