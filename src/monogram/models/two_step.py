"""Two-step regression: B and B² of one item regression, and a projection on leading singular vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from monogram.data.interactions import Interactions
from monogram.engine.gram import user_weights
from monogram.engine.gram.operators import Operator
from monogram.engine.gram.probes import probe_items
from monogram.engine.inverse import local
from monogram.engine.lowrank import spectrum
from monogram.engine.runtime.arrays import Float, Float64
from monogram.engine.runtime.progress import Stage, silent
from monogram.errors import ParameterError, warn
from monogram.models.abilities import Reading
from monogram.models.advice import spectrum_advice
from monogram.models.context import SOLVERS, FitInputs, FitOptions
from monogram.models.heads import Formula, ZeroDiagonal
from monogram.models.inverse import check_accuracy, exact_enough, item_counts, solve
from monogram.models.inverse_model import InverseModel
from monogram.models.local import fit_local
from monogram.models.local import warm as warm_local
from monogram.models.parameters import param
from monogram.models.recipe import Penalties
from monogram.models.repeats import RepeatParameter
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import DROPOUT, L2, USER_POWER, Search
from monogram.models.timed import TimeKernelParameters
from monogram.models.trend import check_trend, item_factors
from monogram.planning import inverse_costs
from monogram.planning.cost import Extra
from monogram.planning.lowrank_costs import two_step_extra
from monogram.planning.plan import Plan
from monogram.planning.size import Size
from monogram.weights import Dense, TwoStepDual, TwoStepSparse, Weights
from monogram.weights.projection import Projection
from monogram.weights.two_step_dual import two_step_product

ITEM_POWER = Search((-0.2, -0.1, 0.0, 0.1, 0.2), "plain", free=True, only_with_shift=True)
TREND = Search((0.0, 1.0), "plain", free=True, order=4, only_with_order=True, apart=True)
SECOND = Search((0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "plain", free=True, order=1)
LOW_PASS = Search((0.0, 0.1, 0.2, 0.4, 0.8), "plain", free=True, order=1)
DIRECTIONS = Search((256,), "whole", largest=0.25, order=1)  # a projection on all directions is the identity


@dataclass(kw_only=True, eq=False)
class TwoStep(TimeKernelParameters, RepeatParameter, InverseModel):
    """Two-step regression, new in Monogram: W = ((1 − second)·B + second·B² + low_pass·P)·diag(f).

    B regresses every item on all others: it minimises Σ_u w_u‖x_u − x_u·B‖² + ‖Λ^½B‖² with diag B = 0, with the user
    weights w and the penalties Λ of `Tempered`. The second step applies B to the scores of the first step, so that an
    item can be recommended through an item that is not in the history. The scores are linear in the history, so that
    explanations are exact. The best l2 and dropout are well below those of one step.

    V are the first `rank` right singular vectors of the log in its largest connected part, each entry divided by the
    square roots of the sums of its row and its column. P = D⁻¹VVᵀD with D = diag(n^low_pass_power) is a low-pass
    filter: it projects a history on the leading directions of all histories. By default low_pass is 0.

    f = n^item_power·r^trend with n = max(number of users of an item, ½) and r the trend of an item: 1 plus its recent
    events, Σ 2^(−age/trend_half_life), divided by 1 plus as many as are expected of its number of events. The age of an
    event is the time to the latest event of the log, or the number of later events of the same user. `repeat` is added
    to the diagonal of W.
    """

    name: ClassVar[str] = "two_step"
    reading: ClassVar[Reading] = "two_steps"
    solvers: ClassVar[tuple[str, ...]] = (*SOLVERS, local.NAME)
    expands: ClassVar[bool] = True
    l2: float = param(50.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    dropout: float = param(0.2, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)
    second: float = param(0.8, "share of the second step in a score", low=0, high=1, search=SECOND)
    user_power: float = param(
        0.5,
        "power that down-weights users with long histories; 0: all events have the same weight",
        low=0,
        high=2,
        search=USER_POWER,
    )
    item_power: float = param(0.0, "power of an item's popularity in its scores", low=-2, high=2, search=ITEM_POWER)
    trend: float = param(
        0.0,
        "power of an item's trend in its scores; above 0 items with recent events rise",
        low=-10,
        high=10,
        seldom=True,
        search=TREND,
    )
    trend_half_life: str | None = param(
        None,
        "age at which an event counts half in the trend of its item, such as '30d' or '10 events'; by default a "
        "hundredth of the time of the log, or 10 events of a log without times",
        span=True,
        seldom=True,
    )
    low_pass: float = param(
        0.0, "weight of the projection on the leading directions; 0: none", low=0, high=1e6, search=LOW_PASS
    )
    low_pass_power: float = param(
        0.0,
        "power of an item's popularity by which the projection divides a history and multiplies the scores",
        low=-2,
        high=2,
        seldom=True,
    )
    rank: int = param(256, "number of directions of the low-pass projection", low=1, search=DIRECTIONS)

    def formula(self) -> Formula:
        """The formula of the first step, B."""
        return Formula(self.recipe(self.user_power), Penalties(self.l2, self.dropout), ZeroDiagonal())

    @property
    def directions(self) -> int:
        """The number of directions to compute: 0 without low_pass."""
        return self.rank if self.low_pass else 0

    def projection_powers(self, counts: Float64) -> Float64 | None:
        """The diagonal of D in the low-pass projection; None where it is 1."""
        return user_weights.popularity(counts, self.low_pass_power) if self.low_pass_power else None

    def item_factors(self, log: Interactions, counts: Float64) -> Float64:
        """The factor f of each item's scores; DataError where the log has no order and `trend` needs one."""
        return item_factors(counts, self.item_power, self.trend, log, self.trend_half_life)

    def inputs(self, source: Any) -> FitInputs:
        """Inputs from a log; a log without the order or the times that the trend needs is an error here."""
        inputs = super().inputs(source)
        if self.trend:
            check_trend(inputs.log, self.trend_half_life)
        return inputs

    def _extra(self, size: Size, options: FitOptions) -> Extra:
        copied = self.formula().recipe.copied_bytes(size.events)
        extra = two_step_extra(size, self.directions, dtype=options.dtype, threads=options.threads, copied=copied)
        return replace(extra, expand=bool(options.expand))  # B² needs all of B in memory, also on the way to a file

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size; with the local solver B² is not formed."""
        cost = inverse_costs.local(size, options.candidates, dtype=options.dtype, threads=options.threads)
        extra = two_step_extra(size, self.directions, dtype=options.dtype, threads=options.threads)
        stages = (*extra.stages, *cost.stages)
        cost = replace(cost, bytes=cost.bytes + extra.bytes, flops=cost.flops + extra.flops, stages=stages)
        expands = options.expand and not self.formula().recipe.timed
        return self.plan_inverse(size, options, () if expands else (cost,))

    def _warm(self, options: FitOptions) -> None:
        if options.solver == local.NAME:
            warm_local(self.formula().recipe, options.dtype)
        else:
            super()._warm(options)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        if inputs.factorisation is not None:
            raise ParameterError(
                "TwoStep cannot be fitted from an Inverse or a fitted model: it overwrites the inverse; fit on the log"
            )
        log = inputs.log
        low_pass, chosen = None, self._chosen(inputs, options, report)
        report.tick("plan")
        if self.directions:
            basis = math.sqrt(self.low_pass) * directions(log, self.directions, options, report.tick)
            _warn_if_complete(basis, log)
            low_pass = Projection(basis, self.projection_powers(item_counts(log.matrix)))
        recipe, penalties, head = self.formula()
        if chosen.solver == local.NAME:
            sparse = fit_local(self.formula(), inputs, options, report, chosen.bytes)
            factors = self.item_factors(log, item_counts(log.matrix))
            return TwoStepSparse(sparse.matrix, self.second, factors, low_pass, self.repeat)
        solved = solve(recipe, penalties, inputs, options, report, chosen)
        factors = self.item_factors(log, solved.counts)
        first = solved.into_weights(log, head, options.threads)
        if isinstance(first, Dense):
            return Dense(two_step_product(first.matrix, self.second, factors, low_pass, self.repeat))
        weights = TwoStepDual(first, self.second, factors, low_pass, self.repeat)
        _check_scores(weights, log, options.threads, report)
        return weights


def directions(log: Interactions, rank: int, options: FitOptions, stage: Stage = silent) -> Float:
    """Leading right singular vectors of the balanced log as columns; 0 outside its largest connected part."""
    balanced = user_weights.balanced(user_weights.largest_part(log.matrix))
    data = Operator(balanced.astype(options.dtype), None, options.threads)
    side = "users" if log.n_users < log.n_items else "items"
    with spectrum_advice(options.dtype):
        vectors = spectrum.of_data(data, rank, side=side, dtype=options.dtype, stage=stage).vectors
    return np.ascontiguousarray(vectors)


def _warn_if_complete(basis: Float, log: Interactions) -> None:
    """Warn where the projection is on all directions, and so is the identity."""
    items = len(np.unique(log.matrix.indices))
    if basis.shape[1] == items > 0:
        warn(f"low_pass changes no list: rank includes all {items} directions of the log; lower rank")


def _check_scores(weights: TwoStepDual, log: Interactions, threads: int, report: ReportBuilder) -> None:
    """Measure and check the error of the scores of a few users: the second step multiplies rounding by 1/(c·ℓ)."""
    lengths = np.diff(log.matrix.indptr).astype(np.float64)
    warned = not exact_enough(report)
    report.error = max(weights.error(log.matrix[probe_items(lengths)], threads), report.error or 0.0)
    if not warned or not math.isfinite(report.error):
        check_accuracy(report)
    report.tick("residual")
