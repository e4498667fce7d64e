"""`LightGCN`: vectors propagated along the graph of users and items, trained with a ranking loss."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from monogram.engine.runtime.arrays import Csr
from monogram.gradient.ranking import ALL_ITEMS, RankingModel
from monogram.models.context import FitOptions
from monogram.models.parameters import param
from monogram.planning.gradient_costs import TrainingSize
from monogram.planning.size import Size

if TYPE_CHECKING:
    from monogram.gradient.encoders import Encoder
    from monogram.gradient.trainer import Context


@dataclass(kw_only=True, eq=False)
class PropagatedModel(RankingModel):
    """Base class of the models with compiled products of the graph."""

    def _warm(self, options: FitOptions) -> None:
        super()._warm(options)
        from monogram.gradient.graph import compile_products

        compile_products(options.dtype)


@dataclass(kw_only=True, eq=False)
class LightGCN(PropagatedModel):
    """LightGCN (He et al. 2020): matrix factorisation whose vectors are propagated along the graph of the log.

    With Â the adjacency of users and items, an edge for each event with the weight 1/√(d_u·d_i), and parameters E, the
    vectors are the mean of Â⁰E, …, ÂᴸE for L = `layers`. Scores and losses are those of `Factorization`; l2 penalises
    the rows of E. layers = 0 is `Factorization`. SSM (GNN) is loss="sampled_softmax" with cosine=True and a
    temperature.

    Every batch propagates through the whole graph, so larger batches make an epoch faster. loss="rg2" needs no samples:
    each epoch is a Gauss–Newton step on all users and items at once.

    Known users have their trained vector. Any other history h has the vector of one propagation from the item vectors,
    Σ_{i ∈ h} z_i/√|h| with z_i = Σ_{k < L} (ÂᵏE)_i/((L + 1)·√d_i). `explain` gives differences, how much such a score
    falls without one item.

    With `recency` or `half_life` the weighted history differs from the row in the log, so that users of the log too are
    scored as new users: by one propagation, without their trained vector.
    """

    name: ClassVar[str] = "light_gcn"
    layers: int = param(3, "layers of the graph; 0: none", low=0, high=100)

    def _encoder(self, matrix: Csr, context: Context) -> Encoder:
        from monogram.gradient.encoders import GraphEncoder

        return GraphEncoder(matrix, context, self.rank, self.layers)

    def _products(self, size: Size) -> int:
        """Propagations of an epoch, each with its gradient."""
        if self.loss == "rg2":
            return 30  # about one for each step of conjugate gradients
        return -(-(size.users if self.loss in ALL_ITEMS else size.events) // self.batch)

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        plain = super().training_cost(size)
        steps = self._products(size)
        numbers = float(size.users + size.items) * self.rank
        return dataclasses.replace(
            plain,
            batch=plain.batch + 6 * numbers,
            products=4.0 * steps * self.layers * size.events * self.rank,
            fixed=plain.fixed + 24.0 * size.events,
        )
