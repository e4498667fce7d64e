"""Models of sessions: every session predicts its own items, and its past predicts its future."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from monogram.data.interactions import Interactions
from monogram.data.spans import parse_span
from monogram.engine.runtime.arrays import Float64
from monogram.errors import ParameterError
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.expected_quadratic import SOLVERS, log_moments, solve_moments, warm
from monogram.models.parameters import param
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import L2, Search
from monogram.planning.expected_costs import expected_quadratic
from monogram.planning.plan import Plan
from monogram.planning.size import Size
from monogram.weights import Weights

ALPHA = Search((0.2, 0.4, 0.6, 0.8), "plain")
POSITION_DECAY = Search((0.0, 0.5, 1.0), "plain")


@dataclass(kw_only=True, eq=False)
class SLIST(Recommender):
    """Session-aware linear item-item model (Choi et al. 2021); each user of the log is a session, in its order.

    Minimises α·Σ_s w_s‖x_s − x_sB‖² + (1 − α)·Σ_s w_s Σ_c ‖t_sc − a_scB‖² + l2·‖B‖². The rows a_sc and t_sc are the
    past and the future of session s at every cut c between two of its events. An event at distance d from the cut, 0
    for the nearest on either side, counts e^(−position_decay·d). With X̂, Â and T̂ those rows times √w_s,
    B = (αX̂ᵀX̂ + (1 − α)ÂᵀÂ + l2·I)⁻¹(αX̂ᵀX̂ + (1 − α)ÂᵀT̂).

    It is an `ExpectedQuadratic`: the moments are summed in closed form over the cuts, one inverse is computed, and a
    sparse right side is not multiplied with it. w_s = 1, or with `training_half_life` ½^(age/half-life), where the age
    is the time from the last event of the session to the last one of the log. The weight of a history's events at
    prediction is `recency`. An item that a session repeats counts once, at its last position.
    """

    name: ClassVar[str] = "slist"
    solvers: ClassVar[tuple[str, ...]] = SOLVERS
    needs_order: ClassVar[bool] = True
    alpha: float = param(
        0.4, "share of the whole sessions in the loss; the rest is past and future", low=0, high=1, search=ALPHA
    )
    l2: float = param(10.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    position_decay: float = param(
        0.5,
        "rate at which an event counts less the further it is from the cut; 0: none",
        low=0,
        high=100,
        search=POSITION_DECAY,
    )
    training_half_life: str | None = param(
        None, "age at which a training session counts half, such as '30d'; by default all count the same", span=True
    )

    def inputs(self, source: Any) -> FitInputs:
        """Inputs from a log; a log without the order or the times that the fit needs is an error here."""
        inputs = super().inputs(source)
        self.session_weights(inputs.log)
        return inputs

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        cost = expected_quadratic(size, dtype=options.dtype, threads=options.threads)
        return Plan.of(size, cost, dtype=options.dtype, budget=options.budget)

    def session_weights(self, log: Interactions) -> Float64 | None:
        """The weight w of each session; None where all are 1."""
        if self.training_half_life is None:
            return None
        span = parse_span(self.training_half_life, "training_half_life")
        if span.in_events:
            raise ParameterError(
                f"training_half_life = {self.training_half_life!r}; expected a duration such as '30d', or a number in "
                "the unit of the log's times: it is the age of whole sessions"
            )
        times = log.on_time_axis(span)
        ages = np.zeros(log.n_users)
        full = np.flatnonzero(np.diff(log.matrix.indptr))
        ages[full] = times.max() - np.maximum.reduceat(times, log.matrix.indptr[full])
        return np.asarray(0.5**ages)

    def _warm(self, options: FitOptions) -> None:
        warm(options.dtype)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        log = inputs.log
        sessions: dict[str, Any] = {"positions": log.positions, "weights": self.session_weights(log)}
        report.planned_bytes = self._chosen(inputs, options, report).bytes
        report.tick("plan")
        second, cross = log_moments(inputs, options, report, alpha=self.alpha, decay=self.position_decay, **sessions)
        return solve_moments(second, cross, np.full(log.n_items, self.l2), None, options, report)
