"""Full-rank models that share l2 and dropout: one inverse for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.models.base import Recommender
from monogram.models.full_rank import EDLAE, FullRank
from monogram.weights import Dense, Dual, Weights

Float = NDArray[np.float64]
SMALLEST = 1e-12  # in place of θ = 0, so that a column can be scaled back


def key(model: Recommender) -> tuple[float, float] | None:
    """What models of one family have in common; None for a model that has no family."""
    # A student is a full-rank model by its parameters, not by its weights.
    return model._rates() if isinstance(model, FullRank) and type(model)._fit is FullRank._fit else None


@dataclass(kw_only=True, eq=False)
class _Teacher(EDLAE):
    """B itself, which the others rescale; it remembers what their heads need."""

    name: ClassVar[str] = "family"

    def _head(self, c: Float, penalties: Float, d: Float) -> tuple[Float, Float]:
        self.known_ = (c.copy(), penalties, d)
        return np.ones_like(c), np.zeros_like(c)


def fitted(models: Sequence[Recommender], log: Interactions, **how: Any) -> Iterator[Recommender]:
    """Each of the models, fitted on the log; it forgets when the next one is asked for.

    Parameters
    ----------
    models : of one family (see `key`), or a single model of any kind
    how : options for `fit`
    """
    if len(models) == 1:
        yield models[0].fit(log, **how)
        models[0]._forget()
        return
    l2, dropout = models[0]._rates()  # type: ignore[attr-defined]
    teacher = _Teacher(l2=l2, dropout=dropout).fit(log, **how)
    for model in models:
        theta, delta = model._head(*teacher.known_)  # type: ignore[attr-defined]
        theta = np.where(theta == 0, SMALLEST, theta)
        weights = _rescaled(teacher, theta, delta)
        model._become(teacher.log_, weights, teacher.report_)
        yield model
        model._forget()
        if isinstance(weights, Dense):
            weights.matrix /= theta.astype(weights.matrix.dtype)


def _rescaled(teacher: _Teacher, theta: Float, delta: Float) -> Weights:
    """B·diag(θ) + diag(δ); a dense B is changed in place, as there is no room for two."""
    held = teacher.weights_
    if isinstance(held, Dual):
        c, penalties, _ = teacher.known_
        scale = -theta / (c * penalties)
        return Dual(held.inverse, held.training, penalties, scale, theta + delta, held.roots)
    assert isinstance(held, Dense)
    held.matrix *= theta.astype(held.matrix.dtype)
    np.fill_diagonal(held.matrix, delta)
    return held
