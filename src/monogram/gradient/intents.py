"""The encoder of DGCF: vectors in parts, one for each intent, and edges that are routed to intents."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr
from monogram.gradient.encoders import FactorEncoder, as_array, by_degree
from monogram.gradient.trainer import Context
from monogram.weights import TrainedSum, Weights

SAMPLE = 256  # users, and items, on which the dependence of intents is measured


class IntentEncoder(FactorEncoder):
    """DGCF (Wang et al. 2020). Each vector has K parts of equal length, one for each intent.

    Every edge has a score for each intent, 1 at the start. In each of the iterations of a layer the softmax of an
    edge's scores over the intents gives K weighted graphs, each normalised by its degrees; part k is propagated along
    graph k; and the score of an edge grows by head·tanh(tail), both of norm 1, with the propagated head. The vectors
    are the sum of all layers.

    Parameters
    ----------
    layers, intents, iterations : L, K, and the iterations of each layer
    weight : of the loss on the dependence (distance correlation) between the parts
    """

    def __init__(
        self, matrix: Csr, context: Context, rank: int, *, layers: int, intents: int, iterations: int, weight: float
    ) -> None:
        super().__init__(matrix, context, rank)
        self.layers, self.intents, self.iterations, self.weight = layers, intents, iterations, weight
        self.matrix, self.users_, self.rank = matrix, matrix.shape[0], rank
        rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
        columns = matrix.indices.astype(np.int64) + matrix.shape[0]
        ends = np.concatenate([rows, columns]), np.concatenate([columns, rows])
        self.heads, self.tails = (context.tensor(side) for side in ends)
        self._layers: list[Tensor] = []
        self._vectors = torch.zeros(0)

    def forward(self) -> None:
        """Route and propagate: nodes × intents × numbers of a part."""
        super().forward()
        start = torch.cat([self.parameters["users"], self.parameters["items"]])
        self._layers = [start.view(len(start), self.intents, -1)]
        scores = torch.ones(len(self.heads), self.intents, dtype=start.dtype, device=start.device)
        for _ in range(self.layers):
            layer, scores = self._routed(self._layers[-1], scores)
            self._layers.append(layer)
        self._vectors = torch.stack(self._layers).sum(0).flatten(1)

    def _routed(self, below: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The next layer, and the scores of the edges after it."""
        layer, tails = below, below[self.tails]
        for _ in range(self.iterations):
            weights = self.normalised(scores.softmax(1))
            layer = torch.zeros_like(below).index_add(0, self.heads, weights[:, :, None] * tails)
            heads = functional.normalize(layer[self.heads], dim=2)
            scores = scores + (heads * functional.normalize(tails, dim=2).tanh()).sum(2)
        return layer, scores

    def normalised(self, weights: Tensor) -> Tensor:
        """The weights of the edges (edges × intents), each divided by √(degree of head · degree of tail)."""
        nodes = self.parameters["users"].shape[0] + self.parameters["items"].shape[0]
        degrees = torch.zeros(nodes, self.intents, dtype=weights.dtype, device=weights.device)
        degrees = degrees.index_add(0, self.heads, weights)
        scale = degrees.clamp(min=1e-12).rsqrt()
        return weights * scale[self.heads] * scale[self.tails]

    def users(self, index: Tensor) -> Tensor:
        """Vectors of users."""
        return functional.embedding(index, self._vectors)

    def items(self, index: Tensor | None = None) -> Tensor:
        """Vectors of items."""
        items = self._vectors[self.users_ :]
        return items if index is None else functional.embedding(index, items)

    def extra_loss(self, users: Tensor, items: Tensor) -> Tensor | None:
        """The dependence between intents, on some of the users and items of the batch."""
        if not self.weight or self.intents < 2:
            return None
        nodes = torch.cat([sample(users), sample(items) + self.users_])
        parts = self._layers[0][nodes]
        pairs = [(a, b) for a in range(self.intents) for b in range(a + 1, self.intents)]
        total = sum(distance_correlation(parts[:, a], parts[:, b]) for a, b in pairs)
        return self.weight * total / len(pairs)

    def weights(self, training: Csr, cosine: bool) -> Weights:
        """Trained vectors; another history is propagated once, with equal weights of all intents."""
        with torch.no_grad():
            self.forward()
            below = torch.stack(self._layers[:-1] or self._layers).sum(0).flatten(1)[self.users_ :]
        users, items = as_array(self._vectors[: self.users_], cosine), as_array(self._vectors[self.users_ :], cosine)
        if not self.layers:
            return super().weights(training, cosine)
        return TrainedSum.of(users, items, as_array(below) * by_degree(self.matrix), 0.5, training)


def sample(index: Tensor) -> Tensor:
    """Up to `SAMPLE` of the distinct numbers of an index, drawn on the CPU, so that devices agree."""
    distinct = index.unique()
    if len(distinct) <= SAMPLE:
        return distinct
    return distinct[torch.randperm(len(distinct))[:SAMPLE].to(index.device)]


def distance_correlation(left: Tensor, right: Tensor) -> Tensor:
    """The distance correlation of two samples: 0 for independent variables, 1 for one a multiple of the other."""
    first, second = (_centred(_distances(side)) for side in (left, right))

    def covariance(a: Tensor, b: Tensor) -> Tensor:
        return ((a * b).mean().clamp(min=0) + 1e-12).sqrt()

    return covariance(first, second) / (covariance(first, first) * covariance(second, second)).sqrt()


def _distances(rows: Tensor) -> Tensor:
    squares = rows.square().sum(1)
    return ((squares[:, None] + squares - 2 * rows @ rows.T).clamp(min=0) + 1e-12).sqrt()


def _centred(distances: Tensor) -> Tensor:
    return distances - distances.mean(0, keepdim=True) - distances.mean(1, keepdim=True) + distances.mean()
