"""The spectrum of a log, computed once and kept: every spectral model is a filter on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram import store
from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine.gram import user_weights
from monogram.engine.gram.operators import Operator
from monogram.engine.gram.user_weights import scale_rows
from monogram.engine.iterative import rg2
from monogram.engine.lowrank import spectrum
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64
from monogram.errors import ModelFileError, MonogramError, MonogramWarning, ParameterError
from monogram.models.advice import spectrum_advice
from monogram.models.context import FitOptions, check_solver
from monogram.models.files import finite, log_from, log_tensors
from monogram.models.report import ReportBuilder
from monogram.planning.choice import plan_spectrum
from monogram.planning.plan import Plan
from monogram.planning.size import Size, measure

TARGETS = ("plain", "rg2")


class Spectrum:
    """Leading singular pairs of a log: X = U·Σ·Vᵀ, of which V and σ are kept.

    `fit` of any spectral model takes it in place of the log, with any rank up to its own: changing l2, weights, keep or
    the model then costs milliseconds. `fit` of RG2 takes one whose target is "rg2".

    Parameters
    ----------
    log : Interactions, CSR matrix, or anything `monogram.read` takes
    rank : how many pairs
    target : "plain" for X itself, "rg2" for RG²'s row-normalised and shifted target
    user_power : with "plain", the spectrum of diag(√w)·X instead, where w_u = unit·n_u^(−user_power) as in `Tempered`
        By default 0, every event alike. "rg2" is shifted from the power 1.
    dtype, memory, threads, solver, progress : as for `fit` of a model; "primal" works on the items, "dual" on the users
    tolerance : largest ‖Sv − σ²v‖/σ² accepted; by default 1e-4 in float32, 1e-8 in float64

    Attributes
    ----------
    log : the log
    user_power : of the users' weights
    values : σ, largest first; pairs that are zero to rounding are left out
    vectors : V, one a column
    residual : the largest ‖Sv − σ²v‖/σ², measured
    complete : whether these are all pairs that are not zero
    products : columns the log was multiplied with to find them (of a dense solution: its side)
    saved : of a refreshed spectrum, how many products fewer than the one that was found from nothing; else None
    """

    def __init__(
        self,
        log: Any,
        rank: int = 64,
        *,
        target: str = "plain",
        user_power: float | None = None,
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
        power = _checked_power(user_power, target)
        data = as_interactions(log)
        check_solver(solver)
        options = FitOptions.parse(dtype=dtype, memory=memory, threads=threads, solver=solver, progress=progress)
        with parallel.blas_threads(threads):
            found = decompose(data, rank, options, options.report(), target=target, power=power, tolerance=tolerance)
        self._hold(data, found, target, power)

    def _hold(
        self, log: Interactions, found: spectrum.EigenPairs, target: str, power: float, saved: int | None = None
    ) -> None:
        self.log, self.target, self.user_power = log, target, power
        self.values: Float64 = np.sqrt(found.values)
        self.vectors, self.complete, self.residual = found.vectors, found.complete, found.residual
        self.products, self.saved = found.products, saved

    @classmethod
    def of_pairs(
        cls, log: Interactions, found: spectrum.EigenPairs, target: str, power: float, saved: int | None = None
    ) -> Spectrum:
        """A spectrum of pairs that were found elsewhere."""
        made = cls.__new__(cls)
        made._hold(log, found, target, power, saved)
        return made

    @property
    def rank(self) -> int:
        """How many pairs there are."""
        return len(self.values)

    def __repr__(self) -> str:
        ends = f", σ {self.values[0]:.4g} … {self.values[-1]:.4g}" if self.rank else ""
        how = f"target={self.target!r}, user_power={self.user_power:g}"
        return f"Spectrum({self.log!r}, rank={self.rank}, {how}{ends}, residual {self.residual:.1e})"

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
        """The spectrum of a changed log, found from this one: a new spectrum, as exact as one from nothing.

        The iteration starts within the old vectors instead of at random, so that fewer products with the log are needed
        where it changed little; `saved` says how many. Items are matched by their ids. A log of which the pairs are
        found densely (up to 1,000 on its smaller side) is not quicker for it.

        Parameters
        ----------
        log : the whole log after the change, as for a new spectrum
        rank : how many pairs; by default as many as there are here
        memory, threads, solver, tolerance, progress : as for a new spectrum
        """
        data = as_interactions(log)
        wanted = _checked_rank(self.rank if rank is None else rank)
        _check_tolerance(tolerance)
        how: dict[str, Any] = {"dtype": self.vectors.dtype.name, "memory": memory, "threads": threads}
        options = FitOptions.parse(solver=check_solver(solver), progress=progress, **how)
        place = self.log.items.index(data.items)
        start = np.where((place >= 0)[:, None], self.vectors[place], 0).astype(self.vectors.dtype)
        with parallel.blas_threads(threads):
            how = {"target": self.target, "power": self.user_power, "tolerance": tolerance}
            found = decompose(data, wanted, options, options.report(), start=start, **how)
        before = self.products + (self.saved or 0)  # those of the one that started at random
        saved = before - found.products if before else None
        return Spectrum.of_pairs(data, found, self.target, self.user_power, saved)

    def save(self, path: str | Path) -> None:
        """Write log and pairs to one file; an earlier file of that name stays until the new one is whole."""
        header: dict[str, Any] = {"spectrum": self.target, "complete": self.complete, "residual": self.residual}
        header |= {"products": self.products, "user_power": self.user_power}
        tensors = {"spectrum.values": self.values, "spectrum.vectors": self.vectors}
        described, held = log_tensors(self.log)
        store.save(path, header | described, tensors | held)

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> Spectrum:
        """Read what `save` wrote."""
        stored = store.load(path, verify=verify)
        header, tensors = stored.header, stored.tensors
        if header.get("spectrum") not in TARGETS:
            raise ModelFileError(f"{path} holds no spectrum; expected a file written by Spectrum.save")
        try:
            log = log_from(header, tensors)
            found = _pairs(header, tensors, log)
            power = _checked_power(header.get("user_power"), header["spectrum"])  # not in files of before
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, MonogramError) as error:
            raise ModelFileError(f"{path} does not hold a whole spectrum ({error}); save it again") from error
        return cls.of_pairs(log, found, header["spectrum"], power)


def _checked_rank(rank: Any) -> int:
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise ParameterError(f"rank = {rank!r}; expected a whole number of at least 1")
    return int(rank)


def _checked_power(power: Any, target: str) -> float:
    """The power of the users' weights; of RG²'s target it is 1."""
    if power is None:
        return 1.0 if target == "rg2" else 0.0
    if isinstance(power, bool) or not isinstance(power, Real) or not 0 <= float(power) <= 2:
        raise ParameterError(f"user_power = {power!r}; expected a number of at least 0 and at most 2")
    if target == "rg2" and power != 1:
        raise ParameterError(f"user_power = {power!r} with target='rg2': RG² weighs users by the power 1; leave it out")
    return float(power)


def _check_tolerance(tolerance: Any) -> None:
    if tolerance is not None and not (isinstance(tolerance, int | float) and tolerance > 0):
        raise ParameterError(f"tolerance = {tolerance!r}; expected a number above 0, or None")


def _pairs(header: dict[str, Any], tensors: dict[str, Any], log: Interactions) -> spectrum.EigenPairs:
    values, vectors = tensors["spectrum.values"], tensors["spectrum.vectors"]
    if values.ndim != 1 or vectors.shape != (log.n_items, len(values)):
        raise ModelFileError("its pairs do not fit its log")
    if vectors.dtype.name not in spectrum.TOLERANCE or not finite(vectors):
        raise ModelFileError("its vectors are not finite numbers in float32 or float64")
    residual, complete = header["residual"], header["complete"]
    if type(complete) is not bool or not isinstance(residual, int | float) or not residual >= 0:
        raise ModelFileError("its header does not say how good and how complete the pairs are")
    products = header.get("products", 0)  # not in files of before
    if type(products) is not int or products < 0:
        raise ModelFileError("its header does not say how many products its pairs took")
    if not (np.isfinite(values).all() and (values > 0).all() and (np.diff(values) <= 0).all()):
        raise ModelFileError("its singular values are not positive numbers in descending order")
    squares = values.astype(np.float64) ** 2
    return spectrum.EigenPairs(
        squares, vectors, np.full(len(squares), header["residual"]), "stored", products, bool(header["complete"])
    )


def plan(size: Size, rank: int, options: FitOptions, weighted: bool = False) -> Plan:
    """What `decompose` will cost; `weighted`: its users have weights, so that there is a copy of the data."""
    copied = 8 * size.events if weighted else 0
    how: dict[str, Any] = {"dtype": options.dtype, "threads": options.threads, "copied": copied}
    if options.cluster is None:
        return plan_spectrum(size, rank, budget=options.budget, solver=options.solver, **how)
    from monogram.cluster.cost import spectral_plan

    cost = plan_spectrum(size, rank, budget=options.budget, solver="primal", **how).chosen
    return spectral_plan(options.cluster, size, cost, options.budget, options.dtype)


def decompose(
    log: Interactions,
    rank: int,
    options: FitOptions,
    report: ReportBuilder,
    *,
    target: str = "plain",
    power: float = 0.0,
    tolerance: float | None = None,
    start: NDArray[Any] | None = None,
) -> spectrum.EigenPairs:
    """The leading pairs of a log, within the budget of the options; for `start` see `of_data`."""
    weighted = power != 0 or target != "plain"
    chosen = plan(measure(log.matrix), rank, options, weighted).require().chosen
    report.tick("plan")
    report.planned_bytes = chosen.bytes
    matrix, shift = _weighted(log.matrix, target, power)
    scale = _scale(matrix)
    if scale != 1:
        matrix, shift = matrix / scale, shift and (shift[0] / scale, shift[1])
    data = _operator(matrix, shift, options)
    side = "users" if chosen.solver == "dual" else "items"
    how: dict[str, Any] = {"side": side, "dtype": options.dtype, "tolerance": tolerance, "stage": report.tick}
    with spectrum_advice(options.dtype):
        found = spectrum.of_data(data, rank, start=start, **how)
    found = replace(found, values=found.values * scale**2)
    if found.method == "lanczos" and len(found.values) < rank and options.dtype == "float32":
        warnings.warn(
            f"{len(found.values)} of the {rank} pairs asked for are above the rounding of the first; if the log should "
            "have more of them, use dtype='float64'",
            MonogramWarning,
            stacklevel=2,
        )
    report.tick("residual")
    report.solver, report.residual = f"{chosen.solver}, {found.method}", found.residual
    return found


def _weighted(matrix: Any, target: str, power: float) -> tuple[Any, tuple[Float64, Float64] | None]:
    """What is decomposed: the rows with their users' weights, less a rank-one part where the target has one."""
    if target == "rg2":
        factor, shift = rg2.scaled_target(matrix)
        return scale_rows(matrix, user_weights.user_weights(matrix, power, factor)), shift
    if power == 0:
        return matrix, None
    return scale_rows(matrix, user_weights.user_weights(matrix, power, user_weights.unit(matrix, power))), None


def _operator(matrix: Any, shift: tuple[Float64, Float64] | None, options: FitOptions) -> Operator:
    """What multiplies by the log, here or on a cluster."""
    if options.cluster is None:
        return Operator(matrix, shift, options.threads)
    from monogram.cluster.operator import DistributedOperator

    return DistributedOperator(options.cluster, matrix, shift)


def _scale(matrix: Any) -> float:
    """What to divide the data by, where their squares would leave the range of float32."""
    largest = float(np.abs(matrix.data).max(initial=0.0))
    return largest if largest and not 1e-6 < largest < 1e6 else 1.0
