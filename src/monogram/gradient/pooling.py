"""The encoder of SimpleX: the vector of a user is a mixture of its own and of the mean of its items."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr
from monogram.gradient.encoders import FactorEncoder, as_array
from monogram.gradient.graph import Links, row_means
from monogram.gradient.trainer import Context
from monogram.weights import TrainedSum, Weights


class PoolingEncoder(FactorEncoder):
    """SimpleX: h_u = g·e_u + (1 − g)·V·mean_{i ∈ I_u} e_i, and the vectors e_i of the items.

    Parameters
    ----------
    own : g, the share of the user's own vector
    """

    def __init__(self, matrix: Csr, context: Context, rank: int, own: float) -> None:
        super().__init__(matrix, context, rank)
        self.parameters["mixing"] = context.parameter(torch.eye(rank))
        self.own = own
        self.links = Links(row_means(matrix), device=context.device, threads=context.threads)
        self._users = self.parameters["users"]

    def forward(self) -> None:
        """The vectors of all users."""
        super().forward()
        pooled = self.links(self.parameters["items"]) @ self.parameters["mixing"].T
        self._users = self.own * self.parameters["users"] + (1 - self.own) * pooled

    def users(self, index: Tensor) -> Tensor:
        """Mixed vectors of users."""
        return functional.embedding(index, self._users)

    def weights(self, training: Csr, cosine: bool) -> Weights:
        """Trained vectors; another history has the vector of a user with e_u = 0."""
        with torch.no_grad():
            self.forward()
            sources = (1 - self.own) * self.parameters["items"] @ self.parameters["mixing"].T
        users, items = as_array(self._users, cosine), as_array(self.parameters["items"], cosine)
        return TrainedSum.of(users, items, np.ascontiguousarray(as_array(sources)), 1.0, training)
