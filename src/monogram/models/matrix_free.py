"""Matrix-free fit of full-rank models: the weights are the sparse data and, where the head needs it, c = diag C.

No inverse is computed. Each history is scored by conjugate gradients.
"""

from __future__ import annotations

from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import matrix_free, probing
from monogram.models.context import FitInputs, FitOptions
from monogram.models.heads import Formula
from monogram.models.inverse import check_accuracy, two_by_two
from monogram.models.recipe import GramRecipe
from monogram.models.report import ReportBuilder
from monogram.planning.size import measure
from monogram.weights import MatrixFree


def fit_matrix_free(
    formula: Formula, inputs: FitInputs, options: FitOptions, report: ReportBuilder, planned: int
) -> MatrixFree:
    """Weights of the sparse data and an estimate of c; residual and error are measured on a few columns."""
    recipe, penalties, head = formula
    report.tick("plan")
    report.solver, report.planned_bytes = matrix_free.NAME, planned
    warm(recipe, options.dtype)
    report.tick("compile")
    data, kernel = inputs.data(recipe), inputs.kernel(recipe)
    report.unit = inputs.unit
    if kernel is not None:
        pairs = measure(inputs.log.matrix).pairs_by_user
        report.note = f"with decay each step of a history visits {pairs:,.0f} pairs of events"
    system = matrix_free.System(data, penalties.of(squares(data)), options.dtype, kernel)
    report.tick("transpose")
    tolerance, c = matrix_free.TOLERANCE[options.dtype], None
    if head.needs_diagonal:
        c = probing.diagonal(system, threads=options.threads, stage=report.tick)
        report.deviation = c.deviation
    report.residual, report.error = matrix_free.certificate(system, tolerance=tolerance, threads=options.threads)
    report.tick("residual")
    check_accuracy(report, dual=not recipe.timed)
    weights = recipe.weights(inputs.log.matrix, inputs.unit)
    return MatrixFree(inputs.log.matrix, system.penalties, tolerance, options.dtype, c, weights, system=system)


def warm(recipe: GramRecipe, dtype: str) -> None:
    """Compile the kernels of a matrix-free fit."""
    data = recipe.data(two_by_two(), 1.0)
    probing.warm(data, dtype, recipe.small_kernel(data.nnz))
