"""Sparse linear models: an l1 penalty makes most item-to-item weights exactly zero."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse.primal import primal_inverse
from monogram.engine.iterative import slim
from monogram.engine.runtime.progress import Stage, silent
from monogram.engine.topk.column_topk import entry_bytes
from monogram.errors import NumericalError, ParameterError, warn
from monogram.models.abilities import EpochTraining
from monogram.models.advice import inverse_advice, sparsity_advice
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.parameters import param
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import L2, Search
from monogram.planning import choice
from monogram.planning.iterative_costs import slim_extra, slim_weights
from monogram.planning.plan import Plan
from monogram.planning.size import Size
from monogram.weights import Sparse, Weights


@dataclass(kw_only=True, eq=False)
class SLIM(Recommender):
    """Sparse linear method (Ning and Karypis 2011), by ADMM (Steck, Dimakopoulou, Riabov and Jebara 2020).

    Minimises ½‖X − XB‖² + ½·l2·‖B‖² + l1·‖B‖₁ with diag B = 0, and B ≥ 0 when `positive`. The minimum is unique for
    l2 above 0. ADMM uses one inverse, C = (S + diag(l2 + ρ))⁻¹ with ρ_i = rho·√((d_i + l2)·mean(d + l2)). It repeats
    B ← I + C(ρ∘(Z − Γ) − diag ν), with ν such that diag B = 0; Z ← B + Γ soft-thresholded by l1/ρ (with `positive` its
    positive part); Γ ← Γ + B − Z. The weights are Z, which has exact zeros. With l1 = 0 and `positive` off the minimum
    is that of EASE.

    The residual in `report_` is the largest violation of the conditions of the minimum, relative to max|S|.
    """

    name: ClassVar[str] = "slim"
    # The columns of the weights converge one by one: the whole model cannot be measured after an epoch.
    epoch_training: ClassVar[EpochTraining | None] = EpochTraining(observable=False)
    l1: float = param(
        5.0,
        "penalty on the absolute weights: higher leaves fewer",
        low=0,
        high=1e30,
        search=Search((0.01, 0.1, 1.0), unit="popularity", order=1),
    )
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    positive: bool = param(True, "no weight below 0")
    rho: float = param(10.0, "penalty of ADMM on the difference of B and Z, in units of the Gram", low=1e-6, high=1e6)
    epochs: int = param(200, "maximum number of iterations for a column", low=1, high=1_000_000)
    tolerance: float = param(1e-4, "relative change at which a column has converged", low=0, high=1)

    def _warm(self, options: FitOptions) -> None:
        log = Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr())
        self._solve(log, replace(options, threads=1), silent, np.inf)

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        if options.solver == "dual":
            raise ParameterError("SLIM has no solver='dual'; use solver='primal' or 'auto'")
        extra = slim_extra(size, self.l1, self.epochs, dtype=options.dtype)
        settings: dict[str, Any] = {"dtype": options.dtype, "threads": options.threads, "extra": extra}
        return choice.choose(size, budget=options.budget, solvers=("primal",), **settings)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        log = inputs.log
        chosen = self._chosen(inputs, options, report)
        report.tick("plan")
        report.solver, report.planned_bytes = chosen.solver, chosen.bytes
        most = slim_weights(log.n_items, self.l1) + (options.budget - chosen.bytes) / entry_bytes(options.dtype)
        solution, problem = self._solve(log, options, report.tick, most)
        report.objectives = solution.record
        report.residual = slim.optimality(log.matrix, solution.matrix, problem)
        report.tick("residual")
        self._check_convergence(solution, report.residual)
        return Sparse(solution.matrix)

    def _solve(
        self, log: Interactions, options: FitOptions, stage: Stage, most: float
    ) -> tuple[slim.SlimSolution, slim.SlimProblem]:
        """The weights by ADMM, and the problem they solve; `most` is the largest number of weights that may be kept."""
        rho = slim.penalties(squares(log.matrix), self.l2, self.rho)
        problem = slim.SlimProblem(self.l1, self.l2, self.positive, rho)
        settings: dict[str, Any] = {"dtype": options.dtype, "threads": options.threads, "stage": stage}
        with inverse_advice():
            inverse = primal_inverse(log.matrix, self.l2 + rho, **settings)
        square = inverse.into_weights(np.ones(log.n_items), inverse.diagonal, options.threads)
        with sparsity_advice():
            solution = slim.slim(
                square,
                problem,
                epochs=self.epochs,
                tolerance=self.tolerance,
                most=most,
                threads=options.threads,
                stage=stage,
            )
        return solution, problem

    def _check_convergence(self, solution: slim.SlimSolution, residual: float) -> None:
        """Raise NumericalError where the weights are not finite; warn of columns that have not converged."""
        if not (np.isfinite(residual) and np.isfinite(solution.record).all()):
            raise NumericalError("the weights are not finite: raise l2, or use dtype='float64'")
        if solution.unfinished:
            warn(
                f"SLIM has not converged for {solution.unfinished:,} of {solution.matrix.shape[0]:,} items after "
                f"{self.epochs:,} epochs (residual {residual:.1e}); raise epochs or the tolerance, or try another rho"
            )
