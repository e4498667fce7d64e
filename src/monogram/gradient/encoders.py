"""Encoders: from parameters to the vectors of users and items, whose products are the scores."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr, Float
from monogram.gradient.graph import Graph, Smoothing, rows_of
from monogram.gradient.pair_scores import pair_scores, squared_norms
from monogram.gradient.trainer import Context
from monogram.weights import TrainedFoldIn, TrainedSum, Weights

START = 0.1  # standard deviation of the initial vectors, times √rank


class Encoder(ABC):
    """Vectors of users and items.

    Attributes
    ----------
    parameters : what is trained, by name
    context : where it is trained
    """

    parameters: dict[str, Tensor]
    context: Context

    def start_epoch(self) -> None:
        """Draw what is fixed during an epoch, such as a sampled graph."""
        return

    @abstractmethod
    def forward(self) -> None:
        """Compute the vectors of the present parameters; called once for each batch."""

    @abstractmethod
    def users(self, index: Tensor) -> Tensor:
        """The vectors of users."""

    @abstractmethod
    def items(self, index: Tensor | None = None) -> Tensor:
        """The vectors of items; of all without an index."""

    @abstractmethod
    def squares(self, side: str, index: Tensor) -> Tensor:
        """The sum of the squared norms of the parameters of "users" or "items", which l2 penalises."""

    @abstractmethod
    def weights(self, training: Csr, cosine: bool) -> Weights:
        """The weights of the present vectors; with `cosine` the scores are cosines."""

    def extra_loss(self, users: Tensor, items: Tensor) -> Tensor | None:
        """A further loss of the encoder on the users and positive items of a batch; None where it has none."""
        return None


class FactorEncoder(Encoder):
    """A vector for each user and each item (matrix factorisation).

    Parameters
    ----------
    matrix : CSR, users × items
    rank : numbers in a vector
    """

    def __init__(self, matrix: Csr, context: Context, rank: int) -> None:
        scale = START / rank**0.5
        self.parameters = {
            name: context.random(number, rank, scale=scale)
            for name, number in zip(("users", "items"), matrix.shape, strict=True)
        }
        self.context = context
        self._rows: list[tuple[str, Tensor, Tensor]] = []

    def forward(self) -> None:
        """Forget the rows of the batch before: the parameters are the vectors."""
        self._rows.clear()

    def rows(self, side: str, index: Tensor) -> Tensor:
        """Rows of the parameters; the same index in a batch is looked up once, since each gradient fills a table."""
        for known, earlier, rows in self._rows:
            if known == side and earlier is index:
                return rows
        rows = functional.embedding(index, self.parameters[side])
        self._rows.append((side, index, rows))
        return rows

    def users(self, index: Tensor) -> Tensor:
        """Rows of the factors of the users."""
        return self.rows("users", index)

    def items(self, index: Tensor | None = None) -> Tensor:
        """Rows of the factors of the items."""
        return self.parameters["items"] if index is None else self.rows("items", index)

    def squares(self, side: str, index: Tensor) -> Tensor:
        """The squared norms of rows of the parameters."""
        return self.rows(side, index).square().sum()

    def weights(self, training: Csr, cosine: bool) -> Weights:
        """Trained factors; other histories are folded in by ridge regression."""
        users, items = (as_array(self.parameters[name], cosine) for name in ("users", "items"))
        return TrainedFoldIn.of(users, items, training, self.context.threads)


class TableEncoder(FactorEncoder):
    """`FactorEncoder` for large batches on the CPU: scores of pairs from the tables, without arrays of pairs × rank."""

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """The products of the vectors of pairs."""
        return pair_scores(self.parameters["users"], self.parameters["items"], (users, items), self.context.threads)

    def squares(self, side: str, index: Tensor) -> Tensor:
        """The squared norms of rows of the parameters."""
        if self._rows or self.context.device != "cpu":
            return super().squares(side, index)
        return squared_norms(self.parameters[side], index.flatten().contiguous(), self.context.threads).sum()


class GraphEncoder(FactorEncoder):
    """LightGCN (He et al. 2020): the vectors are the means of Â⁰E, …, ÂᴸE, E the parameters and Â the graph.

    Parameters
    ----------
    layers : L; 0 is matrix factorisation
    """

    def __init__(self, matrix: Csr, context: Context, rank: int, layers: int) -> None:
        super().__init__(matrix, context, rank)
        self.layers, self.matrix = layers, matrix
        self.graph = Graph(matrix, device=context.device, threads=context.threads)
        self._vectors = self.parameters["users"], self.parameters["items"]

    def forward(self) -> None:
        """Propagate the parameters."""
        super().forward()
        pair = self.parameters["users"], self.parameters["items"]
        self._vectors = Smoothing.apply(*pair, self.graph, self.layers) if self.layers else pair

    def users(self, index: Tensor) -> Tensor:
        """Propagated vectors of users."""
        return rows_of(self._vectors[0], index) if self.layers else super().users(index)

    def items(self, index: Tensor | None = None) -> Tensor:
        """Propagated vectors of items."""
        if index is None or not self.layers:
            return super().items(index) if not self.layers else self._vectors[1]
        return rows_of(self._vectors[1], index)

    def squares(self, side: str, index: Tensor) -> Tensor:
        """The squared norms of rows of the parameters."""
        return rows_of(self.parameters[side], index).square().sum() if self.layers else super().squares(side, index)

    def weights(self, training: Csr, cosine: bool) -> Weights:
        """Propagated vectors; another history has the vector that one propagation from the item vectors gives.

        A new user h has no parameters: p = Σ_i z_i/√|h| with z_i = (1/√d_i)·Σ_{k<L} (ÂᵏE)_i/(L + 1).
        """
        if not self.layers:
            return super().weights(training, cosine)
        with torch.no_grad():
            self.forward()
            users, items = (as_array(part, cosine) for part in self._vectors)
            pair = self.parameters["users"].detach(), self.parameters["items"].detach()
            below = self.graph.smooth(*pair, self.layers - 1)[1] * (self.layers / (self.layers + 1))
        return TrainedSum.of(users, items, as_array(below) * by_degree(self.matrix), 0.5, training)


def by_degree(matrix: Csr) -> Float:
    """1/√d of each item as a column, 0 for an item without users, in single precision."""
    counts = np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.float32)
    return np.divide(1, np.sqrt(counts), out=np.zeros_like(counts), where=counts > 0)[:, None]


def as_array(vectors: Tensor, cosine: bool = False) -> Float:
    """Vectors as an array; with `cosine` each divided by its norm."""
    detached = vectors.detach()
    return np.array((functional.normalize(detached, dim=1) if cosine else detached).cpu().numpy())
