"""The plan of a fit: the cost of every solver, the chosen solver, and the reason of the choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from monogram.engine.runtime.memory import show
from monogram.errors import MemoryBudgetError, StorageError
from monogram.planning import refusal
from monogram.planning.cost import Alternative, Cost
from monogram.planning.size import Size


@dataclass(frozen=True)
class Plan:
    """The cost of a fit; prints as a table of solvers.

    Attributes
    ----------
    users, items, events : size of the log
    dtype : working precision
    budget : bytes that the fit may take
    chosen : cost of the solver that is used
    costs : of every solver that the model has
    why : reason of the choice; empty where the solver was named
    disk_space : bytes that files may take; None where no folder for them was named
    alternatives : where the fit is over its budget, other models that fit
    """

    users: int
    items: int
    events: int
    dtype: str
    budget: int
    chosen: Cost
    costs: tuple[Cost, ...]
    why: str = ""
    disk_space: int | None = None
    alternatives: tuple[Alternative, ...] = ()

    @classmethod
    def of(
        cls,
        size: Size,
        chosen: Cost,
        costs: tuple[Cost, ...] = (),
        *,
        dtype: str,
        budget: int,
        why: str = "",
        disk_space: int | None = None,
    ) -> Plan:
        """The plan for a log of some size; without `costs`, the chosen solver is the only one."""
        shape = (size.users, size.items, size.events)
        return cls(*shape, dtype, budget, chosen, costs or (chosen,), why, disk_space)

    @property
    def fits(self) -> bool:
        """Whether the chosen solver stays within the memory budget, and its files within the free disk space."""
        return not self._excess(self.chosen)

    def _excess(self, cost: Cost) -> str:
        """Which limit a solver exceeds, for the table; empty where the solver fits."""
        if cost.bytes > self.budget:
            return "over budget"
        return "disk too small" if self.disk_space is not None and cost.disk > self.disk_space else ""

    def require(self) -> Plan:
        """The plan itself if it fits; else a MemoryBudgetError that names what fits, or a StorageError."""
        if self.chosen.bytes > self.budget:
            raise MemoryBudgetError(refusal.over_memory(self))
        if not self.fits:
            raise StorageError(refusal.over_disk(self))
        return self

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each solver."""
        return [self._row(cost) for cost in self.costs]

    def _row(self, cost: Cost) -> dict[str, Any]:
        row = {
            "solver": cost.solver,
            "chosen": cost == self.chosen,
            "fits": not self._excess(cost),
            "bytes": cost.bytes,
            "disk": cost.disk,
            "flops": cost.flops,
            "seconds": cost.seconds,
        }
        if cost.flops_per_history:
            row |= {"flops_a_history": cost.flops_per_history, "seconds_a_history": cost.seconds_per_history}
        return row

    def __str__(self) -> str:
        width = max(8, *(len(cost.solver) for cost in self.costs))
        with_files = any(cost.disk for cost in self.costs)
        lines = [
            f"{self.users:,} users × {self.items:,} items, {self.events:,} events, {self.dtype}, "
            f"budget {show(self.budget)}",
            f"{'solver':{width}} {'peak':>9} {'flops':>9} {'time':>9}" + (f" {'files':>9}" if with_files else ""),
        ]
        for cost in self.costs:
            files = f" {show(cost.disk) if cost.disk else '-':>9}" if with_files else ""
            numbers = f"{show(cost.bytes):>9} {cost.flops:>9.2g} {duration(cost.seconds):>9}{files}"
            lines.append(f"{cost.solver:{width}} {numbers}{self._remarks(cost)}")
        return "\n".join(lines + [self.why] * bool(self.why))

    def _remarks(self, cost: Cost) -> str:
        """The remarks after the numbers of a solver in the table."""
        remarks = (
            "← chosen" if cost == self.chosen else "",
            self._excess(cost),
            "only in a folder you name" if cost.disk and self.disk_space is None else "",
            f"and {duration(cost.seconds_per_history)} a history" if cost.seconds_per_history else "",
        )
        return "".join(f"  {remark}" for remark in remarks if remark)


def duration(seconds: float) -> str:
    """Seconds in a readable unit: 0.31 s, 12 min, 2.5 h, 40 years."""
    if seconds < 100:
        return f"{seconds:.2g} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 3.6e7 else f"{seconds / 3.15e7:.2g} years"
