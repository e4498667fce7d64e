"""What models made of one inverse share, full rank or not: the plan, the inverse, and its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from monogram.models import inverse
from monogram.models.abilities import Reading, SharedFit
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.heads import Formula
from monogram.models.inverse import Inverse
from monogram.planning.cost import Cost, Extra
from monogram.planning.plan import Plan
from monogram.planning.size import Size


@dataclass(kw_only=True, eq=False)
class InverseModel(Recommender):
    """A model made of one inverse (S + Λ)⁻¹: its `formula` says which one, and what is read off it."""

    reading: ClassVar[Reading] = "fit"  # how a model is read off an inverse that it shares, see `SharedFit`

    def formula(self) -> Formula:
        """What S is, how large its penalties are, and what is read off the inverse."""
        raise TypeError(f"{type(self).__name__} must define formula(), which gives recipe, penalties and head")

    def shared_fit(self) -> SharedFit:
        """The inverse of its recipe and penalties: models with equal ones share one factorisation."""
        return SharedFit("inverse", self.formula().shared, self.reading)

    def inputs(self, source: Any) -> FitInputs:
        """A log, an `Inverse` of one, or a fitted model whose weights hold one."""
        if isinstance(source, Recommender):
            source = source.inverse()
        return FitInputs(source.log, source) if isinstance(source, Inverse) else super().inputs(source)

    def _extra(self, size: Size, options: FitOptions) -> Extra:
        """What the fit takes beside the inverse."""
        return Extra(bytes=self.formula().recipe.copied_bytes(size.events))

    def _warm(self, options: FitOptions) -> None:
        inverse.warm(self.formula().recipe, options.dtype)

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        return self.plan_inverse(size, options)

    def plan_inverse(self, size: Size, options: FitOptions, others: tuple[Cost, ...] = ()) -> Plan:
        """The plan of an inverse, with ways that need none beside it."""
        extra = self._extra(size, options)
        return inverse.plan_inverse(*self.formula().shared, size, options, extra, others, disk="disk" in self.solvers)
