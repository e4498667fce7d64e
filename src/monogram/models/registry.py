"""Every model by its name."""

from __future__ import annotations

from monogram.errors import ParameterError, one_of
from monogram.models.base import Recommender
from monogram.models.baselines import ItemKNN, Popularity
from monogram.models.factorization import WRMF
from monogram.models.full_rank import DEQL, DLAE, EASE, EDLAE, Tempered
from monogram.models.sparse import SLIM
from monogram.models.spectral import LRR, RG2, VLAE, WLAE, DropoutMF, NuclearPower, RegularizedPCA
from monogram.models.students import LowRankDLAE, LowRankEDLAE
from monogram.models.two_step import TwoStep

MODELS: dict[str, type[Recommender]] = {
    "ease": EASE,
    "dlae": DLAE,
    "edlae": EDLAE,
    "deql": DEQL,
    "tempered": Tempered,
    "two_step": TwoStep,
    "regularized_pca": RegularizedPCA,
    "dropout_mf": DropoutMF,
    "nuclear_power": NuclearPower,
    "wlae": WLAE,
    "vlae": VLAE,
    "lrr": LRR,
    "rg2": RG2,
    "wrmf": WRMF,
    "slim": SLIM,
    "item_knn": ItemKNN,
    "low_rank_dlae": LowRankDLAE,
    "low_rank_edlae": LowRankEDLAE,
    "popularity": Popularity,
}


def model_class(name: str) -> type[Recommender]:
    """The class of a model's name."""
    if name not in MODELS:
        raise ParameterError(f"there is no model {name!r}; {one_of(name, MODELS)}")
    return MODELS[name]
