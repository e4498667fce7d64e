"""The error message of a fit that exceeds its memory or disk space: what it needs, its limit, and what would fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from monogram.engine.runtime.memory import show

if TYPE_CHECKING:
    from monogram.planning.plan import Plan

MARGIN = 0.99  # share of the budget that the advised smaller catalogue takes: the advice is rounded


def over_memory(plan: Plan) -> str:
    """Why a plan is over its memory budget, and what would fit: other options first, then other models."""
    in_memory = [cost for cost in plan.costs if not cost.disk] or plan.costs
    needs = " or ".join(f"{show(cost.bytes)} ({cost.solver}, {plan.dtype})" for cost in in_memory)
    return (
        f"the fit needs {needs} for {plan.users:,} users × {plan.items:,} items, but may use "
        f"{show(plan.budget)}; nothing was allocated. What would fit: {'; '.join(_options(plan))}."
    )


def over_disk(plan: Plan) -> str:
    """Why the files of a plan do not fit."""
    return (
        f"the fit needs {show(plan.chosen.disk)} on the disk, which has {show(plan.disk_space or 0)} free; "
        "nothing was written: free some space, or name another folder (scratch)"
    )


def _options(plan: Plan) -> list[str]:
    """What would fit, one phrase each."""
    options = [f"raise the memory it may use to {show(plan.chosen.bytes)}"]
    if plan.dtype == "float64" and plan.chosen.bytes / 2 <= plan.budget:
        options.append("use dtype float32")
    for cost in plan.costs:
        if cost.bytes <= plan.budget:
            files = f", with {show(cost.disk)} of files in a folder that you name (scratch)" if cost.disk else ""
            options.append(f"use the {cost.solver} solver{files}")
        elif cost.avoidable and cost.bytes - cost.avoidable <= plan.budget:
            options.append(cost.advice)
    models = [f"{model.label} needs {show(model.bytes)}" for model in plan.alternatives]
    return list(dict.fromkeys([*options, _smaller(plan), *models]))


def _smaller(plan: Plan) -> str:
    """How to make the fit by the chosen solver smaller."""
    cost = plan.chosen
    if cost.advice and (not cost.avoidable or cost.bytes - cost.avoidable <= plan.budget):
        return cost.advice
    side = _largest_side(plan)
    if side:
        return f"keep the {side:,} most active {'users' if cost.solver == 'dual' else 'items'}"
    return "use a larger machine"


def _largest_side(plan: Plan) -> int:
    """How many users (dual) or items (primal) the square array of the chosen solver could have; 0 where none fits."""
    if plan.chosen.solver not in ("primal", "dual"):
        return 0
    itemsize = np.dtype(plan.dtype).itemsize
    side = plan.users if plan.chosen.solver == "dual" else plan.items
    left = MARGIN * plan.budget - (plan.chosen.bytes - side**2 * itemsize)
    return int((left / itemsize) ** 0.5) if left > 0 else 0
