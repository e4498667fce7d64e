"""Baselines: popularity and item neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.data.spans import parse_span
from monogram.engine.gram.cosine import Cosines
from monogram.engine.topk import column_topk
from monogram.errors import ParameterError
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.parameters import param
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import Search
from monogram.models.trend import halvings
from monogram.planning.iterative_costs import neighbours
from monogram.planning.plan import Plan
from monogram.planning.size import Size
from monogram.ranking import NO_RECENCY, Recency
from monogram.weights import Fixed, Sparse, Weights


@dataclass(kw_only=True, eq=False)
class Popularity(Recommender):
    """Popularity: the score of an item is its total weight in the log (in a binary log its number of users).

    With half_life the list is that of trending items: an event counts 2^(−age/half_life), its age measured from the
    latest event of the log. A pair that was repeated counts at its last time. All users have the same scores.
    """

    name: ClassVar[str] = "popularity"
    recency: float = param(0.0, "without effect: the scores do not depend on the history", low=0, high=100)
    half_life: str | None = param(
        None, "age at which an event of the log counts half, such as '30d'; by default all count the same", span=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.half_life is not None and parse_span(self.half_life, "half_life").in_events:
            raise ParameterError(
                f"half_life = {self.half_life!r}; expected a duration such as '30d', or a number in the unit of the "
                "log's times: the age of an event is measured from the latest event of all users"
            )

    def recency_rule(self) -> Recency:
        """No recency: the scores do not depend on the history."""
        return NO_RECENCY

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        matrix = inputs.log.matrix
        weights = matrix.data
        if self.half_life is not None:
            span = parse_span(self.half_life, "half_life")
            weights = weights * halvings(inputs.log, span, "half_life")
        return Fixed(np.bincount(matrix.indices, weights, matrix.shape[1]).astype(np.float64))


@dataclass(kw_only=True, eq=False)
class ItemKNN(Recommender):
    """Item-based nearest neighbours by cosine similarity (Sarwar et al. 2001).

    W_ij = S_ij / (√(d_i·d_j) + shrink) where i is one of the k items most similar to j, else 0; i ≠ j, S = XᵀX and
    d = diag S. Of equally similar items those with the lower index are neighbours. Column j of W holds the neighbours
    of item j. W is not symmetric: i may be a neighbour of j without j being a neighbour of i.
    """

    name: ClassVar[str] = "item_knn"
    lean_settings: ClassVar[tuple[dict[str, Any], ...]] = ({"k": 100}, {"k": 20})
    k: int = param(100, "neighbours of each item", low=1, high=1e9, search=Search((20, 60, 180), "whole"))
    shrink: float = param(
        10.0,
        "added to the denominator of the cosine: lowers similarities that rest on few users",
        low=0,
        high=1e30,
        search=Search((1.0, 10.0, 100.0)),
    )

    def _warm(self, options: FitOptions) -> None:
        self._weights(Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr()), options)

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        cost = neighbours(size, self.k, dtype=options.dtype, threads=options.threads)
        return Plan.of(size, cost, dtype=options.dtype, budget=options.budget)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        report.planned_bytes = self._chosen(inputs, options, report).bytes
        return self._weights(inputs.log, options)

    def _weights(self, log: Interactions, options: FitOptions) -> Weights:
        cosines = Cosines(log.matrix, self.shrink, options.threads)
        return Sparse(
            column_topk.thin(cosines.columns, log.n_items, self.k, dtype=options.dtype, threads=options.threads)
        )
