"""The inverse (S + Λ)⁻¹ of a log, computed once and shared: every full-rank model and student is read off one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import dual, matrix_free, primal
from monogram.engine.inverse.certificate import certificate
from monogram.engine.inverse.disk import DiskInverse, disk_inverse, free
from monogram.engine.inverse.dual import DualInverse
from monogram.engine.inverse.primal import PrimalInverse
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float, Float64
from monogram.errors import MemoryBudgetError, MonogramWarning, NumericalError, ParameterError
from monogram.models.advice import inverse_advice, warn_of_restart
from monogram.models.context import FitInputs, FitOptions, check_dtype, check_solver
from monogram.models.heads import Formula, ZeroDiagonal
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.report import Report, ReportBuilder
from monogram.planning import choice
from monogram.planning.cost import Cost, Extra
from monogram.planning.inverse_costs import beside_tiles
from monogram.planning.plan import Plan
from monogram.planning.size import Size, measure
from monogram.weights import Dense, Dual, Weights
from monogram.weights.common import Head
from monogram.weights.update_state import UpdateState, rounded_scale

WORST_RESIDUAL = 1e-3
WORST_ERROR = 1e-2
NOISE = 1e-13  # of a penalty: what the order of a sum may change
Pairs = tuple[NDArray[Any], NDArray[Any], float]


@dataclass(frozen=True)
class Solved:
    """The inverse C = (S + diag ℓ)⁻¹ of a fit, its penalties ℓ, d = diag S, and the users of each item.

    `weights` are those of the users; None where all are 1.
    """

    inverse: PrimalInverse | DualInverse | DiskInverse
    penalties: Float64
    d: Float64
    counts: Float64
    weights: Float64 | None = None

    def head(self, head: Head) -> tuple[Float64, Float64]:
        """θ and δ of a head."""
        return head(self.inverse.diagonal, self.penalties, self.d, self.counts)

    def into_weights(self, log: Interactions, head: Head, threads: int, gram: Float | None = None) -> Dense | Dual:
        """The weights under a head, made in the array of the inverse, which is gone afterwards; `gram` is kept."""
        inverse, c, (theta, delta) = self.inverse, self.inverse.diagonal, self.head(head)
        state = UpdateState(c.copy(), self.penalties, gram)
        if isinstance(inverse, DualInverse):
            scale = -theta / (c * self.penalties)
            users = roots(log, self.weights)
            return Dual(inverse.inverse, log.matrix, self.penalties, scale, theta + delta, users, state)
        state = replace(state, scale=rounded_scale(theta, c, inverse.dtype))
        scratch = inverse.scratch if isinstance(inverse, DiskInverse) else None
        return Dense(inverse.into_weights(-theta / c, delta, threads), scratch, state)

    def copy(self, threads: int) -> Solved:
        """The same in an array of its own, where `into_weights` would take it."""
        if not isinstance(self.inverse, PrimalInverse):
            return self
        own = PrimalInverse(self.inverse.lower.copy(order="F"), threads)
        own.diagonal = self.inverse.diagonal
        return Solved(own, self.penalties, self.d, self.counts, self.weights)


def plan_inverse(
    recipe: GramRecipe,
    penalties: Penalties,
    size: Size,
    options: FitOptions,
    extra: Extra,
    others: tuple[Cost, ...] = (),
    *,
    disk: bool = False,
) -> Plan:
    """The plan of an inverse, with ways that need none beside it; `disk` says whether it may be made on disk."""
    if options.cluster is not None:
        from monogram.cluster.cost import inverse_plan

        return inverse_plan(options.cluster, size, options.budget, dtype=options.dtype, extra=extra)
    return choice.plan_inverse(
        size,
        budget=options.budget,
        solver=options.solver,
        dtype=options.dtype,
        threads=options.threads,
        extra=extra,
        copied=recipe.copied_bytes(size.events),
        penalised=not penalties.none,
        disk=disk,
        disk_space=None if options.scratch is None or not disk else free(options.scratch),
        others=others,
    )


@inverse_advice()
def invert(
    recipe: GramRecipe, rule: Penalties, inputs: FitInputs, options: FitOptions, report: ReportBuilder, chosen: Cost
) -> Solved:
    """Invert as planned; the Gram of the inputs is used where it is known (see `primal_inverse`)."""
    size = measure(inputs.log.matrix)
    report.tick("plan")
    report.solver, report.planned_bytes = chosen.solver, chosen.bytes
    data = inputs.data(recipe)
    report.unit = inputs.unit
    d = squares(data)
    penalties = rule.of(d)
    rest = penalties, d, used(data), recipe.weights(inputs.log.matrix, inputs.unit)
    how: dict[str, Any] = {"dtype": options.dtype, "threads": options.threads, "stage": report.tick}
    if options.cluster is not None:
        from monogram.cluster.solve import cluster_inverse

        way, gram = "tiles" if "tiles" in chosen.solver else "one_worker", inputs.gram
        keep = gram if gram is not None and gram.flags.writeable else None  # else it is whole already
        return Solved(cluster_inverse(options.cluster, data, penalties, way, keep=keep, **how), *rest)
    if chosen.solver == "disk":
        assert options.scratch is not None
        budget = options.budget - beside_tiles(size, options.threads) - recipe.copied_bytes(size.events)
        how |= {"folder": options.scratch, "budget": budget, "restarted": warn_of_restart}
        return Solved(disk_inverse(data, penalties, **how), *rest)
    if chosen.solver == "primal":
        return Solved(primal.primal_inverse(data, penalties, known_gram=inputs.gram, **how), *rest)
    return Solved(dual.dual_inverse(data, penalties, **how), *rest)


def solve(
    recipe: GramRecipe, rule: Penalties, inputs: FitInputs, options: FitOptions, report: ReportBuilder, chosen: Cost
) -> Solved:
    """Invert as planned, and certify the inverse."""
    solved = invert(recipe, rule, inputs, options, report, chosen)
    report.tick("diagonal")
    report.residual, report.error = certificate(inputs.data(recipe), solved.penalties, solved.inverse)
    report.tick("residual")
    try:
        judge(report)
    except NumericalError as error:
        if isinstance(solved.inverse, DiskInverse):
            solved.inverse.scratch.remove()
            raise NumericalError(f"{error}. Its files may have been damaged: they are gone, fit again") from error
        raise
    return solved


def warm(recipe: GramRecipe, dtype: str) -> None:
    """Compile what an inverse calls, so that time and memory are counted for the work alone."""
    data = recipe.data(tiny(), 1.0)
    for invert_small in (primal.primal_inverse, dual.dual_inverse):
        solved = invert_small(data, np.ones(2), dtype=dtype)
        certificate(data, np.ones(2), solved)
        if isinstance(solved, PrimalInverse):
            solved.into_weights(np.ones(2), np.ones(2), 1)


class Inverse:
    """The inverse C = (S + Λ)⁻¹ of a log, computed once; the sister of `Spectrum`.

    `fit` of a full-rank model or a low-rank student takes it in place of the log, if the recipe and the penalties of
    the model's `formula()` equal those of the inverse: another model, or another a, b, item_power or rank, then costs
    no factorisation. Full-rank weights from a primal inverse are an array of their own. `inverse()` of a fitted
    full-rank model gives the inverse that its weights hold.

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
        options = FitOptions.parse(dtype=dtype, memory=memory, threads=threads, solver=solver, progress=progress)
        report = options.report()
        with parallel.blas_threads(threads):
            size = measure(data.matrix)
            extra = Extra(bytes=recipe.copied_bytes(size.events))
            chosen = plan_inverse(recipe, penalties, size, options, extra).require().chosen
            report.tick("plan")
            warm(recipe, dtype)
            report.tick("compile")
            with memory_.Peak() as peak:
                solved = solve(recipe, penalties, FitInputs(data), options, report, chosen)
        self._set(data, (recipe, penalties), solved, report.build(peak.bytes))

    def _set(
        self, log: Interactions, shared: tuple[GramRecipe, Penalties], solved: Solved | None, report: Report | None
    ) -> None:
        self.log, (self.recipe, self.penalties), self._solved = log, shared, solved
        self.dtype = report.dtype if solved is None and report is not None else str(self.solved.inverse.dtype.name)
        self.report_ = report
        self.unit = None if report is None else report.unit
        self._weights: Weights | None = None
        self._pairs: dict[Any, tuple[int, Pairs]] = {}

    @classmethod
    def of_solved(cls, log: Interactions, shared: tuple[GramRecipe, Penalties], solved: Solved) -> Inverse:
        """An inverse that was made elsewhere, without a certificate."""
        inverse = cls.__new__(cls)
        inverse._set(log, shared, solved, None)
        return inverse

    @classmethod
    def of_weights(
        cls, log: Interactions, shared: tuple[GramRecipe, Penalties], weights: Weights, report: Report
    ) -> Inverse:
        """The inverse that the weights of a fitted full-rank model hold; nothing is copied."""
        inverse = cls.__new__(cls)
        inverse._set(log, shared, None, report)
        inverse._weights = weights
        return inverse

    @property
    def solved(self) -> Solved:
        """The inverse as an array, with the penalties and sums it was made of."""
        if self._solved is None:
            raise ParameterError(
                "this inverse is part of the weights of a fitted model, which hold no array to multiply with; fit on "
                "the log, or on an Inverse made from the log"
            )
        return self._solved

    @property
    def gram(self) -> Float | None:
        """The Gram, where the model that the inverse comes from kept it: then other penalties need no new one."""
        state = None if self._weights is None else self._weights.update_state
        return None if state is None else state.gram

    def __repr__(self) -> str:
        shape = f"{self.log.n_users:,} users × {self.log.n_items:,} items"
        return f"Inverse({self.recipe}, {self.penalties}, {self.dtype}, {shape})"

    def serves(self, formula: Formula, options: FitOptions) -> bool:
        """Whether a model is read off this inverse; False where its fit needs another one, and can make it.

        Models with equal recipe and penalties share an inverse. A ParameterError says why a fit cannot be done.
        """
        same = formula.shared == (self.recipe, self.penalties)
        if self._weights is None:
            self._require(formula, same, options)
            return True
        same &= options.dtype == self.dtype
        if self._weights.solver == matrix_free.NAME:  # such a model is its log: any fit can be done
            return same and options.solver in ("auto", matrix_free.NAME) and self._weights.serves_head(formula.head)
        if formula.recipe != self.recipe:
            pairs = [
                (field.name, getattr(formula.recipe, field.name), getattr(self.recipe, field.name))
                for field in fields(GramRecipe)
            ]
            other = ", ".join(
                f"{name} = {new:g}, where the model given in place of a log has {old:g}"
                for name, new, old in pairs
                if new != old
            )
            raise ParameterError(f"{other}: another recipe is another Gram; fit it on the log")
        if options.keep_gram and self.gram is None:
            raise ParameterError("keep_gram=True, but the model given in place of a log kept no Gram; fit on the log")
        if not same and self.gram is None:
            raise ParameterError(
                "another l2, dropout or dtype needs the Gram, which this model did not keep: fit it with "
                "keep_gram=True, or fit the new one on the log"
            )
        return same

    def _require(self, formula: Formula, same: bool, options: FitOptions) -> None:
        if not same:
            raise ParameterError(
                f"this Inverse has {self.recipe} and {self.penalties}, and the model {formula.recipe} and "
                f"{formula.penalties}; only models with equal ones share it: fit this one on the log"
            )
        if options.keep_gram:
            raise ParameterError("keep_gram=True, but an Inverse given in place of a log has no Gram; fit on the log")

    def weights(self, head: Head, threads: int, budget: int) -> Weights:
        """The weights under a head, in arrays of their own; the inverse stays."""
        if self._weights is not None:
            data = self.recipe.data(self.log.matrix, self.unit)
            gram = self.gram
            if gram is not None:
                gram.setflags(write=False)  # two models share it: an update of either makes a copy
            return self._weights.copy_with_head(head, squares(data), used(data), budget=budget, threads=threads)
        inverse = self.solved.inverse
        needed = inverse.lower.nbytes if isinstance(inverse, PrimalInverse) else 0
        if needed > budget:
            raise MemoryBudgetError(
                f"weights beside the inverse need {memory_.show(needed)}, but may use {memory_.show(budget)}; "
                "raise the memory, or fit on the log"
            )
        return self.solved.copy(threads).into_weights(self.log, head, threads)

    def into_shared_weights(self, threads: int) -> Dense | Dual:
        """B itself, in place of the inverse, which is gone afterwards: (hB)·θ ranks as the model of each θ does."""
        return self.solved.into_weights(self.log, ZeroDiagonal(), threads)

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


def exact_enough(report: ReportBuilder) -> bool:
    """Whether residual and error of a fit are within the warning thresholds."""
    return (report.residual or 0) <= WORST_RESIDUAL and (report.error or 0) <= WORST_ERROR


def judge(report: ReportBuilder) -> None:
    """Refuse a fit that is not finite, and warn of one that is not exact."""
    assert report.residual is not None
    if not (np.isfinite(report.residual) and np.isfinite(report.error or 0)):
        raise NumericalError("the inverse is not finite: raise l2, or use dtype='float64'")
    if not exact_enough(report):
        other = "primal" if report.solver == "dual" else "dual"
        advice = f"use dtype='float64', or try solver='{other}'" if report.dtype == "float32" else "raise l2"
        warnings.warn(
            f"this fit is not exact: its residual is {report.residual:.1e} (good: below {WORST_RESIDUAL:g}), and its "
            f"weights are off by some {report.error or 0:.0e} of the largest (good: below {WORST_ERROR:g}); {advice}",
            MonogramWarning,
            stacklevel=5,
        )
