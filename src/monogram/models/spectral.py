"""The base class of spectral models: one truncated singular value decomposition, and a filter on the singular values.

With X = U·Σ·Vᵀ every spectral model is W = V_k·diag(f(σ))·V_kᵀ. A model defines its filter f (`spectral_models`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.engine.gram.operators import Operator
from monogram.engine.runtime.arrays import Float, Float64
from monogram.errors import ParameterError, warn
from monogram.models import spectrum
from monogram.models.abilities import SharedFit
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.recipe import GramRecipe
from monogram.models.report import ReportBuilder
from monogram.models.spectrum import Spectrum
from monogram.planning.plan import Plan
from monogram.planning.size import Size, measure
from monogram.weights import Factors, Weights

FIRST_RANK = 64  # pairs computed first where the rank follows from the data; doubled until the filter reaches 0


@dataclass(kw_only=True, eq=False)
class Spectral(Recommender):
    """Base class of the spectral models. `fit` also accepts a `Spectrum` in place of the log."""

    on_cluster: ClassVar[bool] = True
    target: ClassVar[str] = "plain"

    def shared_fit(self) -> SharedFit | None:
        """The spectrum of the model's target; None where the fit is iterative."""
        return SharedFit("spectrum", (self.target, self.recipe())) if self.closed_form else None

    def recipe(self, user_power: float = 0.0) -> GramRecipe:
        """The recipe of S, of whose eigenpairs the spectrum is made; the target "rg2" has its own user weights."""
        return spectrum.default_recipe(self.target) if self.target != "plain" else GramRecipe(user_power)

    def _gram_recipe(self) -> GramRecipe:
        return self.recipe()

    @property
    def pairs_needed(self) -> int | None:
        """The number of singular pairs that the filter needs: its rank; None where it follows from the data."""
        return self._fixed_rank()

    def is_served_by(self, spectrum: Spectrum) -> bool:
        """Whether a spectrum of at least `pairs_needed` pairs has all pairs that the filter needs."""
        return self._fixed_rank() is not None or self._has_all_pairs(spectrum)

    @property
    def closed_form(self) -> bool:
        """Whether the weights follow from a spectrum, without iterations."""
        return True

    def _on_cluster(self) -> bool:
        return self.on_cluster and self.closed_form

    def _fixed_rank(self) -> int | None:
        """The parameter `rank`; None where the rank follows from the data."""
        rank: int = getattr(self, "rank")  # noqa: B009  (a field of most subclasses)
        return rank

    def _filter(self, sigma: Float64) -> Float64:
        """The filter f at each singular value."""
        raise TypeError(f"{type(self).__name__} must define _filter(sigma)")

    def inputs(self, source: Any) -> FitInputs:
        """Inputs from a log, or from a `Spectrum` of a log."""
        return FitInputs(source.log, source) if isinstance(source, Spectrum) else super().inputs(source)

    def _warm(self, options: FitOptions) -> None:
        identity = Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr()).matrix
        for matrix in (identity, identity.astype(np.float64)):
            data = Operator(matrix, kernel=self.recipe().small_kernel(matrix.nnz))
            data.dense("items")
            for dtype in ("float32", "float64"):
                data.item_gram_times(np.ones((2, 2), dtype))

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        return spectrum.plan(size, self._fixed_rank() or FIRST_RANK, options, self.recipe())

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        source = self._spectrum(inputs, options, report)
        sigma = source.values[: self._fixed_rank()]
        report.tick("spectrum")
        scale = self._filter(sigma)
        rank = int(np.flatnonzero(scale)[-1]) + 1 if scale.any() else 0
        if not rank:
            warn(
                f"no direction passes the filter (the largest singular value is {sigma.max(initial=0):.3g}): "
                "every score is the same; lower the penalty"
            )
        report.rank = rank
        vectors = np.ascontiguousarray(source.vectors[:, :rank])
        return self._weights(vectors, scale[:rank])

    def _weights(self, vectors: Float, scale: Float64) -> Weights:
        """The weights V·diag(f)·Vᵀ."""
        return Factors(vectors, vectors, scale)

    def _spectrum(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Spectrum:
        """The spectrum of the inputs, checked, or a new one with as many pairs as the filter needs."""
        fixed_rank = self._fixed_rank()
        source: Spectrum | None = inputs.factorisation
        if source is not None:
            self._check(source, fixed_rank)
            report.reused(None)
            report.residual, report.dtype = source.residual, source.vectors.dtype.name
            if source.user_power and source.target == "plain":
                report.note = f"user_power {source.user_power:g}: that of the spectrum"
            return source
        rank, chosen = fixed_rank or FIRST_RANK, self._chosen(inputs, options, report)
        while True:
            settings: dict[str, Any] = {"target": self.target, "recipe": self.recipe()}
            pairs = spectrum.decompose(inputs.log, rank, options, report, chosen, **settings)
            computed = Spectrum.of_pairs(inputs.log, pairs, **settings)
            if fixed_rank is not None or self._has_all_pairs(computed):
                return computed
            rank *= 2
            chosen = spectrum.plan(measure(inputs.log.matrix), rank, options, self.recipe()).require().chosen

    def _check(self, source: Spectrum, fixed_rank: int | None) -> None:
        """Raise ParameterError where a spectrum has another target or too few pairs."""
        name = type(self).__name__
        if source.target != self.target:
            raise ParameterError(
                f"{name} needs a Spectrum with target={self.target!r}; the Spectrum given has target={source.target!r}"
            )
        own = replace(self.recipe(), user_power=source.user_power)  # that of the spectrum is used
        if source.recipe != own:
            raise ParameterError(
                f"{name} has {_times(own)}, but the Spectrum given has {_times(source.recipe)}; give both the same, or "
                "fit on the log"
            )
        if fixed_rank is not None and fixed_rank > source.rank and not source.complete:
            raise ParameterError(
                f"rank = {fixed_rank} for {name}, but the Spectrum has {source.rank} pairs; make it with more pairs"
            )
        if fixed_rank is None and not self._has_all_pairs(source):
            raise ParameterError(
                f"{name} needs more than the {source.rank} pairs of this Spectrum; make it with more pairs"
            )

    def _has_all_pairs(self, source: Spectrum) -> bool:
        """Whether the filter is 0 at every singular value that the spectrum does not have."""
        return source.complete or not len(source.values) or float(self._filter(source.values)[-1]) == 0.0


def _times(recipe: GramRecipe) -> str:
    """The time kernel of a recipe, in words."""
    if not recipe.timed:
        return "decay = 0"
    return f"decay = {recipe.decay:g}, decay_unit = {str(recipe.decay_unit)!r}, floor = {recipe.floor:g}"
