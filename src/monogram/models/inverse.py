"""The inverse (S + Λ)⁻¹ of a log, computed once and shared: every full-rank model and student is read off one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import dense
from monogram.engine.inverse.disk import Tiled, free
from monogram.engine.inverse.disk import disk as invert_on_disk
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64
from monogram.engine.runtime.progress import silent
from monogram.errors import MemoryBudgetError, MonogramWarning, NumericalError, ParameterError
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.work import Report, Work, check_dtype, check_solver
from monogram.planning import choice
from monogram.planning.cost import Cost, Extra
from monogram.planning.inverse_costs import beside_tiles
from monogram.planning.plan import Plan
from monogram.planning.size import Size, measure
from monogram.weights import Dense, Dual

WORST_RESIDUAL = 1e-3
WORST_ERROR = 1e-2
NOISE = 1e-13  # of a penalty: what the order of a sum may change
Pairs = tuple[NDArray[Any], NDArray[Any], float]


@dataclass(frozen=True)
class Solved:
    """The inverse C = (S + diag ℓ)⁻¹ of a fit, its penalties ℓ, d = diag S, and the users of each item.

    `weights` are those of the users; None where all are 1.
    """

    inverse: dense.Inverse | Tiled
    penalties: Float64
    d: Float64
    counts: Float64
    weights: Float64 | None = None

    def head(self, head: Any) -> tuple[Float64, Float64]:
        """θ and δ of a head."""
        theta, delta = head(self.inverse.diagonal, self.penalties, self.d, self.counts)
        return theta, delta

    def into_weights(self, log: Interactions, theta: Float64, delta: Float64, threads: int) -> Dense | Dual:
        """The weights B·diag(θ) + diag(δ), made in the array of the inverse, which is gone afterwards."""
        found, c = self.inverse, self.inverse.diagonal
        if isinstance(found, Tiled):
            return Dense(found.into_weights(-theta / c, delta, threads), found.scratch)
        if isinstance(found, dense.Primal):
            return Dense(found.into_weights(-theta / c, delta, threads))
        scale = -theta / (c * self.penalties)
        return Dual(found.inverse, log.matrix, self.penalties, scale, theta + delta, roots(log, self.weights))

    def copy(self, threads: int) -> Solved:
        """The same in an array of its own, where `into_weights` would take it."""
        if not isinstance(self.inverse, dense.Primal):
            return self
        own = dense.Primal(self.inverse.lower.copy(order="F"), threads)
        own.diagonal = self.inverse.diagonal
        return Solved(own, self.penalties, self.d, self.counts, self.weights)


def weighted_data(recipe: GramRecipe, log: Interactions, work: Work) -> Any:
    """The weighted data of a log; where no factor of the weights was given, it is that of this log."""
    if work.data is None:
        if work.unit is None:
            work.unit = recipe.unit(log.matrix)
        work.data = recipe.data(log.matrix, work.unit)
    return work.data


def plan_inverse(
    recipe: GramRecipe,
    penalties: Penalties,
    size: Size,
    work: Work,
    extra: Extra,
    others: tuple[Cost, ...] = (),
    *,
    disk: bool = False,
) -> Plan:
    """The plan of an inverse, with ways that need none beside it; `disk` says whether it may be made on disk."""
    if work.cluster is not None:
        from monogram.cluster.cost import inverse_plan

        return inverse_plan(work.cluster, size, work.budget, dtype=work.dtype, extra=extra)
    return choice.plan_inverse(
        size,
        budget=work.budget,
        solver=work.solver,
        dtype=work.dtype,
        threads=work.threads,
        extra=extra,
        copied=recipe.copied_bytes(size.events),
        penalised=not penalties.none,
        disk=disk,
        disk_space=None if work.scratch is None or not disk else free(work.scratch),
        others=others,
    )


def invert(
    recipe: GramRecipe,
    rule: Penalties,
    log: Interactions,
    work: Work,
    chosen: Cost,
    known: NDArray[Any] | None = None,
) -> Solved:
    """Invert as planned; `known` is the Gram, where it is there already (see `dense.primal`)."""
    size = measure(log.matrix)
    work.tick("plan")
    work.used, work.planned = chosen.solver, chosen.bytes
    data = weighted_data(recipe, log, work)
    d = squares(data)
    penalties = rule.of(d)
    rest = penalties, d, used(data), recipe.weights(log.matrix, work.unit)
    how: dict[str, Any] = {"dtype": work.dtype, "threads": work.threads, "stage": work.tick}
    if work.cluster is not None:
        from monogram.cluster.solve import primal

        way = "tiles" if "tiles" in chosen.solver else "one_worker"
        keep = known if known is not None and known.flags.writeable else None  # else it is whole already
        return Solved(primal(work.cluster, data, penalties, way, keep=keep, **how), *rest)
    if chosen.solver == "disk":
        assert work.scratch is not None
        room = work.budget - beside_tiles(size, work.threads) - recipe.copied_bytes(size.events)
        return Solved(invert_on_disk(data, penalties, folder=work.scratch, room=room, **how), *rest)
    if chosen.solver == "primal":
        return Solved(dense.primal(data, penalties, known=known, **how), *rest)
    return Solved(dense.dual(data, penalties, **how), *rest)


def solve(recipe: GramRecipe, rule: Penalties, log: Interactions, work: Work, chosen: Cost) -> Solved:
    """Invert as planned, and judge the inverse."""
    solved = invert(recipe, rule, log, work, chosen, work.gram)
    work.tick("diagonal")
    work.residual, work.error = dense.certificate(work.data, solved.penalties, solved.inverse)
    work.tick("residual")
    try:
        judge(work)
    except NumericalError as error:
        if isinstance(solved.inverse, Tiled):
            solved.inverse.scratch.remove()
            raise NumericalError(f"{error}. Its files may have been damaged: they are gone, fit again") from error
        raise
    return solved


def warm(recipe: GramRecipe, dtype: str) -> None:
    """Compile what an inverse calls, so that time and memory are counted for the work alone."""
    data = recipe.data(tiny(), 1.0)
    for invert_small in (dense.primal, dense.dual):
        solved = invert_small(data, np.ones(2), dtype=dtype)
        dense.certificate(data, np.ones(2), solved)
        if isinstance(solved, dense.Primal):
            solved.into_weights(np.ones(2), np.ones(2), 1)


class Inverse:
    """The inverse C = (S + Λ)⁻¹ of a log, computed once; the sister of `Spectrum`.

    `fit` of EASE, EDLAE, DLAE, DEQL, Tempered and the low-rank students takes it in place of the log, if the recipe and
    the penalties of the model's `formula()` equal those of the inverse: another model, or another a, b, item_power or
    rank, then costs no factorisation. Full-rank weights from a primal inverse are an array of their own.

    Parameters
    ----------
    log : Interactions, CSR matrix, or anything `monogram.read` takes
    recipe : what S is
    penalties : l2 and dropout
    dtype, memory, threads, progress : as for `fit` of a model
    solver : "auto", "primal" or "dual"

    Attributes
    ----------
    log, recipe, penalties, dtype : as given
    report_ : how it was made, as the report of a fit; its residual is that of the inverse
    unit : the factor of the users' weights, where they have any

    Examples
    --------
    >>> import monogram as mg
    >>> log = mg.sample()
    >>> inverse = mg.Inverse(log, mg.GramRecipe(), mg.Penalties(l2=50, dropout=0.3))
    >>> models = [mg.EDLAE(l2=50, dropout=0.3).fit(inverse), mg.DLAE(l2=50, dropout=0.3).fit(inverse)]
    """

    def __init__(
        self,
        log: Any,
        recipe: GramRecipe,
        penalties: Penalties,
        *,
        dtype: str = "float32",
        memory: int | float | str | None = None,
        threads: int | None = None,
        solver: str = "auto",
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        if not isinstance(recipe, GramRecipe) or not isinstance(penalties, Penalties):
            raise ParameterError(
                f"recipe = {recipe!r}, penalties = {penalties!r}; expected a GramRecipe and Penalties, such as "
                "Inverse(log, GramRecipe(), Penalties(l2=100))"
            )
        check_dtype(dtype)
        check_solver(solver)
        data = as_interactions(log)
        with parallel.blas_threads(threads) as number:
            work = Work(dtype, memory_.parse(memory), number, solver, progress or silent)
            size = measure(data.matrix)
            extra = Extra(bytes=recipe.copied_bytes(size.events))
            chosen = plan_inverse(recipe, penalties, size, work, extra).require().chosen
            work.tick("plan")
            warm(recipe, dtype)
            work.tick("compile")
            with memory_.Peak() as peak:
                solved = solve(recipe, penalties, data, work, chosen)
        report = Report(
            solver=work.used,
            dtype=dtype,
            threads=number,
            seconds=work.seconds,
            peak_bytes=peak.bytes,
            planned_bytes=work.planned,
            residual=work.residual,
            error=work.error,
            unit=work.unit,
        )
        self._set(data, (recipe, penalties), solved, report)

    def _set(
        self, log: Interactions, shared: tuple[GramRecipe, Penalties], solved: Solved, report: Report | None
    ) -> None:
        self.log, (self.recipe, self.penalties), self.solved = log, shared, solved
        self.dtype = str(solved.inverse.dtype.name)
        self.report_ = report
        self.unit = None if report is None else report.unit
        self._pairs: dict[Any, tuple[int, Pairs]] = {}

    @classmethod
    def of_solved(cls, log: Interactions, shared: tuple[GramRecipe, Penalties], solved: Solved) -> Inverse:
        """An inverse that was made elsewhere, without a certificate."""
        found = cls.__new__(cls)
        found._set(log, shared, solved, None)
        return found

    def __repr__(self) -> str:
        shape = f"{self.log.n_users:,} users × {self.log.n_items:,} items"
        return f"Inverse({self.recipe}, {self.penalties}, {self.dtype}, {shape})"

    def require(self, formula: Any) -> None:
        """Refuse a model of another recipe or other penalties."""
        if formula.shared != (self.recipe, self.penalties):
            raise ParameterError(
                f"this Inverse has {self.recipe} and {self.penalties}, and the model {formula.recipe} and "
                f"{formula.penalties}; only models with equal ones share it: fit this one on the log"
            )

    def weights(self, theta: Float64, delta: Float64, threads: int, budget: int) -> Dense | Dual:
        """The weights B·diag(θ) + diag(δ) in an array of their own; the inverse stays."""
        found = self.solved.inverse
        needed = found.lower.nbytes if isinstance(found, dense.Primal) else 0
        if needed > budget:
            raise MemoryBudgetError(
                f"weights beside the inverse need {memory_.show(needed)}, but may use {memory_.show(budget)}; "
                "raise the memory, or fit on the log"
            )
        return self.solved.copy(threads).into_weights(self.log, theta, delta, threads)

    def into_shared_weights(self, threads: int) -> Dense | Dual:
        """B itself, in place of the inverse, which is gone afterwards: (hB)·θ ranks as the model of each θ does."""
        one = np.ones(self.log.n_items)
        return self.solved.into_weights(self.log, one, 0 * one, threads)

    def nearest(self, key: Any, rank: int, make: Callable[[], Pairs]) -> Pairs:
        """Two factors of a student and their residual: made, or the beginning of what was made for a higher rank."""
        if key not in self._pairs or self._pairs[key][0] < rank:
            self._pairs[key] = rank, make()
        left, right, residual = self._pairs[key][1]
        return left[:, :rank], right[:, :rank], residual


def roots(log: Interactions, weights: Float64 | None) -> Float64:
    """The roots √w of the users' weights."""
    return np.ones(log.n_users) if weights is None else np.sqrt(weights)


def used(matrix: Any) -> Float64:
    """How many users each item has."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.float64)


def tiny() -> NDArray[np.float32]:
    """The smallest data that compiles everything: two users, two items."""
    matrix: NDArray[np.float32] = Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr()).matrix
    return matrix


def alike(one: Float64, other: Float64) -> NDArray[np.bool_]:
    """Which penalties are the same, but for the order of the sums they come from."""
    return np.abs(one - other) <= NOISE * other


def exact_enough(work: Work) -> bool:
    """Whether residual and error of a fit are within the warning thresholds."""
    return (work.residual or 0) <= WORST_RESIDUAL and (work.error or 0) <= WORST_ERROR


def judge(work: Work) -> None:
    """Refuse a fit that is not finite, and warn of one that is not exact."""
    assert work.residual is not None
    if not (np.isfinite(work.residual) and np.isfinite(work.error or 0)):
        raise NumericalError("the inverse is not finite: raise l2, or use dtype='float64'")
    if not exact_enough(work):
        other = "primal" if work.used == "dual" else "dual"
        advice = f"use dtype='float64', or try solver='{other}'" if work.dtype == "float32" else "raise l2"
        warnings.warn(
            f"this fit is not exact: its residual is {work.residual:.1e} (good: below {WORST_RESIDUAL:g}), and its "
            f"weights are off by some {work.error or 0:.0e} of the largest (good: below {WORST_ERROR:g}); {advice}",
            MonogramWarning,
            stacklevel=5,
        )
