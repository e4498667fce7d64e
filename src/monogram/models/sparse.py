"""Item-to-item weights that are mostly zero by their objective."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import dense
from monogram.engine.iterative import slim
from monogram.engine.topk.column_topk import entry_bytes
from monogram.errors import MonogramWarning, NumericalError, ParameterError
from monogram.models.base import Recommender
from monogram.models.parameters import param
from monogram.models.work import Work
from monogram.planning import choice
from monogram.planning.iterative_costs import slim_extra, slim_weights
from monogram.planning.plan import Plan
from monogram.planning.size import Size
from monogram.weights import Sparse, Weights


@dataclass(kw_only=True, eq=False)
class SLIM(Recommender):
    """Sparse linear method (Ning and Karypis 2011), by ADMM (Steck, Dimakopoulou, Riabov and Jebara 2020).

    Minimises ½‖X − XB‖² + ½·l2·‖B‖² + l1·‖B‖₁ with diag B = 0, and B ≥ 0 when `positive`. The minimum is unique for
    l2 above 0. ADMM needs one inverse, C = (S + diag(l2 + ρ))⁻¹ with ρ_i = rho·√((d_i + l2)·mean(d + l2)): it repeats
    B = I + C(ρ∘(Z − Γ) − diag ν), with ν such that diag B = 0, then Z = the soft threshold l1/ρ of B + Γ (its positive
    part), and Γ + B − Z for Γ. Z, with its exact zeros, are the weights. With l1 = 0 and `positive` off this is EASE.

    The residual in `report_` is the largest violation of the conditions of the minimum, relative to max|S|.
    """

    name: ClassVar[str] = "slim"
    l1: float = param(5.0, "penalty on the absolute weights: higher leaves fewer", low=0, high=1e30)
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30)
    positive: bool = param(True, "no weight below 0")
    rho: float = param(10.0, "how firmly ADMM holds its two copies together, in units of the Gram", low=1e-6, high=1e6)
    epochs: int = param(200, "steps after which a column is taken as it is", low=1, high=1_000_000)
    tolerance: float = param(1e-4, "change at which a column has converged, relative", low=0, high=1)

    def _warm(self, work: Work) -> None:
        tiny = Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr())
        self._solve(tiny, Work(work.dtype, work.budget), np.inf)

    def _plan(self, size: Size, work: Work) -> Plan:
        if work.solver == "dual":
            raise ParameterError("solver='dual' is not one SLIM has; use solver='primal' or 'auto'")
        extra = slim_extra(size, self.l1, self.epochs, dtype=work.dtype)
        how: dict[str, Any] = {"dtype": work.dtype, "threads": work.threads, "extra": extra}
        return choice.choose(size, budget=work.budget, solvers=("primal",), **how)

    def _fit(self, log: Interactions, work: Work) -> Weights:
        chosen = self._chosen(log, work)
        work.tick("plan")
        work.used, work.planned = chosen.solver, chosen.bytes
        most = slim_weights(log.n_items, self.l1) + (work.budget - chosen.bytes) / entry_bytes(work.dtype)
        solution, problem = self._solve(log, work, most)
        work.record = solution.record
        work.residual = slim.optimality(log.matrix, solution.matrix, problem)
        work.tick("residual")
        self._judge(solution, work.residual)
        return Sparse(solution.matrix)

    def _solve(self, log: Interactions, work: Work, most: float) -> tuple[slim.Solution, slim.Problem]:
        rho = slim.penalties(squares(log.matrix), self.l2, self.rho)
        problem = slim.Problem(self.l1, self.l2, self.positive, rho)
        solved = dense.primal(log.matrix, self.l2 + rho, dtype=work.dtype, threads=work.threads, stage=work.tick)
        whole = solved.into_weights(np.ones(log.n_items), solved.diagonal, work.threads)
        solution = slim.slim(
            whole,
            problem,
            epochs=self.epochs,
            tolerance=self.tolerance,
            most=most,
            threads=work.threads,
            stage=work.tick,
        )
        return solution, problem

    def _judge(self, solution: slim.Solution, residual: float) -> None:
        if not (np.isfinite(residual) and np.isfinite(solution.record).all()):
            raise NumericalError("the weights are not finite: raise l2, or use dtype='float64'")
        if solution.unfinished:
            warnings.warn(
                f"SLIM has not converged for {solution.unfinished:,} of {solution.matrix.shape[0]:,} items after "
                f"{self.epochs:,} epochs (residual {residual:.1e}); raise epochs or the tolerance, or try another rho",
                MonogramWarning,
                stacklevel=4,
            )
