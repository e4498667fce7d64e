"""The spectrum of a log: its plan, its computation, and the public class `Spectrum` that spectral models share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from monogram import store
from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.data.spans import Span
from monogram.engine.gram.operators import Operator
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.iterative import rg2
from monogram.engine.lowrank import spectrum
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.errors import ModelFileError, MonogramError, ParameterError, warn
from monogram.models.advice import spectrum_advice
from monogram.models.context import FitOptions, check_solver
from monogram.models.files import finite, log_from, log_tensors
from monogram.models.recipe import GramRecipe
from monogram.models.report import ReportBuilder
from monogram.planning.choice import plan_spectrum
from monogram.planning.cost import Cost
from monogram.planning.plan import Plan
from monogram.planning.size import Size, measure

TARGETS = ("plain", "rg2")


class Spectrum:
    """Leading singular pairs of a log: X = U·Σ·Vᵀ, of which V and σ are kept.

    `fit` of a spectral model accepts a Spectrum in place of the log, with any rank up to that of the Spectrum. Another
    l2, weights, keep or model then takes milliseconds. `fit` of RG2 needs a Spectrum with the target "rg2".

    Parameters
    ----------
    log : Interactions, CSR matrix, or anything `monogram.read` takes
    rank : number of pairs
    target : "plain" for X itself, "rg2" for RG²'s row-normalised and shifted target
    user_power : with "plain", the spectrum of diag(√w)·X instead, where w_u = unit·n_u^(−user_power) as in `Tempered`
        By default 0: every event has the same weight. The target "rg2" has the power 1.
    recipe : with "plain", the definition of S, of whose eigenpairs these are the roots; in place of user_power
        With its `decay` items that a user used close together count more (`GramRecipe`); the solver is then "primal".
    dtype, memory, threads, solver, progress : as for `fit` of a model; "primal" works on the items, "dual" on the users
    tolerance : largest ‖Sv − σ²v‖/σ² accepted; by default 1e-4 in float32, 1e-8 in float64

    Attributes
    ----------
    log : the log
    recipe : the definition of S
    values : σ, largest first; pairs that are zero to rounding are left out
    vectors : V, one vector for each column
    residual : the largest ‖Sv − σ²v‖/σ², measured
    complete : whether these are all pairs that are not zero
    products : number of columns that the log was multiplied with (for a dense solution: the side of its matrix)
    saved : of a refreshed spectrum, the products saved relative to the one with a random start; else None
    """

    def __init__(
        self,
        log: Any,
        rank: int = 64,
        *,
        target: str = "plain",
        user_power: float | None = None,
        recipe: GramRecipe | None = None,
        dtype: str = "float32",
        memory: int | float | str | None = None,
        threads: int | None = None,
        solver: str = "auto",
        tolerance: float | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        rank = _checked_rank(rank)
        _check_tolerance(tolerance)
        if target not in TARGETS:
            raise ParameterError(f"target = {target!r}; expected one of {', '.join(TARGETS)}")
        recipe = _checked_recipe(recipe, user_power, target)
        data = as_interactions(log)
        recipe.kernel(data)  # a log without order is an error before anything is computed
        check_solver(solver)
        options = FitOptions.parse(dtype=dtype, memory=memory, threads=threads, solver=solver, progress=progress)
        with parallel.blas_threads(threads):
            chosen = _chosen(data, rank, options, recipe)
            settings: dict[str, Any] = {"target": target, "recipe": recipe, "tolerance": tolerance}
            pairs = decompose(data, rank, options, options.report(), chosen, **settings)
        self._set(data, pairs, target, recipe)

    def _set(
        self, log: Interactions, pairs: spectrum.EigenPairs, target: str, recipe: GramRecipe, saved: int | None = None
    ) -> None:
        self.log, self.target, self.recipe = log, target, recipe
        self.values: Float64 = np.sqrt(pairs.values)
        self.vectors, self.complete, self.residual = pairs.vectors, pairs.complete, pairs.residual
        self.products, self.saved = pairs.products, saved

    @classmethod
    def of_pairs(
        cls, log: Interactions, pairs: spectrum.EigenPairs, target: str, recipe: GramRecipe, saved: int | None = None
    ) -> Spectrum:
        """A Spectrum from eigenpairs of S that are computed already."""
        instance = cls.__new__(cls)
        instance._set(log, pairs, target, recipe, saved)
        return instance

    @property
    def user_power(self) -> float:
        """The power of the user weights."""
        return self.recipe.user_power

    @property
    def rank(self) -> int:
        """The number of pairs."""
        return len(self.values)

    def __repr__(self) -> str:
        ends = f", σ {self.values[0]:.4g} … {self.values[-1]:.4g}" if self.rank else ""
        settings = f"target={self.target!r}, user_power={self.user_power:g}"
        if self.recipe.timed:
            settings += f", decay={self.recipe.decay:g}, decay_unit={str(self.recipe.decay_unit)!r}"
            settings += f", floor={self.recipe.floor:g}"
        return f"Spectrum({self.log!r}, rank={self.rank}, {settings}{ends}, residual {self.residual:.1e})"

    def refresh(
        self,
        log: Any,
        *,
        rank: int | None = None,
        memory: int | float | str | None = None,
        threads: int | None = None,
        solver: str = "auto",
        tolerance: float | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> Spectrum:
        """A new spectrum of a changed log, computed from this one and as exact as one with a random start.

        The iteration starts from the vectors of this spectrum instead of random ones. Where the log changed little,
        that takes fewer products with the log; `saved` has their number. Items are matched by their ids. Nothing is
        saved where the pairs are computed densely (up to 1,000 users or items on the smaller side).

        Parameters
        ----------
        log : the whole log after the change, as for a new spectrum
        rank : number of pairs; by default that of this spectrum
        memory, threads, solver, tolerance, progress : as for a new spectrum
        """
        data = as_interactions(log)
        new_rank = _checked_rank(self.rank if rank is None else rank)
        _check_tolerance(tolerance)
        settings: dict[str, Any] = {"dtype": self.vectors.dtype.name, "memory": memory, "threads": threads}
        options = FitOptions.parse(solver=check_solver(solver), progress=progress, **settings)
        index = self.log.items.index(data.items)
        start = np.where((index >= 0)[:, None], self.vectors[index], 0).astype(self.vectors.dtype)
        with parallel.blas_threads(threads):
            settings = {"target": self.target, "recipe": self.recipe, "tolerance": tolerance}
            chosen = _chosen(data, new_rank, options, self.recipe)
            pairs = decompose(data, new_rank, options, options.report(), chosen, start=start, **settings)
        before = self.products + (self.saved or 0)  # products of the spectrum with a random start
        saved = before - pairs.products if before else None
        return Spectrum.of_pairs(data, pairs, self.target, self.recipe, saved)

    def save(self, path: str | Path) -> None:
        """Write log and pairs to one file; an existing file is replaced when the new one is complete."""
        header: dict[str, Any] = {"spectrum": self.target, "complete": self.complete, "residual": self.residual}
        header |= {"products": self.products, "user_power": self.user_power}
        if self.recipe.timed:
            decay_unit = [self.recipe.decay_unit.amount, self.recipe.decay_unit.unit]
            header |= {"decay": self.recipe.decay, "decay_unit": decay_unit, "floor": self.recipe.floor}
        tensors = {"spectrum.values": self.values, "spectrum.vectors": self.vectors}
        log_header, log_arrays = log_tensors(self.log)
        store.save(path, header | log_header, tensors | log_arrays)

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> Spectrum:
        """Read a spectrum from a file that `save` wrote; with `verify` every array is compared with its checksum."""
        stored = store.load(path, verify=verify)
        header, tensors = stored.header, stored.tensors
        if header.get("spectrum") not in TARGETS:
            raise ModelFileError(f"{path} contains no spectrum; expected a file written by Spectrum.save")
        try:
            log = log_from(header, tensors)
            pairs = _pairs(header, tensors, log)
            recipe = _stored_recipe(header)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, MonogramError) as error:
            raise ModelFileError(
                f"{path} does not contain a complete spectrum ({error}); save the spectrum again"
            ) from error
        return cls.of_pairs(log, pairs, header["spectrum"], recipe)


def _checked_rank(rank: Any) -> int:
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise ParameterError(f"rank = {rank!r}; expected a whole number of at least 1")
    return int(rank)


def default_recipe(target: str) -> GramRecipe:
    """The recipe of a target: the users of RG² have the power 1."""
    return GramRecipe(1.0 if target == "rg2" else 0.0)


def _checked_recipe(recipe: Any, power: Any, target: str) -> GramRecipe:
    """The recipe of a spectrum, from the recipe or the user_power that was given."""
    if recipe is None:
        return GramRecipe(_checked_power(power, target))
    if not isinstance(recipe, GramRecipe):
        raise ParameterError(f"recipe = {recipe!r}; expected a GramRecipe, such as GramRecipe(decay=0.5)")
    if power is not None:
        raise ParameterError(f"user_power = {power!r} and a recipe were given; name the user_power in the recipe")
    _checked_power(recipe.user_power, target)
    if recipe.timed and target == "rg2":
        raise ParameterError(f"decay = {recipe.decay:g} with target='rg2', which has no time kernel; leave decay out")
    return recipe


def _stored_recipe(header: dict[str, Any]) -> GramRecipe:
    """The recipe of a file; older files have no user_power, and files without a time kernel no decay."""
    power, target = _checked_power(header.get("user_power"), header["spectrum"]), header["spectrum"]
    if "decay" not in header:
        return GramRecipe(power)
    amount, unit = header["decay_unit"]
    if type(amount) not in (int, float) or not 0 < amount < np.inf or unit not in ("events", "s", ""):
        raise ModelFileError("its header has no valid entry 'decay_unit'")
    return _checked_recipe(GramRecipe(power, header["decay"], Span(float(amount), unit), header["floor"]), None, target)


def _checked_power(power: Any, target: str) -> float:
    """The power of the user weights; 1 for the target of RG²."""
    if power is None:
        return 1.0 if target == "rg2" else 0.0
    if isinstance(power, bool) or not isinstance(power, Real) or not 0 <= float(power) <= 2:
        raise ParameterError(f"user_power = {power!r}; expected a number of at least 0 and at most 2")
    if target == "rg2" and power != 1:
        raise ParameterError(
            f"user_power = {power!r} with target='rg2': RG² weighs users by the power 1; leave user_power out"
        )
    return float(power)


def _check_tolerance(tolerance: Any) -> None:
    if tolerance is not None and not (isinstance(tolerance, int | float) and tolerance > 0):
        raise ParameterError(f"tolerance = {tolerance!r}; expected a number above 0, or None")


def _pairs(header: dict[str, Any], tensors: dict[str, Any], log: Interactions) -> spectrum.EigenPairs:
    """The eigenpairs of a file, checked."""
    values, vectors = tensors["spectrum.values"], tensors["spectrum.vectors"]
    if values.ndim != 1 or vectors.shape != (log.n_items, len(values)):
        raise ModelFileError("the shape of its pairs does not match its log")
    if vectors.dtype.name not in spectrum.TOLERANCE or not finite(vectors):
        raise ModelFileError("its vectors are not finite numbers in float32 or float64")
    residual, complete = header["residual"], header["complete"]
    if type(complete) is not bool or not isinstance(residual, int | float) or not residual >= 0:
        raise ModelFileError("its header has no valid entries 'residual' and 'complete'")
    products = header.get("products", 0)  # older files have no products
    if type(products) is not int or products < 0:
        raise ModelFileError("its header has no valid entry 'products'")
    if not (np.isfinite(values).all() and (values > 0).all() and (np.diff(values) <= 0).all()):
        raise ModelFileError("its singular values are not positive numbers in descending order")
    squares = values.astype(np.float64) ** 2
    return spectrum.EigenPairs(
        squares, vectors, np.full(len(squares), header["residual"]), "stored", products, bool(header["complete"])
    )


def plan(size: Size, rank: int, options: FitOptions, recipe: GramRecipe) -> Plan:
    """The plan of `decompose`: user weights take a copy of the data, a time kernel places on the time axis."""
    copied = 8 * size.events * recipe.weighted + 16 * size.events * recipe.timed
    settings: dict[str, Any] = {"dtype": options.dtype, "threads": options.threads, "copied": copied}
    settings["timed"] = recipe.timed
    if options.cluster is None:
        return plan_spectrum(size, rank, budget=options.budget, solver=options.solver, **settings)
    from monogram.cluster.cost import spectral_plan

    cost = plan_spectrum(size, rank, budget=options.budget, solver="primal", **settings).chosen
    return spectral_plan(options.cluster, size, cost, options.budget, options.dtype)


def _chosen(log: Interactions, rank: int, options: FitOptions, recipe: GramRecipe) -> Cost:
    """The cost of the solver that the plan chose."""
    return plan(measure(log.matrix), rank, options, recipe).require().chosen


def decompose(
    log: Interactions,
    rank: int,
    options: FitOptions,
    report: ReportBuilder,
    chosen: Cost,
    *,
    target: str,
    recipe: GramRecipe,
    tolerance: float | None = None,
    start: Float | None = None,
) -> spectrum.EigenPairs:
    """The leading eigenpairs of S by the chosen solver.

    Parameters
    ----------
    report : receives the solver, the time of each stage and the residual
    start : vectors from which the iteration starts; by default random ones
    """
    report.tick("plan")
    report.planned_bytes = chosen.bytes
    matrix, shift = _weighted(log.matrix, target, recipe)
    scale = _scale(matrix)
    if scale != 1:
        matrix, shift = matrix / scale, shift and (shift[0] / scale, shift[1])
    data = _operator(matrix, shift, recipe.kernel(log), options)
    side = "users" if chosen.solver == "dual" else "items"
    settings: dict[str, Any] = {"side": side, "dtype": options.dtype, "tolerance": tolerance, "stage": report.tick}
    with spectrum_advice(options.dtype):
        pairs = spectrum.of_data(data, rank, start=start, **settings)
    pairs = replace(pairs, values=pairs.values * scale**2)
    if pairs.method == "lanczos" and len(pairs.values) < rank and options.dtype == "float32":
        warn(
            f"{len(pairs.values)} of the {rank} pairs asked for are above the rounding error of the first; if the log "
            "should have more pairs, use dtype='float64'"
        )
    report.tick("residual")
    report.solver, report.residual = f"{chosen.solver}, {pairs.method}", pairs.residual
    return pairs


def _weighted(matrix: Csr, target: str, recipe: GramRecipe) -> tuple[Csr, tuple[Float64, Float64] | None]:
    """The matrix to decompose, its rows scaled by the user weights, and the rank-one shift of the target, if any."""
    if target == "rg2":
        factor, shift = rg2.scaled_target(matrix)
        return recipe.data(matrix, factor), shift
    return recipe.data(matrix, recipe.unit(matrix)), None


def _operator(
    matrix: Csr, shift: tuple[Float64, Float64] | None, kernel: TimeKernel | None, options: FitOptions
) -> Operator:
    """The operator that multiplies by the matrix, in this process or on a cluster."""
    if options.cluster is None:
        return Operator(matrix, shift, options.threads, kernel)
    from monogram.cluster.operator import DistributedOperator

    return DistributedOperator(options.cluster, matrix, shift)


def _scale(matrix: Csr) -> float:
    """The divisor that keeps the squares of the data within the range of float32; 1 where none is needed."""
    largest = float(np.abs(matrix.data).max(initial=0.0))
    return largest if largest and not 1e-6 < largest < 1e6 else 1.0
