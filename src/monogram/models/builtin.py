"""The table of the models that Monogram ships: the name of each, and where its class is.

It imports nothing, so that `import monogram` stays fast. Type checkers see the classes under `TYPE_CHECKING`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monogram.models.baselines import ItemKNN as ItemKNN
    from monogram.models.baselines import Popularity as Popularity
    from monogram.models.expected_quadratic import ExpectedQuadratic as ExpectedQuadratic
    from monogram.models.factorization import WRMF as WRMF
    from monogram.models.full_rank import DEQL as DEQL
    from monogram.models.full_rank import DLAE as DLAE
    from monogram.models.full_rank import EASE as EASE
    from monogram.models.full_rank import EDLAE as EDLAE
    from monogram.models.full_rank import Tempered as Tempered
    from monogram.models.relaxed import RDLAE as RDLAE
    from monogram.models.sessions import SLIST as SLIST
    from monogram.models.sparse import SLIM as SLIM
    from monogram.models.spectral import LRR as LRR
    from monogram.models.spectral import RG2 as RG2
    from monogram.models.spectral import VLAE as VLAE
    from monogram.models.spectral import WLAE as WLAE
    from monogram.models.spectral import DropoutMF as DropoutMF
    from monogram.models.spectral import NuclearPower as NuclearPower
    from monogram.models.spectral import RegularizedPCA as RegularizedPCA
    from monogram.models.students import LowRankDLAE as LowRankDLAE
    from monogram.models.students import LowRankEDLAE as LowRankEDLAE
    from monogram.models.two_step import TwoStep as TwoStep

BUILTIN = {
    "ease": "monogram.models.full_rank:EASE",
    "dlae": "monogram.models.full_rank:DLAE",
    "edlae": "monogram.models.full_rank:EDLAE",
    "rdlae": "monogram.models.relaxed:RDLAE",
    "deql": "monogram.models.full_rank:DEQL",
    "tempered": "monogram.models.full_rank:Tempered",
    "two_step": "monogram.models.two_step:TwoStep",
    "slist": "monogram.models.sessions:SLIST",
    "expected_quadratic": "monogram.models.expected_quadratic:ExpectedQuadratic",
    "regularized_pca": "monogram.models.spectral:RegularizedPCA",
    "dropout_mf": "monogram.models.spectral:DropoutMF",
    "nuclear_power": "monogram.models.spectral:NuclearPower",
    "wlae": "monogram.models.spectral:WLAE",
    "vlae": "monogram.models.spectral:VLAE",
    "lrr": "monogram.models.spectral:LRR",
    "rg2": "monogram.models.spectral:RG2",
    "wrmf": "monogram.models.factorization:WRMF",
    "slim": "monogram.models.sparse:SLIM",
    "item_knn": "monogram.models.baselines:ItemKNN",
    "low_rank_dlae": "monogram.models.students:LowRankDLAE",
    "low_rank_edlae": "monogram.models.students:LowRankEDLAE",
    "popularity": "monogram.models.baselines:Popularity",
}
