"""The choice among the solvers of an inverse or of a spectrum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from monogram.engine.inverse.matrix_free import NAME as MATRIX_FREE
from monogram.engine.runtime.memory import show
from monogram.errors import ParameterError
from monogram.planning import inverse_costs, lowrank_costs
from monogram.planning.cost import Cost, Extra
from monogram.planning.plan import Plan
from monogram.planning.size import Size

# Dual weights rank for a new user with m² flops, where primal ones add a few rows: the dual must be clearly cheaper.
DUAL_ADVANTAGE = 2.0
DENSE = ("primal", "dual")
NO_DUAL = "no dual: with decay it would have one row for each event"
ALL_PAIRS = "with decay each step of a history visits all pairs of events of every user"  # of a matrix-free solve


def plan_inverse(
    size: Size,
    *,
    budget: int,
    solver: str = "auto",
    dtype: str = "float32",
    threads: int = 1,
    extra: Extra = Extra(),  # noqa: B008 (frozen)
    copied: int = 0,
    penalised: bool = True,
    timed: bool = False,
    disk: bool = False,
    disk_space: int | None = None,
    others: tuple[Cost, ...] = (),
) -> Plan:
    """The plan of an inverse: dense if it fits, else on disk, else by one of the other solvers.

    Parameters
    ----------
    solver : "auto", or the name of the solver to use
    extra : what the model takes in addition to a dense inverse
    copied : bytes of a weighted copy of the data, which the solvers without a dense inverse take too
    penalised : whether there is a penalty; without a penalty only the primal solver and the disk can be used
    timed : whether S has a time kernel; then the dual cannot be used
    disk : whether the model can be fitted on disk
    disk_space : bytes that files may take; None where no folder for them was named
    others : costs of solvers that need no inverse, such as `inverse_costs.matrix_free`
    """
    solvers: tuple[str, ...] = DENSE
    if disk:
        others = (inverse_costs.on_disk(size, budget - copied, dtype=dtype, threads=threads), *others)
    others = tuple(replace(cost, bytes=cost.bytes + copied) for cost in others)
    if not penalised:  # the dual and the matrix-free solver divide by the penalties
        if solver not in ("auto", "primal", "disk"):
            raise ParameterError(f"solver={solver!r} needs l2 or dropout above 0; give one, or use solver='primal'")
        solvers, others = ("primal",), tuple(cost for cost in others if cost.solver == "disk")
    if timed:
        solvers = ("primal",)
        _require_timed(solver, ("primal", *(cost.solver for cost in others)))
    settings: dict[str, Any] = {"dtype": dtype, "threads": threads, "extra": extra, "others": others}
    plan = choose(size, budget=budget, solver=solver, solvers=solvers, disk_space=disk_space, **settings)
    if not timed or solver != "auto":
        return plan
    slow = ALL_PAIRS if plan.chosen.solver == MATRIX_FREE else ""
    return replace(plan, why="; ".join(filter(None, (plan.why, slow, NO_DUAL))))


def _require_timed(solver: str, usable: tuple[str, ...]) -> None:
    """Raise ParameterError for the dual, which cannot have a time kernel."""
    if solver == "dual":
        *most, last = usable
        expected = f"{', '.join(most)} or {last}" if most else last
        raise ParameterError(
            "solver='dual' with decay above 0: the dual has one row for each user, but with decay every event is a row "
            f"of its own; use {expected}"
        )


def choose(
    size: Size,
    *,
    budget: int,
    solver: str = "auto",
    solvers: tuple[str, ...] = DENSE,
    dtype: Any = np.float32,
    threads: int = 1,
    extra: Extra = Extra(),  # noqa: B008 (frozen)
    others: tuple[Cost, ...] = (),
    disk_space: int | None = None,
) -> Plan:
    """Choose between the primal and the dual inverse; where neither fits, the first of the others that fits.

    Parameters
    ----------
    solver : "auto", "primal", "dual", or the name of one of the others
    solvers : dense solvers that the model has
    others : costs of solvers that hold no square array in memory, in the order of preference
    disk_space : bytes that files may take; None where no folder was named, and "auto" then makes no files
    """
    dtype = np.dtype(dtype)
    dense = {name: inverse_costs.dense(name, size, dtype=dtype, threads=threads, extra=extra) for name in solvers}
    if solver == "auto":
        chosen, why = _automatic(dense, others, budget, disk_space, bool(extra.expand))
    else:
        chosen, why = (dense | {cost.solver: cost for cost in others})[solver], ""
    costs = (*dense.values(), *others)
    return Plan.of(size, chosen, costs, dtype=dtype.name, budget=budget, why=why, disk_space=disk_space)


def _automatic(
    dense: dict[str, Cost], others: tuple[Cost, ...], budget: int, disk_space: int | None, expand: bool = False
) -> tuple[Cost, str]:
    """The solver that "auto" chooses, and the reason; where nothing fits, the solver that takes the least memory."""
    smallest = min(dense.values(), key=lambda cost: cost.bytes)
    fitting = [cost for cost in dense.values() if cost.bytes <= budget]
    if len(fitting) == 2:
        return _primal_or_dual(dense["primal"], dense["dual"], expand)
    if fitting:
        return smallest, f"{smallest.solver}: the other is over the budget" if len(dense) > 1 else ""
    allowed = [cost for cost in others if cost.disk <= (disk_space or 0)]
    for cost in allowed:
        if cost.bytes <= budget:
            least = f"{show(smallest.bytes)} ({smallest.solver})"
            why = f"{cost.solver}: nothing dense fits {show(budget)}, the least is {least}"
            return cost, why + _why_not_disk(others, cost, disk_space)
    return min((smallest, *allowed), key=lambda cost: cost.bytes), ""


def _primal_or_dual(primal: Cost, dual: Cost, expand: bool) -> tuple[Cost, str]:
    """The solver to use where both fit, and the reason; expanded dual weights rank as quickly as primal ones."""
    ratio = primal.flops / dual.flops
    if expand and ratio > 1:
        return dual, f"dual, then expanded: it takes {1 / ratio:.2g} of the time of the primal"
    if expand:
        return primal, "primal: the dual and its expansion are not quicker"
    if ratio >= DUAL_ADVANTAGE:
        return dual, f"dual: {ratio:.2g} times fewer flops than primal"
    return primal, f"primal: it ranks more quickly, and the dual is not {DUAL_ADVANTAGE:g} times cheaper"


def _why_not_disk(others: tuple[Cost, ...], chosen: Cost, disk_space: int | None) -> str:
    """Why the disk was not chosen, where it could have been."""
    files = [show(cost.disk) for cost in others if cost.disk and not chosen.disk]
    if not files:
        return ""
    if disk_space is None:
        return f"; for the disk, with {files[0]} of files, name a folder (scratch)"
    return f"; the disk has {show(disk_space)} free, not {files[0]}"


def plan_spectrum(
    size: Size,
    rank: int,
    *,
    budget: int,
    solver: str = "auto",
    dtype: str = "float32",
    threads: int = 1,
    copied: int = 0,
    timed: bool = False,
) -> Plan:
    """The plan of `rank` eigenpairs: the quicker of the solvers that fit, else the one that takes less memory.

    `timed` says whether S has a time kernel; then only the primal solver can be used.
    """
    costs = lowrank_costs.spectral(size, rank, dtype=dtype, threads=threads, copied=copied, timed=timed)
    if timed:
        _require_timed(solver, ("primal",))
    if solver == "auto":
        fitting = [cost for cost in costs if cost.bytes <= budget]
        chosen = min(fitting, key=lambda cost: cost.seconds) if fitting else min(costs, key=lambda cost: cost.bytes)
    else:
        chosen = next(cost for cost in costs if cost.solver == solver)
    why = NO_DUAL if timed and solver == "auto" else ""
    return Plan.of(size, chosen, costs, dtype=dtype, budget=budget, why=why)
