"""Another head for one question: the parameters that cost no factorisation, and no new array.

EDLAE and DLAE are DEQL at b = 0 and at b = 1, times a factor that changes no order: they have DEQL's b, too.
"""

from __future__ import annotations

from typing import Any

from monogram.engine.gram.accumulate import squares
from monogram.errors import ParameterError, one_of
from monogram.models.base import Recommender
from monogram.models.full_rank import DEQL, DLAE, EDLAE, FullRank
from monogram.models.heads import DecoupledLoss
from monogram.models.inverse import item_counts
from monogram.weights import Weights

AS_DEQL: dict[type[FullRank], float] = {EDLAE: 0.0, DLAE: 1.0}  # the b of each
COSTLY = ("l2", "dropout", "user_power")  # another value is another inverse


def parameters(model: Recommender) -> dict[str, Any]:
    """The parameters that `weights` can change, and their present values; none where the model has no such."""
    if not isinstance(model, FullRank) or model.pruning_ is not None:
        return {}
    if not model.weights_.serves_head(model.formula().head):
        return {}
    if model.formula().recipe.weighted and model.report_.unit is None:
        return {}
    own = {name: value for name, value in model.params().items() if name not in COSTLY}
    return own | ({"b": AS_DEQL[type(model)]} if _as_deql(model) else {})


def _as_deql(model: FullRank) -> bool:
    """Whether the model is a case of DEQL whose b can be changed: without dropout b changes nothing."""
    penalties = model.formula().penalties
    return (
        type(model) in AS_DEQL and penalties.dropout > 0 and model.weights_.serves_head(DecoupledLoss(penalties, b=1.0))
    )


def weights(model: Recommender, changed: dict[str, Any]) -> Weights:
    """The weights of `model.changed(**changed)`, to rounding, over the arrays that the model holds.

    For EDLAE and DLAE those of DEQL with the same l2 and dropout, and the b given.

    Parameters
    ----------
    model : fitted
    changed : some of `parameters`, with other values
    """
    own = parameters(model)
    strange = [name for name in changed if name not in own]
    if strange:
        can = one_of(strange[0], own) if own else "it has none that can"
        raise ParameterError(f"{strange[0]!r} of this {type(model).__name__} cannot be changed without a fit; {can}")
    if not changed:
        return model.weights_
    assert isinstance(model, FullRank)
    kind = DEQL if _as_deql(model) else type(model)
    head = kind(**(model.params() | changed)).formula().head
    data = model.formula().recipe.data(model.log_.matrix, model.report_.unit)
    return model.weights_.with_head(head, squares(data), item_counts(data))
