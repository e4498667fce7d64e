"""Weighted matrix factorisation by alternating least squares (WRMF).

Seen and unseen cells have different weights, so that a singular value decomposition does not give the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.engine.iterative import wrmf
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float
from monogram.errors import NumericalError
from monogram.models.abilities import EpochTraining
from monogram.models.advice import inverse_advice
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.parameters import param
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import RANK, Search
from monogram.planning import iterative_costs as costs
from monogram.planning.plan import Plan
from monogram.planning.size import Size
from monogram.weights import FoldIn, Weights

START = 0.1  # norm of the initial random factors of an item, about


@dataclass(kw_only=True, eq=False)
class WRMF(Recommender):
    """Weighted regularised matrix factorisation, iALS (Hu et al. 2008; scaled penalties: Rendle et al. 2021).

    Minimises, over *all* cells with x = 1 where r > 0 and else 0, weights c = 1 + alpha·r, and rank-k factors,

    Σ_ui c_ui·(x_ui − p_u·q_i)² + l2·(Σ_u s_u·‖p_u‖² + Σ_i s_i·‖q_i‖²),   s_u = (Σ_i c_ui)^nu, s_i = (Σ_u c_ui)^nu.

    Seen cells have the weight 1 + alpha·r, unseen cells the weight 1. The penalty of a row is scaled by the weight of
    its cells: for a user of k items in a binary log, n + alpha·k = alpha·(k + w₀·n) with w₀ = 1/alpha, so that with
    nu = 1 l2 has the units of Rendle et al. With nu = 0 the penalty is the plain l2.

    Alternating least squares: each epoch solves all users, then all items,
    p_u = (QᵀQ + l2·s_u·I + alpha·Σ r_ui·q_i·q_iᵀ)⁻¹·Σ c_ui·q_i with sums over the user's items, and q_i likewise.
    solver="cg" takes three steps of conjugate gradients for each row instead, from the row of the last epoch. A rank
    above the smaller side of the log is lowered to it; the optimum is the same.

    A history is scored by folding in: its factors are solved from the final item factors exactly, in float64, with
    either solver.
    """

    name: ClassVar[str] = "wrmf"
    lean_settings: ClassVar[tuple[dict[str, Any], ...]] = ({"rank": 64}, {"rank": 16})
    epoch_training: ClassVar[EpochTraining | None] = EpochTraining()
    rank: int = param(64, "numbers in the factors of a user or an item", low=1, high=100_000, search=RANK)
    l2: float = param(
        0.003, "penalty on the squared factors", low=1e-9, high=1e30, search=Search((1e-4, 1e-3, 1e-2, 1e-1))
    )
    alpha: float = param(
        100.0,
        "added to the weight of a seen cell for a weight of 1 in the log; an unseen cell has the weight 1",
        low=0,
        high=1e9,
        search=Search((1.0, 10.0, 100.0)),
    )
    nu: float = param(1.0, "power of a row's weight in its penalty; 0: the same penalty for all", low=0, high=2)
    epochs: int = param(16, "number of epochs; each solves all users, then all items", low=1, high=1_000_000)
    seed: int = param(0, "seed of the random start", low=0)
    solver: str = param(
        "cholesky", "how a row is solved: exactly, or by 3 steps of conjugate gradients", choices=("cholesky", "cg")
    )

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        log, threads = inputs.log, options.threads
        chosen = self._chosen(inputs, options, report)
        report.solver, report.planned_bytes = chosen.solver, chosen.bytes
        report.rank = min(self.rank, *log.matrix.shape)
        users, items = self._start(log, report.rank, options.dtype)
        by_item = log.matrix.T.tocsr()
        report.tick("start")
        with parallel.blas_threads(1):  # each of our threads multiplies its own block
            for epoch in range(1, self.epochs + 1):
                self._half(log.matrix, items, users, threads)
                report.tick("users")
                self._half(by_item, users, items, threads)
                report.tick("items")
                report.objectives.append(self._objective(log.matrix, by_item, users, items, threads))
                report.tick("epochs", 1)
                if inputs.between is not None and epoch < self.epochs:
                    inputs.between(epoch, lambda: self._fold_in(items.copy(), threads))
            return self._fold_in(items, threads)

    def _fold_in(self, items: Float, threads: int) -> Weights:
        """The weights of item factors, which are rotated in place."""
        return FoldIn(items, wrmf.rotate_to_axes(items, threads=threads), l2=self.l2, alpha=self.alpha, nu=self.nu)

    def _start(self, log: Interactions, rank: int, dtype: str) -> tuple[Float, Float]:
        """The initial factors: zero for the users, random for the items."""
        items = np.random.default_rng(self.seed).standard_normal((log.n_items, rank), np.float32)
        items *= START / rank**0.5
        return np.zeros((log.n_users, rank), dtype), items.astype(dtype, copy=False)

    @inverse_advice()
    def _half(self, matrix: Csr, fixed: Float, out: Float, threads: int) -> None:
        """Solve for the factors of the rows of a matrix, with the factors of its columns fixed."""
        ridge = wrmf.ridges(matrix, self.l2, self.alpha, self.nu)
        if self.solver == "cholesky":
            wrmf.solve(matrix, ridge, self.alpha, fixed, wrmf.rotate_to_axes(fixed, threads=threads), out, threads)
        else:  # conjugate gradients start from `out`, which must be in the same basis
            wrmf.improve(
                matrix, ridge, self.alpha, fixed, wrmf.rotate_to_axes(fixed, out, threads=threads), out, threads
            )

    def _objective(self, matrix: Csr, by_item: Csr, users: Float, items: Float, threads: int) -> float:
        """The value of the objective; NumericalError where it is not finite."""
        settings = {"l2": self.l2, "alpha": self.alpha, "nu": self.nu}
        value = wrmf.objective(matrix, users, items, by_item=by_item, threads=threads, **settings)
        if not np.isfinite(value):
            raise NumericalError("the factors are not finite: raise l2, lower alpha, or use dtype='float64'")
        return value

    def _warm(self, options: FitOptions) -> None:
        log = Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr())
        small = FitOptions(dtype=options.dtype)
        type(self)(rank=2, epochs=1, solver=self.solver)._fit(FitInputs(log), small, small.report())

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        cost = costs.wrmf(self.solver, size, self.rank, self.epochs, dtype=options.dtype, threads=options.threads)
        return Plan.of(size, cost, dtype=options.dtype, budget=options.budget)
