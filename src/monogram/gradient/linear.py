"""Trainings of linear autoencoders, without an array of all scores: their squares follow from k × k products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr
from monogram.gradient.rows import RowBatches, Rows, kept
from monogram.gradient.trainer import BatchTraining, Context
from monogram.weights import Factors, HollowFactors, Weights

SMALLEST = 1e-12  # squared norm of a row of scores, by which a loss divides


@dataclass(frozen=True, kw_only=True)
class LinearSettings:
    """Settings of the training of W = UVᵀ.

    Parameters
    ----------
    rank : columns of U and V
    l2 : penalty, in the units of XᵀX
    penalty : "product" (the squared weights of UVᵀ) or "factors" (those of U and V)
    dropout : probability with which an entry of a row is hidden
    b : weight of the squared error on kept entries; on hidden entries it is 1
    batch : rows in a batch
    """

    rank: int
    l2: float
    penalty: str
    dropout: float
    b: float
    batch: int


class LinearTraining(BatchTraining):
    """Train W = UVᵀ to reproduce rows from which entries are hidden.

    The error on an item that the user has not used is the same whether the item counts as hidden or as kept. It
    therefore has the mean weight N = p + (1 − p)·b; the weights of entries are drawn. All weights are divided by N.
    """

    def __init__(self, matrix: Csr, context: Context, settings: LinearSettings) -> None:
        self.settings, self.context = settings, context
        self.learning_rate = context.learning_rate
        self.rows = RowBatches(matrix, context, settings.batch)
        n, rank = matrix.shape[1], settings.rank
        self.parameters = {name: context.random(n, rank, scale=(n * rank) ** -0.25) for name in ("left", "right")}
        self.mean_weight = settings.dropout + (1 - settings.dropout) * settings.b

    def batches(self) -> Iterator[Rows]:
        """All rows with entries, in a random order."""
        yield from self.rows

    def loss(self, batch: Rows) -> torch.Tensor:
        """The mean error of the rows, and the penalty divided by the number of rows."""
        left, right, settings = self.parameters["left"], self.parameters["right"], self.settings
        stay = kept(batch, settings.dropout)
        codes = batch.times(left, batch.values * stay / (1 - settings.dropout))
        scores = (codes[batch.owners] * functional.embedding(batch.items, right)).sum(1)
        weights = (1 - stay + settings.b * stay) / self.mean_weight
        entries = weights * (batch.values - scores).square() - scores.square()
        error = (entries.sum() + squares(codes, right)) / len(batch)
        return error + settings.l2 * self.penalty() / self.rows.rows

    def penalty(self) -> torch.Tensor:
        """What l2 multiplies; of the diagonal of UVᵀ a share b/N², which for b = 1 is all of it."""
        left, right = self.parameters["left"], self.parameters["right"]
        if self.settings.penalty == "factors":
            return left.square().sum() + right.square().sum()
        share = self.settings.b / self.mean_weight**2
        return squares(left, right) - (1 - share) * (left * right).sum(1).square().sum()

    def weights(self, training: Csr) -> Weights:
        """U and V."""
        return Factors(self.array("left"), self.array("right"), np.ones(self.settings.rank))


class UnitTraining(BatchTraining):
    """Train W = AAᵀ − I, where the rows of A have length 1: the cosine between a row x and its scores xW."""

    def __init__(self, matrix: Csr, context: Context, *, rank: int, batch: int) -> None:
        self.learning_rate = context.learning_rate
        self.rows = RowBatches(matrix, context, batch)
        n = matrix.shape[1]
        self.parameters = {"items": context.random(n, rank, scale=(2 / (n + rank)) ** 0.5)}

    def optimiser(self) -> torch.optim.Optimizer:
        """Adam with Nesterov momentum, as in the authors' program."""
        return torch.optim.NAdam(list(self.parameters.values()), lr=self.learning_rate)

    def batches(self) -> Iterator[Rows]:
        """All rows with entries, in a random order."""
        yield from self.rows

    def loss(self, batch: Rows) -> torch.Tensor:
        """The mean of ‖x/‖x‖ − s/‖s‖‖² = 2 − 2·cos(x, s); with y = xA, x·s = ‖y‖² − ‖x‖²."""
        items = functional.normalize(self.parameters["items"])
        values = batch.normalised()
        codes = batch.times(items, values)
        own = codes.square().sum(1)
        lengths = (codes @ (items.T @ items) * codes).sum(1) - 2 * own + 1
        return (2 - 2 * (own - 1) / lengths.clamp_min(SMALLEST).sqrt()).mean()

    def weights(self, training: Csr) -> Weights:
        """A, with rows of length 1."""
        items = functional.normalize(self.parameters["items"].detach())
        return HollowFactors(items.cpu().numpy())


def squares(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """‖left·rightᵀ‖², by products of k columns."""
    return ((left.T @ left) * (right.T @ right)).sum()
