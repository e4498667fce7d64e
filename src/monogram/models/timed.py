"""The parameters of the time kernel, for models whose Gram matrix may depend on the order of events."""

from __future__ import annotations

from dataclasses import dataclass

from monogram.data.spans import EVENT, parse_span
from monogram.models.parameters import param
from monogram.models.recipe import GramRecipe
from monogram.models.search_axes import DECAY


@dataclass(kw_only=True, eq=False)
class TimeKernelParameters:
    """Parameters of a recipe with a time kernel; `GramRecipe` has the formula."""

    decay: float = param(
        0.0,
        "power with which a pair of events counts less the further apart they are; 0: none",
        low=0,
        high=100,
        search=DECAY,
    )
    decay_unit: str = param(str(EVENT), "unit of that distance: '1 event', or a duration such as '7d'", span=True)
    floor: float = param(0.0, "what a pair counts at a great distance", low=0, high=1, below=True)

    def recipe(self, user_power: float = 0.0) -> GramRecipe:
        """The recipe of S with these parameters."""
        return GramRecipe(user_power, self.decay, parse_span(self.decay_unit, "decay_unit"), self.floor)
