"""`InverseModel`, the base class of models that are computed from one inverse, of full or of low rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from monogram.engine.runtime import parallel
from monogram.models import expansion, inverse
from monogram.models.abilities import Reading, SharedFit
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.heads import Formula
from monogram.models.inverse import Inverse
from monogram.models.recipe import GramRecipe
from monogram.planning.cost import Cost, Extra
from monogram.planning.plan import Plan
from monogram.planning.size import Size


@dataclass(kw_only=True, eq=False)
class InverseModel(Recommender):
    """A model that is computed from one inverse (S + Λ)⁻¹; `formula` defines S, Λ and the weights."""

    reading: ClassVar[Reading] = "fit"  # how the weights follow from a shared inverse; see `SharedFit`

    def formula(self) -> Formula:
        """The recipe of S, the penalties, and the head."""
        raise TypeError(f"{type(self).__name__} must define formula(), which returns recipe, penalties and head")

    def shared_fit(self) -> SharedFit:
        """The inverse of the model's recipe and penalties."""
        return SharedFit("inverse", self.formula().shared, self.reading)

    def expand(self, *, memory: int | float | str | None = None, threads: int | None = None) -> Self:
        """Replace the weights of a dual fit by W, a square array over the items: the model then ranks as a primal one.

        Ranks, explanations and updates stay as they were, up to rounding. Both square arrays must fit in memory for a
        moment; `save(path, expand=True)` writes W to a file without that. A model that holds W is returned as it is.

        Parameters
        ----------
        memory, threads : as for `fit`; the memory is that in addition to the present weights
        """
        return expansion.expand(self, memory, parallel.count(threads))

    def inputs(self, source: Any) -> FitInputs:
        """Inputs from a log, from an `Inverse` of a log, or from a fitted model whose weights contain an inverse."""
        if isinstance(source, Recommender):
            source = source.inverse(seal=False)  # it does not outlive the fit
        return FitInputs(source.log, source) if isinstance(source, Inverse) else super().inputs(source)

    def _gram_recipe(self) -> GramRecipe:
        return self.formula().recipe

    def _extra(self, size: Size, options: FitOptions) -> Extra:
        """The memory and work of the fit in addition to the inverse."""
        return Extra(bytes=self.formula().recipe.copied_bytes(size.events))

    def _warm(self, options: FitOptions) -> None:
        inverse.warm(self.formula().recipe, options.dtype)
        if options.expand:
            expansion.warm(self.formula().recipe, options.dtype)

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        return self.plan_inverse(size, options)

    def plan_inverse(self, size: Size, options: FitOptions, others: tuple[Cost, ...] = ()) -> Plan:
        """The plan of the inverse; `others` are the costs of solvers that need no inverse."""
        extra = self._extra(size, options)
        return inverse.plan_inverse(*self.formula().shared, size, options, extra, others, disk="disk" in self.solvers)
