"""The table of the models that Monogram ships: the name of each, and where its class is.

It imports nothing, so that `import monogram` stays fast. Type checkers see the classes under `TYPE_CHECKING`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monogram.gradient.autoencoders import CDAE as CDAE
    from monogram.gradient.autoencoders import MultDAE as MultDAE
    from monogram.gradient.autoencoders import MultVAE as MultVAE
    from monogram.gradient.factorization import Factorization as Factorization
    from monogram.gradient.graph_models import DGCF as DGCF
    from monogram.gradient.graph_models import SGL as SGL
    from monogram.gradient.graph_models import PinSage as PinSage
    from monogram.gradient.graph_models import SimpleX as SimpleX
    from monogram.gradient.light_gcn import LightGCN as LightGCN
    from monogram.gradient.linear_models import ELSA as ELSA
    from monogram.gradient.linear_models import LinearAutoencoder as LinearAutoencoder
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
    from monogram.models.spectral_models import LRR as LRR
    from monogram.models.spectral_models import RG2 as RG2
    from monogram.models.spectral_models import VLAE as VLAE
    from monogram.models.spectral_models import WLAE as WLAE
    from monogram.models.spectral_models import DropoutMF as DropoutMF
    from monogram.models.spectral_models import NuclearPower as NuclearPower
    from monogram.models.spectral_models import RegularizedPCA as RegularizedPCA
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
    "regularized_pca": "monogram.models.spectral_models:RegularizedPCA",
    "dropout_mf": "monogram.models.spectral_models:DropoutMF",
    "nuclear_power": "monogram.models.spectral_models:NuclearPower",
    "wlae": "monogram.models.spectral_models:WLAE",
    "vlae": "monogram.models.spectral_models:VLAE",
    "lrr": "monogram.models.spectral_models:LRR",
    "rg2": "monogram.models.spectral_models:RG2",
    "wrmf": "monogram.models.factorization:WRMF",
    "factorization": "monogram.gradient.factorization:Factorization",
    "light_gcn": "monogram.gradient.light_gcn:LightGCN",
    "sgl": "monogram.gradient.graph_models:SGL",
    "dgcf": "monogram.gradient.graph_models:DGCF",
    "pin_sage": "monogram.gradient.graph_models:PinSage",
    "simplex": "monogram.gradient.graph_models:SimpleX",
    "cdae": "monogram.gradient.autoencoders:CDAE",
    "mult_dae": "monogram.gradient.autoencoders:MultDAE",
    "mult_vae": "monogram.gradient.autoencoders:MultVAE",
    "elsa": "monogram.gradient.linear_models:ELSA",
    "linear_autoencoder": "monogram.gradient.linear_models:LinearAutoencoder",
    "slim": "monogram.models.sparse:SLIM",
    "item_knn": "monogram.models.baselines:ItemKNN",
    "low_rank_dlae": "monogram.models.students:LowRankDLAE",
    "low_rank_edlae": "monogram.models.students:LowRankEDLAE",
    "popularity": "monogram.models.baselines:Popularity",
}
