"""Sparse linear models: an l1 penalty makes most item-to-item weights exactly zero."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine.gram.sparse_rows import SparseRows, sparse_rows
from monogram.engine.iterative import slim
from monogram.engine.runtime.arrays import Csr
from monogram.errors import NumericalError, ParameterError, warn
from monogram.models.abilities import SharedFit
from monogram.models.advice import sparsity_advice
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.parameters import param
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import L2, Search
from monogram.planning import iterative_costs
from monogram.planning.plan import Plan
from monogram.planning.size import Size, measure
from monogram.weights import Sparse, Weights


class SlimPath:
    """A sequence of SLIM fits on one log: `fit` of SLIM takes it in place of the log.

    The first fit makes the rows of the Gram, and every fit starts from the weights of the one before; fit the highest
    l1 first. The result is that of a fit on the log, up to the tolerance.

    Parameters
    ----------
    log : Interactions, or anything `fit` takes
    """

    def __init__(self, log: Any) -> None:
        self.log = as_interactions(log)
        self.rows: SparseRows | None = None
        self.weights: Csr | None = None


@dataclass(kw_only=True, eq=False)
class SLIM(Recommender):
    """Sparse linear method (Ning and Karypis 2011), by coordinate descent.

    Minimises ½‖X − XB‖² + ½·l2·‖B‖² + l1·‖B‖₁ with diag B = 0, and B ≥ 0 when `positive`. The minimum is unique for
    l2 above 0. Each column is solved on its own: min ½wᵀ(S + l2·I)w − s_jᵀw + l1·‖w‖₁. With `positive` only items with
    S_ij > l1 can have a weight, an exact screening. Coordinate descent runs on a working set of items, to which those
    are added whose conditions of the minimum are violated; a slow column is solved directly on the weights that are not
    zero. No square array over the items is held. With l1 = 0 and `positive` off the minimum is that of EASE.

    The residual in `report_` is the largest violation of the conditions of the minimum on eight columns, relative to
    max|S|.
    """

    name: ClassVar[str] = "slim"
    retired: ClassVar[tuple[str, ...]] = ("rho",)
    lean_settings: ClassVar[tuple[dict[str, Any], ...]] = ({"l1": 5.0, "l2": 100.0},)
    l1: float = param(
        5.0,
        "penalty on the absolute weights: higher leaves fewer",
        low=0,
        high=1e30,
        search=Search((0.01, 0.1, 1.0), unit="popularity", order=1),
    )
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    positive: bool = param(True, "no weight below 0")
    epochs: int = param(2000, "maximum number of passes over the weights of an item", low=1, high=1_000_000)
    tolerance: float = param(
        1e-4,
        "largest violation of a condition of the minimum, relative to the largest entry of the item's Gram column",
        low=0,
        high=1,
    )
    rho: InitVar[float | None] = None

    @property
    def closed_form(self) -> bool:
        """False: the solver is coordinate descent."""
        return False

    def __post_init__(self, rho: float | None = None) -> None:  # noqa: RUF033 (a fit calls it without rho)
        super().__post_init__()
        if rho is not None:
            warn(f"rho = {rho!r} has no effect: SLIM is no longer solved by ADMM, and needs no rho; leave it out")

    def _warm(self, options: FitOptions) -> None:
        log = Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr())
        self._solve(SlimPath(log), replace(options, threads=1, budget=2**62), ReportBuilder())

    def shared_fit(self) -> SharedFit:
        """Fits with equal parameters but for l1 share the Gram, and start from each other's weights."""
        key = (self.name, self.l2, self.positive, self.epochs, self.tolerance)
        return SharedFit("sequence", key, source=SlimPath, order=-self.l1)

    def inputs(self, source: Any) -> FitInputs:
        """Inputs from a log, or from a `SlimPath` of a log."""
        return FitInputs(source.log, source) if isinstance(source, SlimPath) else super().inputs(source)

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        if options.solver == "dual":
            raise ParameterError("SLIM has no solver='dual'; it has only one solver, so leave solver out")
        cost = iterative_costs.slim(
            size,
            self.l1,
            positive=self.positive,
            budget=options.budget,
            dtype=options.dtype,
            threads=options.threads,
        )
        return Plan.of(size, cost, dtype=options.dtype, budget=options.budget)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        chosen = self._chosen(inputs, options, report)
        report.tick("plan")
        report.planned_bytes = chosen.bytes
        path = inputs.factorisation or SlimPath(inputs.log)
        solution = self._solve(path, options, report)
        report.objectives = [solution.objective]
        problem = slim.SlimProblem(self.l1, self.l2, self.positive)
        report.residual = slim.optimality(inputs.log.matrix, solution.matrix, problem)
        report.tick("residual")
        self._check_convergence(solution, report.residual)
        return Sparse(solution.matrix)

    def _solve(self, path: SlimPath, options: FitOptions, report: ReportBuilder) -> slim.SlimSolution:
        """The weights; the path keeps them, and the rows of the Gram."""
        size = measure(path.log.matrix)
        without_rows = self.plan_size(size, replace(options, budget=0)).chosen.bytes
        if path.rows is None or path.rows.dtype != np.dtype(options.dtype):
            room = options.budget - without_rows
            path.rows = sparse_rows(path.log.matrix, dtype=options.dtype, most=room, threads=options.threads)
            report.tick("gram")
        room = options.budget - without_rows - path.rows.nbytes
        most = iterative_costs.slim_weights(size, self.l1, self.positive)
        most += max(0, room) / 2 / iterative_costs.slim_entry_bytes(options.dtype)
        copied = max(0, room) // 2 // options.threads // np.dtype(options.dtype).itemsize
        with sparsity_advice():
            solution = slim.slim(
                path.rows,
                slim.SlimProblem(self.l1, self.l2, self.positive),
                epochs=self.epochs,
                tolerance=self.tolerance,
                start=path.weights,
                copied=copied,
                most=most,
                threads=options.threads,
                stage=report.tick,
            )
        path.weights = solution.matrix
        return solution

    def _check_convergence(self, solution: slim.SlimSolution, residual: float) -> None:
        """Raise NumericalError where the weights are not finite; warn of columns that have not converged."""
        if not (np.isfinite(residual) and np.isfinite(solution.objective)):
            raise NumericalError("the weights are not finite: raise l2, or use dtype='float64'")
        if solution.unfinished:
            items = f"{solution.unfinished:,} of {solution.matrix.shape[0]:,} items"
            if solution.passes < self.epochs:  # no column ran out of passes
                reason = (
                    f"for {items}, which have more weights than fit in memory",
                    "raise l1 or the memory, or use EASE",
                )
            else:
                reason = f"for {items} after {solution.passes:,} passes", "raise epochs, the tolerance, l1 or l2"
            warn(f"SLIM has not converged {reason[0]} (residual {residual:.1e}); {reason[1]}")
