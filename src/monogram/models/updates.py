"""Exact updates of fitted full-rank models: users are added or forgotten, items added, parameters changed.

`models.change` prepares and measures an update; this module checks its arguments, applies it, or refits in its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from monogram import ranking
from monogram.data import changes
from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.data.spans import Span
from monogram.engine.inverse import local, matrix_free
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Indices
from monogram.errors import DataError, Message, NumericalError, Option, ParameterError, UnknownIdError
from monogram.models import change
from monogram.models.base import Recommender
from monogram.models.change import UpdateOptions
from monogram.models.context import FitInputs, FitOptions
from monogram.models.local import update_local
from monogram.models.local import warm as warm_local
from monogram.models.registry import names_of

if TYPE_CHECKING:
    from monogram.models.full_rank import FullRank

Model = TypeVar("Model", bound="FullRank")


def add_users(model: Model, log: Any, new_items: bool, options: UpdateOptions) -> Model:
    """See `FullRank.add_users`."""
    check(model)
    more = as_interactions(log)
    return _update(model, changes.with_users(_catalogue(model.log_, more, new_items), more), options)


def _catalogue(log: Interactions, more: Interactions, new_items: bool) -> Interactions:
    """The log with the new items of another log appended to its catalogue; an error without `new_items`."""
    ids = more.items.ids(np.unique(more.matrix.indices))
    unknown = ranking.unknown_ids(ids, log.items.index(ids))
    if unknown and not new_items:
        raise UnknownIdError(
            Message(
                f"the log has {len(unknown):,} items this model does not know: {_first_ids(unknown)}; add them with ",
                Option("new_items", "True"),
            )
        )
    return changes.with_items(log, unknown) if unknown else log


def forget_users(model: Model, ids: Any, options: UpdateOptions) -> Model:
    """See `FullRank.forget_users`."""
    check(model)
    rows = _user_rows(model, ids)
    return _update(model, changes.without_users(model.log_, rows), options) if len(rows) else model


def exchange_users(model: Model, ids: Any, log: Any, options: UpdateOptions) -> Model:
    """Forget users and add another log in one update; new items are added, and a forgotten user may be in the log."""
    check(model)
    more = as_interactions(log)
    return _update(model, changes.exchanged(_catalogue(model.log_, more, True), _user_rows(model, ids), more), options)


def _user_rows(model: FullRank, ids: Any) -> Indices:
    """The rows of the users to forget; an error names ids that are not in the log."""
    users = ranking.id_list(ids, "the list of users")
    rows = model.log_.users.index(users)
    unknown = ranking.unknown_ids(users, rows)
    if unknown:
        raise UnknownIdError(
            f"{len(unknown):,} of the users to forget are not in this model's log: {_first_ids(unknown)}"
        )
    return np.unique(rows)


def add_items(model: Model, ids: Any, options: UpdateOptions) -> Model:
    """See `FullRank.add_items`."""
    check(model)
    items = ranking.id_list(ids, "the list of items")
    known = [id_ for id_, index in zip(items, model.log_.items.index(items), strict=True) if index >= 0]
    if known:
        raise ParameterError(
            f"{len(known):,} of the items are in the catalogue already: {_first_ids(known)}; give new items only"
        )
    if not items:
        return model
    after = changes.with_items(model.log_, items)
    return _update(model, changes.Changed(after, np.zeros(0, np.int64), 0), options)


def _first_ids(ids: list[Any]) -> str:
    """The first five ids, for a message."""
    return ", ".join(repr(ranking.shorten(id_)) for id_ in ids[:5]) + (", …" if len(ids) > 5 else "")


def check(model: Recommender) -> None:
    """Raise ParameterError, with the reason, where a model cannot be updated."""
    _, weights = model.fitted()
    name = type(model).__name__
    if model.pruning_ is not None:
        raise ParameterError(
            f"this {name} was pruned, and pruned weights contain no inverse; update the model first, then prune it"
        )
    if not model.updatable or weights.solver is None:
        raise ParameterError(f"{name} cannot be changed without a refit; models that can: {names_of('updatable')}")
    formula = cast("FullRank", model).formula()
    if formula.recipe.weighted and model.report_.unit is None:
        raise ParameterError(f"this {name} has no report_.unit, the factor of its user weights: fit it again")
    if weights.solver != matrix_free.NAME and not weights.serves_head(formula.head):
        raise ParameterError(f"this {name} was saved without the diagonal of C, which a change needs: fit it again")


def _update(model: Model, after: changes.Changed, options: UpdateOptions) -> Model:
    """Update a model in place to a changed log, or refit it; after an error the model is as before."""
    _require_times(model, after.log)
    lost = _lost(model.log_, after.log)
    model = _carry_out(model, after, options)
    if lost:
        model.report_ = replace(model.report_, note="; ".join(filter(None, [model.report_.note, lost])))
    return model


def _carry_out(model: Model, after: changes.Changed, options: UpdateOptions) -> Model:
    """Update a model whose new log has what the model needs, or refit it."""
    if model.weights_.solver == matrix_free.NAME:
        return _refit(model, after.log, "the weights of a matrix-free model are its log, which changed", options)
    if model.weights_.solver == local.NAME:
        return _update_local(model, after, options)
    with parallel.blas_threads(options.threads), memory_.Peak() as peak:
        try:
            update, report = change.prepare(model, after, options)
        except (change.CostlierThanRefit, NumericalError) as reason:
            if options.on_drift != "refit" and isinstance(reason, NumericalError):
                raise
            return _refit(model, after.log, str(reason), options)
        try:
            model.adopt(after.log, update.weights(), report)
        except BaseException:
            if update.in_place:
                model.unfit()  # some of the weights are overwritten: they belong to neither log
            raise
    model.report_ = replace(report, peak_bytes=peak.bytes, planned_bytes=update.bytes)
    return model


def _lost(before: Interactions, log: Interactions) -> str:
    """What the log of a model loses in an update, as a note; an empty text where nothing is lost."""
    if before.times is not None and log.times is None:
        kept = ", their order is kept" if log.has_order else ""
        return f"the new events have no times: the times of all events were dropped{kept}"
    if before.has_order and not log.has_order:
        return "the new events have no order: the order of all events was dropped"
    return ""


def _require_times(model: FullRank, log: Interactions) -> None:
    """Raise DataError where a time kernel or a recency needs times or an order that the changed log does not have."""
    recipe, recency = model.formula().recipe, model.recency_rule()
    if recipe.timed:
        setting = f"decay = {recipe.decay:g} in units of {recipe.decay_unit}"
        _require(model, log, recipe.decay_unit, setting, "fit a model with decay = 0")
    had = model.log_.has_order if recency.span.in_events else model.log_.times is not None
    if recency.active and had:
        _require(model, log, recency.span, recency.setting, f"fit a model without {recency.setting.partition(' ')[0]}")


def _require(model: FullRank, log: Interactions, span: Span, setting: str, otherwise: str) -> None:
    """Raise DataError where a changed log does not have the times or the order in which a span is measured."""
    what = "order" if span.in_events else "times"
    if log.has_order if span.in_events else log.times is not None:
        return
    had = model.log_.has_order if span.in_events else model.log_.times is not None
    which = "the new events have" if had else "the log of this model has"
    by_rows = span.in_events and model.log_.times is None  # beside times, an order alone would drop the times
    raise DataError(
        Message(
            f"this {type(model).__name__} has {setting}, but {which} no {what}: read them with ",
            Option("time", '"order"') if by_rows else Option("time"),
            f", or {otherwise}; this one was not changed",
        )
    )


def _update_local(model: Model, after: changes.Changed, options: UpdateOptions) -> Model:
    """Update a model of local regressions; most of its columns are solved again only by a refit."""
    warm_local(model.formula().recipe, model.report_.dtype)
    with memory_.Peak() as peak:
        updated = update_local(model, after, options)
    if isinstance(updated, str):
        if options.on_large == "refit":
            return _refit(model, after.log, updated, options)
        raise ParameterError(f"{updated}: fit the model again on the changed log; this one was not changed")
    weights, report = updated
    model.adopt(after.log, weights, replace(report, peak_bytes=peak.bytes))
    return model


def _refit(model: Model, log: Interactions, reason: str, options: UpdateOptions) -> Model:
    """Refit in place of an update; the model keeps its state until the fit has succeeded."""
    fresh = type(model)(**model.params())
    state, solver = model.weights_.update_state, model.weights_.solver
    keep_gram = state is not None and state.gram is not None
    fresh.fit_from(
        FitInputs(log, unit=model.report_.unit),
        FitOptions.parse(
            dtype=model.report_.dtype,
            memory=options.memory,
            threads=options.threads,
            solver=solver or "auto",
            keep_gram=keep_gram,
            neighbours=_neighbours(model),
        ),
    )
    followed = "" if options.penalties == "followed" else "; the penalties were followed"
    note = "; ".join(filter(None, [f"refit: {reason}{followed}", fresh.report_.note]))
    report = replace(fresh.report_, note=note)
    model.adopt(fresh.log_, fresh.weights_, report)
    return model


def changed(model: Model, parameters: dict[str, Any], memory: int | float | str | None, threads: int | None) -> Model:
    """See `FullRank.changed`."""
    check(model)
    present = model.params()
    unknown = [name for name in parameters if name not in present]
    if unknown:
        raise ParameterError(f"{type(model).__name__} has no parameter {unknown[0]!r}; it has {', '.join(present)}")
    fresh = type(model)(**(present | parameters))
    solver = model.weights_.solver or "auto"
    options: dict[str, Any] = {"memory": memory, "threads": threads, "solver": solver}
    return fresh.fit(model, dtype=model.report_.dtype, neighbours=_neighbours(model), **options)


def _neighbours(model: Recommender) -> int | None:
    """The number of candidates of a local fit, as an argument of another fit; None for all other models."""
    return model.report_.neighbours if model.weights_.solver == local.NAME else None
