"""Spectral models: the filters on the singular values, each with the objective that it solves.

The filters are those of "On the regularization landscape for the linear recommendation models" (2022), RG² is from Pu
et al. (2024). What they share, the spectrum and the fit, is in `spectral`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from monogram.engine.iterative import rg2
from monogram.engine.iterative.rg2_newton import newton_cg
from monogram.engine.runtime.arrays import Float, Float64
from monogram.errors import ParameterError, warn
from monogram.models.abilities import EpochTraining
from monogram.models.context import FitInputs, FitOptions
from monogram.models.parameters import param
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import RANK, Search
from monogram.models.spectral import Spectral
from monogram.models.timed import TimeKernelParameters
from monogram.planning.iterative_costs import alternating
from monogram.planning.plan import Plan
from monogram.planning.size import Size
from monogram.weights import Factors, Weights

Numbers = float | tuple[float, ...]


def _nuclear_l2(mu: Float64, sigma: Float64) -> Float64:
    """The l2 of a threshold μ with power 2: μ = l2·η with the nuclear norm η = Σ(σ − μ)₊."""
    return np.array([level / max(float(np.maximum(sigma - level, 0).sum()), 1e-12) for level in mu])


KEEP = Search((0.9, 0.99, 0.999, 0.9999), "rest")
THRESHOLD = Search(unit="threshold", at=lambda mu, _: mu)
SQUARED_THRESHOLD = Search(unit="threshold", at=lambda mu, _: mu**2)
NUCLEAR = Search(unit="threshold", at=_nuclear_l2)


@dataclass(kw_only=True, eq=False)
class RegularizedPCA(TimeKernelParameters, Spectral):
    """Regularised PCA.

    Minimises ‖X − PQ‖² + l2·(‖P‖² + ‖Q‖²) with P of `rank` columns. Solution: f = (σ − l2)₊/σ.
    """

    name: ClassVar[str] = "regularized_pca"
    rank: int = param(64, "number of directions", low=1, high=1e6, search=RANK)
    l2: float = param(10.0, "penalty, in units of singular values", low=0, high=1e30, search=THRESHOLD)

    def _filter(self, sigma: Float64) -> Float64:
        return soft(sigma, self.l2)


@dataclass(kw_only=True, eq=False)
class DropoutMF(TimeKernelParameters, Spectral):
    """Matrix factorisation with dropout of factors; its rank follows from the data.

    Minimises ‖X − Y‖² + ((1 − keep)/keep)·‖Y‖_*², the expected loss when factors are dropped. Solution: f = (σ − μ)₊/σ
    with μ = (1 − keep)/(keep + (1 − keep)·r)·Σ_{i≤r}σ_i, r the largest index with σ_r > μ.
    """

    name: ClassVar[str] = "dropout_mf"
    keep: float = param(0.99, "probability with which a factor is kept", low=1e-6, high=1, search=KEEP)

    def _fixed_rank(self) -> int | None:
        return None

    def _filter(self, sigma: Float64) -> Float64:
        drop, count = 1 - self.keep, np.arange(1, len(sigma) + 1)
        level = drop / (self.keep + drop * count) * np.cumsum(sigma)
        rank = int((sigma > level).sum())  # σ_r − μ_r decreases with r, so these are the first indices
        return soft(sigma, float(level[rank - 1])) if rank else np.zeros_like(sigma)


@dataclass(kw_only=True, eq=False)
class NuclearPower(TimeKernelParameters, Spectral):
    """Matrix approximation with a power of the nuclear norm as penalty; its rank follows from the data.

    Minimises ‖X − Y‖² + l2·‖Y‖_*^power. Solution: f = (σ − μ)₊/σ with μ = ½·l2·power·η^(power − 1) and
    η = Σ(σ_i − μ)₊, the nuclear norm of Y.
    """

    name: ClassVar[str] = "nuclear_power"
    l2: float = param(0.01, "penalty on the power of the nuclear norm", low=0, high=1e30, search=NUCLEAR)
    power: float = param(2.0, "power of the nuclear norm", low=1, high=10)

    def _fixed_rank(self) -> int | None:
        return None

    def _filter(self, sigma: Float64) -> Float64:
        def excess(level: float) -> float:
            norm = float(np.maximum(sigma - level, 0).sum())
            return float(level - 0.5 * self.l2 * self.power * norm ** (self.power - 1))

        if self.power == 1 or not len(sigma):
            return soft(sigma, 0.5 * self.l2)
        import scipy.optimize  # slow to import; loading a model must not need it

        top = float(sigma[0])
        return soft(sigma, float(scipy.optimize.brentq(excess, 0.0, top, xtol=1e-14 * top, rtol=1e-15, maxiter=500)))


@dataclass(kw_only=True, eq=False)
class WLAE(TimeKernelParameters, Spectral):
    """Weighted linear autoencoder; with a single weight, plain weight decay.

    Minimises ‖X − X·W₁·W₂‖² + ‖W₁Λ^½‖² + ‖Λ^½W₂‖² over W₁, W₂ of rank `rank`, Λ = diag(weights). Solution:
    f_i = (1 − λ_i/σ_i²)₊. The smallest weight belongs to the largest σ, whatever the order in which weights are given.
    """

    name: ClassVar[str] = "wlae"
    rank: int = param(64, "number of directions", low=1, high=1e6, search=RANK)
    weights: float | tuple[float, ...] = param(
        100.0,
        "penalty of each direction: one number, or `rank` of them",
        low=0,
        high=1e30,
        many=True,
        search=SQUARED_THRESHOLD,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_length(self.weights, self.rank, "weights")

    def _filter(self, sigma: Float64) -> Float64:
        return np.maximum(1 - spread(self.weights, len(sigma)) / sigma**2, 0)


@dataclass(kw_only=True, eq=False)
class VLAE(TimeKernelParameters, Spectral):
    """Variational linear autoencoder.

    Minimises ‖X − X·A·B‖² + ‖ΛB‖² + ‖XA‖² over A, B of rank `rank`, Λ = diag(weights). Solution:
    f_i = (σ_i − λ_i)₊/σ_i. The smallest weight belongs to the largest σ, whatever the order in which weights are given.
    With `scale` the weights are scale/σ_i; without `weights` and `scale` they are 1.
    """

    name: ClassVar[str] = "vlae"
    rank: int = param(64, "number of directions", low=1, high=1e6, search=RANK)
    weights: float | tuple[float, ...] | None = param(
        None,
        "weight of each direction: one number, or `rank` of them",
        low=0,
        high=1e30,
        many=True,
        search=replace(THRESHOLD, unless=("scale",)),
    )
    scale: float | None = param(None, "sets the weights to scale/σ; excludes weights", low=0, high=1e30)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is not None and self.scale is not None:
            raise ParameterError("both weights and scale were given; expected one of them")
        _check_length(self.weights, self.rank, "weights")

    def _filter(self, sigma: Float64) -> Float64:
        if self.scale is not None:
            return np.maximum(1 - self.scale / sigma**2, 0)
        weights = spread(1.0 if self.weights is None else self.weights, len(sigma))
        return np.maximum(sigma - weights, 0) / sigma


@dataclass(kw_only=True, eq=False)
class LRR(TimeKernelParameters, Spectral):
    """Low-rank regression; with a single l2, ridge regression on the weights (the product penalty of Steck 2020).

    Minimises ‖X − XW‖² + ‖ΓW‖² over W of rank at most `rank`, Γ = V·diag(l2)^½·Vᵀ. Solution: f_i = σ_i²/(σ_i² + l2_i).
    A list of penalties belongs to the directions in the order of descending σ.
    """

    name: ClassVar[str] = "lrr"
    lean_settings: ClassVar[tuple[dict[str, Any], ...]] = ({"rank": 256}, {"rank": 64}, {"rank": 16})
    rank: int = param(64, "number of directions", low=1, high=1e6, search=RANK)
    l2: float | tuple[float, ...] = param(
        100.0,
        "penalty on the squared weights: one number, or `rank` of them",
        low=0,
        high=1e30,
        many=True,
        search=SQUARED_THRESHOLD,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_length(self.l2, self.rank, "l2")

    def _filter(self, sigma: Float64) -> Float64:
        l2 = np.full(len(sigma), self.l2) if isinstance(self.l2, float) else np.array(self.l2[: len(sigma)])
        return np.asarray(sigma**2 / (sigma**2 + l2))


@dataclass(kw_only=True, eq=False)
class RG2(Spectral):
    """Ranking-generalisable squared loss RG² (Pu et al. 2024); its global optimum is a filtered spectrum.

    Minimises Σ_ui w_u(T_ui − P_u·Q_i)² + l2·Σ_u N·w_u‖P_u‖² + l2·ŵ·Σ_i‖Q_i‖² over P, Q of rank `rank`, where
    T_ui = r_ui·N/n_u − 1, w_u = n_u/(2N·Σn), ŵ = Σw = 1/(2N), and n_u is the sum of a user's row. With P̃ = diag(√w)·P
    this is regularised PCA of diag(√w)·T. Solution: f = (σ − μ)₊/σ with μ = l2/√2, and a history scores
    (h·N/Σh − 1)·V·diag(f)·Vᵀ.

    solver="als" and "newton_cg" minimise the same objective in epochs (`report_.objectives`). penalty="plain",
    l2·(‖P‖² + ‖Q‖²), has no closed form and needs one of these solvers. They score a history by folding in: P is solved
    for the history with Q fixed.
    """

    name: ClassVar[str] = "rg2"
    target: ClassVar[str] = "rg2"
    epoch_training: ClassVar[EpochTraining | None] = EpochTraining(solvers=("als", "newton_cg"))
    rank: int = param(64, "number of directions", low=1, high=1e6, search=RANK)
    l2: float = param(
        0.5,
        "penalty; useful values lie near 0.5 to 0.9 on large catalogues",
        low=0,
        high=1e30,
        search=Search(unit="threshold", at=lambda mu, _: mu * np.sqrt(2), target="rg2"),
    )
    solver: str = param("closed_form", "method of the fit", choices=("closed_form", "als", "newton_cg"))
    penalty: str = param("weighted", "penalty of the factors: by the user weights, or plain", choices=rg2.PENALTIES)
    epochs: int = param(100, "largest number of epochs of an iterative solver", low=1, high=1e6)
    tolerance: float = param(1e-6, "relative gain of an epoch below which an iterative solver stops", low=0, high=1)
    seed: int = param(0, "of the random start of an iterative solver", low=0, high=2**63)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "closed_form" and self.penalty == "plain":
            raise ParameterError("penalty = 'plain' has no closed form; expected solver 'als' or 'newton_cg' with it")

    @property
    def closed_form(self) -> bool:
        """Whether the solver is the closed form."""
        return self.solver == "closed_form"

    def _filter(self, sigma: Float64) -> Float64:
        return soft(sigma, self.l2 / np.sqrt(2))

    def _weights(self, vectors: Float, scale: Float64) -> Weights:
        """The weights that score a history h with (h·N/Σh − 1)·V·diag(f)·Vᵀ."""
        sums = vectors.sum(axis=0, dtype=np.float64)
        base = -(vectors @ (scale * sums))
        return Factors(vectors, vectors, scale, base, float(len(vectors)))

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        if self.solver == "closed_form":
            return super().plan_size(size, options)
        cost = alternating(self.solver, size, self.rank, self.epochs, dtype=options.dtype, threads=options.threads)
        return Plan.of(size, cost, dtype=options.dtype, budget=options.budget)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        if self.solver == "closed_form":
            return super()._fit(inputs, options, report)
        if inputs.factorisation is not None:
            raise ParameterError(f"solver={self.solver!r} uses no Spectrum; give the log, or use solver='closed_form'")
        matrix = inputs.log.matrix
        report.planned_bytes = self._chosen(inputs, options, report).bytes
        report.tick("plan")
        report.solver, report.rank = self.solver, min(self.rank, *matrix.shape)
        problem = rg2.problem(matrix, self.l2, self.penalty, dtype=options.dtype, threads=options.threads)
        solve = rg2.als if self.solver == "als" else newton_cg
        stop: dict[str, Any] = {"epochs": self.epochs, "tolerance": self.tolerance}
        pause = inputs.pause(lambda state: Factors(*rg2.fold_in(problem, state)))
        solution = solve(problem, report.rank, **stop, seed=self.seed, stage=report.tick, between=pause)
        before, *report.objectives = solution.record.objectives
        if not solution.record.converged:
            warn(
                f"RG2 has not converged in {self.epochs} epochs (objective {report.objectives[-1]:.6g}, at the start "
                f"{before:.6g}); raise epochs or tolerance, or use solver='closed_form'"
            )
        return Factors(*rg2.fold_in(problem, solution))


def soft(sigma: Float64, level: float) -> Float64:
    """The soft-threshold filter (σ − level)₊/σ."""
    return np.maximum(sigma - level, 0) / sigma


def spread(weights: Numbers, size: int) -> Float64:
    """The weights of the directions in the order of descending σ: a single number repeated, or a list sorted."""
    values = np.atleast_1d(np.asarray(weights, np.float64))
    return np.full(size, values[0]) if len(values) == 1 else np.sort(values)[:size]


def vlae_as_lrr(sigma: Any, weights: Any) -> Float64:
    """The penalties with which the filter of LRR equals that of VLAE: l2_i = λ_i·σ_i²/(σ_i − λ_i).

    Parameters
    ----------
    sigma : singular values, each above its weight
    weights : weights λ of VLAE, one for each singular value, or one for all

    Returns
    -------
    l2 : σ³/(σ − λ) − σ² for each singular value

    Examples
    --------
    >>> vlae_as_lrr([4.0, 2.0], 1.0)
    array([5.33333333, 4.        ])
    """
    values = np.asarray(sigma, np.float64)
    levels = np.broadcast_to(np.asarray(weights, np.float64), values.shape)
    if not (values > levels).all() or (levels < 0).any():
        raise ParameterError(
            "a weight is below 0, or not below its singular value; expected 0 ≤ weight < σ, "
            "because at a larger weight VLAE's filter is 0, which no penalty of LRR gives"
        )
    return np.asarray(levels * values**2 / (values - levels))


def _check_length(numbers: Numbers | None, rank: int, name: str) -> None:
    """Raise ParameterError where a list of numbers does not have one number for each direction."""
    if isinstance(numbers, tuple) and len(numbers) != rank:
        raise ParameterError(f"{name} has {len(numbers)} numbers for rank = {rank}; expected one, or {rank}")
