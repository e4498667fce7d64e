"""What every recommender does: fit, score, recommend, similar, explain, save."""

from __future__ import annotations

import dataclasses
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from monogram import ranking
from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine import memory as memory_
from monogram.engine import parallel
from monogram.engine.inverse import Stage, silent
from monogram.engine.plan import Cost, Plan, Size, guess, measure
from monogram.errors import MonogramWarning, NotFittedError, ParameterError, UnknownIdError
from monogram.models import clusters, parameters
from monogram.models.explanation import Explanation
from monogram.ranking import Recommendations
from monogram.weights import Weights

if TYPE_CHECKING:
    from monogram.cluster import Cluster
    from monogram.models.batch import Written
    from monogram.models.pruning import Pruning


def check_dtype(dtype: str) -> str:
    """The name of a working precision."""
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"dtype = {dtype!r}; expected 'float32' or 'float64'")
    return dtype


SOLVERS = ("auto", "primal", "dual")


def check_solver(solver: str, among: tuple[str, ...] = SOLVERS) -> str:
    """The name of a solver, one of some."""
    if solver not in among:
        *most, last = (repr(one) for one in among)
        raise ParameterError(f"solver = {solver!r}; expected {', '.join(most)} or {last}")
    return solver


def _folder(scratch: str | Path | None, solver: str) -> Path | None:
    """Where large files may be made: where it was said, or, when they were asked for, where the system has such."""
    if scratch is not None:
        return Path(scratch)
    return Path(tempfile.gettempdir()) if solver == "disk" else None


Between = Callable[[int, Callable[[], Weights]], None]


@dataclass(frozen=True)
class Watched:
    """What a fit learns from, and who is called between its epochs: `fit` takes it in place of the log.

    Attributes
    ----------
    source : what `fit` takes
    between : receives the number of epochs done and a function that makes the weights as they stand
        It is called after each epoch of the whole model but the last; what it raises leaves `fit`.
    """

    source: Any
    between: Between


@dataclass
class Work:
    """How a fit is to be done, and what it notes on the way.

    `given` is what a source brought beside its log (a spectrum), `record` the objective by epoch, `between` as in
    `Watched`, `scratch` the folder in which a fit on disk may make its files, `gram` the Gram where it is
    there already, `kept` what the model keeps beside its weights, `cluster` where the work is done if not here,
    `note` what the report is to say of it.
    """

    dtype: str = "float32"
    budget: int = 0
    threads: int = 1
    solver: str = "auto"
    progress: Stage = silent
    used: str = "none"
    planned: int | None = None
    residual: float | None = None
    error: float | None = None
    deviation: float | None = None
    rank: int | None = None
    record: list[float] = field(default_factory=list)
    given: Any = None
    between: Between | None = None
    scratch: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    keep_gram: bool = False
    gram: NDArray[Any] | None = None
    kept: Any = None
    cluster: Cluster | None = None
    note: str = ""

    def __post_init__(self) -> None:
        self._last = time.perf_counter()

    def tick(self, stage: str, amount: float = 0.0) -> None:
        """Count the time since the last tick to a stage, and pass the work done in it on."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now
        self.progress(stage, amount)

    def pause(self, weights: Callable[[Any], Weights]) -> Callable[[int, Callable[[], Any]], None] | None:
        """What a loop of the engine calls between epochs, where someone watches; `weights` are made of its state."""
        watch = self.between
        if watch is None:
            return None
        return lambda done, state: watch(done, lambda: weights(state()))


@dataclass(frozen=True)
class Report:
    """How a fit went.

    Attributes
    ----------
    solver : "primal", "dual", "disk", "matrix_free" or "none"; for a spectrum the side and the method, or "reused";
        on a cluster "cluster (one worker)", "cluster (tiles)", or "cluster" and the method
    dtype : working precision
    threads : threads used
    seconds : by stage (compile: kernels, the first time on a machine)
    peak_bytes : most memory taken during the fit above what the process held before (None: not measurable)
    planned_bytes : what the plan foresaw
    residual : largest off-diagonal entry of (S + Λ)B − S on probe columns, relative to max|S|; for a spectrum the
        largest ‖Av − σ²v‖/σ²; for SLIM the largest violation of the conditions of its minimum, relative to max|S|
    error : error of the weights on those columns, relative to the largest: a bound, or where that is large an estimate
        (None: not known)
    rank : of the weights, where it is not full
    objectives : after each epoch of an iterative fit; of some closed forms their one value
    deviation : of a matrix-free fit that estimates c = diag C: the largest standard error of an item's c, relative
    changes : how often users or items were added or forgotten since the fit; the numbers above are then of the last one
    residual_at_fit, error_at_fit : what the fit had, where there were changes since
    note : what was done in another way than the plain one, such as a refit in place of a change, and why
    """

    solver: str
    dtype: str
    threads: int
    seconds: dict[str, float]
    peak_bytes: int | None
    planned_bytes: int | None
    residual: float | None
    error: float | None = None
    rank: int | None = None
    objectives: tuple[float, ...] = ()
    deviation: float | None = None
    changes: int = 0
    residual_at_fit: float | None = None
    error_at_fit: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "objectives", tuple(self.objectives))  # a list in a file

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {value:.2f}" for name, value in self.seconds.items() if value >= 0.005)
        total = sum(self.seconds.values())
        lines = [f"solver {self.solver}, {self.dtype}, {self.threads} threads, {total:.2f} s ({stages})"]
        if self.peak_bytes is not None:
            planned = "" if self.planned_bytes is None else f" (planned {memory_.show(self.planned_bytes)})"
            lines.append(f"peak {memory_.show(self.peak_bytes)}{planned}")
        if self.residual is not None:
            error = "" if self.error is None else f", error of the weights at most about {self.error:.0e}"
            lines.append(f"residual {self.residual:.1e}{error}")
        if self.deviation:
            lines.append(f"diagonal estimated, standard error at most {self.deviation:.1%}; refined for each list")
        if self.rank is not None:
            lines.append(f"rank {self.rank}")
        if self.objectives:
            epochs = len(self.objectives)
            lines.append(f"objective {self.objectives[-1]:.6g}" + (f" after {epochs} epochs" if epochs > 1 else ""))
        if self.changes:
            lines.append(f"{self.changes:,} changes since the fit, whose residual was {self.residual_at_fit or 0:.1e}")
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)


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

    def __post_init__(self) -> None:
        parameters.check(self)

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
        self._forget()
        self.__post_init__()  # a parameter may have been changed since
        clusters.check(self, cluster, solver)
        memory_.parse(memory)
        asked = (parallel.count(threads), self._solver(solver, keep_gram), progress or silent)
        check_dtype(dtype)
        between = log.between if isinstance(log, Watched) else None
        data, given = self._source(log.source if isinstance(log, Watched) else log)
        with clusters.held(cluster) as held, parallel.limited(threads) as number:
            work = Work(dtype, memory_.parse(memory), *asked)  # what is free is asked with the log in memory
            work.given, work.between, work.keep_gram = given, between, keep_gram
            work.scratch, work.cluster = _folder(scratch, solver), held
            self._warm(work)
            work.tick("compile")
            with memory_.Peak() as peak:
                weights = self._fit(data, work)
            work.tick("weights")
        measured = (peak.bytes, work.planned, work.residual, work.error, work.rank, tuple(work.record), work.deviation)
        report = Report(work.used, work.dtype, number, work.seconds, *measured, note=work.note)
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
            return self._plan(size, Work(*how, keep_gram=keep_gram, scratch=_folder(scratch, solver), cluster=held))

    def _on_cluster(self) -> bool:
        """Whether it can be fitted on a cluster."""
        return False

    def _solver(self, solver: str, keep_gram: bool) -> str:
        """The solver to use, checked."""
        if keep_gram:
            raise ParameterError(
                f"keep_gram is for the full-rank models (EASE, DLAE, EDLAE, DEQL); {type(self).__name__} keeps no Gram"
            )
        return check_solver(solver, self.solvers)

    def _plan(self, size: Size, work: Work) -> Plan:
        """By default: sums over the events, no solver."""
        cost = Cost("none", 8 * size.items, float(size.events), size.events * 1e-8)
        return Plan(size.users, size.items, size.events, work.dtype, work.budget, cost, (cost,))

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

    def save(self, path: str | Path) -> None:
        """Write the model to one file; an earlier file of that name stays until the new one is whole."""
        from monogram.models import files

        files.save(self, path)
