"""Full-rank models without a square array: what is kept is the sparse data and, where scores need it, c = diag C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monogram.data.interactions import Interactions
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import matrix_free, probing
from monogram.models.inverse import alike, judge
from monogram.models.work import Work
from monogram.weights import MatrixFree

if TYPE_CHECKING:
    from monogram.models.full_rank import FullRank


def fit(model: FullRank, log: Interactions, work: Work, planned: int) -> MatrixFree:
    """The sparse data and c, estimated; the certificate is that of a few columns."""
    work.tick("plan")
    work.used, work.planned = matrix_free.NAME, planned
    probing.warm(model._tiny(), work.dtype)
    work.tick("compile")
    data = model._data(log, work)
    system = matrix_free.System(data, model.formula().penalties.of(squares(data)), work.dtype)
    work.tick("transpose")
    tolerance, c = matrix_free.TOLERANCE[work.dtype], None
    if model.formula().head.needs_diagonal:
        c = probing.diagonal(system, threads=work.threads, stage=work.tick)
        work.deviation = c.deviation
    work.residual, work.error = matrix_free.certificate(system, tolerance=tolerance, threads=work.threads)
    work.tick("residual")
    judge(work)
    weights = model.formula().recipe.weights(log.matrix, work.unit)
    return MatrixFree(log.matrix, system.penalties, tolerance, work.dtype, c, weights, system=system)


def another_head(model: FullRank, held: MatrixFree, work: Work) -> MatrixFree | None:
    """The weights of a model with the penalties of another; None where those differ, or c is needed and not there."""
    given: FullRank = work.given
    recipe, penalties, head = model.formula()
    same = alike(penalties.of(held.system.d), held.penalties).all() and work.dtype == held.system.dtype
    if recipe == given.formula().recipe:
        work.unit = given.report_.unit  # of this fit too, where another penalty needs one
    else:
        same = False
    if not same or work.solver not in ("auto", matrix_free.NAME) or (head.needs_diagonal and held.diagonal is None):
        return None
    report, c = given.report_, held.diagonal if head.needs_diagonal else None
    work.used, work.residual, work.error = "reused", report.residual, report.error
    work.deviation = None if c is None else report.deviation
    return MatrixFree(
        given.log_.matrix, held.penalties, held.tolerance, work.dtype, c, held.weights, system=held.system
    )
