"""`Recommender`, the base class of all models: fit, plan, prune, save, and the queries of `models.queries`."""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.data.spans import in_unit_of
from monogram.engine.runtime import jit, parallel
from monogram.engine.runtime import memory as memory_
from monogram.errors import MonogramWarning, ParameterError
from monogram.models import alternatives, clusters, expansion, parameters
from monogram.models.abilities import EpochTraining, SharedFit
from monogram.models.context import (
    SOLVERS,
    FitInputs,
    FitOptions,
    check_dtype,
    check_neighbours,
    check_solver,
    scratch_folder,
)
from monogram.models.queries import Queries
from monogram.models.recipe import GramRecipe
from monogram.models.registry import names_of
from monogram.models.report import ReportBuilder
from monogram.models.timed import TimeKernelParameters
from monogram.planning.cost import Cost, counting
from monogram.planning.plan import Plan
from monogram.planning.size import Size, guess, measure
from monogram.weights import Weights

if TYPE_CHECKING:
    from monogram.models.inverse import Inverse


@dataclass(kw_only=True, eq=False)
class Recommender(Queries):
    """Base class of the models. A model is a dataclass of its parameters with a method `_fit` that returns weights.

    Attributes
    ----------
    log_ : Interactions
        The training log.
    weights_ : Weights
        The learned weights.
    report_ : Report
        Solver, time, memory and accuracy of the last fit.
    pruning_ : Pruning or None
        How the weights were pruned; see `prune`.
    """

    name: ClassVar[str]
    solvers: ClassVar[tuple[str, ...]] = SOLVERS
    epoch_training: ClassVar[EpochTraining | None] = None  # None: the fit does not run in epochs
    on_cluster: ClassVar[bool] = False  # whether the model can be fitted on a cluster
    updatable: ClassVar[bool] = False  # whether users can be added and forgotten without a refit
    keeps_gram: ClassVar[bool] = False  # whether fit(keep_gram=True) can keep the Gram beside the weights
    inductive: ClassVar[bool] = True  # whether any history can be scored, not only those of the users of the log
    needs_torch: ClassVar[bool] = False  # whether a fit needs the extra `torch`
    additive_shares: ClassVar[bool] = True  # whether `explain` gives shares that sum to the score; else differences
    brief: ClassVar[bool] = False  # whether the text form has only the parameters that are set
    needs_order: ClassVar[bool] = False  # whether the fit is an error on a log without an order of events
    expands: ClassVar[bool] = False  # whether the weights of a dual fit can be expanded
    retired: ClassVar[tuple[str, ...]] = ()  # parameters of earlier versions, which old model files still have
    # Parameters with which the model takes far less memory than a square array, the best first. The error message of a
    # fit over its memory budget names the first that fits.
    lean_settings: ClassVar[tuple[dict[str, Any], ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Give every class the same text form; a dataclass would otherwise make one with all its parameters."""
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Recommender.__repr__  # type: ignore[method-assign]

    @property
    def closed_form(self) -> bool:
        """Whether the weights follow from a factorisation, without iterations on the objective."""
        training = self.epoch_training
        return training is None or not training.runs_with(getattr(self, "solver", None))

    def __repr__(self) -> str:
        """The class and its parameters; those that most models leave at their default only where they are set."""
        kinds = (type(self),) if self.brief else COMMON
        common = {field.name for kind in kinds for field in dataclasses.fields(kind)}
        common |= {field.name for field in dataclasses.fields(self) if field.metadata.get("seldom")}
        fields = sorted(dataclasses.fields(self), key=lambda field: field.name in common)
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields
            if field.name not in common or getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __post_init__(self) -> None:
        parameters.check(self)
        self.recency_rule()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a parameter of a fitted model is read-only, because the weights depend on it."""
        if name in type(self).__dataclass_fields__ and "weights_" in self.__dict__:
            advice = f"changed({name}={value!r}) gives" if hasattr(self, "changed") else "make and fit"
            raise ParameterError(
                f"{name} = {value!r}, but this {type(self).__name__} is fitted with {name} = {getattr(self, name)!r}; "
                f"{advice} a new model"
            )
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            """Say of a model without updates that it needs a refit."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in ("add_users", "forget_users", "add_items"):
                message = (
                    f"{type(self).__name__} has no {name}: fit it again; models that have it: {names_of('updatable')}"
                )
            raise AttributeError(message, name=name, obj=self)

    def __copy__(self) -> Self:
        """An independent model. Both share their arrays until one of them is changed."""
        fresh = type(self)(**self.params())
        if "weights_" in self.__dict__:
            fresh.adopt(self.log_, copy.copy(self.weights_.seal()), self.report_, self.pruning_)
        return fresh

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The same as `copy.copy`: arrays are copied when one of the models is changed."""
        return self.__copy__()

    def params(self) -> dict[str, Any]:
        """The parameters by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def fit(
        self,
        log: Any,
        *,
        dtype: str = "float32",
        memory: int | float | str | None = None,
        threads: int | None = None,
        solver: str = "auto",
        keep_gram: bool = False,
        neighbours: int | None = None,
        expand: bool | str = False,
        scratch: str | Path | None = None,
        progress: Callable[[str, float], None] | None = None,
        cluster: Any = None,
    ) -> Self:
        """Learn weights from a log; the state of an earlier fit is discarded.

        Parameters
        ----------
        log : Interactions, CSR matrix, or anything `monogram.read` takes
        dtype : "float32" or "float64"
        memory : bytes, or a text such as "8 GB"
            The memory that the fit may use; by default the free memory, less a margin. A fit that needs more raises
            MemoryBudgetError before anything is allocated.
        threads : int
            By default all cores.
        solver : "auto", "primal" or "dual"; for full-rank models also "disk", "local" or "matrix_free"
        keep_gram : bool
            Full-rank models: keep S = XᵀX beside the weights, and in the file, so that `changed` can compute the model
            with another l2 or dropout. It is a second square array over the items; the solver is then "primal".
        neighbours : int, by default 300
            Full-rank models with solver="local": each item is regressed on at most so many other items, those that
            share a user with it and have the largest S_ij/√(d_i + ℓ_i). The report says how much twice as many would
            gain.
        expand : bool, or "file"
            Full-rank models and TwoStep: after a dual fit compute W, a square array over the items, so that the model
            answers as quickly as a primal one. "auto" then chooses the quicker of the primal fit, and the dual fit with
            the expansion. With "file" the expansion is planned but left to `save(path, expand=True)`, which writes W
            to the file block by block: the two squares are never in memory together.
        scratch : folder, optional
            The folder for the large files of a fit on disk. Where it is given, "auto" uses the disk if nothing fits in
            memory. With solver="disk" the default is the system's folder for temporary files. The files are deleted
            with the model. The files of an interrupted fit stay, and the same fit resumes from them.
        progress : callable, optional
            Receives the name of the stage and the work done in it since the last call. Its method `planned`, where it
            has one, receives the plan of the fit first.
        cluster : `distributed.Client`, an address such as "tcp://host:8786", or "local:N" for N processes; optional
            Full-rank and spectral models: the workers compute the weights, which must fit in `memory` of this process.
            The result does not change if a worker is lost. Needs the extra `dask`.
        """
        if log is self:
            raise ParameterError("a model cannot be fitted on itself; give it the log, or use `changed`")
        self.unfit()  # before the free memory is measured
        clusters.check(self, cluster, solver)
        memory_.parse(memory)  # before the log is read
        options: dict[str, Any] = {"dtype": check_dtype(dtype), "threads": parallel.count(threads)}
        options |= {"solver": self._solver(solver, keep_gram), "keep_gram": keep_gram, "progress": progress}
        options["neighbours"] = check_neighbours(neighbours, options["solver"], self.solvers)
        options |= {"expand": expansion.check(self, expand, options["solver"], cluster)}
        inputs = self.inputs(log)
        self._check_recency(inputs.log)
        with clusters.connection(cluster) as connected:
            scratch = scratch_folder(scratch, solver)
            return self.fit_from(inputs, FitOptions.parse(memory=memory, scratch=scratch, cluster=connected, **options))

    def fit_from(self, inputs: FitInputs, options: FitOptions) -> Self:
        """Fit with prepared inputs and checked options; `fit` calls this method."""
        self.unfit()
        self.__post_init__()  # a parameter may have been changed since the last check
        with parallel.blas_threads(options.threads):
            report = options.report()
            solver = options.solver
            if inputs.factorisation is None:
                solver = self._chosen(inputs, options, report).solver
                report.tick("plan")
            jit.load()
            self._warm(dataclasses.replace(options, solver=solver))
            report.tick("compile")
            with memory_.Peak() as peak:
                weights = self._fit(inputs, options, report)
                weights.complete(options.threads)
                report.tick("weights")
                weights = expansion.after_fit(self, weights, inputs, options, report)
        self.adopt(inputs.log, weights, report.build(peak.bytes))
        return self

    def plan(
        self,
        log: Any,
        *,
        dtype: str = "float32",
        memory: int | float | str | None = None,
        threads: int | None = None,
        solver: str = "auto",
        keep_gram: bool = False,
        neighbours: int | None = None,
        expand: bool | str = False,
        scratch: str | Path | None = None,
        cluster: Any = None,
    ) -> Plan:
        """The cost of `fit` with the same arguments; nothing large is allocated.

        Parameters
        ----------
        log : as for `fit`, or a tuple (users, items, events) when there is no log yet

        Returns
        -------
        Plan
            Prints as a table: solver, bytes at the peak, flops, seconds.
        """
        sized = isinstance(log, tuple) and len(log) == 3 and all(isinstance(count, int) for count in log)
        size = guess(*log) if sized else measure(self.inputs(log).log.matrix)
        options: dict[str, Any] = {"dtype": dtype, "memory": memory, "threads": threads, "keep_gram": keep_gram}
        options |= {"solver": self._solver(solver, keep_gram), "scratch": scratch_folder(scratch, solver)}
        options["neighbours"] = check_neighbours(neighbours, options["solver"], self.solvers)
        options |= {"expand": expansion.check(self, expand, options["solver"], cluster)}
        clusters.check(self, cluster, solver)
        with clusters.connection(cluster) as connected:
            return self._full_plan(size, FitOptions.parse(cluster=connected, **options))

    def shared_fit(self) -> SharedFit | None:
        """The computation on a log that this model shares with other models; None where it shares none."""
        return None

    def _on_cluster(self) -> bool:
        """Whether the model can be fitted on a cluster with its present parameters."""
        return self.on_cluster

    def _solver(self, solver: str, keep_gram: bool) -> str:
        """The solver to use; ParameterError where the model does not have the solver or cannot keep the Gram."""
        if keep_gram:
            raise ParameterError(
                f"keep_gram = True, but {type(self).__name__} keeps no Gram; leave keep_gram out, or use one of "
                f"{names_of('keeps_gram')}"
            )
        return check_solver(solver, self.solvers)

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size; by default the cost of one sum over the events."""
        return Plan.of(size, counting(size), dtype=options.dtype, budget=options.budget)

    def _full_plan(self, size: Size, options: FitOptions) -> Plan:
        """The plan; where it is over the memory budget, with other models that fit."""
        plan = self.plan_size(size, options)
        if plan.chosen.bytes <= plan.budget:
            return plan
        return dataclasses.replace(
            plan, alternatives=alternatives.fitting(size, options, without=getattr(self, "name", ""))
        )

    def _chosen(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Cost:
        """The cost of the chosen solver; the plan is made once per fit. An error where the plan does not fit."""
        if report.plan is None:
            report.plan = self._full_plan(measure(inputs.log.matrix), options)
            if hasattr(options.progress, "planned"):
                options.progress.planned(report.plan)
        return report.plan.require().chosen

    def inputs(self, source: Any) -> FitInputs:
        """The argument of `fit` as inputs: a log, or for some models a factorisation of a log."""
        inputs, recipe = FitInputs(as_interactions(source)), self._gram_recipe()
        if recipe is not None:
            inputs.kernel(recipe)  # a log without order is an error before anything is computed
        if self.needs_order:
            inputs.log.require_order(f"{self.name} needs the order of events")  # so it is here
        return inputs

    def _check_recency(self, log: Interactions) -> None:
        """Raise where the ages of events, in time, cannot be measured on the log's times; warn where it has none."""
        rule = self.recency_rule()
        if not rule.active or rule.span.in_events:
            return
        if log.latest is not None:
            in_unit_of(rule.span, log.latest, log.unit_of_times)
            return
        warnings.warn(
            f"{rule.setting} measures ages in time, but this log has no times: known users cannot be ranked, only "
            "histories given with times; name the column of times when the log is read",
            MonogramWarning,
            stacklevel=3,
        )

    def _gram_recipe(self) -> GramRecipe | None:
        """The recipe of the Gram matrix that the fit uses; None where it uses none."""
        return None

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        """Compute the weights."""
        raise TypeError(f"{type(self).__name__} must define _fit(inputs, options, report), which returns weights")

    def _warm(self, options: FitOptions) -> None:
        """Compile the kernels of the fit, so that its measured time and memory do not include the compiler."""

    def inverse(self, *, seal: bool = True) -> Inverse:
        """The inverse that the weights of a fitted full-rank model contain; an error for all other models."""
        raise ParameterError(
            f"{type(self).__name__} has no inverse from which another model can be fitted; fit on the log"
        )

    def prune(self, keep: int, *, seed: int = 0, threads: int | None = None) -> Self:
        """A copy of the model with sparse weights: the `keep` largest by magnitude in each column of W.

        Every column keeps weights, so that every item can still be recommended; the diagonal of W is kept too. This
        model does not change. `pruning_` of the new model has the sizes before and after, and how much the lists
        changed: the overlap of the first 20 items, for up to 1,000 users of the log drawn with the seed. Its `report_`
        is that of the fit.

        Parameters
        ----------
        keep : weights kept for each item, at least 1
        seed : of the sample of users
        threads : by default all cores
        """
        from monogram.models import pruning

        return pruning.prune(self, keep, seed=seed, threads=parallel.count(threads))

    def save(
        self,
        path: str | Path,
        *,
        metrics: Mapping[str, float] | None = None,
        expand: bool = False,
        threads: int | None = None,
    ) -> None:
        """Write the model to one file; an existing file is replaced when the new one is complete.

        Parameters
        ----------
        path : the file to write or replace
        metrics : measured values by name, stored in the file; `monogram inspect` and the web page show them
        expand : write W in place of the arrays of a dual fit, so that the file is that of a primal model
            W is computed block by block and is never in memory as a whole, except for TwoStep. This model does not
            change.
        threads : of the expansion; by default all cores
        """
        from monogram.models import files

        if metrics is not None and not all(
            isinstance(name, str) and isinstance(value, int | float) and math.isfinite(value)
            for name, value in metrics.items()
        ):
            raise ParameterError(f"metrics = {metrics!r}; expected finite numbers by name, such as {{'ndcg@20': 0.31}}")
        extra = None if metrics is None else {"metrics": dict(metrics)}
        if expand:
            expansion.save(self, path, extra, parallel.count(threads))
        else:
            files.save(self, path, extra=extra)


COMMON = (Recommender, TimeKernelParameters)  # their parameters are shown only where they are set
