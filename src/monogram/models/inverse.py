"""The inverse (S + Λ)⁻¹ of a log: its plan, its computation, its accuracy check, and the public class `Inverse`.

Full-rank models and low-rank students are computed from the inverse. Models with an equal recipe and equal penalties
share one inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import dual, local, primal
from monogram.engine.inverse.certificate import certificate
from monogram.engine.inverse.disk import DiskInverse, disk_inverse, free
from monogram.engine.inverse.dual import DualInverse
from monogram.engine.inverse.primal import PrimalInverse
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.errors import MemoryBudgetError, NumericalError, ParameterError, warn
from monogram.models.advice import inverse_advice, warn_of_restart
from monogram.models.context import FitInputs, FitOptions, check_dtype, check_solver
from monogram.models.heads import Formula, ZeroDiagonal
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.report import EXPANDED, Report, ReportBuilder
from monogram.planning import choice
from monogram.planning.cost import Cost, Extra
from monogram.planning.inverse_costs import beside_tiles
from monogram.planning.plan import Plan
from monogram.planning.size import Size, measure
from monogram.weights import Dense, Dual, Weights
from monogram.weights.common import Head
from monogram.weights.update_state import UpdateState, rounded_scale

WORST_RESIDUAL = 1e-3  # larger ones are warned of
WORST_ERROR = 1e-2
NOISE = 1e-13  # relative difference of two penalties whose sums were added in another order
StudentFactors = tuple[Float, Float, float]  # left factor, right factor, residual


@dataclass(frozen=True)
class Solved:
    """The inverse C = (S + diag ℓ)⁻¹ of a fit, and the vectors that a head needs.

    Attributes
    ----------
    inverse : C
    penalties : ℓ
    d : diag S
    counts : number of users of each item
    weights : weight of each user; None where all weights are 1
    """

    inverse: PrimalInverse | DualInverse | DiskInverse
    penalties: Float64
    d: Float64
    counts: Float64
    weights: Float64 | None = None

    def head(self, head: Head) -> tuple[Float64, Float64]:
        """The column factors θ and the diagonal δ that a head computes from this inverse."""
        return head(self.inverse.diagonal, self.penalties, self.d, self.counts)

    def into_weights(self, log: Interactions, head: Head, threads: int, gram: Float | None = None) -> Dense | Dual:
        """The weights of a head, written into the array of the inverse, which is then no longer valid.

        `gram` is stored beside the weights for later updates.
        """
        inverse, c, (theta, delta) = self.inverse, self.inverse.diagonal, self.head(head)
        state = UpdateState(c.copy(), self.penalties, gram)
        if isinstance(inverse, DualInverse):
            scale = -theta / (c * self.penalties)
            user_roots = user_weight_roots(log, self.weights)
            return Dual(inverse.inverse, log.matrix, self.penalties, scale, theta + delta, user_roots, state)
        state = replace(state, scale=rounded_scale(theta, c, inverse.dtype))
        scratch = inverse.scratch if isinstance(inverse, DiskInverse) else None
        return Dense(inverse.into_weights(-theta / c, delta, threads), scratch, state)

    def copy(self, threads: int) -> Solved:
        """A copy whose array `into_weights` may overwrite; a dual or disk inverse is returned as it is."""
        if not isinstance(self.inverse, PrimalInverse):
            return self
        copied = PrimalInverse(self.inverse.lower.copy(order="F"), threads)
        copied.diagonal = self.inverse.diagonal
        return Solved(copied, self.penalties, self.d, self.counts, self.weights)


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
    """The plan of an inverse.

    Parameters
    ----------
    extra : what the model takes in addition to the inverse
    others : costs of solvers that need no inverse
    disk : whether the model can be fitted on disk
    """
    if options.cluster is not None:
        from monogram.cluster.cost import inverse_plan

        return inverse_plan(options.cluster, size, options.budget, dtype=options.dtype, extra=extra)
    return choice.plan_inverse(
        size,
        budget=options.budget,
        solver=options.solver,
        dtype=options.dtype,
        threads=options.threads,
        extra=replace(extra, expand=False) if recipe.timed else extra,  # with a kernel there is no dual to expand
        copied=recipe.copied_bytes(size.events),
        penalised=not penalties.none,
        timed=recipe.timed,
        disk=disk,
        disk_space=None if options.scratch is None or not disk else free(options.scratch),
        others=others,
    )


@inverse_advice()
def invert(
    recipe: GramRecipe, rule: Penalties, inputs: FitInputs, options: FitOptions, report: ReportBuilder, chosen: Cost
) -> Solved:
    """Compute the inverse by the chosen solver; the primal solver uses the Gram of the inputs where it is known."""
    report.tick("plan")
    report.solver, report.planned_bytes = chosen.solver, chosen.bytes
    data, kernel = inputs.data(recipe), inputs.kernel(recipe)
    report.unit = inputs.unit
    d = squares(data)
    penalties = rule.of(d)
    vectors = penalties, d, item_counts(data), recipe.weights(inputs.log.matrix, inputs.unit)
    settings: dict[str, Any] = {"dtype": options.dtype, "threads": options.threads, "stage": report.tick}
    if options.cluster is not None:
        from monogram.cluster.solve import cluster_inverse

        method, gram = "tiles" if "tiles" in chosen.solver else "one_worker", inputs.gram
        keep = gram if gram is not None and gram.flags.writeable else None  # a read-only Gram is complete already
        return Solved(cluster_inverse(options.cluster, data, penalties, method, keep=keep, **settings), *vectors)
    if chosen.solver == "disk":
        assert options.scratch is not None
        size = measure(inputs.log.matrix)
        budget = options.budget - beside_tiles(size, options.threads) - recipe.copied_bytes(size.events)
        settings |= {"folder": options.scratch, "budget": budget, "restarted": warn_of_restart}
        return Solved(disk_inverse(data, penalties, kernel=kernel, **settings), *vectors)
    if chosen.solver == "primal":
        settings |= {"kernel": kernel, "known_gram": inputs.gram}
        return Solved(primal.primal_inverse(data, penalties, **settings), *vectors)
    return Solved(dual.dual_inverse(data, penalties, **settings), *vectors)


def solve(
    recipe: GramRecipe, rule: Penalties, inputs: FitInputs, options: FitOptions, report: ReportBuilder, chosen: Cost
) -> Solved:
    """Compute the inverse by the chosen solver, measure its residual and error, and check them."""
    solved = invert(recipe, rule, inputs, options, report, chosen)
    report.tick("diagonal")
    how: dict[str, Any] = {"kernel": inputs.kernel(recipe), "threads": options.threads}
    report.residual, report.error = certificate(inputs.data(recipe), solved.penalties, solved.inverse, **how)
    report.tick("residual")
    try:
        check_accuracy(report, dual=not recipe.timed)
    except NumericalError as error:
        if isinstance(solved.inverse, DiskInverse):
            solved.inverse.scratch.remove()
            raise NumericalError(f"{error}. Its files may be damaged and were deleted: fit again") from error
        raise
    return solved


def warm(recipe: GramRecipe, dtype: str) -> None:
    """Compile the kernels of an inverse, so that the time and memory of a fit do not include the compiler."""
    data = recipe.data(two_by_two(), 1.0)
    kernel = recipe.small_kernel(data.nnz)
    solved = primal.primal_inverse(data, np.ones(2), kernel=kernel, dtype=dtype)
    certificate(data, np.ones(2), solved, kernel=kernel)
    solved.into_weights(np.ones(2), np.ones(2), 1)
    if kernel is None:
        certificate(data, np.ones(2), dual.dual_inverse(data, np.ones(2), dtype=dtype))


class Inverse:
    """The inverse C = (S + Λ)⁻¹ of a log, computed once for several models; `Spectrum` is its low-rank counterpart.

    `fit` of a full-rank model or a low-rank student accepts an Inverse in place of the log, if the recipe and the
    penalties of the model's `formula()` equal those of the inverse. Another model, or another a, b, item_power or rank,
    then needs no factorisation. Weights computed from a primal inverse are a new array. `inverse()` of a fitted
    full-rank model returns the inverse that its weights contain.

    Parameters
    ----------
    log : Interactions, CSR matrix, or anything `monogram.read` takes
    recipe : definition of S
    penalties : l2 and dropout
    dtype, memory, threads, progress : as for `fit` of a model
    solver : "auto", "primal" or "dual"

    Attributes
    ----------
    log, recipe, penalties, dtype : as given
    report_ : report of the computation, as that of a fit; its residual is that of the inverse
    unit : factor of the user weights; None where all users have the weight 1

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
        inputs = FitInputs(as_interactions(log))
        inputs.kernel(recipe)  # a log without order is an error before anything is computed
        data = inputs.log
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
                solved = solve(recipe, penalties, inputs, options, report, chosen)
        self._set(data, (recipe, penalties), solved, report.build(peak.bytes))

    def _set(
        self, log: Interactions, shared: tuple[GramRecipe, Penalties], solved: Solved | None, report: Report | None
    ) -> None:
        self.log, (self.recipe, self.penalties), self._solved = log, shared, solved
        self.dtype = report.dtype if solved is None and report is not None else str(self.solved.inverse.dtype.name)
        self.report_ = report
        self.unit = None if report is None else report.unit
        self._weights: Weights | None = None
        self._students: dict[Any, tuple[int, StudentFactors]] = {}  # by key: rank, and the factors of that rank

    @classmethod
    def of_solved(cls, log: Interactions, shared: tuple[GramRecipe, Penalties], solved: Solved) -> Inverse:
        """An Inverse from a solved system whose accuracy was not measured."""
        inverse = cls.__new__(cls)
        inverse._set(log, shared, solved, None)
        return inverse

    @classmethod
    def of_weights(
        cls, log: Interactions, shared: tuple[GramRecipe, Penalties], weights: Weights, report: Report
    ) -> Inverse:
        """The inverse that the weights of a fitted full-rank model contain; nothing is copied."""
        inverse = cls.__new__(cls)
        inverse._set(log, shared, None, report)
        inverse._weights = weights
        return inverse

    @property
    def solved(self) -> Solved:
        """The inverse as an array, with its penalties and the vectors that heads need."""
        if self._solved is None:
            raise ParameterError(
                "this inverse is part of the weights of a fitted model and has no array of its own; fit on the log, or "
                "on an Inverse made from the log"
            )
        return self._solved

    @property
    def gram(self) -> Float | None:
        """The Gram matrix, where the fitted model that the inverse comes from kept it; else None."""
        state = None if self._weights is None else self._weights.update_state
        return None if state is None else state.gram

    def __repr__(self) -> str:
        shape = f"{self.log.n_users:,} users × {self.log.n_items:,} items"
        return f"Inverse({self.recipe}, {self.penalties}, {self.dtype}, {shape})"

    def serves(self, formula: Formula, options: FitOptions) -> bool:
        """Whether the weights of a model follow from this inverse; False where its fit must compute another one.

        Models with an equal recipe and equal penalties share an inverse. ParameterError where this inverse neither
        serves the model nor has the Gram from which to compute another one.
        """
        same = formula.shared == (self.recipe, self.penalties)
        if self._weights is None:
            self._require(formula, same, options)
            return True
        same &= options.dtype == self.dtype
        if self._weights.refit_from_log:
            same &= options.solver in ("auto", self._weights.solver) and not options.keep_gram
            same &= self.report_ is None or options.neighbours in (None, self.report_.neighbours)
            return same and self._weights.serves_head(formula.head)
        if options.solver == local.NAME or options.neighbours is not None:
            raise ParameterError(
                "a local fit (solver='local', neighbours) needs the log, but a model with another solver was given in "
                "place of it; fit on the log"
            )
        if formula.recipe != self.recipe:
            settings = [
                (field.name, getattr(formula.recipe, field.name), getattr(self.recipe, field.name))
                for field in fields(GramRecipe)
            ]
            differences = ", ".join(
                f"{name} = {_shown(new)}, but the model given in place of a log has {_shown(old)}"
                for name, new, old in settings
                if new != old
            )
            raise ParameterError(f"{differences}: another recipe needs another Gram; fit on the log")
        if options.keep_gram and self.gram is None:
            raise ParameterError("keep_gram=True, but the model given in place of a log kept no Gram; fit on the log")
        if not same and self.gram is None:
            raise ParameterError(
                "another l2, dropout or dtype needs the Gram, which this model did not keep: fit this model with "
                "keep_gram=True, or fit the new model on the log"
            )
        return same

    def _require(self, formula: Formula, same: bool, options: FitOptions) -> None:
        if not same:
            raise ParameterError(
                f"this Inverse has {self.recipe} and {self.penalties}, but the model has {formula.recipe} and "
                f"{formula.penalties}; only models with equal recipe and penalties share it: fit this model on the log"
            )
        if options.keep_gram:
            raise ParameterError("keep_gram=True, but an Inverse given in place of a log has no Gram; fit on the log")

    def weights(self, head: Head, threads: int, budget: int) -> Weights:
        """The weights of a head in new arrays; the inverse stays valid."""
        if self._weights is not None:
            data = self.recipe.data(self.log.matrix, self.unit)
            gram = self.gram
            if gram is not None:
                gram.setflags(write=False)  # two models share it: an update of either makes a copy
            return self._weights.copy_with_head(head, squares(data), item_counts(data), budget=budget, threads=threads)
        inverse = self.solved.inverse
        needed = inverse.lower.nbytes if isinstance(inverse, PrimalInverse) else 0
        if needed > budget:
            raise MemoryBudgetError(
                f"weights beside the inverse need {memory_.show(needed)}, but may use {memory_.show(budget)}; "
                "raise the memory, or fit on the log"
            )
        return self.solved.copy(threads).into_weights(self.log, head, threads)

    def into_shared_weights(self, threads: int) -> Dense | Dual:
        """The weights B, written over the inverse, which is then no longer valid.

        Column factors θ of any head can be applied to the scores: (hB)·θ for a history h.
        """
        return self.solved.into_weights(self.log, ZeroDiagonal(), threads)

    def nearest(self, key: Any, rank: int, make: Callable[[], StudentFactors]) -> StudentFactors:
        """The factors of a student: the leading columns of those cached under the key, or new ones from `make`."""
        if key not in self._students or self._students[key][0] < rank:
            self._students[key] = rank, make()
        left, right, residual = self._students[key][1]
        return left[:, :rank], right[:, :rank], residual


def _shown(value: Any) -> str:
    """A setting of a recipe in a message."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def user_weight_roots(log: Interactions, weights: Float64 | None) -> Float64:
    """The square root √w of each user's weight."""
    return np.ones(log.n_users) if weights is None else np.sqrt(weights)


def item_counts(matrix: Csr) -> Float64:
    """The number of users of each item."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.float64)


def two_by_two() -> Csr:
    """Data of two users and two items, enough to compile every kernel."""
    matrix: Csr = Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr()).matrix
    return matrix


def same_penalties(first: Float64, second: Float64) -> NDArray[np.bool_]:
    """Which penalties are equal up to the rounding of sums that were added in another order."""
    return np.abs(first - second) <= NOISE * second


def exact_enough(report: ReportBuilder) -> bool:
    """Whether residual and error of a fit are within the warning thresholds."""
    return (report.residual or 0) <= WORST_RESIDUAL and (report.error or 0) <= WORST_ERROR


def check_accuracy(report: ReportBuilder, *, dual: bool = True) -> None:
    """Raise NumericalError where a fit is not finite; warn where it is not exact. `dual`: the model has that solver."""
    assert report.residual is not None
    if not (np.isfinite(report.residual) and np.isfinite(report.error or 0)):
        raise NumericalError("the inverse is not finite: raise l2, or use dtype='float64'")
    if not exact_enough(report):
        other = "primal" if report.solver in ("dual", EXPANDED) else "dual"
        another = f", or try solver='{other}'" if dual else ""
        advice = f"use dtype='float64'{another}" if report.dtype == "float32" else "raise l2"
        warn(
            f"this fit is not exact: its residual is {report.residual:.1e} (good: below {WORST_RESIDUAL:g}), and the "
            f"error of its weights about {report.error or 0:.0e} of the largest (good: below {WORST_ERROR:g}); "
            f"{advice}"
        )
