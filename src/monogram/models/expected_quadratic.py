"""`ExpectedQuadratic`: the closed form of an expected quadratic loss, for any distribution of input and target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from monogram.engine.gram.session_moments import session_moments
from monogram.engine.inverse.expected_quadratic import minimise
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.errors import NumericalError, ParameterError, warn
from monogram.models.advice import inverse_advice
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.inverse import WORST_RESIDUAL, two_by_two
from monogram.models.moments import Moments
from monogram.models.parameters import param
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import L2
from monogram.planning.cost import Cost
from monogram.planning.expected_costs import expected_quadratic
from monogram.planning.plan import Plan
from monogram.planning.size import Size, measure
from monogram.weights import Dense, SolvedProduct, Weights

SOLVERS = ("auto", "primal")


@dataclass(kw_only=True, eq=False)
class ExpectedQuadratic(Recommender):
    """Expected quadratic loss of any input x̂ and target t (Guo et al. 2026, equation 4).

    Minimises E‖t − x̂W‖² + ‖Λ^½W‖² with Λ = diag(l2 + the penalties of the moments). The distribution of (x̂, t) enters
    by two moments: W = (E[x̂ᵀx̂] + Λ)⁻¹·E[x̂ᵀt]. Where W_jj is fixed at ξ_j (0 with `zero_diagonal`), the column is
    C·(t_j − μ_j·e_j) with C = (E[x̂ᵀx̂] + Λ)⁻¹ and μ_j = ((C·E[x̂ᵀt])_jj − ξ_j)/C_jj, the multiplier of the constraint.

    `fit` takes `Moments` in place of the log: from arrays or sparse matrices, or summed over blocks of (input, target,
    weight). One second moment serves all columns; `DEQL` is the case where an item's own entry has another distribution
    in its column. On a log alone x̂ = t = x: W = (S + Λ)⁻¹S with S = XᵀX, and with `zero_diagonal` EASE.

    A sparse cross moment V is not multiplied: the weights are C and V, and a history scores (hC)·V. The residual in
    `report_` is the norm of the gradient on eight columns, estimated along sixteen random directions, relative to the
    largest norm of a column of E[x̂ᵀt].
    """

    name: ClassVar[str] = "expected_quadratic"
    solvers: ClassVar[tuple[str, ...]] = SOLVERS
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    zero_diagonal: bool = param(False, "require the weight of every item on itself to be 0")

    def inputs(self, source: Any) -> FitInputs:
        """Inputs from a log, or from `Moments`."""
        return FitInputs(source.log, source) if isinstance(source, Moments) else super().inputs(source)

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        cost = expected_quadratic(size, dtype=options.dtype, threads=options.threads)
        return Plan.of(size, cost, dtype=options.dtype, budget=options.budget)

    def plan(self, log: Any, **options: Any) -> Plan:
        """As for every model; also of `Moments`, whose own arrays are not counted."""
        if not isinstance(log, Moments):
            return super().plan(log, **options)
        self._solver(options.get("solver", "auto"), options.get("keep_gram", False))
        return self._moments_plan(log, FitOptions.parse(**options))

    def _moments_plan(self, moments: Moments, options: FitOptions) -> Plan:
        size = measure(moments.log.matrix)
        known: dict[str, Any] = {"entries": moments.cross_entries, "is_dense": isinstance(moments.cross, np.ndarray)}
        cost = expected_quadratic(size, sums=False, dtype=options.dtype, threads=options.threads, **known)
        return Plan.of(size, cost, dtype=options.dtype, budget=options.budget)

    def _chosen(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Cost:
        if inputs.factorisation is not None and report.plan is None:
            report.plan = self._moments_plan(inputs.factorisation, options)
        return super()._chosen(inputs, options, report)

    def _warm(self, options: FitOptions) -> None:
        warm(options.dtype)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        report.planned_bytes = self._chosen(inputs, options, report).bytes
        report.tick("plan")
        moments: Moments | None = inputs.factorisation
        n = inputs.log.n_items
        diagonal = np.zeros(n) if self.zero_diagonal else None
        penalties = np.full(n, self.l2)
        if moments is None:
            second, cross = log_moments(inputs, options, report)
        else:
            if moments.diagonal is not None:
                if self.zero_diagonal:
                    raise ParameterError("zero_diagonal = True, but the moments have a diagonal; expected one of them")
                diagonal = moments.diagonal
            penalties += moments.penalties
            second, cross = moments.working_second(options.dtype), moments.working_cross(options.dtype)
        report.tick("gram")
        return solve_moments(second, cross, penalties, diagonal, options, report)


def log_moments(
    inputs: FitInputs, options: FitOptions, report: ReportBuilder, **sessions: Any
) -> tuple[Float, Csr | Float]:
    """The moments of a log: S twice, or with the arguments of `session_moments` those of its sessions."""
    n = inputs.log.n_items
    second: Float = np.empty((n, n), options.dtype, order="F")
    settings: dict[str, Any] = {"positions": None, "threads": options.threads} | sessions
    cross = session_moments(
        inputs.log.matrix, second=second, done=lambda columns: report.tick("gram", columns), **settings
    )
    return second, cross


@inverse_advice()
def solve_moments(
    second: Float,
    cross: Csr | Float,
    penalties: Float64,
    diagonal: Float64 | None,
    options: FitOptions,
    report: ReportBuilder,
) -> Weights:
    """The weights that minimise the expected loss of two moments, whose arrays are overwritten."""
    empty = (np.diagonal(second) == 0) & (penalties == 0)  # as in `Penalties`: such an item has no weights
    ell = np.where(empty, 1.0, penalties)
    solution = minimise(second, cross, ell, diagonal, threads=options.threads, stage=report.tick)
    report.solver, report.residual = "primal", solution.residual
    report.tick("residual")
    _check_residual(report)
    if solution.weights is not None:
        return Dense(solution.weights)
    assert solution.inverse is not None and solution.by_column is not None  # noqa: PT018
    return SolvedProduct(solution.inverse, solution.by_column)


def warm(dtype: str) -> None:
    """Compile the kernels of a fit, for a sparse and for a dense cross moment."""
    data, positions = two_by_two(), np.zeros(2, np.int32)
    second = np.empty((2, 2), dtype, order="F")
    cross = session_moments(data, positions, second, alpha=0.5)
    minimise(second, cross, np.ones(2))


def _check_residual(report: ReportBuilder) -> None:
    """Raise NumericalError where the weights are not finite; warn where they are not exact."""
    residual = report.residual or 0.0
    if not np.isfinite(residual):
        raise NumericalError("the weights are not finite")
    if residual > WORST_RESIDUAL:
        advice = "use dtype='float64', or raise l2" if report.dtype == "float32" else "raise l2"
        warn(f"this fit is not exact: its residual is {residual:.1e} (good: below {WORST_RESIDUAL:g}); {advice}")
