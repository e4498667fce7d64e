"""Students of low rank: W = UVᵀ with two n × k factors, learned from a full-rank teacher that is then forgotten.

The teacher is fitted as the full-rank models are (one inverse, primal or dual) and never formed. What is kept is 2·n·k
numbers instead of n².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.operators import Operator
from monogram.engine.lowrank import student_loops, students
from monogram.models import inverse
from monogram.models.abilities import EpochTraining
from monogram.models.advice import spectrum_advice
from monogram.models.context import SOLVERS, FitInputs, FitOptions
from monogram.models.heads import Formula, FreeDiagonal, ZeroDiagonal
from monogram.models.inverse import Inverse, Solved, two_by_two
from monogram.models.inverse_model import InverseModel
from monogram.models.parameters import param
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import DROPOUT, L2, RANK
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
class Student(InverseModel):
    """Engine 3: what the students share. `formula` is that of the full-rank teacher."""

    solvers: ClassVar[tuple[str, ...]] = SOLVERS  # many products with the inverse: not one that lies on a disk

    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)
    rank: int = param(64, "columns of the two factors", low=1, high=1e6, search=RANK)

    def _loops(self) -> int:
        """The most epochs that may follow the closed form."""
        return 0

    def _factors(
        self, teacher: students.Teacher, inputs: FitInputs, report: ReportBuilder
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """U and V."""
        return self._nearest(teacher, inputs, report)

    def _extra(self, size: Size, options: FitOptions) -> Extra:
        return student_extra(size, self.rank, options.dtype, self._loops())

    def _warm(self, options: FitOptions) -> None:
        super()._warm(options)
        for dtype in {"float64", options.dtype}:
            Operator(two_by_two()).item_gram_times(np.ones((2, 1), dtype))

    def _solve(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Solved:
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
        data = Operator(inputs.log.matrix, threads=options.threads)
        problem = students.StudentProblem(data, solved.penalties, solved.d, solved.inverse)
        teacher = students.Teacher(problem, *solved.head(self.formula().head))
        left, right = self._factors(teacher, inputs, report)
        report.rank = right.shape[1]
        return _weights(left, right, report.dtype)

    def _nearest(
        self, teacher: students.Teacher, inputs: FitInputs, report: ReportBuilder, *, plain: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        def make() -> tuple[NDArray[Any], NDArray[Any], float]:
            with spectrum_advice(report.dtype):
                return students.nearest(teacher, self.rank, plain=plain, dtype=report.dtype, stage=report.tick)

        source: Inverse | None = inputs.factorisation
        left, right, residual = make() if source is None else source.nearest((self.name, plain), self.rank, make)
        report.tick("spectrum")
        report.residual = max(report.residual or 0.0, residual)
        return left, right


@dataclass(kw_only=True, eq=False)
class LowRankDLAE(Student):
    """Denoising linear autoencoder of rank k, the exact optimum.

    Minimises ‖X − XUVᵀ‖² + ‖Λ^½UVᵀ‖² over n × k factors U and V, Λ = diag(l2 + dropout/(1 − dropout)·d). Solution: with
    the full-rank W* = C·S, V = eig_k(M) and U = W*V, where M = W*ᵀ(S + Λ)W* = S·C·S = S − Λ + ΛCΛ.
    """

    name: ClassVar[str] = "low_rank_dlae"

    def formula(self) -> Formula:
        """The teacher is DLAE."""
        return Formula(GramRecipe(), Penalties(self.l2, self.dropout), FreeDiagonal())


@dataclass(kw_only=True, eq=False)
class LowRankEDLAE(Student):
    """Emphasised denoising autoencoder of rank k (Steck 2020, eqs. 10 and 11).

    Minimises ‖X − XW₀‖² + ‖Λ^½W₀‖² with W₀ = UVᵀ − diag(UVᵀ), Λ = diag(l2 + dropout/(1 − dropout)·d). There is no
    closed form; what `solver` gives, with B the full-rank EDLAE:

    - "closed_form": the student nearest to B in the norm of the objective: V = eig_k(M), U = B·V,
      M = Bᵀ(S + Λ)B = S + Λ − 2diag(1/c) + diag(1/c)·C·diag(1/c).
    - "svd": nearest in the plain norm: UVᵀ = svd_k(B).
    - "alternating", "admm": from the closed form on, down the objective itself, V and U in turns, until an epoch
      changes it by less than a hundred-thousandth. "alternating" never goes up.
    - "zero_diagonal": the objective with diag(UVᵀ) = 0 as a constraint, U and V in turns.
    """

    name: ClassVar[str] = "low_rank_edlae"
    epoch_training: ClassVar[EpochTraining | None] = EpochTraining(solvers=tuple(LOOPS))
    solver: str = param(
        "closed_form",
        "how the factors are found",
        choices=("closed_form", "svd", "alternating", "admm", "zero_diagonal"),
    )
    epochs: int = param(20, "the most epochs of alternating, admm and zero_diagonal", low=1, high=1e6)

    def formula(self) -> Formula:
        """The teacher is EDLAE."""
        return Formula(GramRecipe(), Penalties(self.l2, self.dropout), ZeroDiagonal())

    def _loops(self) -> int:
        return self.epochs if self.solver in LOOPS else 0

    def _factors(
        self, teacher: students.Teacher, inputs: FitInputs, report: ReportBuilder
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        left, right = self._nearest(teacher, inputs, report, plain=self.solver == "svd")
        if self.solver not in LOOPS or not right.shape[1]:  # a teacher of rank 0 leaves nothing to improve
            report.objectives.append(students.objective(teacher.problem, left, right))
            return left, right
        start = left.astype(np.float64), right.astype(np.float64)
        pause = inputs.pause(lambda state: _weights(state.left, state.right, report.dtype))
        result = LOOPS[self.solver](teacher.problem, *start, epochs=self.epochs, stage=report.tick, between=pause)
        report.objectives.extend(result.record[1:])  # without the start
        return result.left, result.right


def _weights(left: NDArray[Any], right: NDArray[Any], dtype: str) -> Weights:
    return Factors(left.astype(dtype, order="C"), right.astype(dtype, order="C"), np.ones(right.shape[1]))
