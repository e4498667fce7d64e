"""Low-rank students: W = UVᵀ with two n × k factors, computed from a full-rank teacher.

The teacher is given by one inverse, primal or dual; its weights are never formed. The student has 2·n·k numbers instead
of n².
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from monogram.engine.gram.operators import Operator
from monogram.engine.lowrank import student_loops, students
from monogram.engine.runtime.arrays import Float
from monogram.models import inverse
from monogram.models.abilities import EpochTraining
from monogram.models.advice import spectrum_advice
from monogram.models.context import SOLVERS, FitInputs, FitOptions
from monogram.models.heads import Formula, FreeDiagonal, ZeroDiagonal
from monogram.models.inverse import Inverse, Solved, two_by_two
from monogram.models.inverse_model import InverseModel
from monogram.models.parameters import param
from monogram.models.recipe import Penalties
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import DROPOUT, L2, RANK
from monogram.models.timed import TimeKernelParameters
from monogram.planning.cost import Extra
from monogram.planning.lowrank_costs import student_extra
from monogram.planning.size import Size
from monogram.weights import Factors, Weights

LOOPS = {
    "alternating": student_loops.alternating,
    "admm": student_loops.admm,
    "zero_diagonal": student_loops.zero_diagonal,
}


@dataclass(kw_only=True, eq=False)
class Student(TimeKernelParameters, InverseModel):
    """Base class of the low-rank students. `formula` is that of the full-rank teacher."""

    solvers: ClassVar[tuple[str, ...]] = SOLVERS  # without "disk": a student takes many products with the inverse

    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)
    rank: int = param(64, "columns of the two factors", low=1, high=1e6, search=RANK)

    def _loops(self) -> int:
        """The largest number of epochs after the closed form."""
        return 0

    def _factors(self, teacher: students.Teacher, inputs: FitInputs, report: ReportBuilder) -> tuple[Float, Float]:
        """The factors U and V."""
        return self._nearest(teacher, inputs, report)

    def _extra(self, size: Size, options: FitOptions) -> Extra:
        extra, recipe = student_extra(size, self.rank, options.dtype, self._loops()), self.formula().recipe
        pairs = (
            4.0 * size.pairs_by_user * extra.columns if recipe.timed else 0.0
        )  # a product visits all pairs of events
        return replace(extra, bytes=extra.bytes + recipe.copied_bytes(size.events), flops=extra.flops + pairs)

    def _warm(self, options: FitOptions) -> None:
        super()._warm(options)
        data = two_by_two()
        operator = Operator(data, kernel=self.formula().recipe.small_kernel(data.nnz))
        for dtype in {"float64", options.dtype}:
            operator.item_gram_times(np.ones((2, 1), dtype))

    def _solve(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Solved:
        """The inverse of the teacher: that of the inputs, or a new one."""
        source: Inverse | None = inputs.factorisation
        if source is None:
            chosen = self._chosen(inputs, options, report)
            return inverse.solve(*self.formula().shared, inputs, options, report, chosen)
        source.serves(self.formula(), options)
        report.reused(source.report_)
        return source.solved

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        solved = self._solve(inputs, options, report)
        report.dtype = str(solved.inverse.dtype.name)
        recipe = self.formula().recipe
        data = Operator(inputs.data(recipe), threads=options.threads, kernel=inputs.kernel(recipe))
        problem = students.StudentProblem(data, solved.penalties, solved.d, solved.inverse)
        teacher = students.Teacher(problem, *solved.head(self.formula().head))
        left, right = self._factors(teacher, inputs, report)
        report.rank = right.shape[1]
        return _weights(left, right, report.dtype)

    def _nearest(
        self, teacher: students.Teacher, inputs: FitInputs, report: ReportBuilder, *, plain: bool = False
    ) -> tuple[Float, Float]:
        """The student nearest to the teacher in the norm of the objective, or with `plain` in the Frobenius norm."""

        def make() -> tuple[Float, Float, float]:
            with spectrum_advice(report.dtype):
                return students.nearest(teacher, self.rank, plain=plain, dtype=report.dtype, stage=report.tick)

        source: Inverse | None = inputs.factorisation
        left, right, residual = make() if source is None else source.nearest((self.name, plain), self.rank, make)
        report.tick("spectrum")
        report.residual = max(report.residual or 0.0, residual)
        return left, right


@dataclass(kw_only=True, eq=False)
class LowRankDLAE(Student):
    """Denoising linear autoencoder of rank k; the closed form is the exact optimum.

    Minimises ‖X − XUVᵀ‖² + ‖Λ^½UVᵀ‖² over n × k factors U and V, Λ = diag(l2 + dropout/(1 − dropout)·d). Solution: with
    the full-rank W* = C·S, V = eig_k(M) and U = W*V, where M = W*ᵀ(S + Λ)W* = S·C·S = S − Λ + ΛCΛ.
    """

    name: ClassVar[str] = "low_rank_dlae"

    def formula(self) -> Formula:
        """The formula of the teacher, DLAE."""
        return Formula(self.recipe(), Penalties(self.l2, self.dropout), FreeDiagonal())


@dataclass(kw_only=True, eq=False)
class LowRankEDLAE(Student):
    """Emphasised denoising autoencoder of rank k (Steck 2020, eqs. 10 and 11).

    Minimises ‖X − XW₀‖² + ‖Λ^½W₀‖² with W₀ = UVᵀ − diag(UVᵀ), Λ = diag(l2 + dropout/(1 − dropout)·d). The optimum has
    no closed form. The solvers, with B the weights of the full-rank EDLAE:

    - "closed_form": the student nearest to B in the norm of the objective: V = eig_k(M), U = B·V,
      M = Bᵀ(S + Λ)B = S + Λ − 2diag(1/c) + diag(1/c)·C·diag(1/c).
    - "svd": the student nearest to B in the Frobenius norm: UVᵀ = svd_k(B).
    - "alternating", "admm": minimise the objective itself over V and U alternately, from the closed form on, until an
      epoch changes it by less than 1e-5, relatively. "alternating" never increases the objective.
    - "zero_diagonal": minimises the objective under the constraint diag(UVᵀ) = 0 over U and V alternately.
    """

    name: ClassVar[str] = "low_rank_edlae"
    epoch_training: ClassVar[EpochTraining | None] = EpochTraining(solvers=tuple(LOOPS))
    solver: str = param(
        "closed_form",
        "method that computes the factors",
        choices=("closed_form", "svd", "alternating", "admm", "zero_diagonal"),
    )
    epochs: int = param(20, "largest number of epochs of alternating, admm and zero_diagonal", low=1, high=1e6)

    def formula(self) -> Formula:
        """The formula of the teacher, EDLAE."""
        return Formula(self.recipe(), Penalties(self.l2, self.dropout), ZeroDiagonal())

    def _loops(self) -> int:
        return self.epochs if self.solver in LOOPS else 0

    def _factors(self, teacher: students.Teacher, inputs: FitInputs, report: ReportBuilder) -> tuple[Float, Float]:
        left, right = self._nearest(teacher, inputs, report, plain=self.solver == "svd")
        if self.solver not in LOOPS or not right.shape[1]:  # with a teacher of rank 0 there are no factors to improve
            report.objectives.append(students.objective(teacher.problem, left, right))
            return left, right
        start = left.astype(np.float64), right.astype(np.float64)
        pause = inputs.pause(lambda state: _weights(state.left, state.right, report.dtype))
        result = LOOPS[self.solver](teacher.problem, *start, epochs=self.epochs, stage=report.tick, between=pause)
        report.objectives.extend(result.record[1:])  # the first value is that of the start
        return result.left, result.right


def _weights(left: Float, right: Float, dtype: str) -> Weights:
    return Factors(left.astype(dtype, order="C"), right.astype(dtype, order="C"), np.ones(right.shape[1]))
