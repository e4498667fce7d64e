"""RG² on an encoder without sampling: each epoch is a Gauss–Newton step on all users and items."""

from __future__ import annotations

from collections.abc import Callable

import torch

from monogram.engine.iterative import rg2
from monogram.engine.iterative.rg2_encoded import EncodedPoint, identity
from monogram.engine.iterative.rg2_newton import Pair
from monogram.engine.linalg.products import inner
from monogram.engine.runtime.arrays import Csr
from monogram.gradient.encoders import Encoder, GraphEncoder
from monogram.gradient.trainer import Training
from monogram.weights import Weights


class Rg2Training(Training):
    """Minimise RG² with the weighted penalty, by Newton-CG through K × K Gramians, on the CPU.

    The start is that of `RG2`: random item vectors and the optimal user vectors for them. An epoch that finds no lower
    point beyond rounding errors ends the training.
    """

    def __init__(self, matrix: Csr, encoder: Encoder, l2: float, seed: int) -> None:
        context = encoder.context
        self.encoder, self.parameters = encoder, encoder.parameters
        self.problem = rg2.problem(matrix, l2, dtype=context.dtype, threads=context.threads)
        rank = min(self.parameters["items"].shape[1], *matrix.shape)
        items = rg2.initial_items(self.problem, rank, seed, None)
        items, users, *_ = rg2.best_users(self.problem, items, inner(items, items))
        for name, start in (("users", users), ("items", items)):
            self.parameters[name] = torch.from_numpy(start).requires_grad_(True)

    def epoch(self, out_of_time: Callable[[], bool]) -> float:
        """One step; the objective after it."""
        point = self.point()
        following = point.next()
        self.finished = following is point
        with torch.no_grad():
            for name, values in zip(("users", "items"), following.pair, strict=True):
                self.parameters[name].copy_(torch.from_numpy(values))
        return following.value

    def point(self) -> EncodedPoint:
        """The point of the present parameters."""
        users, items = (self.parameters[name].detach().numpy() for name in ("users", "items"))
        return EncodedPoint.at(self.problem, self._encode, (users, items))

    def _encode(self, pair: Pair) -> Pair:
        """The vectors of parameters; also their gradient from that of the vectors, since the encoder is symmetric."""
        if not (isinstance(self.encoder, GraphEncoder) and self.encoder.layers):
            return identity(pair)
        users, items = (torch.from_numpy(part) for part in pair)
        smoothed = self.encoder.graph.smooth(users, items, self.encoder.layers)
        return smoothed[0].numpy(), smoothed[1].numpy()

    def weights(self, training: Csr) -> Weights:
        """The weights of the encoder."""
        return self.encoder.weights(training, cosine=False)
