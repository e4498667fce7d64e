"""Trainings of linear autoencoders, without an array of all scores: their squares follow from k × k products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr
from monogram.gradient.rows import RowBatches, Rows, kept
from monogram.gradient.trainer import BatchTraining, Context
from monogram.weights import Factors, HollowFactors, Weights

PART = 1 << 17  # numbers that the optimiser updates at a time
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
        """Adam with Nesterov momentum, as in the authors' program, with the numbers of an update without parts.

        It updates part by part, each of which stays in the cache, on one thread: that takes a third of the time.
        """
        items, threads = self.parameters["items"], torch.get_num_threads()
        size = max(1, PART // items.shape[1])
        parts = [part.requires_grad_(True) for part in items.detach().split(size)]

        def before(*_: Any) -> None:
            torch.set_num_threads(1)
            assert items.grad is not None
            for part, gradient in zip(parts, items.grad.split(size), strict=True):
                part.grad = gradient
            items.grad = None

        optimiser = torch.optim.NAdam(parts, lr=self.learning_rate)
        optimiser.register_step_pre_hook(before)
        optimiser.register_step_post_hook(lambda *_: torch.set_num_threads(threads))
        return optimiser

    def batches(self) -> Iterator[Rows]:
        """All rows with entries, in a random order."""
        yield from self.rows

    def loss(self, batch: Rows) -> torch.Tensor:
        """The mean of ‖x/‖x‖ − s/‖s‖‖² = 2 − 2·cos(x, s); with y = xA, x·s = ‖y‖² − ‖x‖²."""
        items = unit_rows(self.parameters["items"])
        values = batch.normalised()
        codes = batch.times(items, values)
        own = codes.square().sum(1)
        lengths = (codes @ symmetric_gram(items) * codes).sum(1) - 2 * own + 1
        return (2 - 2 * (own - 1) / lengths.clamp_min(SMALLEST).sqrt()).mean()

    def weights(self, training: Csr) -> Weights:
        """A, with rows of length 1."""
        items = functional.normalize(self.parameters["items"].detach())
        return HollowFactors(items.cpu().numpy())


def unit_rows(matrix: torch.Tensor) -> torch.Tensor:
    """Rows divided by their norm: `functional.normalize`, in fewer passes over the memory."""
    ones = torch.ones(len(matrix), 1, dtype=matrix.dtype, device=matrix.device)
    rows: torch.Tensor = torch._weight_norm(matrix, ones, 0)
    return rows


def symmetric_gram(rows: torch.Tensor) -> torch.Tensor:
    """RᵀR, for a loss whose gradient in RᵀR is symmetric: one product in the backward pass in place of two."""
    half = rows.T @ rows.detach()
    return 2 * half - half.detach()


def squares(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """‖left·rightᵀ‖², by products of k columns."""
    return ((left.T @ left) * (right.T @ right)).sum()
