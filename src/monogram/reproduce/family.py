"""Full-rank models that share an inverse: one factorisation, and one pass of scores from which each of them ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from monogram.data.splits import Split
from monogram.engine.runtime import parallel
from monogram.errors import ParameterError
from monogram.evaluation.metrics import Metric
from monogram.evaluation.protocol import Measured, measure_heads, measure_model
from monogram.models.base import Recommender
from monogram.models.full_rank import FullRank
from monogram.models.inverse import Inverse
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.report import Report


def key(model: Recommender) -> tuple[GramRecipe, Penalties] | None:
    """What models of one family have in common; None for a model that has no family."""
    return model.formula().shared if isinstance(model, FullRank) else None


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
        model.unfit()
        return report, found
    full = [model for model in models if isinstance(model, FullRank)]
    if len(full) < len(models):
        raise ParameterError("only full-rank models share an inverse")
    inverse = Inverse(split.train, *full[0].formula().shared, **how)
    assert inverse.report_ is not None
    thetas = np.array([inverse.solved.head(model.formula().head)[0] for model in full])
    weights = inverse.into_shared_weights(threads)
    return inverse.report_, measure_heads(weights, thetas, inverse.log, split, asked, threads)
