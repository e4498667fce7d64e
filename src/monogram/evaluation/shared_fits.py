"""Measure models on a split: one model from its own fit, or several models from one inverse that they share.

Models whose `shared_fit` has the same recipe and penalties share one factorisation (see `models.abilities`). Of these,
the models that only rescale the columns of its weights (reading "heads") also share one pass of scores for each
recency. Any models that differ in recency alone share their weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from monogram.data.splits import Split
from monogram.engine.runtime import parallel
from monogram.errors import ParameterError
from monogram.evaluation.metrics import Metric
from monogram.evaluation.protocol import Measured, measure_heads, measure_weights
from monogram.models.base import Recommender
from monogram.models.context import Between, FitOptions
from monogram.models.inverse import Inverse
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.report import Report
from monogram.ranking import Recency

if TYPE_CHECKING:
    from monogram.models.inverse_model import InverseModel

OF_HISTORIES = ("recency", "recency_unit", "half_life")  # parameters that change no weights
Model = TypeVar("Model", bound=Recommender)


def inverse_key(model: Recommender) -> tuple[GramRecipe, Penalties] | None:
    """The recipe and penalties of the inverse that a model shares; None where it shares no inverse."""
    shared = model.shared_fit()
    return shared.key if shared is not None and shared.computation == "inverse" else None


def reads_heads(model: Recommender) -> bool:
    """Whether a model is measured from the shared weights of an inverse, without a fit of its own."""
    shared = model.shared_fit()
    return shared is not None and shared.reading == "heads"


def measured_together(model: Recommender, split: Split) -> bool:
    """Whether `measure_inverse` measures a model on a split: items of a history have scores by the diagonal too."""
    return reads_heads(model) and split.exclude_seen


def without_recency(model: Recommender) -> dict[str, Any]:
    """The parameters on which the weights of a model depend."""
    own, common = type(model).__dataclass_fields__, Recommender.__dataclass_fields__
    unused = [name for name in OF_HISTORIES if own[name] is common[name]]  # a class may give a name another meaning
    return {name: value for name, value in model.params().items() if name not in unused}


def by_recency(models: Iterable[Model]) -> dict[Recency, list[Model]]:
    """Models by the rule with which they weight histories, in the order of their first models."""
    groups: dict[Recency, list[Model]] = {}
    for model in models:
        groups.setdefault(model.recency_rule(), []).append(model)
    return groups


def measure_fit(
    model: Recommender,
    source: Any,
    split: Split,
    metrics: tuple[Metric, ...],
    fit: Mapping[str, Any],
    between: Between | None = None,
) -> tuple[Report, Measured]:
    """Fit a model and measure it; its weights are released afterwards. Parameters: as of `measure_recencies`."""
    report, measured = measure_recencies([model], source, split, metrics, fit, between)
    return report, measured[0]


def measure_recencies(
    models: Sequence[Recommender],
    source: Any,
    split: Split,
    metrics: tuple[Metric, ...],
    fit: Mapping[str, Any],
    between: Between | None = None,
) -> tuple[Report, list[Measured]]:
    """Fit models that differ in recency alone, once, and measure each; the weights are released afterwards.

    Parameters
    ----------
    models : their parameters are used; the models themselves are not fitted
    source : what `fit` takes: the log, or an Inverse or a Spectrum in place of it
    metrics : none: only the report of the fit is wanted
    fit : options of `fit`
    between : called between the epochs of an iterative fit, see `FitInputs`
    """
    fitted = type(models[0])(**models[0].params())
    if between is None:
        fitted.fit(source, **fit)
    else:
        fitted.fit_from(replace(fitted.inputs(source), between=between), FitOptions.parse(**fit))
    if not metrics:
        return fitted.report_, [(np.empty((0, 0)), {}) for _ in models]
    log, weights = fitted.fitted()
    threads = parallel.count(fit.get("threads"))
    return fitted.report_, [
        measure_weights(weights, log, split, metrics, threads, model.recency_rule()) for model in models
    ]


def measure_inverse(
    inverse: Inverse, models: Sequence[Recommender], split: Split, metrics: tuple[Metric, ...], threads: int
) -> list[Measured]:
    """Measure models of one inverse from one pass of scores for each recency.

    The inverse is used up: its array becomes the weights.

    Parameters
    ----------
    models : each `measured_together`, of the recipe and penalties of the inverse
    """
    heads = {id(model): model.formula().head for model in cast("Sequence[InverseModel]", models)}
    thetas = {name: inverse.solved.head(head)[0] for name, head in heads.items()}
    weights = inverse.into_shared_weights(threads)
    values: dict[int, Measured] = {}
    for recency, same in by_recency(models).items():
        factors = np.array([thetas[id(model)] for model in same])
        measured = measure_heads(weights, factors, inverse.log, split, metrics, threads, recency)
        values |= {id(model): result for model, result in zip(same, measured, strict=True)}
    return [values[id(model)] for model in models]


def measure_models(
    models: Sequence[Recommender], split: Split, metrics: tuple[Metric, ...], fit: Mapping[str, Any]
) -> tuple[Report, list[Measured]]:
    """Fit models on the train part of a split and measure each; with the report of the one fit.

    Parameters
    ----------
    models : a single model, or several that share an inverse and are `measured_together`
    fit : options of `fit`
    """
    if len(models) == 1:
        report, measured = measure_fit(models[0], split.train, split, metrics, fit)
        return report, [measured]
    key = inverse_key(models[0])
    if (
        key is None
        or any(inverse_key(model) != key for model in models)
        or not all(measured_together(model, split) for model in models)
    ):
        raise ParameterError(
            f"{', '.join(map(repr, models))} do not share one inverse; expected models with equal recipe and penalties"
        )
    inverse = Inverse(split.train, *key, **fit)
    assert inverse.report_ is not None
    return inverse.report_, measure_inverse(inverse, models, split, metrics, parallel.count(fit.get("threads")))
