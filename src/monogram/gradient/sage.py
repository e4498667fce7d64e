"""The encoder of PinSage: dense layers over sampled neighbourhoods with weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr
from monogram.gradient.encoders import FactorEncoder, as_array
from monogram.gradient.graph import Links, row_means
from monogram.gradient.trainer import Context
from monogram.weights import Weights
from monogram.weights.sage import TrainedSage


class SageEncoder(FactorEncoder):
    """PinSage (Ying et al. 2018) on the graph of users and items, with weights that users and items share.

    Layer l: h ← σ(W_l·[h, n] + w_l), where n is the weighted mean of relu(Q_l·h_v + q_l) over the neighbours v. σ is
    relu followed by the division by the norm; the last layer is linear. In training the neighbours are drawn anew in
    each epoch, with replacement, and weighted by how often each was drawn; the trained vectors use all neighbours.

    Parameters
    ----------
    layers : number of layers
    neighbours : draws for each user and item
    """

    def __init__(self, matrix: Csr, context: Context, rank: int, *, layers: int, neighbours: int) -> None:
        super().__init__(matrix, context, rank)
        self.matrix, self.layers, self.neighbours = matrix, layers, neighbours
        for layer in range(layers):
            for name, inputs in (("pool", rank), ("merge", 2 * rank)):
                self.parameters[f"{name}.{layer}"] = context.random(rank, inputs, scale=(2 / inputs) ** 0.5)
                self.parameters[f"{name}_shift.{layer}"] = context.parameter(torch.zeros(rank))
        self._sampled = self._every = self._links(matrix, matrix.T.tocsr())
        self._vectors = self.parameters["users"], self.parameters["items"]

    def start_epoch(self) -> None:
        """Draw the neighbourhoods."""
        self._sampled = self._links(*(draw(side, self.neighbours) for side in (self.matrix, self.matrix.T.tocsr())))

    def _links(self, of_users: Csr, of_items: Csr) -> tuple[Links, Links]:
        context = self.context
        sides = (of_users, of_items)
        return tuple(Links(row_means(side), device=context.device, threads=context.threads) for side in sides)  # type: ignore[return-value]

    def forward(self) -> None:
        """The vectors of all users and items, with the sampled neighbours."""
        super().forward()
        self._vectors, _ = self.propagate(self._sampled)

    def propagate(self, links: tuple[Links, Links]) -> tuple[tuple[Tensor, Tensor], list[Tensor]]:
        """The vectors with some neighbourhoods, and what the items gave to users in each layer."""
        users, items, sources = self.parameters["users"], self.parameters["items"], []
        for layer in range(self.layers):
            pooled = [
                functional.linear(side, self.parameters[f"pool.{layer}"], self.parameters[f"pool_shift.{layer}"]).relu()
                for side in (users, items)
            ]
            sources.append(pooled[1])
            near = links[0](pooled[1]), links[1](pooled[0])
            users, items = (self._merged(layer, own, around) for own, around in zip((users, items), near, strict=True))
        return (users, items), sources

    def _merged(self, layer: int, own: Tensor, near: Tensor) -> Tensor:
        joined = torch.cat([own, near], 1)
        merged = functional.linear(joined, self.parameters[f"merge.{layer}"], self.parameters[f"merge_shift.{layer}"])
        return merged if layer == self.layers - 1 else functional.normalize(merged.relu(), dim=1)

    def users(self, index: Tensor) -> Tensor:
        """Vectors of users."""
        return functional.embedding(index, self._vectors[0])

    def items(self, index: Tensor | None = None) -> Tensor:
        """Vectors of items."""
        return self._vectors[1] if index is None else functional.embedding(index, self._vectors[1])

    def weights(self, training: Csr, cosine: bool) -> Weights:
        """The vectors with all neighbours; another history runs through the layers as a user that starts from 0."""
        with torch.no_grad():
            (users, items), sources = self.propagate(self._every)
        names = range(self.layers)
        return TrainedSage.of(
            as_array(users, cosine),
            as_array(items, cosine),
            np.stack([as_array(source) for source in sources]),
            np.stack([as_array(self.parameters[f"merge.{layer}"]) for layer in names]),
            np.stack([as_array(self.parameters[f"merge_shift.{layer}"]) for layer in names]),
            training,
        )


def draw(matrix: Csr, number: int) -> Csr:
    """For each row so many of its entries, drawn with replacement by torch; an entry may be there more than once."""
    lengths = np.diff(matrix.indptr).astype(np.int64)
    rows = np.flatnonzero(lengths)
    share = torch.rand(len(rows), number, dtype=torch.float64).numpy()
    places = matrix.indptr[rows, None] + (share * lengths[rows, None]).astype(np.int64)
    pointers = np.concatenate([[0], np.cumsum(np.where(lengths > 0, number, 0))])
    columns = matrix.indices[places.ravel()]
    return Csr((np.ones(len(columns), np.float32), columns, pointers), shape=matrix.shape)
