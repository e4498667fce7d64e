"""Graph models and SimpleX: `SGL`, `DGCF`, `PinSage` and `SimpleX`, each an encoder with a ranking loss."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from monogram.engine.runtime.arrays import Csr
from monogram.errors import ParameterError
from monogram.gradient.light_gcn import LightGCN, PropagatedModel
from monogram.gradient.ranking import RankingModel
from monogram.models.parameters import param
from monogram.models.search_axes import Search
from monogram.planning.gradient_costs import TrainingSize
from monogram.planning.size import Size

if TYPE_CHECKING:
    from monogram.gradient.encoders import Encoder
    from monogram.gradient.trainer import Context


@dataclass(kw_only=True, eq=False)
class SGL(LightGCN):
    """SGL-ED (Wu et al. 2021): LightGCN with a contrast between two graphs without some of the edges.

    Each epoch draws two graphs, each without a random share `dropout` of the events. With z′ and z″ the propagated
    vectors in both, the loss of a batch is that of `LightGCN` plus, for its distinct users and for its distinct items,

    contrast · mean_a −log(e^{cos(z′_a, z″_a)/τ} / Σ_b e^{cos(z′_a, z″_b)/τ}),   τ = `contrast_temperature`.

    The vectors are those of the whole graph. New users, recency and explanations are as for `LightGCN`.
    """

    name: ClassVar[str] = "sgl"
    plain_rg2: ClassVar[bool] = False
    dropout: float = param(0.1, "share of the events that each of the two graphs lacks", low=0, high=1, below=True)
    contrast: float = param(
        0.1, "weight of the contrast between the two graphs", low=0, high=1e6, search=Search((0.01, 0.1, 1.0))
    )
    contrast_temperature: float = param(0.2, "divides the cosines of the contrast", low=1e-3, high=1e3)

    def _encoder(self, matrix: Csr, context: Context) -> Encoder:
        from monogram.gradient.contrast import ContrastEncoder

        temperature = self.contrast_temperature
        return ContrastEncoder(
            matrix, context, self.rank, self.layers,
            dropout=self.dropout, weight=self.contrast, temperature=temperature,
        )  # fmt: skip

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        plain = super().training_cost(size)
        distinct = [float(min(self.batch, side)) for side in (size.users, size.items)]
        return dataclasses.replace(
            plain,
            batch=plain.batch + 12.0 * (size.users + size.items) * self.rank + 4.0 * sum(d**2 for d in distinct),
            products=3 * plain.products,
            fixed=3 * plain.fixed,
        )


@dataclass(kw_only=True, eq=False)
class DGCF(RankingModel):
    """DGCF (Wang et al. 2020): disentangled graph filtering. Each vector has a part for each of `intents` intents.

    Every edge has a score for each intent. In each of the `iterations` of a layer, the softmax of the scores over the
    intents gives a weighted graph for each intent, normalised by its degrees; each part is propagated along its graph;
    and the score of an edge grows by the product of the propagated head with tanh of the tail, both of norm 1. The
    vectors are the sums over the layers. `independence` weights a loss on the distance correlation between the parts.

    Any other history than a user's has the vector of one propagation from the item vectors, with equal weights of all
    intents: Σ_{i ∈ h} z_i/√|h|, z_i the sum of the layers below the last, divided by √d_i. With `recency` or
    `half_life` all users have such a vector.
    """

    name: ClassVar[str] = "dgcf"
    plain_rg2: ClassVar[bool] = False
    layers: int = param(1, "layers of the graph; 0: none", low=0, high=100)
    intents: int = param(4, "intents; rank must be a multiple of it", low=1, high=1000)
    iterations: int = param(2, "iterations of the routing in each layer", low=1, high=100)
    independence: float = param(0.01, "weight of the loss on dependent intents", low=0, high=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank % self.intents:
            raise ParameterError(
                f"rank = {self.rank} with intents = {self.intents}; expected a rank that is a multiple of intents"
            )

    def _encoder(self, matrix: Csr, context: Context) -> Encoder:
        from monogram.gradient.intents import IntentEncoder

        return IntentEncoder(
            matrix, context, self.rank,
            layers=self.layers, intents=self.intents, iterations=self.iterations, weight=self.independence,
        )  # fmt: skip

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        plain = super().training_cost(size)
        edges, routed = 2.0 * size.events, self.layers * self.iterations
        steps = -(-size.events // self.batch)
        return dataclasses.replace(
            plain,
            batch=plain.batch + 8 * routed * edges * self.rank + 4 * (size.users + size.items) * self.rank * routed,
            lookups=plain.lookups + 10.0 * steps * routed * edges * self.rank,
            fixed=plain.fixed + 32.0 * edges,
        )


@dataclass(kw_only=True, eq=False)
class PinSage(PropagatedModel):
    """PinSage (Ying et al. 2018) on the graph of users and items: dense layers over sampled neighbourhoods.

    Layer l: h ← σ(W_l·[h, n] + w_l), where n is the weighted mean of relu(Q_l·h_v + q_l) over the neighbours v, and σ
    is relu followed by the division by the norm; the last layer is linear. Each epoch draws `neighbours` neighbours of
    every user and item, with replacement, and weights each by how often it was drawn. The vectors that rank are those
    with all neighbours.

    Any other history than a user's runs through the layers as a user whose own vector is 0. With `recency` or
    `half_life` all users do.
    """

    name: ClassVar[str] = "pin_sage"
    plain_rg2: ClassVar[bool] = False
    layers: int = param(2, "number of layers", low=1, high=100)
    neighbours: int = param(20, "neighbours that each epoch draws for a user or an item", low=1, high=100_000)

    def _encoder(self, matrix: Csr, context: Context) -> Encoder:
        from monogram.gradient.sage import SageEncoder

        return SageEncoder(matrix, context, self.rank, layers=self.layers, neighbours=self.neighbours)

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        plain = super().training_cost(size)
        nodes, steps = float(size.users + size.items), -(-size.events // self.batch)
        return dataclasses.replace(
            plain,
            parameters=plain.parameters * (1 + self.layers / 4) + 4.0 * self.layers * self.rank**2,
            batch=plain.batch + 12 * self.layers * nodes * self.rank,
            flops=plain.flops + 18.0 * steps * self.layers * nodes * self.rank**2,
            products=4.0 * steps * self.layers * nodes * self.neighbours * self.rank,
            fixed=plain.fixed + 48.0 * (size.events + nodes * self.neighbours),
        )


@dataclass(kw_only=True, eq=False)
class SimpleX(PropagatedModel):
    """SimpleX (Mao et al. 2021): the vector of a user is mixed with the mean of its items, and scores are cosines.

    h_u = g·e_u + (1 − g)·V·mean_{i ∈ I_u} e_i with g = `own_share` and a square V; items have the vectors e_i. By
    default with the cosine contrastive loss, 1 − s_ui + negative_weight·mean_j(s_uj − margin)₊.

    Any other history than a user's has the vector of a user with e_u = 0: V times the mean of its items. With `recency`
    or `half_life` all users have such a vector.
    """

    name: ClassVar[str] = "simplex"
    plain_rg2: ClassVar[bool] = False
    loss: str = param(
        "cosine_contrastive", "loss that compares the items of a user with others", choices=RankingModel.losses
    )
    own_share: float = param(0.5, "share of the user's own vector; 0: only its items", low=0, high=1)

    def _encoder(self, matrix: Csr, context: Context) -> Encoder:
        from monogram.gradient.pooling import PoolingEncoder

        return PoolingEncoder(matrix, context, self.rank, self.own_share)

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        plain = super().training_cost(size)
        steps = -(-size.events // self.batch)
        return dataclasses.replace(
            plain,
            batch=plain.batch + 4.0 * (size.users + size.items) * self.rank,
            products=2.0 * steps * size.events * self.rank,
            fixed=plain.fixed + 48.0 * size.events,
        )
