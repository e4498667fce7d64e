"""Another head for one question: the parameters that cost no factorisation, and no new array."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from monogram.engine.gram import squares
from monogram.errors import ParameterError, one_of
from monogram.models import updates
from monogram.models.base import Recommender
from monogram.models.full_rank import FullRank
from monogram.weights import Dense, Dual, Free, Weights
from monogram.weights.rescaled import Rescaled


def parameters(model: Recommender) -> dict[str, Any]:
    """The parameters that `weights` can change, and their present values; none where the model has no such."""
    if not isinstance(model, FullRank) or model.pruning_ is not None:
        return {}
    if not isinstance(model.weights_, Free) and model._kept is None:
        return {}
    return {name: value for name, value in model.params().items() if name not in ("l2", "dropout")}


def weights(model: Recommender, changed: dict[str, Any]) -> Weights:
    """The weights of `model.changed(**changed)`, to rounding, over the arrays that the model holds.

    Parameters
    ----------
    model : fitted
    changed : some of `parameters`, with other values
    """
    own = parameters(model)
    strange = [name for name in changed if name not in own]
    if strange:
        can = one_of(strange[0], own) if own else "it has none that can"
        raise ParameterError(
            f"{strange[0]!r} of this {type(model).__name__} cannot be changed without a factorisation; {can}"
        )
    if not changed:
        return model.weights_
    assert isinstance(model, FullRank)
    return _under(model, type(model)(**(model.params() | changed)))


def _under(model: FullRank, other: FullRank) -> Weights:
    held = model.weights_
    if isinstance(held, Free):
        free = copy.copy(held)
        free.head = other._head
        return free
    kept, d = model._kept, squares(model.log_.matrix)
    theta, delta = other._head(kept.c, kept.penalties, d)
    if isinstance(held, Dual):
        dual = copy.copy(held)
        dual.scale, dual.own = -theta / (kept.c * kept.penalties), theta + delta
        return dual
    assert isinstance(held, Dense)
    before = updates._usable(model, kept.scale)
    return Rescaled(held, np.asarray((-theta / kept.c) / before), delta)
