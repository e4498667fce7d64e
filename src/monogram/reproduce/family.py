"""Full-rank models that share l2 and dropout: one inverse, and one pass of scores from which each of them ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from monogram.data.splits import Split
from monogram.engine.runtime import parallel
from monogram.evaluation.metrics import Metric
from monogram.evaluation.protocol import Measured, measure_heads, measure_model
from monogram.models.base import Recommender
from monogram.models.full_rank import EDLAE, FullRank
from monogram.models.work import Report
from monogram.weights import Dense, Dual

Float = NDArray[np.float64]


def key(model: Recommender) -> tuple[float, float] | None:
    """What models of one family have in common; None for a model that has no family."""
    # A student is a full-rank model by its parameters, not by its weights.
    same = isinstance(model, FullRank) and type(model)._fit is FullRank._fit and not model._user_power()
    return model._rates() if same else None  # type: ignore[attr-defined]


@dataclass(kw_only=True, eq=False)
class _Teacher(EDLAE):
    """B itself, which the others rescale; it remembers what their heads need."""

    name: ClassVar[str] = "family"

    def _head(self, c: Float, penalties: Float, d: Float, counts: Float) -> tuple[Float, Float]:
        self.known_ = (c.copy(), penalties, d, counts)
        return np.ones_like(c), np.zeros_like(c)


def measured(
    models: Sequence[Recommender], split: Split, asked: tuple[Metric, ...], how: Mapping[str, Any]
) -> tuple[Report, list[Measured]]:
    """What each of the models gets on a split, fitted on its train part, and the report of the one fit.

    Parameters
    ----------
    models : of one family (see `key`), or a single model of any kind
    how : options for `fit`
    """
    threads = parallel.count(how.get("threads"))
    if len(models) == 1:
        model = models[0].fit(split.train, **how)
        found = [measure_model(model, split, asked, threads)] if asked else [(np.empty((0, 0)), {})]
        report = model.report_
        model._forget()
        return report, found
    l2, dropout = models[0]._rates()  # type: ignore[attr-defined]
    teacher = _Teacher(l2=l2, dropout=dropout).fit(split.train, **how)
    thetas = np.array([model._head(*teacher.known_)[0] for model in models])  # type: ignore[attr-defined]
    weights = teacher.weights_
    assert isinstance(weights, Dense | Dual)
    return teacher.report_, measure_heads(weights, thetas, teacher.log_, split, asked, threads)
