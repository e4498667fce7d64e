"""Matrix-free fit of full-rank models: the weights are the sparse data and, where the head needs it, c = diag C.

No inverse is computed. Each history is scored by conjugate gradients.
"""

from __future__ import annotations

from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import matrix_free, probing
from monogram.models.context import FitInputs, FitOptions
from monogram.models.heads import Formula
from monogram.models.inverse import check_accuracy, two_by_two
from monogram.models.report import ReportBuilder
from monogram.weights import MatrixFree


def fit_matrix_free(
    formula: Formula, inputs: FitInputs, options: FitOptions, report: ReportBuilder, planned: int
) -> MatrixFree:
    """Weights of the sparse data and an estimate of c; residual and error are measured on a few columns."""
    recipe, penalties, head = formula
    report.tick("plan")
    report.solver, report.planned_bytes = matrix_free.NAME, planned
    probing.warm(recipe.data(two_by_two(), 1.0), options.dtype)
    report.tick("compile")
    data = inputs.data(recipe)
    report.unit = inputs.unit
    system = matrix_free.System(data, penalties.of(squares(data)), options.dtype)
    report.tick("transpose")
    tolerance, c = matrix_free.TOLERANCE[options.dtype], None
    if head.needs_diagonal:
        c = probing.diagonal(system, threads=options.threads, stage=report.tick)
        report.deviation = c.deviation
    report.residual, report.error = matrix_free.certificate(system, tolerance=tolerance, threads=options.threads)
    report.tick("residual")
    check_accuracy(report)
    weights = recipe.weights(inputs.log.matrix, inputs.unit)
    return MatrixFree(inputs.log.matrix, system.penalties, tolerance, options.dtype, c, weights, system=system)
