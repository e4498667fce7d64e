"""Full-rank linear autoencoders: the weights of each model are an inverse with rescaled columns.

With S = XᵀX, d = diag S, q = 1 − dropout, ℓ = l2 + (dropout/q)·d, C = (S + diag ℓ)⁻¹ and c = diag C, the matrix
B = −C·diag(1/c) with zero diagonal regresses every item on all others. Every model here is W = B·diag(θ) + diag(δ).
Its `formula` states the recipe of S, the penalties ℓ, and the head that computes θ and δ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from monogram.data.interactions import Interactions
from monogram.engine.gram.accumulate import gram
from monogram.engine.inverse import local, matrix_free
from monogram.engine.runtime.arrays import Float
from monogram.errors import ParameterError
from monogram.models.abilities import Reading, SharedFit
from monogram.models.change import UpdateOptions
from monogram.models.context import SOLVERS, FitInputs, FitOptions, check_solver
from monogram.models.heads import DecoupledLoss, Formula, FreeDiagonal, PopularityScaled, ZeroDiagonal
from monogram.models.inverse import Inverse, solve
from monogram.models.inverse_model import InverseModel
from monogram.models.local import fit_local
from monogram.models.local import warm as warm_local
from monogram.models.matrix_free import fit_matrix_free
from monogram.models.matrix_free import warm as warm_matrix_free
from monogram.models.parameters import param
from monogram.models.recipe import Penalties
from monogram.models.repeats import RepeatParameter
from monogram.models.report import FROZEN, Pruning, Report, ReportBuilder
from monogram.models.search_axes import DROPOUT, L2, USER_POWER, Search
from monogram.models.timed import TimeKernelParameters
from monogram.planning import inverse_costs
from monogram.planning.cost import Cost, Extra
from monogram.planning.plan import Plan
from monogram.planning.size import Size
from monogram.weights import Weights
from monogram.weights.common import Head

B = Search(tuple(float(f"{0.1 * 1.12**step:.3g}") for step in range(32)), free=True)
ITEM_POWER = Search(tuple(step / 20 for step in range(-8, 9)), "plain", free=True, only_with_shift=True)


@dataclass(kw_only=True, eq=False)
class FullRank(RepeatParameter, InverseModel):
    """Base class of the full-rank models: W = B·diag(θ) + diag(δ), computed from one inverse.

    The weights contain the inverse, so that they can be updated exactly (`models.updates`). Two solvers compute no
    inverse: "local" regresses each item on a few others (`models.local`), "matrix_free" solves a linear system for each
    history (`models.matrix_free`).

    `repeat` is added to the diagonal of W: the score of an item of the history rises by that times its weight in the
    history. It counts in lists with exclude_seen=False.
    """

    on_cluster: ClassVar[bool] = True
    updatable: ClassVar[bool] = True
    keeps_gram: ClassVar[bool] = True
    expands: ClassVar[bool] = True
    reading: ClassVar[Reading] = "heads"
    deql_b: ClassVar[float | None] = None  # the b of DEQL that ranks as this model does, if there is one
    solvers: ClassVar[tuple[str, ...]] = (*SOLVERS, "disk", local.NAME, matrix_free.NAME)

    def add_users(
        self,
        log: Any,
        *,
        new_items: bool = False,
        penalties: str = "followed",
        on_drift: str = "refit",
        memory: int | float | str | None = None,
        threads: int | None = None,
    ) -> Self:
        """Add the events of another log without a refit: the model becomes that of a fit on both logs.

        The update is exact (Woodbury identity), in O(n²·r) operations for r users, or O(m²·r) with the dual solver. It
        is done in place. After an error the model is as before; only an interrupt while the weights are rewritten
        leaves it unfitted.

        The weights of a matrix-free model are its log: it is refitted, with a new estimate of c where it needs c. Of a
        local model the columns with a changed candidate are solved again; where they are more than half of all columns,
        a ParameterError says so, and the model stays as it is.

        Parameters
        ----------
        log : as for `fit`
            New users, and new events of known users, which are merged with their rows by the rule of the first log.
            Known users with new events move to the end of `log_`.
        new_items : add items that the model does not know, as `add_items` does; by default they are an error
        penalties : "followed" or "frozen"
            With dropout the penalties depend on the popularity of each item. "followed" recomputes them, as a refit
            does; the rank of the update grows by one for each item with new events. "frozen" keeps the former
            penalties: quicker, but not equal to a refit. Without dropout there is no difference.
        on_drift : "refit", "error" or "warn"
            What to do when the residual or the error of the weights, which grow by rounding, would be above their
            bound: 1e-5 in float32, 1e-10 in float64, or four times the value of the fit where that is larger.
        memory, threads : as for `fit`
        """
        from monogram.models import updates

        options = UpdateOptions(penalties, on_drift, memory, threads)
        return updates.add_users(self, log, new_items, options)

    def forget_users(
        self,
        ids: Any,
        *,
        penalties: str = "followed",
        on_drift: str = "refit",
        memory: int | float | str | None = None,
        threads: int | None = None,
    ) -> Self:
        """Remove users without a refit: the model becomes that of a fit on the log without them.

        The update is exact and in place, and after an error the model is as before; see `add_users`. A file saved
        afterwards contains nothing of the removed users. The catalogue keeps all items, also those without events.

        Parameters
        ----------
        ids : of users in the training log; an unknown id is an error
        penalties, on_drift, memory, threads : as for `add_users`
        """
        from monogram.models import updates

        return updates.forget_users(self, ids, UpdateOptions(penalties, on_drift, memory, threads))

    def add_items(self, ids: Any, *, memory: int | float | str | None = None, threads: int | None = None) -> Self:
        """Append items without events to the catalogue; their scores are 0 until `add_users` adds events with them.

        The weights of a primal model are copied to a larger array; both arrays must fit in `memory`.

        Parameters
        ----------
        ids : of new items; an id that is in the catalogue already is an error
        memory, threads : as for `fit`
        """
        from monogram.models import updates

        return updates.add_items(self, ids, UpdateOptions(memory=memory, threads=threads))

    def changed(
        self, *, memory: int | float | str | None = None, threads: int | None = None, **parameters: Any
    ) -> Self:
        """A new model fitted on the same log with other parameters; this model does not change.

        Another head (a, b, zero_diagonal, item_power, repeat) needs no factorisation. Another l2 or dropout needs one
        factorisation and the Gram, which `fit(..., keep_gram=True)` keeps; a local or matrix-free model is refitted on
        its log and needs no Gram. Another user_power needs another Gram: fit a new model on the log. For a model of
        another class, `fit` accepts this model in place of the log: `DEQL(l2=50).fit(model)`.

        Parameters
        ----------
        memory, threads : as for `fit`
        parameters : those to change, by name
        """
        from monogram.models import updates

        return updates.changed(self, parameters, memory, threads)

    def shared_fit(self) -> SharedFit:
        """The inverse of the model's recipe and penalties; a subclass with a fit of its own is fitted on it."""
        plain = type(self)._fit is FullRank._fit
        return SharedFit("inverse", self.formula().shared, self.reading if plain else "fit")

    def inverse(self, *, seal: bool = True) -> Inverse:
        """The inverse that the weights of this fitted model contain, for `fit` of other models; nothing is copied.

        `fit` also accepts the fitted model itself in place of the log, and then uses this inverse.
        """
        from monogram.models import updates

        updates.check(self)
        log, weights = self.fitted()
        if seal:
            weights.seal()  # an update of this model then makes new arrays, and the inverse stays as it is
        return Inverse.of_weights(log, self.formula().shared, weights, self.report_)

    def _solver(self, solver: str, keep_gram: bool) -> str:
        check_solver(solver, self.solvers)
        if keep_gram and solver not in ("auto", "primal"):
            raise ParameterError(
                f"keep_gram=True with solver={solver!r}, which computes no Gram of the items; use solver='primal'"
            )
        return "primal" if keep_gram else solver

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        recipe, _, head = self.formula()
        settings: dict[str, Any] = {"dtype": options.dtype, "threads": options.threads}
        others: tuple[Cost, ...] = (
            inverse_costs.local(size, options.candidates, **settings),
            inverse_costs.matrix_free(size, head.needs_diagonal, timed=recipe.timed, **settings),
        )
        if options.expand and not recipe.timed:
            others = ()  # they have nothing to expand
        return self.plan_inverse(size, options, others)

    def _extra(self, size: Size, options: FitOptions) -> Extra:
        gram_bytes = size.items**2 * np.dtype(options.dtype).itemsize if options.keep_gram else 0
        copied = self.formula().recipe.copied_bytes(size.events)
        return Extra(bytes=gram_bytes + copied, expand=options.expand)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        recipe, penalties, head = self.formula()
        source: Inverse | None = inputs.factorisation
        if source is not None:
            if source.serves(self.formula(), options):
                return self._from_inverse(source, options, report)
            if recipe == source.recipe:
                inputs.unit = source.unit
            if source.gram is not None:
                inputs.gram = source.gram
                inputs.gram.setflags(write=False)  # two models share the array: an update of either makes a copy
                options = replace(options, solver="primal")
        chosen = self._chosen(inputs, options, report)
        if chosen.solver == local.NAME:
            return fit_local(self.formula(), inputs, options, report, chosen.bytes)
        if chosen.solver == matrix_free.NAME:
            return fit_matrix_free(self.formula(), inputs, options, report, chosen.bytes)
        if options.keep_gram and inputs.gram is None:
            inputs.gram = self._gram(inputs, options, report)
        solved = solve(recipe, penalties, inputs, options, report, chosen)
        return solved.into_weights(inputs.log, head, options.threads, inputs.gram)

    def _gram(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Float:
        """S, to be kept beside the weights; on a cluster the solver fills the array."""
        n = inputs.log.n_items
        out: Float = np.zeros((n, n), options.dtype, order="F")
        if options.cluster is None:
            recipe = self.formula().recipe
            how: dict[str, Any] = {"kernel": inputs.kernel(recipe), "threads": options.threads}
            gram(inputs.data(recipe), out, **how, done=lambda columns: report.tick("gram", columns))
        return out

    def _from_inverse(self, source: Inverse, options: FitOptions, report: ReportBuilder) -> Weights:
        """The weights from an inverse that is known already, without a factorisation."""
        report.reused(source.report_)
        report.dtype, report.unit = source.dtype, source.unit
        if source.report_ is not None and FROZEN in source.report_.note:
            report.note = FROZEN
        weights = source.weights(self.formula().head, options.threads, options.budget)
        if not self.formula().head.needs_diagonal:
            report.deviation = None
        report.planned_bytes = weights.nbytes if weights.solver == "primal" else None
        return weights

    def _warm(self, options: FitOptions) -> None:
        if options.solver == local.NAME:
            warm_local(self.formula().recipe, options.dtype)
        elif options.solver == matrix_free.NAME:
            warm_matrix_free(self.formula().recipe, options.dtype)
        else:
            super()._warm(options)

    def adopt(self, log: Interactions, weights: Weights, report: Report, pruning: Pruning | None = None) -> None:
        """Set the state of a fitted model; weights that apply the head when they score receive the model's head."""
        weights.bind_head(self.formula().head)
        super().adopt(log, weights, report, pruning)


@dataclass(kw_only=True, eq=False)
class EASE(TimeKernelParameters, FullRank):
    """Embarrassingly shallow autoencoder (Steck 2019).

    Minimises ‖X − XB‖² + l2·‖B‖² with diag B = 0. Solution: B = −C·diag(1/c) off the diagonal, C = (S + l2·I)⁻¹.
    """

    name: ClassVar[str] = "ease"
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)

    def formula(self) -> Formula:
        """S, l2, and a zero diagonal."""
        return Formula(self.recipe(), Penalties(self.l2), self.with_repeat(ZeroDiagonal()))


@dataclass(kw_only=True, eq=False)
class EDLAE(TimeKernelParameters, FullRank):
    """Emphasised denoising autoencoder, full rank (Steck 2020, eq. 8).

    Minimises the expected error on dropped entries alone: ‖X − XB‖² + ‖Λ^½B‖² with diag B = 0 and
    Λ = diag(l2 + dropout/(1 − dropout)·d). Solution: B = −C·diag(1/c) off the diagonal.
    """

    name: ClassVar[str] = "edlae"
    deql_b: ClassVar[float | None] = 0.0
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)

    def formula(self) -> Formula:
        """S, l2 and dropout, and a zero diagonal."""
        return Formula(self.recipe(), Penalties(self.l2, self.dropout), self.with_repeat(ZeroDiagonal()))


@dataclass(kw_only=True, eq=False)
class DLAE(TimeKernelParameters, FullRank):
    """Denoising linear autoencoder, full rank.

    Minimises ‖X − XW‖² + ‖Λ^½W‖² with a free diagonal, Λ = diag(l2 + dropout/(1 − dropout)·d).
    Solution: W = C·S = I − CΛ, that is θ = c·ℓ and δ = 1 − c·ℓ.
    """

    name: ClassVar[str] = "dlae"
    deql_b: ClassVar[float | None] = 1.0
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)

    def formula(self) -> Formula:
        """S, l2 and dropout, and a free diagonal."""
        return Formula(self.recipe(), Penalties(self.l2, self.dropout), self.with_repeat(FreeDiagonal()))


@dataclass(kw_only=True, eq=False)
class DEQL(TimeKernelParameters, FullRank):
    """Linear autoencoder of the decoupled expected quadratic loss (Guo et al. 2026, eq. 5).

    Minimises E‖A ⊙ (X − (Δ ⊙ X)W)‖² + γ·l2·‖W‖² where Δ hides entries with probability `dropout` and A weighs hidden
    entries by `a`, kept ones by `b`; γ = q²p·a² + q³b² puts l2 in the units of S. Solution by column:
    δ = q·b²·(1/c − ℓ) / (q·b²·d + γ·l2 − (q⁴b⁴/γ)·β) with β = d + ℓ − 1/c, and θ = 1/q − (q²b²/γ)·δ.
    With b = 0 the diagonal is free; it is set to 0, which is EDLAE times 1/q.
    """

    name: ClassVar[str] = "deql"
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)
    a: float = param(1.0, "weight of the error on hidden entries", low=0, high=1e6)
    b: float = param(0.5, "weight of the error on kept entries", low=0, high=1e6, search=B)
    zero_diagonal: bool = param(False, "force the diagonal of the weights to 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._head().gamma == 0:
            raise ParameterError(
                f"a = {self.a:g}, b = {self.b:g}, dropout = {self.dropout:g} leave no error to minimise; "
                "expected b above 0, or a and dropout above 0"
            )

    def _head(self) -> DecoupledLoss:
        return DecoupledLoss(Penalties(self.l2, self.dropout), self.a, self.b, self.zero_diagonal)

    def formula(self) -> Formula:
        """S, l2 and dropout, and the optimum of the decoupled loss."""
        head = self._head()
        return Formula(self.recipe(), head.penalties, self.with_repeat(head))


@dataclass(kw_only=True, eq=False)
class Tempered(TimeKernelParameters, FullRank):
    """EDLAE, or DEQL, with weights of users and a power of popularity; one inverse, as they have.

    Minimises Σ_u w_u‖x_u − x_u·B‖² + ‖Λ^½B‖² with diag B = 0 and Λ = diag(l2 + dropout/(1 − dropout)·d), d = diag S and
    S = Xᵀ·diag(w)·X; with b above 0 DEQL's expected loss (a = 1), each user's error times w_u. Solution: that of EDLAE
    or DEQL with this S. Then each column is multiplied by max(users of the item, ½)^item_power, which needs no inverse.

    A user counts w_u = unit·n_u^(−user_power), so that long histories weigh less; n_u is the sum of the user's row (of
    a binary log: the number of items). With unit = Σ_v n_v / Σ_v n_v^(1 − user_power) the mean weight of an event is 1;
    it is that of the log of the fit, and stays as users come and go (`report_.unit`).
    """

    name: ClassVar[str] = "tempered"
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30, search=L2)
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)
    user_power: float = param(
        0.5,
        "power that down-weights users with long histories; 0: all events have the same weight",
        low=0,
        high=2,
        search=USER_POWER,
    )
    item_power: float = param(0.0, "power of an item's popularity in its scores", low=-2, high=2, search=ITEM_POWER)
    b: float = param(0.0, "weight of the error on kept entries; 0: none, and a zero diagonal", low=0, high=1e6)

    def formula(self) -> Formula:
        """S with weights of users, l2 and dropout, and the head of EDLAE or DEQL times a power of popularity."""
        penalties = Penalties(self.l2, self.dropout)
        head: Head = DecoupledLoss(penalties, b=self.b) if self.b > 0 else ZeroDiagonal()
        head = self.with_repeat(PopularityScaled(head, self.item_power))
        return Formula(self.recipe(self.user_power), penalties, head)
