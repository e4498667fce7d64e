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
from monogram.errors import MonogramWarning, NotFittedError, ParameterError, UnknownIdError
from monogram.models import alternatives, clusters, parameters
from monogram.models.explanation import Explanation
from monogram.models.work import SOLVERS, ObservedLog, Report, Work, check_dtype, check_solver, scratch_folder
from monogram.planning.cost import Cost, counting
from monogram.planning.plan import Plan
from monogram.planning.size import Size, guess, measure
from monogram.ranking import Recommendations
from monogram.weights import Weights
from monogram.weights.common import share

if TYPE_CHECKING:
    from monogram.models.batch import Written
    from monogram.models.fitted import Pruning


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
    # Parameters with which it takes far less memory than a square array, the best first; the message of a fit over its
    # memory budget names the first that fits.
    lean_settings: ClassVar[tuple[dict[str, Any], ...]] = ()

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
            share(self.weights_, self._kept)
            fresh._become(self.log_, copy.copy(self.weights_), self.report_, self.pruning_, self._kept)
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
            Receives the name of the stage and the work done in it since the last call. Where it has a method `planned`,
            that receives the plan of the fit first.
        cluster : `distributed.Client`, an address such as "tcp://host:8786", or "local:N" for N processes; optional
            Where the work is done: full-rank and spectral models. The result comes here, and must fit in `memory`. A
            lost worker changes nothing in it. Needs the extra `dask`.
        """
        if log is self:
            raise ParameterError("a model cannot be fitted on itself; give it the log, or use `changed`")
        self._forget()
        self.__post_init__()  # a parameter may have been changed since
        clusters.check(self, cluster, solver)
        memory_.parse(memory)
        asked = (parallel.count(threads), self._solver(solver, keep_gram), progress or silent)
        check_dtype(dtype)
        between = log.between if isinstance(log, ObservedLog) else None
        data, given = self._source(log.source if isinstance(log, ObservedLog) else log)
        with clusters.held(cluster) as held, parallel.blas_threads(threads) as number:
            work = Work(dtype, memory_.parse(memory), *asked)  # what is free is asked with the log in memory
            work.given, work.between, work.keep_gram = given, between, keep_gram
            work.scratch, work.cluster = scratch_folder(scratch, solver), held
            if given is None:
                self._chosen(data, work)
                work.tick("plan")
            self._warm(work)
            work.tick("compile")
            with memory_.Peak() as peak:
                weights = self._fit(data, work)
            work.tick("weights")
        measured = (peak.bytes, work.planned, work.residual, work.error, work.rank, tuple(work.record), work.deviation)
        report = Report(work.used, work.dtype, number, work.seconds, *measured, note=work.note, unit=work.unit)
        self._become(data, weights, report, kept=work.kept)
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
        sized = isinstance(log, tuple) and len(log) == 3 and all(isinstance(one, int) for one in log)
        size = guess(*log) if sized else measure(self._source(log)[0].matrix)
        how = (check_dtype(dtype), memory_.parse(memory), parallel.count(threads), self._solver(solver, keep_gram))
        clusters.check(self, cluster, solver)
        with clusters.held(cluster) as held:
            where = scratch_folder(scratch, solver)
            return self._full_plan(size, Work(*how, keep_gram=keep_gram, scratch=where, cluster=held))

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

    def _plan(self, size: Size, work: Work) -> Plan:
        """What a fit on a log of this size costs; by default sums over the events."""
        return Plan.of(size, counting(size), dtype=work.dtype, budget=work.budget)

    def _full_plan(self, size: Size, work: Work) -> Plan:
        """The plan, with other models that fit where this one does not."""
        plan = self._plan(size, work)
        if plan.chosen.bytes <= plan.budget:
            return plan
        how: dict[str, Any] = {"dtype": work.dtype, "budget": work.budget, "threads": work.threads}
        return dataclasses.replace(plan, alternatives=alternatives.fitting(size, **how, without=self.name))

    def _chosen(self, log: Interactions, work: Work) -> Cost:
        """The cost of the solver that the plan chose; a fit plans once, and is refused where the plan does not fit."""
        if work.plan is None:
            work.plan = self._full_plan(measure(log.matrix), work)
            if hasattr(work.progress, "planned"):
                work.progress.planned(work.plan)
        return work.plan.require().chosen

    def _source(self, log: Any) -> tuple[Interactions, Any]:
        """The log, and what came with it."""
        return as_interactions(log), None

    def _fit(self, log: Interactions, work: Work) -> Weights:
        raise TypeError(f"{type(self).__name__} must define _fit(log, work), which gives weights")

    def _warm(self, work: Work) -> None:
        """Compile what the fit will call, so that time and memory are counted for the work alone."""

    def _become(
        self, log: Interactions, weights: Weights, report: Report, pruning: Pruning | None = None, kept: Any = None
    ) -> None:
        self.log_, self.weights_, self.report_, self.pruning_, self._kept = log, weights, report, pruning, kept

    def _forget(self) -> None:
        for name in ("log_", "weights_", "report_", "pruning_", "_kept"):
            self.__dict__.pop(name, None)

    def _learned(self) -> tuple[Interactions, Weights]:
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
        """Rank items for known users, or for anyone by their history.

        Parameters
        ----------
        users : ids of users in the training log; with neither users nor histories, all of them
        histories : list of histories, each a list of item ids or a mapping from item id to weight
            A log merged as "binary" knows no weights: there every item of a history counts 1.
        k : how many items each gets (fewer only where fewer are eligible)
        allow, deny : item ids
            Only these; none of these. One list for all, or one list for each request.
        exclude_seen : leave out what is in the history

        Returns
        -------
        Recommendations
            Unknown users and items are named beside the table and left out.
        """
        log, weights = self._learned()
        if users is not None and histories is not None:
            raise ParameterError("both users and histories were given; expected one of them")
        asked = ranking.known_users(users, log) if histories is None else ranking.given_histories(histories, log)
        return ranking.recommend(
            weights, asked, log.items, k=k, allow=allow, deny=deny, exclude_seen=exclude_seen, threads=threads
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
        """Rank items for everyone in the log, into a folder of Parquet files, `part-00000.parquet` and so on.

        Each file is the table of `recommend` for a batch of users, and is written whole or not at all. The same call on
        the folder of one that was stopped goes on where it ended; a folder that holds anything else is refused.

        Parameters
        ----------
        folder : it is made where it is not there
        k, allow, deny, exclude_seen, threads : as for `recommend`
        batch : users a file; by default 10,000, and fewer where k is large
        progress : callable, optional
            Receives "users" and how many were written since the last call.
        cluster : as for `fit`
            Its workers must see the folder under the same name: the model is put there for them while they work.
        """
        from monogram.models import batch as batch_

        self._learned()
        asked = batch_.Asked(k, allow, deny, exclude_seen)
        with clusters.held(cluster) as held:
            return batch_.recommend_all(self, folder, asked, batch, parallel.count(threads), progress or silent, held)

    def similar(self, items: Any, k: int = 10, *, threads: int | None = None) -> Recommendations:
        """Items like the given ones, the item itself excluded.

        The measure is the model's own: the score of the other item for someone whose whole history is this one (a
        row of W). It is not symmetric: a sequel follows from its first part more than the first part from the sequel.
        """
        log, weights = self._learned()
        ids = ranking.id_list(items)
        index = log.items.index(ids)
        asked = ranking.given_histories([[one] for one, at in zip(ids, index, strict=True) if at >= 0], log)
        named = ranking.Histories(
            asked.matrix,
            log.items.take(index[index >= 0]),
            unknown_items=tuple(one for one, at in zip(ids, index, strict=True) if at < 0),
        )
        return ranking.recommend(weights, named, log.items, k=k, threads=threads, names=("item", "similar"))

    def score(self, histories: Any, items: Any = None, *, threads: int | None = None) -> NDArray[np.float64]:
        """Scores of items (all, in the order of `log_.items`, when not given) for each history.

        An unknown item has the score NaN, and a warning names it.
        """
        log, weights = self._learned()
        asked = ranking.given_histories(histories, log)
        ids = list(log.items) if items is None else ranking.id_list(items)
        index = np.arange(log.n_items) if items is None else log.items.index(ids)
        unknown = [*asked.unknown_items, *(one for one, at in zip(ids, index, strict=True) if at < 0)]
        if unknown:
            names = ", ".join(ranking.shorten(one) for one in unknown[:5])
            warnings.warn(f"{len(unknown)} items the model does not know: {names}", MonogramWarning, stacklevel=2)
        known = index >= 0
        out = np.full((asked.matrix.shape[0], len(index)), np.nan)
        out[:, known] = weights.score(asked.matrix, index[known], parallel.count(threads))
        return out

    def explain(self, history: Any, item: Any) -> Explanation:
        """Why an item has its score: the exact share of each item of the history. The shares sum to the score.

        Parameters
        ----------
        history : list of item ids, or a mapping from item id to weight (`history(user)` gives a known user's)
        item : id of the item to explain
        """
        log, weights = self._learned()
        asked = ranking.given_histories([history], log)
        target = log.items.index([item])
        if target[0] < 0:
            raise UnknownIdError(
                f"item {ranking.shorten(item)!r} is not one of the {log.n_items:,} items this model knows"
            )
        row = asked.matrix
        shares = weights.shares(row, int(target[0]))
        pairs = list(zip(log.items.ids(row.indices), shares.tolist(), strict=True))
        return Explanation(log.items[int(target[0])], tuple(pairs), float(weights.base(target)[0]), asked.unknown_items)

    def history(self, user: Any) -> dict[Any, float]:
        """A known user's training history: item id → weight."""
        return self._learned()[0].history(user)

    def item_weights(self) -> NDArray[np.float64]:
        """W as a dense array, in the order of `log_.items`: for small catalogues."""
        log, weights = self._learned()
        needed = 8 * log.n_items**2
        if needed > memory_.parse(None):
            raise ParameterError(
                f"W of {log.n_items:,} items would take {memory_.show(needed)}; "
                "use score, explain or similar, which read the parts they need"
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
