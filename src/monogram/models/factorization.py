"""Factorisations that no spectrum gives: seen and unseen cells weigh differently, so the sides take turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.engine.iterative import wrmf
from monogram.engine.runtime import parallel
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

START = 0.1  # size of a random row to begin with


@dataclass(kw_only=True, eq=False)
class WRMF(Recommender):
    """Weighted regularised matrix factorisation, iALS (Hu et al. 2008; scaled penalties: Rendle et al. 2021).

    Minimises, over *all* cells with x = 1 where r > 0 and else 0, weights c = 1 + alpha·r, and rank-k factors,

    Σ_ui c_ui·(x_ui − p_u·q_i)² + l2·(Σ_u s_u·‖p_u‖² + Σ_i s_i·‖q_i‖²),   s_u = (Σ_i c_ui)^nu, s_i = (Σ_u c_ui)^nu.

    So seen cells weigh 1 + alpha·r, unseen ones 1, and the penalty of a row is scaled by the weight of its cells: for a
    user of k items, without weights, n + alpha·k = alpha·(k + w₀·n) with w₀ = 1/alpha, so that for nu = 1 l2 is in the
    units of Rendle et al. With nu = 0 the penalty is the plain l2. Each epoch solves all users, then all items:
    p_u = (QᵀQ + l2·s_u·I + alpha·Σ r_ui·q_i·q_iᵀ)⁻¹·Σ c_ui·q_i, sums over the user's items, and likewise q_i. A rank
    above the smaller side of the log is lowered to it, which loses nothing.

    A history is scored by folding in: its row is solved once more from the final item factors, exactly, in float64.
    That holds for solver="cg" too, which only trains by conjugate gradients: three steps a row, from where it stood.
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
        "what a weight of 1 adds to the weight of a seen cell; an unseen one weighs 1",
        low=0,
        high=1e9,
        search=Search((1.0, 10.0, 100.0)),
    )
    nu: float = param(1.0, "power of a row's weight in its penalty; 0: the same penalty for all", low=0, high=2)
    epochs: int = param(16, "times that all users, then all items are solved", low=1, high=1_000_000)
    seed: int = param(0, "of the random start", low=0)
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
        with parallel.blas_threads(1):  # the threads are ours: each multiplies a block of its own
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

    def _fold_in(self, items: NDArray[Any], threads: int) -> Weights:
        """The weights of item factors, which are turned in place."""
        return FoldIn(items, wrmf.rotate_to_axes(items, threads=threads), l2=self.l2, alpha=self.alpha, nu=self.nu)

    def _start(self, log: Interactions, rank: int, dtype: str) -> tuple[NDArray[Any], NDArray[Any]]:
        drawn = np.random.default_rng(self.seed).standard_normal((log.n_items, rank), np.float32)
        drawn *= START / rank**0.5
        return np.zeros((log.n_users, rank), dtype), drawn.astype(dtype, copy=False)

    @inverse_advice()
    def _half(self, matrix: Any, fixed: NDArray[Any], out: NDArray[Any], threads: int) -> None:
        """Solve the rows of a matrix with the factors of its columns fixed."""
        ridge = wrmf.ridges(matrix, self.l2, self.alpha, self.nu)
        if self.solver == "cholesky":
            wrmf.solve(matrix, ridge, self.alpha, fixed, wrmf.rotate_to_axes(fixed, threads=threads), out, threads)
        else:  # what is improved must stand in the same basis
            wrmf.improve(
                matrix, ridge, self.alpha, fixed, wrmf.rotate_to_axes(fixed, out, threads=threads), out, threads
            )

    def _objective(self, matrix: Any, by_item: Any, users: NDArray[Any], items: NDArray[Any], threads: int) -> float:
        settings = {"l2": self.l2, "alpha": self.alpha, "nu": self.nu}
        value = wrmf.objective(matrix, users, items, by_item=by_item, threads=threads, **settings)
        if not np.isfinite(value):
            raise NumericalError("the factors are not finite: raise l2, lower alpha, or use dtype='float64'")
        return value

    def _warm(self, options: FitOptions) -> None:
        tiny = Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr())
        small = FitOptions(dtype=options.dtype)
        type(self)(rank=2, epochs=1, solver=self.solver)._fit(FitInputs(tiny), small, small.report())

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """What a fit on a log of this size costs."""
        cost = costs.wrmf(self.solver, size, self.rank, self.epochs, dtype=options.dtype, threads=options.threads)
        return Plan.of(size, cost, dtype=options.dtype, budget=options.budget)
