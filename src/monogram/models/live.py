"""Other parameters for one request: those of a fitted model that can be changed without a factorisation.

Such a parameter changes the head alone: models that differ in it have equal recipe and penalties, so that they share
an inverse. EDLAE and DLAE are DEQL at b = 0 and at b = 1, times a factor that changes no order: they have its b, too.
`recency` and `half_life` change no weights at all, but those of the events of a history: every model whose scores
depend on the history has them, where the order of its log is known.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from monogram.engine.gram.accumulate import squares
from monogram.errors import ParameterError, one_of
from monogram.models.base import COMMON, Recommender
from monogram.models.full_rank import DEQL, FullRank
from monogram.models.heads import DecoupledLoss
from monogram.models.inverse import item_counts
from monogram.ranking import Recency
from monogram.weights import Weights
from monogram.weights.common import Head

RECENCY = ("recency", "half_life")


def parameters(model: Recommender) -> dict[str, Any]:
    """The parameters that can be changed for one request, and their present values; empty where there are none.

    `weights` gives the weights under changed parameters, and `recency` the rule by which histories are weighted.
    """
    return _of_head(model) | _of_history(model)


def recency(model: Recommender, changed: dict[str, Any]) -> Recency:
    """How the events of a history are weighted by their age, under changed parameters.

    A recency that is given takes the place of the model's half_life, and a half_life that of its recency. The unit of
    age is the model's.

    Parameters
    ----------
    model : fitted
    changed : some of `parameters`, with other values; those of the head have no effect here
    """
    given = {name: value for name, value in changed.items() if name in RECENCY}
    if not given:
        return model.recency_rule()
    _check_names(model, given)
    settings: dict[str, Any] = {name: getattr(model, name) for name in RECENCY}
    if given.get("half_life") is not None:
        settings["recency"] = 0.0
    elif "recency" in given:
        settings["half_life"] = None
    return type(model)(**(model.params() | settings | given)).recency_rule()


def _of_history(model: Recommender) -> dict[str, Any]:
    """The parameters that weight the events of a history."""
    if not model.log_.has_order or model.weights_.kind == "fixed":
        return {}
    return {name: getattr(model, name) for name in RECENCY}


def _of_head(model: Recommender) -> dict[str, Any]:
    """The parameters that change the head alone."""
    if not model.updatable or model.pruning_ is not None:
        return {}
    full = cast("FullRank", model)
    recipe, _, head = full.formula()
    if not full.weights_.serves_head(head) or (recipe.weighted and full.report_.unit is None):
        return {}
    common = {field.name for kind in COMMON for field in dataclasses.fields(kind)}
    fields = [field for field in dataclasses.fields(full) if field.name not in common]
    own = {field.name: getattr(full, field.name) for field in fields if _in_head(full, field)}
    repeat = {"repeat": own.pop("repeat")} if "repeat" in own else {}
    return own | ({"b": full.deql_b} if _as_deql(full) else {}) | repeat


def _in_head(model: FullRank, field: Any) -> bool:
    """Whether another value of a parameter leaves recipe and penalties as they are."""
    value = getattr(model, field.name)
    if isinstance(value, bool):
        others: list[Any] = [not value]
    elif isinstance(value, int):
        others = [value + 1, value - 1]
    elif isinstance(value, float):
        others = [value + step for step in (0.125, -0.125, 1.0, -1.0)]
    else:
        return False
    for other in others:
        try:
            changed = type(model)(**(model.params() | {field.name: other}))
        except ParameterError:  # outside the bounds of the parameter
            continue
        return changed.formula().shared == model.formula().shared
    return False


def _as_deql(model: FullRank) -> bool:
    """Whether the model is a case of DEQL whose b can be changed: without dropout b changes nothing."""
    penalties = model.formula().penalties
    return (
        model.deql_b is not None
        and penalties.dropout > 0
        and model.weights_.serves_head(DecoupledLoss(penalties, b=1.0))
    )


def weights(model: Recommender, changed: dict[str, Any]) -> Weights:
    """The weights of `model.changed(**changed)`, to rounding, over the arrays that the model holds.

    For EDLAE and DLAE those of DEQL with the same l2, dropout and repeat, and the b given. `recency` and `half_life`
    change no weights.

    Parameters
    ----------
    model : fitted
    changed : some of `parameters`, with other values
    """
    _check_names(model, changed)
    changed = {name: value for name, value in changed.items() if name not in RECENCY}
    if not changed:
        return model.weights_
    full = cast("FullRank", model)
    data = full.formula().recipe.data(full.log_.matrix, full.report_.unit)
    return full.weights_.with_head(_changed_head(full, changed), squares(data), item_counts(data))


def _check_names(model: Recommender, changed: dict[str, Any]) -> None:
    own = parameters(model)
    unknown = [name for name in changed if name not in own]
    if unknown:
        choices = one_of(unknown[0], own) if own else "it has none that can"
        if unknown[0] in RECENCY and not model.log_.has_order:
            choices = "the order of events is not known: its log has no times"
        raise ParameterError(
            f"{unknown[0]!r} of this {type(model).__name__} cannot be changed without a fit; {choices}"
        )


def _changed_head(model: FullRank, changed: dict[str, Any]) -> Head:
    if _as_deql(model) and "b" in changed:
        penalties = model.formula().penalties
        settings = {"repeat": model.repeat} | changed
        return DEQL(l2=penalties.l2, dropout=penalties.dropout, **settings).formula().head
    return type(model)(**(model.params() | changed)).formula().head
