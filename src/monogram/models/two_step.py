"""Two steps of one regression: what a history scores is scored once more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.engine import weighting
from monogram.engine.inverse import probes
from monogram.engine.plan import Extra, Plan, Size
from monogram.models.autoencoder import exact_enough, judge
from monogram.models.base import Recommender
from monogram.models.full_rank import Tempered, shared_weights
from monogram.models.parameters import param
from monogram.models.work import SOLVERS, Work
from monogram.weights import Dense, Twice, Weights


@dataclass(kw_only=True, eq=False)
class TwoStep(Recommender):
    """Two steps of `Tempered`, ours: W = (1 − second)·B + second·B², times a power of popularity.

    B regresses every item on all others: it minimises Σ_u w_u‖x_u − x_u·B‖² + ‖Λ^½B‖² with diag B = 0, with the weights
    w and the penalties Λ of `Tempered`. The second step takes what the first one scores for a history: an item may be
    recommended by way of one that the user has not used either. It is linear, so every share of a score is exact. It
    wants l2 and dropout well below those of one step.

    Each column is multiplied by max(users of the item, ½)^item_power.
    """

    name: ClassVar[str] = "two_step"
    solvers: ClassVar[tuple[str, ...]] = SOLVERS
    l2: float = param(50.0, "penalty on the squared weights", low=0, high=1e30)
    dropout: float = param(0.2, "probability with which an entry is hidden", low=0, high=1, below=True)
    second: float = param(0.8, "share of the second step in a score", low=0, high=1)
    user_power: float = param(0.5, "how much less long histories count: 0 all events alike", low=0, high=2)
    item_power: float = param(0.0, "power of an item's popularity in its scores", low=-2, high=2)

    def _step(self) -> _Step:
        return _Step(l2=self.l2, dropout=self.dropout, user_power=self.user_power)

    def _plan(self, size: Size, work: Work) -> Plan:
        return self._step()._planned(size, work)

    def _warm(self, work: Work) -> None:
        self._step()._warm(work)

    def _fit(self, log: Interactions, work: Work) -> Weights:
        solved = self._step()._solve(log, work)
        popularity = weighting.popularity(solved.counts, self.item_power)
        weights = shared_weights(solved, log, work.threads)
        if isinstance(weights, Dense):
            return Dense(_product(weights.matrix, self.second, popularity))
        found = Twice(weights, self.second, popularity)
        _judge_lists(found, log, work)
        return found


class _Step(Tempered):
    """The regression; where its weights are formed, their product is a second square array."""

    solvers: ClassVar[tuple[str, ...]] = SOLVERS

    def _extra(self, size: Size, work: Work) -> Extra:
        return replace(super()._extra(size, work), products=1)


def _judge_lists(weights: Twice, log: Interactions, work: Work) -> None:
    """Note how far the lists of a few users are from exact ones: rounding in K⁻¹ grows by 1/(c·ℓ) in a second step."""
    lengths = np.diff(log.matrix.indptr).astype(np.float64)
    silent = exact_enough(work)
    work.error = max(weights.error(log.matrix[probes(lengths)], work.threads), work.error or 0.0)
    if silent:  # else it was told
        judge(work)
    work.tick("residual")


def _product(matrix: NDArray[np.floating], second: float, factors: NDArray[np.float64]) -> NDArray[np.floating]:
    """The weights of both steps, from those of one, which are spent."""
    out = matrix @ matrix
    out *= second
    matrix *= 1 - second
    out += matrix
    out *= factors.astype(out.dtype)
    return out
