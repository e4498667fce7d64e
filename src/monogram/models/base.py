"""What every recommender does: fit, score, recommend, similar, explain, save."""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from monogram import ranking
from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.progress import silent
from monogram.errors import MonogramWarning, NotFittedError, ParameterError
from monogram.models import clusters, parameters
from monogram.models.context import SOLVERS, FitInputs, FitOptions, check_dtype, check_solver, scratch_folder
from monogram.models.report import Pruning, Report, ReportBuilder
from monogram.planning.cost import counting
from monogram.planning.plan import Plan
from monogram.planning.size import Size, guess, measure
from monogram.ranking import Explanation, Recommendations
from monogram.weights import Weights

if TYPE_CHECKING:
    from monogram.models.batch import Written
    from monogram.models.inverse import Inverse


@dataclass(kw_only=True, eq=False)
class Recommender:
    """Base of the models. A model is a dataclass of its parameters and one method, `_fit`, that gives weights.

    Attributes
    ----------
    report_ : Report
        How the last fit went.
    pruning_ : Pruning or None
        What was left out of the weights; see `prune`.
    """

    name: ClassVar[str]
    solvers: ClassVar[tuple[str, ...]] = SOLVERS
    updatable: ClassVar[bool] = False  # whether users can be added and forgotten without a refit

    def __post_init__(self) -> None:
        parameters.check(self)

    def __setattr__(self, name: str, value: Any) -> None:
        """Parameters are frozen once a model is fitted: its weights are those of the parameters it was fitted with."""
        if name in type(self).__dataclass_fields__ and "weights_" in self.__dict__:
            way = f"changed({name}={value!r}) gives" if hasattr(self, "changed") else "make and fit"
            raise ParameterError(
                f"{name} = {value!r}, but this {type(self).__name__} is fitted with {name} = {getattr(self, name)!r}; "
                f"{way} a new model"
            )
        super().__setattr__(name, value)

    def __copy__(self) -> Self:
        """A model of its own: a change of either leaves the other as it is. Until then they share their arrays."""
        fresh = type(self)(**self.params())
        if "weights_" in self.__dict__:
            fresh.adopt(self.log_, copy.copy(self.weights_.seal()), self.report_, self.pruning_)
        return fresh

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """As `copy.copy`: what would be written to is copied when it is."""
        return self.__copy__()

    def params(self) -> dict[str, Any]:
        """The parameters by name."""
        return {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}

    def fit(
        self,
        log: Any,
        *,
        dtype: str = "float32",
        memory: int | float | str | None = None,
        threads: int | None = None,
        solver: str = "auto",
        keep_gram: bool = False,
        scratch: str | Path | None = None,
        progress: Callable[[str, float], None] | None = None,
        cluster: Any = None,
    ) -> Self:
        """Learn from a log; what was learned before is forgotten.

        Parameters
        ----------
        log : Interactions, CSR matrix, or anything `monogram.read` takes
        dtype : "float32" or "float64"
        memory : bytes, or a text such as "8 GB"
            What the fit may take; by default what is free, less a margin. More is refused before it is allocated.
        threads : int
            By default all cores.
        solver : "auto", "primal" or "dual"; for full-rank models also "disk" or "matrix_free"
        keep_gram : bool
            Full-rank models: keep S = XᵀX beside the weights, and in the file, so that `changed` can give the model
            with another l2 or dropout. A second square array over the items; the solver is then "primal".
        scratch : folder, optional
            Where a fit on disk makes its large files; named, "auto" takes the disk where nothing fits in memory. With
            solver="disk" alone it is the system's folder for temporary files. The files go when the model goes; those
            of a fit that was stopped stay, and the same fit goes on from them.
        progress : callable, optional
            Receives the name of the stage and the work done in it since the last call.
        cluster : `distributed.Client`, an address such as "tcp://host:8786", or "local:N" for N processes; optional
            Where the work is done: full-rank and spectral models. The result comes here, and must fit in `memory`. A
            lost worker changes nothing in it. Needs the extra `dask`.
        """
        if log is self:
            raise ParameterError("a model cannot be fitted on itself; give it the log, or use `changed`")
        self.unfit()  # before the free memory is measured
        clusters.check(self, cluster, solver)
        memory_.parse(memory)  # before the log is read
        options: dict[str, Any] = {"dtype": check_dtype(dtype), "threads": parallel.count(threads)}
        options |= {"solver": self._solver(solver, keep_gram), "keep_gram": keep_gram, "progress": progress}
        inputs = self.inputs(log)
        with clusters.held(cluster) as held:
            scratch = scratch_folder(scratch, solver)
            return self.fit_from(inputs, FitOptions.parse(memory=memory, scratch=scratch, cluster=held, **options))

    def fit_from(self, inputs: FitInputs, options: FitOptions) -> Self:
        """Learn from inputs that are prepared, with options that are checked: what `fit` calls."""
        self.unfit()
        self.__post_init__()  # a parameter may have been changed since the last check
        with parallel.blas_threads(options.threads):
            report = options.report()
            self._warm(options)
            report.tick("compile")
            with memory_.Peak() as peak:
                weights = self._fit(inputs, options, report)
            report.tick("weights")
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
        scratch: str | Path | None = None,
        cluster: Any = None,
    ) -> Plan:
        """What `fit` with the same arguments would cost; nothing large is allocated.

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
        clusters.check(self, cluster, solver)
        with clusters.held(cluster) as held:
            return self._plan(size, FitOptions.parse(cluster=held, **options))

    def _on_cluster(self) -> bool:
        """Whether it can be fitted on a cluster."""
        return False

    def _solver(self, solver: str, keep_gram: bool) -> str:
        """The solver to use, checked."""
        if keep_gram:
            raise ParameterError(
                "keep_gram is for the full-rank models (EASE, DLAE, EDLAE, DEQL, Tempered); "
                f"{type(self).__name__} keeps no Gram"
            )
        return check_solver(solver, self.solvers)

    def _plan(self, size: Size, options: FitOptions) -> Plan:
        """What a fit on a log of this size costs; by default sums over the events."""
        return Plan.of(size, counting(size), dtype=options.dtype, budget=options.budget)

    def inputs(self, source: Any) -> FitInputs:
        """What `fit` was given, as inputs: a log, or for some models a factorisation of one."""
        return FitInputs(as_interactions(source))

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        raise TypeError(f"{type(self).__name__} must define _fit(inputs, options, report), which gives weights")

    def _warm(self, options: FitOptions) -> None:
        """Compile what the fit will call, so that time and memory are counted for the work alone."""

    def inverse(self) -> Inverse:
        """The inverse that the weights of a fitted full-rank model hold; an error for all other models."""
        raise ParameterError(
            f"{type(self).__name__} has no inverse that another model could be fitted from; fit on the log"
        )

    def adopt(self, log: Interactions, weights: Weights, report: Report, pruning: Pruning | None = None) -> None:
        """Become fitted with these parts: what a fit, an update or a file gives."""
        self.log_, self.weights_, self.report_, self.pruning_ = log, weights, report, pruning

    def unfit(self) -> None:
        """Forget what was learned; the parameters stay."""
        for name in ("log_", "weights_", "report_", "pruning_"):
            self.__dict__.pop(name, None)

    def fitted(self) -> tuple[Interactions, Weights]:
        """The log and the weights; a NotFittedError where there are none."""
        if "weights_" not in self.__dict__:
            raise NotFittedError(f"this {type(self).__name__} has learned nothing yet: call fit(log) first")
        return self.log_, self.weights_

    def recommend(
        self,
        users: Any = None,
        histories: Any = None,
        k: int = 10,
        allow: Any = None,
        deny: Any = None,
        exclude_seen: bool = True,
        *,
        threads: int | None = None,
    ) -> Recommendations:
        """Rank items for known users, or for any history.

        Parameters
        ----------
        users : ids of users in the training log; with neither users nor histories, all of them
        histories : list of histories, each a list of item ids or a mapping from item id to weight
            A log merged as "binary" holds no weights: there every item of a history counts 1.
        k : number of items for each request (fewer only where fewer are eligible)
        allow, deny : item ids
            Only these items; none of these items. One list for all requests, or one list for each request.
        exclude_seen : leave out the items of the history

        Returns
        -------
        Recommendations
            A table. Unknown users and items are left out; the result names them.
        """
        log, weights = self.fitted()
        if users is not None and histories is not None:
            raise ParameterError("both users and histories were given; expected one of them")
        rows = ranking.known_users(users, log) if histories is None else ranking.given_histories(histories, log)
        return ranking.recommend(
            weights, rows, log.items, k=k, allow=allow, deny=deny, exclude_seen=exclude_seen, threads=threads
        )

    def recommend_all(
        self,
        folder: str | Path,
        *,
        k: int = 10,
        allow: Any = None,
        deny: Any = None,
        exclude_seen: bool = True,
        batch: int | None = None,
        threads: int | None = None,
        progress: Callable[[str, float], None] | None = None,
        cluster: Any = None,
    ) -> Written:
        """Rank items for every user of the log, into a folder of Parquet files: `part-00000.parquet` and so on.

        Each file is the table of `recommend` for a batch of users; it is written completely or not at all. The same
        call resumes after a crash: it keeps the complete files. A folder with any other content is refused.

        Parameters
        ----------
        folder : created where it does not exist
        k, allow, deny, exclude_seen, threads : as for `recommend`
        batch : users in a file; by default 10,000, and fewer where k is large
        progress : callable, optional
            Receives "users" and how many were written since the last call.
        cluster : as for `fit`
            Its workers must see the folder under the same path: the model is stored there while they run.
        """
        from monogram.models import batch as batch_

        self.fitted()
        request = batch_.BatchRequest(k, allow, deny, exclude_seen)
        with clusters.held(cluster) as client:
            return batch_.recommend_all(
                self, folder, request, batch, parallel.count(threads), progress or silent, client
            )

    def similar(self, items: Any, k: int = 10, *, threads: int | None = None) -> Recommendations:
        """Items similar to each of the given items, which are excluded themselves.

        The similarity is the model's own: the score of the other item for a history of this item alone (a row of W).
        It is not symmetric: a sequel follows from its first part more than the first part from the sequel.
        """
        log, weights = self.fitted()
        rows = ranking.item_histories(ranking.id_list(items), log)
        return ranking.recommend(weights, rows, log.items, k=k, threads=threads, names=("item", "similar"))

    def score(self, histories: Any, items: Any = None, *, threads: int | None = None) -> NDArray[np.float64]:
        """Scores of items for each history (histories × items); by default all items, in the order of `log_.items`.

        An unknown item has the score NaN, and a warning names it.
        """
        log, weights = self.fitted()
        rows = ranking.given_histories(histories, log)
        ids = list(log.items) if items is None else ranking.id_list(items)
        index = np.arange(log.n_items) if items is None else log.items.index(ids)
        unknown = [*rows.unknown_items, *ranking.unknown_ids(ids, index)]
        if unknown:
            names = ", ".join(ranking.shorten(id_) for id_ in unknown[:5])
            warnings.warn(f"{len(unknown)} items the model does not know: {names}", MonogramWarning, stacklevel=2)
        return ranking.score(weights, rows, index, parallel.count(threads))

    def explain(self, history: Any, item: Any) -> Explanation:
        """Why an item has its score: the exact share of each item of the history. The shares sum to the score.

        Parameters
        ----------
        history : list of item ids, or a mapping from item id to weight (`history(user)` gives a known user's)
        item : id of the item to explain
        """
        log, weights = self.fitted()
        return ranking.explain(weights, ranking.given_histories([history], log), item, log.items)

    def history(self, user: Any) -> dict[Any, float]:
        """A known user's training history: item id → weight."""
        return self.fitted()[0].history(user)

    def item_weights(self) -> NDArray[np.float64]:
        """W as a dense array, in the order of `log_.items`; for small catalogues."""
        log, weights = self.fitted()
        needed = 8 * log.n_items**2
        if needed > memory_.parse(None):
            raise ParameterError(
                f"W of {log.n_items:,} items would take {memory_.show(needed)}; "
                "use score, explain or similar, which read only the parts they need"
            )
        return weights.columns(np.arange(log.n_items))

    def prune(self, keep: int, *, seed: int = 0, threads: int | None = None) -> Self:
        """A smaller model: of the weights towards each item, only the `keep` largest by magnitude.

        Each item keeps weights of its own (a column of W), so that each can still be recommended; what stands on the
        diagonal is kept beside them. This model stays as it is. The new one has `pruning_`, which says how much smaller
        it is and how much of the lists changed: the overlap of the first 20 items, for up to 1,000 users of the log
        drawn with the seed. Its `report_` is that of the fit.

        Parameters
        ----------
        keep : weights kept for each item, at least 1
        """
        from monogram.models import pruning

        return pruning.prune(self, keep, seed=seed, threads=parallel.count(threads))

    def save(self, path: str | Path, *, metrics: Mapping[str, float] | None = None) -> None:
        """Write the model to one file; an earlier file of that name stays until the new one is whole.

        Parameters
        ----------
        path : the file to make or replace
        metrics : what it was measured at, by name, to stand in the file: `monogram inspect` and the page show it
        """
        from monogram.models import files

        if metrics is not None and not all(
            isinstance(name, str) and isinstance(value, int | float) and math.isfinite(value)
            for name, value in metrics.items()
        ):
            raise ParameterError(f"metrics = {metrics!r}; expected finite numbers by name, such as {{'ndcg@20': 0.31}}")
        files.save(self, path, extra=None if metrics is None else {"metrics": dict(metrics)})
