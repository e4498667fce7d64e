"""Updates of full-rank models: add and forget users, add items, change parameters, without a refit where that is exact.

An update is prepared and measured in `models.change` before anything is changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from monogram import ranking
from monogram.data import changes
from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine.inverse import matrix_free
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Indices
from monogram.errors import NumericalError, ParameterError, UnknownIdError
from monogram.models import change
from monogram.models.base import Recommender
from monogram.models.change import UpdateOptions
from monogram.models.context import FitInputs, FitOptions

if TYPE_CHECKING:
    from monogram.models.full_rank import FullRank

Model = TypeVar("Model", bound="FullRank")


def add_users(model: Model, log: Any, new_items: bool, how: UpdateOptions) -> Model:
    """See `FullRank.add_users`."""
    check(model)
    more = as_interactions(log)
    return _update(model, changes.with_users(_catalogue(model.log_, more, new_items), more), how)


def _catalogue(log: Interactions, more: Interactions, new_items: bool) -> Interactions:
    """The log over a catalogue that has the items of another one."""
    used = more.items.ids(np.unique(more.matrix.indices))
    unknown = [one for one, place in zip(used, log.items.index(used), strict=True) if place < 0]
    if unknown and not new_items:
        raise UnknownIdError(
            f"the log has {len(unknown):,} items this model does not know: {_few(unknown)}; "
            "add them with add_items, or in one step with new_items=True"
        )
    return changes.with_items(log, unknown) if unknown else log


def forget_users(model: Model, ids: Any, how: UpdateOptions) -> Model:
    """See `FullRank.forget_users`."""
    check(model)
    rows = _known(model, ids)
    return _update(model, changes.without_users(model.log_, rows), how) if len(rows) else model


def exchange_users(model: Model, ids: Any, log: Any, how: UpdateOptions) -> Model:
    """Forget users, then learn from more events, new items too, as one change; a forgotten user may come again."""
    check(model)
    more = as_interactions(log)
    return _update(model, changes.exchanged(_catalogue(model.log_, more, True), _known(model, ids), more), how)


def _known(model: FullRank, ids: Any) -> Indices:
    """Rows of users to forget."""
    asked = ranking.id_list(ids, "the list of users")
    rows = model.log_.users.index(asked)
    unknown = [one for one, row in zip(asked, rows, strict=True) if row < 0]
    if unknown:
        raise UnknownIdError(f"{len(unknown):,} of the users to forget are not in this model's log: {_few(unknown)}")
    return np.unique(rows)


def add_items(model: Model, ids: Any, how: UpdateOptions) -> Model:
    """See `FullRank.add_items`."""
    check(model)
    asked = ranking.id_list(ids, "the list of items")
    known = [one for one, place in zip(asked, model.log_.items.index(asked), strict=True) if place >= 0]
    if known:
        raise ParameterError(f"{len(known):,} of the items are in the catalogue already: {_few(known)}")
    if not asked:
        return model
    after = changes.with_items(model.log_, asked)
    return _update(model, changes.Changed(after, np.zeros(0, np.int64), 0), how)


def _few(ids: list[Any]) -> str:
    return ", ".join(repr(ranking.shorten(one)) for one in ids[:5]) + (", …" if len(ids) > 5 else "")


def check(model: Recommender) -> None:
    """Refuse a model that cannot be updated, with the reason."""
    _, weights = model.fitted()
    name = type(model).__name__
    if model.pruning_ is not None:
        raise ParameterError(f"this {name} was pruned: what is left is no inverse. Change the whole one, then prune it")
    if not model.updatable or weights.solver is None:
        raise ParameterError(
            f"{name} cannot be changed without a refit; only the full-rank models (EASE, DLAE, EDLAE, DEQL, Tempered) "
            "can"
        )
    formula = cast("FullRank", model).formula()
    if formula.recipe.weighted and model.report_.unit is None:
        raise ParameterError(f"this {name} does not know the factor of its users' weights (report_.unit): fit it again")
    if weights.solver != matrix_free.NAME and not weights.serves_head(formula.head):
        raise ParameterError(f"this {name} was saved without what a change needs (its diagonal of C): fit it again")


def _update(model: Model, after: changes.Changed, how: UpdateOptions) -> Model:
    """The model of the log after a change, in place of the model before; or an error, and nothing changed."""
    if model.weights_.solver == matrix_free.NAME:
        return _refit(model, after.log, "without a square array a model is its log, which is what changed", how)
    with parallel.blas_threads(how.threads), memory_.Peak() as peak:
        try:
            ready, report = change.prepare(model, after, how)
        except (change.Dearer, NumericalError) as reason:
            if how.on_drift != "refit" and isinstance(reason, NumericalError):
                raise
            return _refit(model, after.log, str(reason), how)
        try:
            model.adopt(after.log, ready.weights(), report)
        except BaseException:
            if ready.in_place:
                model.unfit()  # half of the weights are new: no model is better than a wrong one
            raise
    model.report_ = replace(report, peak_bytes=peak.bytes, planned_bytes=ready.bytes)
    return model


def _refit(model: Model, log: Interactions, why: str, how: UpdateOptions) -> Model:
    """A refit in place of an update: the model before stays until the new one is there."""
    fresh = type(model)(**model.params())
    state, solver = model.weights_.update_state, model.weights_.solver
    keep_gram = state is not None and state.gram is not None
    fresh.fit_from(
        FitInputs(log, unit=model.report_.unit),
        FitOptions.parse(
            dtype=model.report_.dtype,
            memory=how.memory,
            threads=how.threads,
            solver=solver or "auto",
            keep_gram=keep_gram,
        ),
    )
    followed = "" if how.penalties == "followed" else "; the penalties were followed"
    report = replace(fresh.report_, note=f"refit: {why}{followed}")
    model.adopt(fresh.log_, fresh.weights_, report)
    return model


def changed(model: Model, parameters: dict[str, Any], memory: int | float | str | None, threads: int | None) -> Model:
    """See `FullRank.changed`."""
    check(model)
    own = model.params()
    unknown = [name for name in parameters if name not in own]
    if unknown:
        raise ParameterError(f"{type(model).__name__} has no parameter {unknown[0]!r}; it has {', '.join(own)}")
    fresh = type(model)(**(own | parameters))
    solver = model.weights_.solver or "auto"
    return fresh.fit(model, dtype=model.report_.dtype, memory=memory, threads=threads, solver=solver)
