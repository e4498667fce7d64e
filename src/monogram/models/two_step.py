"""Two steps of one regression: what a history scores is scored once more, and what it has in common with many."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.engine.gram import user_weights
from monogram.engine.gram.operators import Operator
from monogram.engine.gram.probes import probe_items
from monogram.engine.lowrank import spectrum
from monogram.engine.runtime.progress import Stage, silent
from monogram.errors import MonogramWarning, ParameterError
from monogram.models.abilities import Reading
from monogram.models.advice import spectrum_advice
from monogram.models.context import SOLVERS, FitInputs, FitOptions
from monogram.models.heads import Formula, ZeroDiagonal
from monogram.models.inverse import check_accuracy, exact_enough, solve
from monogram.models.inverse_model import InverseModel
from monogram.models.parameters import param
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import DROPOUT, L2, USER_POWER, Search
from monogram.planning.cost import Extra
from monogram.planning.lowrank_costs import two_step_extra
from monogram.planning.size import Size
from monogram.weights import Dense, TwoStepDual, Weights

ROWS = 1024  # of the weights, to which the projection is added at once
ITEM_POWER = Search((-0.2, -0.1, 0.0, 0.1, 0.2), "plain", free=True, only_with_shift=True)
SECOND = Search((0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "plain", free=True, order=1)
LOW_PASS = Search((0.0, 0.1, 0.2, 0.4, 0.8), "plain", free=True, order=1)
DIRECTIONS = Search((256,), "whole", largest=0.25, order=1)  # a projection on all directions changes nothing


@dataclass(kw_only=True, eq=False)
class TwoStep(InverseModel):
    """Two steps of `Tempered`, ours: W = (1 − second)·B + second·B² + low_pass·VVᵀ, times a power of popularity.

    B regresses every item on all others: it minimises Σ_u w_u‖x_u − x_u·B‖² + ‖Λ^½B‖² with diag B = 0, with the weights
    w and the penalties Λ of `Tempered`. The second step takes what the first one scores for a history: an item may be
    recommended by way of one that the user has not used either. It is linear, so every share of a score is exact. It
    wants l2 and dropout well below those of one step.

    V are the first `rank` right singular vectors of the log whose entries are divided by the roots of their row's and
    their column's sum, in its largest connected part: VVᵀ takes of a history what it has in common with many. It is
    off by default.

    Each column is multiplied by max(users of the item, ½)^item_power.
    """

    name: ClassVar[str] = "two_step"
    reading: ClassVar[Reading] = "two_steps"
    solvers: ClassVar[tuple[str, ...]] = SOLVERS
    l2: float = param(50.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    dropout: float = param(0.2, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)
    second: float = param(0.8, "share of the second step in a score", low=0, high=1, search=SECOND)
    user_power: float = param(
        0.5, "how much less long histories count: 0 all events alike", low=0, high=2, search=USER_POWER
    )
    item_power: float = param(0.0, "power of an item's popularity in its scores", low=-2, high=2, search=ITEM_POWER)
    low_pass: float = param(
        0.0, "weight of the projection on the leading directions; 0: none", low=0, high=1e6, search=LOW_PASS
    )
    rank: int = param(256, "how many directions that projection keeps", low=1, search=DIRECTIONS)

    def formula(self) -> Formula:
        """That of the first step: `Tempered` with one weight an item."""
        return Formula(GramRecipe(self.user_power), Penalties(self.l2, self.dropout), ZeroDiagonal())

    @property
    def directions(self) -> int:
        """How many directions are found: none without low_pass."""
        return self.rank if self.low_pass else 0

    def _extra(self, size: Size, options: FitOptions) -> Extra:
        copied = self.formula().recipe.copied_bytes(size.events)
        return two_step_extra(size, self.directions, dtype=options.dtype, threads=options.threads, copied=copied)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        if inputs.factorisation is not None:
            raise ParameterError(
                "TwoStep takes no Inverse in place of a log: its product needs the array; fit on the log"
            )
        log = inputs.log
        basis, chosen = None, self._chosen(inputs, options, report)
        report.tick("plan")
        if self.directions:
            basis = math.sqrt(self.low_pass) * directions(log, self.directions, options, report.tick)
            _warn_of_all(basis, log)
        recipe, penalties, head = self.formula()
        solved = solve(recipe, penalties, inputs, options, report, chosen)
        popularity = user_weights.popularity(solved.counts, self.item_power)
        first = solved.into_weights(log, head, options.threads)
        if isinstance(first, Dense):
            return Dense(_product(first.matrix, self.second, popularity, basis))
        weights = TwoStepDual(first, self.second, popularity, basis)
        _judge_lists(weights, log, options.threads, report)
        return weights


def directions(log: Interactions, rank: int, options: FitOptions, stage: Stage = silent) -> NDArray[np.floating]:
    """Leading right singular vectors of the balanced log, one a column; 0 outside its largest connected part."""
    balanced = user_weights.balanced(user_weights.largest_part(log.matrix))
    data = Operator(balanced.astype(options.dtype), None, options.threads)
    side = "users" if log.n_users < log.n_items else "items"
    with spectrum_advice(options.dtype):
        vectors = spectrum.of_data(data, rank, side=side, dtype=options.dtype, stage=stage).vectors
    return np.ascontiguousarray(vectors)


def _warn_of_all(basis: NDArray[np.floating], log: Interactions) -> None:
    """A projection on all directions gives every history back."""
    used = len(np.unique(log.matrix.indices))
    if basis.shape[1] == used > 0:
        warnings.warn(
            f"low_pass changes no list: the log has {used} directions, of which none is left out; lower rank",
            MonogramWarning,
            stacklevel=4,
        )


def _judge_lists(weights: TwoStepDual, log: Interactions, threads: int, report: ReportBuilder) -> None:
    """Note how far the lists of a few users are from exact ones: rounding in K⁻¹ grows by 1/(c·ℓ) in a second step."""
    lengths = np.diff(log.matrix.indptr).astype(np.float64)
    within = exact_enough(report)
    report.error = max(weights.error(log.matrix[probe_items(lengths)], threads), report.error or 0.0)
    if within or not math.isfinite(report.error):  # else the warning was given before
        check_accuracy(report)
    report.tick("residual")


def _product(
    matrix: NDArray[np.floating], second: float, factors: NDArray[np.float64], basis: NDArray[np.floating] | None
) -> NDArray[np.floating]:
    """The weights of both steps, from those of one, which are spent, and of the projection on a basis."""
    out = matrix @ matrix
    out *= second
    matrix *= 1 - second
    out += matrix
    if basis is not None:
        for start in range(0, len(out), ROWS):
            out[start : start + ROWS] += basis[start : start + ROWS] @ basis.T
    out *= factors.astype(out.dtype)
    return out
