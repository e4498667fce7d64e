"""Local fit and updates of full-rank models: each item is regressed on its nearest candidates (`engine.inverse.local`).

The weights are sparse, and no square array is allocated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from monogram.data import changes
from monogram.engine.gram.accumulate import squares
from monogram.engine.gram.probes import probe_items
from monogram.engine.inverse.local import LocalColumns, LocalRegression
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64, Indices
from monogram.errors import MemoryBudgetError
from monogram.models.advice import inverse_advice
from monogram.models.change import UpdateOptions, changed_penalties, updated_report
from monogram.models.context import FitInputs, FitOptions
from monogram.models.heads import Formula
from monogram.models.inverse import check_accuracy, item_counts, two_by_two
from monogram.models.recipe import GramRecipe
from monogram.models.report import FROZEN, Report, ReportBuilder
from monogram.planning import inverse_costs
from monogram.planning.size import measure
from monogram.weights.local import Local
from monogram.weights.update_state import UpdateState, rounded_scale

if TYPE_CHECKING:
    from monogram.models.full_rank import FullRank

PROBES = 8  # columns of an update that are measured


@inverse_advice()
def fit_local(formula: Formula, inputs: FitInputs, options: FitOptions, report: ReportBuilder, planned: int) -> Local:
    """Sparse weights; residual, error, and the gain of twice the candidates are measured on a few columns."""
    recipe, rule, head = formula
    report.tick("plan")
    report.solver, report.planned_bytes, report.neighbours = Local.solver, planned, options.candidates
    data = inputs.data(recipe)
    report.unit = inputs.unit
    settings: dict[str, Any] = {"dtype": options.dtype, "threads": options.threads}
    regression = LocalRegression(data, rule.of(squares(data)), kernel=inputs.kernel(recipe), **settings)
    report.tick("gram")
    columns = regression.columns(np.arange(data.shape[1]), options.candidates, report.tick)
    report.tick("solve")
    probes = probe_items(regression.d)
    _measure(regression, columns, probes, probes, options.candidates, report)
    check_accuracy(report, dual=not recipe.timed)
    theta, delta = head(columns.c, regression.penalties, regression.d, item_counts(data))
    scale = rounded_scale(theta, columns.c, options.dtype)
    state = UpdateState(columns.c, regression.penalties, scale=scale)
    return Local(columns.into_rows(theta, delta), state)


def warm(recipe: GramRecipe, dtype: str) -> None:
    """Compile the kernels of a local fit."""
    data = recipe.data(two_by_two(), 1.0)
    regression = LocalRegression(data, np.ones(2), dtype=dtype, kernel=recipe.small_kernel(data.nnz))
    regression.columns(np.arange(2), 1).into_rows(np.ones(2), np.ones(2))
    regression.candidates(np.arange(2), 1)


@inverse_advice()
def update_local(model: FullRank, after: changes.Changed, options: UpdateOptions) -> tuple[Local, Report] | str:
    """The weights and the report after a change of the log, or the reason why a refit is cheaper.

    A column is solved again if one of its candidates, before or after, or the item itself is in a row that was removed
    or added: its candidates or their S may be others. All other columns stay as they are. The result is that of a fit
    on the changed log, with as many candidates.
    """
    start = model.report_
    threads = parallel.count(options.threads)
    report = ReportBuilder(dtype=start.dtype, threads=threads, solver=Local.solver)
    neighbours, weights, matrix = start.neighbours, model.weights_, after.log.matrix
    assert isinstance(weights, Local) and neighbours is not None  # noqa: PT018
    needed = _require_memory(model, matrix, neighbours, options)
    recipe, _, head = model.formula()
    data = recipe.data(matrix, start.unit)
    former, penalties = changed_penalties(model, after.log, squares(data), options)
    settings: dict[str, Any] = {"dtype": start.dtype, "threads": threads}
    regression = LocalRegression(data, penalties, kernel=recipe.kernel(after.log), **settings)
    touched = former != penalties
    touched[model.log_.n_items :] = True
    touched[model.log_.matrix[after.removed_rows].indices] = True
    touched[data[data.shape[0] - after.n_added :].indices] = True
    again = _affected(regression, weights.matrix, touched, neighbours)
    report.tick("candidates")
    if 2 * len(again) > data.shape[1]:
        return f"the change affects {len(again):,} of {data.shape[1]:,} columns of weights, more than half"
    columns = regression.columns(again, neighbours, report.tick)
    report.tick("solve")
    places = np.unique(np.linspace(0, len(again) - 1, PROBES).astype(int)) if len(again) else again
    _measure(regression, columns, again[places], places, neighbours, report)
    check_accuracy(report, dual=not recipe.timed)
    c = np.concatenate([weights.required_state().c, 1 / penalties[model.log_.n_items :]])
    c[again] = columns.c
    theta, delta = head(c, penalties, regression.d, item_counts(data))
    state = UpdateState(c, penalties, scale=rounded_scale(theta, c, start.dtype))
    updated = Local(_replaced(weights.matrix, columns, again, theta, delta), state)
    report.tick("weights")
    at_fit = (start.residual_at_fit, start.error_at_fit) if start.changes else (start.residual, start.error)
    accuracy = report.residual or 0.0, report.error or 0.0
    note = f"{len(again):,} columns solved again" + ("" if options.penalties == "followed" else f"; {FROZEN}")
    told = updated_report(start, (at_fit[0] or 0.0, at_fit[1] or 0.0), report, accuracy, note)
    return updated, replace(told, planned_bytes=needed, gap=report.gap, largest_gap=report.largest_gap)


def _affected(regression: LocalRegression, matrix: Csr, touched: Any, neighbours: int) -> Indices:
    """The items whose candidates include a touched item, in the former weights or now, and the touched items."""
    data = regression.data
    users = np.asarray(data @ touched.astype(np.float32)) > 0
    near = np.flatnonzero((np.asarray(data.T @ users.astype(np.float32)) > 0) | touched)
    sizes, candidates = regression.candidates(near, neighbours)
    affected = touched.copy()
    affected[np.repeat(near, sizes)[touched[candidates]]] = True
    affected[matrix[np.flatnonzero(touched[: matrix.shape[0]])].indices] = True
    return np.flatnonzero(affected)


def _replaced(matrix: Csr, columns: LocalColumns, items: Indices, theta: Float64, delta: Float64) -> Csr:
    """The weights with new columns of some items."""
    n = len(theta)
    stays = np.ones(n, bool)
    stays[items] = False
    kept = stays[matrix.indices]
    index = matrix.indices.dtype  # of all parts, so that none is copied to a wider type
    diagonal = items[delta[items] != 0].astype(index)
    rows = [np.repeat(np.arange(matrix.shape[0], dtype=index), np.diff(matrix.indptr))[kept], diagonal]
    own = [matrix.indices[kept], diagonal]
    values = [matrix.data[kept], delta[diagonal].astype(matrix.dtype)]
    new = np.repeat(items.astype(index), columns.sizes)
    rows += [part for part, _ in columns.parts]
    scaled = np.concatenate([values[0][:0], *(part for _, part in columns.parts)]) * theta[new]
    entries = np.concatenate([*values, scaled.astype(matrix.dtype)])
    return sp.csr_array((entries, (np.concatenate(rows), np.concatenate([*own, new]))), shape=(n, n))


def _require_memory(model: FullRank, matrix: Csr, neighbours: int, options: UpdateOptions) -> int:
    """The memory that an update takes; MemoryBudgetError where it is over the budget."""
    budget = memory_.parse(options.memory)
    dtype, threads = model.report_.dtype, options.threads
    cost = inverse_costs.local(measure(matrix), neighbours, dtype=dtype, threads=threads)
    needed = cost.bytes + 4 * model.weights_.nbytes + model.formula().recipe.copied_bytes(matrix.nnz)
    if needed > budget:
        raise MemoryBudgetError(
            f"the change needs {memory_.show(needed)}, but may use {memory_.show(budget)}; this "
            f"{type(model).__name__} was not changed. Raise the memory, or fit again on the changed log"
        )
    return needed


def _measure(
    regression: LocalRegression,
    columns: LocalColumns,
    items: Indices,
    places: Indices,
    neighbours: int,
    report: ReportBuilder,
) -> None:
    """Measure the columns of some items, which stand at some places, and the gain of twice the candidates."""
    report.residual, report.error = regression.certificate(columns, items, places)
    if len(items):
        gaps = regression.gaps(items, neighbours)
        report.gap, report.largest_gap = float(gaps.mean()), float(gaps.max())
    report.tick("residual")
