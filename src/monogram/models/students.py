"""Students of low rank: W = UVᵀ with two n × k factors, learned from a full-rank teacher that is then forgotten.

The teacher is fitted as the full-rank models are (one inverse, primal or dual) and never formed. What is kept is 2·n·k
numbers instead of n².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.engine.gram.operators import Operator
from monogram.engine.lowrank import student_loops, students
from monogram.engine.plan import Cost, Extra, Size
from monogram.models.abilities import EpochTraining
from monogram.models.heads import Formula, FreeDiagonal, ZeroDiagonal
from monogram.models.inverse import Solved, tiny
from monogram.models.inverse_model import InverseModel
from monogram.models.parameters import param
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.search_axes import DROPOUT, L2, RANK
from monogram.models.work import SOLVERS, Work
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

    def _factors(self, taught: students.Teacher, work: Work) -> tuple[NDArray[Any], NDArray[Any]]:
        """U and V."""
        return self._nearest(taught, work)

    def _extra(self, size: Size, work: Work) -> Extra:
        return students.extra(size, self.rank, work.dtype, self._loops())

    def _warm(self, work: Work) -> None:
        super()._warm(work)
        for dtype in {"float64", work.dtype}:
            Operator(tiny()).items(np.ones((2, 1), dtype))

    def _solve(self, log: Interactions, work: Work, chosen: Cost | None = None) -> Solved:
        if work.given is None:
            return super()._solve(log, work, chosen)
        work.used, work.dtype = "reused", work.given.dtype
        solved: Solved = work.given.solved
        return solved

    def _fit(self, log: Interactions, work: Work) -> Weights:
        solved = self._solve(log, work)
        data = Operator(log.matrix, threads=work.threads)
        problem = students.Problem(data, solved.penalties, solved.d, solved.inverse)
        left, right = self._factors(students.Teacher(problem, *solved.head(self.formula().head)), work)
        work.rank = right.shape[1]
        return _weights(left, right, work.dtype)

    def _nearest(
        self, taught: students.Teacher, work: Work, *, plain: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        def make() -> tuple[NDArray[Any], NDArray[Any], float]:
            return students.nearest(taught, self.rank, plain=plain, dtype=work.dtype, stage=work.tick)

        given = work.given
        left, right, residual = make() if given is None else given.nearest((self.name, plain), self.rank, make)
        work.tick("spectrum")
        work.residual = max(work.residual or 0.0, residual)
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

    def _factors(self, taught: students.Teacher, work: Work) -> tuple[NDArray[Any], NDArray[Any]]:
        left, right = self._nearest(taught, work, plain=self.solver == "svd")
        if self.solver not in LOOPS or not right.shape[1]:  # a teacher of rank 0 leaves nothing to improve
            work.record.append(students.objective(taught.problem, left, right))
            return left, right
        start = left.astype(np.float64), right.astype(np.float64)
        pause = work.pause(lambda state: _weights(state.left, state.right, work.dtype))
        found = LOOPS[self.solver](taught.problem, *start, epochs=self.epochs, stage=work.tick, between=pause)
        work.record.extend(found.record[1:])  # without the start
        return found.left, found.right


def _weights(left: NDArray[Any], right: NDArray[Any], dtype: str) -> Weights:
    return Factors(left.astype(dtype, order="C"), right.astype(dtype, order="C"), np.ones(right.shape[1]))
