"""Expansion: the weights W of a model that was fitted by the dual solver, in memory or straight into its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from monogram.engine.inverse.certificate import certificate
from monogram.engine.inverse.dual import dual_inverse
from monogram.engine.inverse.expand import expand_rows
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime.arrays import Csr
from monogram.errors import Message, Option, ParameterError
from monogram.models.context import FitInputs, FitOptions
from monogram.models.inverse import check_accuracy, exact_enough, two_by_two
from monogram.models.recipe import GramRecipe
from monogram.models.registry import names_of
from monogram.models.report import EXPANDED, ReportBuilder
from monogram.planning import inverse_costs
from monogram.weights import Dense, Dual, TwoStepDual, Weights
from monogram.weights.dual import Expansion

if TYPE_CHECKING:
    from monogram.models.base import Recommender
    from monogram.models.inverse_model import InverseModel

SLOW = 0.005  # seconds for one new history above which a server expands dual weights: from about 3,500 users, float32
Model = TypeVar("Model", bound="InverseModel")


def check(model: Recommender, expand: bool | str, solver: str, cluster: Any) -> bool | str:
    """The argument `expand` of a fit; ParameterError where it is no choice, or where the fit is not by the dual."""
    if expand not in (False, True, "file") or not isinstance(expand, bool | str):
        raise ParameterError(f"expand = {expand!r}; expected False, True or 'file'")
    if not expand:
        return False
    if not model.expands:
        raise ParameterError(
            Message(
                Option("expand", "True"),
                f", but {type(model).__name__} has no dual weights to expand; leave it out, or use one of "
                f"{names_of('expands')}",
            )
        )
    if cluster is not None or solver not in ("auto", "dual"):
        where = "a cluster" if cluster is not None else f"solver={solver!r}"
        raise ParameterError(
            Message(
                Option("expand", "True"),
                f" with {where}, which computes no dual inverse; leave it out, or use solver='auto' or 'dual' on one "
                "machine, without ",
                Option("keep_gram", "True"),
            )
        )
    return expand


def after_fit(
    model: Recommender, weights: Weights, inputs: FitInputs, options: FitOptions, report: ReportBuilder
) -> Weights:
    """The weights of a fit, expanded where the options ask for it and the weights are dual.

    With "file" only weights that cannot be expanded row by row are expanded here.
    """
    wanted = options.expand is True or (options.expand == "file" and weights.expansion == "whole")
    if not wanted or weights.expansion is None:
        return weights
    return _expanded(model, weights, inputs.log.matrix, options.budget - weights.nbytes, options.threads, report)


def expand(model: Model, memory: int | float | str | None, threads: int) -> Model:
    """See `InverseModel.expand`."""
    weights, budget = _expandable(model), memory_.parse(memory)
    if isinstance(weights, Dense):
        return model
    before = model.report_
    report = ReportBuilder(dtype=before.dtype, threads=threads, residual=before.residual, error=before.error)
    report.unit = before.unit
    dense = _expanded(model, weights, model.log_.matrix, budget, threads, report)
    after = replace(before, solver=report.solver, threads=threads, residual=report.residual, error=report.error)
    model.adopt(model.log_, dense, replace(after, seconds=before.seconds | report.seconds))
    return model


def _expandable(model: Recommender) -> Weights:
    """The weights of a fitted model, if they are W or can be expanded to W; else a ParameterError."""
    weights = model.fitted()[1]
    if weights.expansion is None and not isinstance(weights, Dense):
        raise ParameterError(
            f"this {type(model).__name__} has weights of kind {weights.kind!r}, which cannot be expanded; expected a "
            "model that was fitted with solver='dual'"
        )
    return weights


def _expanded(
    model: Recommender, weights: Weights, matrix: Csr, budget: int, threads: int, report: ReportBuilder
) -> Dense:
    """Dual weights as W; where the inverse can be read from W, its residual and error are measured and checked."""
    dense = weights.expand(budget=budget, threads=threads, stage=report.tick)
    report.solver = EXPANDED
    report.tick("expand")
    state = dense.update_state
    readable = state is not None and state.scale is not None and np.isfinite(state.scale).all() and state.scale.all()
    if state is not None and readable:
        warned = not exact_enough(report)
        data = cast("InverseModel", model).formula().recipe.data(matrix, report.unit)
        report.residual, report.error = certificate(data, state.penalties, dense.read_inverse(data))
        if not warned or not np.isfinite(report.residual):
            check_accuracy(report)
        report.tick("residual")
    return dense


def save(model: Recommender, path: str | Path, extra: dict[str, Any] | None, threads: int) -> None:
    """Write a model with its weights expanded; the model does not change."""
    from monogram.models import files

    weights = _expandable(model)
    if isinstance(weights, Dual):
        files.save(model, path, extra=extra, expansion=Expansion(weights, threads))
        return
    if isinstance(weights, TwoStepDual):
        fresh = type(model)(**model.params())
        dense = weights.expand(budget=memory_.parse(None), threads=threads)
        fresh.adopt(model.log_, dense, replace(model.report_, solver=EXPANDED))
        model = fresh
    files.save(model, path, extra=extra)


def warm(recipe: GramRecipe, dtype: str) -> None:
    """Compile the kernels of an expansion."""
    small = dual_inverse(recipe.data(two_by_two(), 1.0), np.ones(2), dtype=dtype)
    expand_rows(small.inverse, small.by_item, np.ones(2), np.ones(2), np.empty((2, 2), dtype))


def slow(model: Recommender) -> bool:
    """Whether the model has dual weights that take longer than `SLOW` to rank for a new history."""
    weights = model.weights_
    if weights.expansion is None:
        return False
    itemsize = np.dtype(model.report_.dtype).itemsize
    return inverse_costs.dual_seconds_per_history(model.log_.n_users, itemsize) > SLOW
