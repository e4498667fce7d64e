"""The encoder of SGL: LightGCN, and a contrast between two graphs without some of the edges."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr
from monogram.gradient.encoders import GraphEncoder
from monogram.gradient.graph import Graph, Smoothing, without_edges
from monogram.gradient.trainer import Context


class ContrastEncoder(GraphEncoder):
    """LightGCN with the contrastive loss of SGL (edge dropout).

    Each epoch draws two graphs without a random share of the edges, normalised anew.

    Parameters
    ----------
    dropout : share of the edges that each graph lacks
    weight, temperature : of the contrastive loss
    """

    def __init__(
        self,
        matrix: Csr,
        context: Context,
        rank: int,
        layers: int,
        *,
        dropout: float,
        weight: float,
        temperature: float,
    ) -> None:
        super().__init__(matrix, context, rank, layers)
        self.dropout, self.weight, self.temperature = dropout, weight, temperature
        self.views = [self.graph, self.graph]

    def start_epoch(self) -> None:
        """Draw the two graphs."""
        context = self.context
        self.views = [
            Graph(without_edges(self.matrix, self.dropout), device=context.device, threads=context.threads)
            for _ in range(2)
        ]

    def extra_loss(self, users: Tensor, items: Tensor) -> Tensor | None:
        """The contrast between the two vectors of the distinct users, and of the distinct items, of a batch."""
        if not self.weight:
            return None
        pair = self.parameters["users"], self.parameters["items"]
        first, second = (Smoothing.apply(*pair, view, self.layers) for view in self.views)
        losses = [
            contrast(left[index.unique()], right[index.unique()], self.temperature)
            for left, right, index in zip(first, second, (users, items), strict=True)
        ]
        return self.weight * (losses[0] + losses[1])


def contrast(left: Tensor, right: Tensor, temperature: float) -> Tensor:
    """InfoNCE: mean of −log(e^{cos(l_a, r_a)/t} / Σ_b e^{cos(l_a, r_b)/t}) over the rows a."""
    cosines = functional.normalize(left, dim=1) @ functional.normalize(right, dim=1).T / temperature
    return (torch.logsumexp(cosines, 1) - cosines.diagonal()).mean()
