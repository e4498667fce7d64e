"""What models made of one inverse share, full rank or not: the plan, the inverse, and its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from monogram.data.interactions import Interactions
from monogram.models import inverse
from monogram.models.base import Recommender
from monogram.models.heads import Formula
from monogram.models.inverse import Inverse, Solved
from monogram.models.work import Work
from monogram.planning.cost import Cost, Extra
from monogram.planning.plan import Plan
from monogram.planning.size import Size


@dataclass(kw_only=True, eq=False)
class InverseModel(Recommender):
    """A model made of one inverse (S + Λ)⁻¹: its `formula` says which one, and what is read off it."""

    updatable: ClassVar[bool] = False  # whether users can be added and forgotten without a refit

    def formula(self) -> Formula:
        """What S is, how large its penalties are, and what is read off the inverse."""
        raise TypeError(f"{type(self).__name__} must define formula(), which gives recipe, penalties and head")

    def _source(self, log: Any) -> tuple[Interactions, Any]:
        if not isinstance(log, Inverse):
            return super()._source(log)
        log.require(self.formula())
        return log.log, log

    def _data(self, log: Interactions, work: Work) -> Any:
        """The weighted data of a log."""
        return inverse.weighted_data(self.formula().recipe, log, work)

    def _tiny(self) -> Any:
        """The smallest data that compiles what a fit calls: weighted, it is of another precision."""
        return self.formula().recipe.data(inverse.tiny(), 1.0)

    def _extra(self, size: Size, work: Work) -> Extra:
        """What the fit takes beside the inverse."""
        return Extra(bytes=self.formula().recipe.copied_bytes(size.events))

    def _warm(self, work: Work) -> None:
        inverse.warm(self.formula().recipe, work.dtype)

    def _plan(self, size: Size, work: Work) -> Plan:
        return self._planned(size, work)

    def _planned(self, size: Size, work: Work, others: tuple[Cost, ...] = ()) -> Plan:
        """The plan of an inverse, with ways that need none beside it."""
        extra = self._extra(size, work)
        return inverse.plan_inverse(*self.formula().shared, size, work, extra, others, disk="disk" in self.solvers)

    def _solve(self, log: Interactions, work: Work, chosen: Cost | None = None) -> Solved:
        """Invert as planned, or plan first; then judge the inverse."""
        if chosen is None:
            chosen = self._chosen(log, work)
        return inverse.solve(*self.formula().shared, log, work, chosen)
