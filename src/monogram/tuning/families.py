"""Settings in groups that share their work.

Full-rank models of one (l2, dropout, user_power) share one inverse and one pass of scores, from which every θ ranks;
where many l2 have one ratio of dropout/(1 − dropout) to l2, one eigendecomposition may serve them all (see `plan`).
`TwoStep`s of one (l2, dropout, user_power) share the inverse of their first step, one pass of scores by each step, and
with all others their directions: every second, low_pass, rank and item_power ranks from these. Students share an
inverse and their teacher's pairs (a lower rank is a beginning of them); spectral models share one spectrum. The Gram is
made once for all inverses of a user_power, where the memory holds it beside the one that is factorised. What shares
nothing is fitted alone.

A candidate's inverse is not certified: the refitted best is, as every fit.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.data.splits import Split
from monogram.engine.gram import user_weights
from monogram.engine.gram.accumulate import gram, squares
from monogram.engine.inverse import ridge_path
from monogram.engine.runtime import parallel
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.errors import MemoryBudgetError, MonogramError, MonogramWarning, NumericalError
from monogram.evaluation.metrics import Metric
from monogram.evaluation.protocol import Measured, measure, measure_heads, measure_model, measure_weights
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.full_rank import FullRank
from monogram.models.inverse import Inverse, invert, used
from monogram.models.inverse_model import InverseModel
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.spectral import FIRST_RANK, Spectral
from monogram.models.spectrum import Spectrum
from monogram.models.students import Student
from monogram.models.two_step import TwoStep, directions
from monogram.planning.cost import Cost
from monogram.planning.size import Size
from monogram.planning.size import measure as measure_size
from monogram.tuning.epochs import Stopped, Watch
from monogram.tuning.settings import Setting, Trial
from monogram.weights import Mixture, Mixtures, Weights

Group = list[Setting]


@dataclass(frozen=True)
class Task:
    """What settings are tried on: a validation split, a metric of users, and how to fit."""

    split: Split
    metric: Metric
    dtype: str = "float32"
    memory: int | float | str | None = None
    threads: int | None = None

    @property
    def how(self) -> dict[str, Any]:
        """The options of a fit."""
        return {"dtype": self.dtype, "memory": self.memory, "threads": self.threads}


def grouped(settings: Iterable[Setting]) -> list[Group]:
    """The settings by what they share, in the order in which each group begins."""
    groups: dict[Any, Group] = {}
    for setting in dict.fromkeys(settings):
        groups.setdefault(_shared(setting), []).append(setting)
    return list(groups.values())


def _shared(setting: Setting) -> Any:
    model = setting.make()
    if isinstance(model, InverseModel):
        return "steps" if isinstance(model, TwoStep) else "inverse", model.formula().shared
    if isinstance(model, Spectral) and model.closed_form:
        return "spectrum", model.target, model.name
    return "alone", setting


def shared(group: Group) -> list[tuple[GramRecipe, Penalties]]:
    """Each recipe and penalties of a group that is inverted, in the order in which it begins; none for other models."""
    models = (setting.make() for setting in group)
    return list(dict.fromkeys(one.formula().shared for one in models if isinstance(one, InverseModel)))


class Families:
    """Tries groups of settings on a task; what later groups can use again is kept.

    Attributes
    ----------
    watches : of settings yet to be tried, those that are watched while they are trained
    trouble : the last error by which a group has no values
    """

    def __init__(self, task: Task) -> None:
        self.task, self.log = task, task.split.train
        self.trouble: MonogramError | None = None
        self.threads = parallel.count(task.threads)
        self.watches: dict[Setting, Watch] = {}
        self._gram: NDArray[Any] | None = None
        self._recipe = GramRecipe()
        self._spectra: dict[str, Spectrum] = {}
        self._basis: tuple[int, NDArray[Any]] = 0, np.zeros((self.log.n_items, 0), task.dtype)  # rank, directions

    def spectrum(self, target: str = "plain", rank: int = FIRST_RANK) -> Spectrum:
        """A spectrum with at least so many pairs, or all."""
        held = self._spectra.get(target)
        if held is None or (held.rank < rank and not held.complete):
            self._spectra.pop(target, None)
            self._spectra[target] = held = Spectrum(self.log, rank, target=target, **self.task.how)
        return held

    @cached_property
    def size(self) -> Size:
        """Of what is learned from."""
        return measure_size(self.log.matrix)

    @property
    def square(self) -> int:
        """The bytes of a Gram that is kept."""
        return self.log.n_items**2 * np.dtype(self.task.dtype).itemsize

    @property
    def kept(self) -> bool:
        """Whether a Gram is kept by now."""
        return self._gram is not None

    @property
    def recipe(self) -> GramRecipe | None:
        """The recipe of the Gram that is kept; None where none is."""
        return self._recipe if self.kept else None

    def data(self, model: InverseModel) -> Any:
        """What is learned from, as a model weighs it."""
        return FitInputs(self.log).data(model.formula().recipe)

    def options(self) -> FitOptions:
        """How an inverse may be made now."""
        options = FitOptions.parse(dtype=self.task.dtype, memory=self.task.memory, threads=self.threads)
        if self.kept and self.task.memory is not None:
            return replace(options, budget=options.budget - self.square)  # of what is free it is gone already
        return options

    def chosen(self, models: Iterable[InverseModel], options: FitOptions) -> tuple[Cost, InverseModel]:
        """How a group is inverted, and the model that takes most."""
        found = [(model._plan(self.size, options).chosen, model) for model in models]
        return max(found, key=lambda one: one[0].bytes)

    def keeps(self, chosen: Cost, options: FitOptions) -> bool:
        """Whether the Gram is kept beside an inverse."""
        return chosen.solver == "primal" and chosen.bytes + self.square <= options.budget

    def run(self, group: Group) -> list[Trial]:
        """Try a group from `grouped`, or several on one path (see `plan`): a trial for each setting, in its order."""
        start = time.perf_counter()
        models = [setting.make() for setting in group]
        with warnings.catch_warnings(record=True) as said, parallel.blas_threads(self.task.threads):
            warnings.simplefilter("always", MonogramWarning)
            values, trouble = self._values(models)
        notes = dict.fromkeys(str(one.message) for one in said if issubclass(one.category, MonogramWarning))
        note = "; ".join([*notes, *([trouble] if trouble else [])])
        seconds = (time.perf_counter() - start) / len(group)
        return [self._trial(setting, value, seconds, note) for setting, value in zip(group, values, strict=True)]

    def _trial(self, setting: Setting, value: float | None, seconds: float, note: str) -> Trial:
        watch = self.watches.pop(setting, None)
        if watch is None:
            return Trial(setting, value, seconds, note)
        words = "; ".join(one for one in (note, watch.words(setting.parameters["epochs"])) if one)
        return Trial(setting, value, seconds, words, tuple(watch.seen), watch.stopped)

    def _values(self, models: list[Recommender]) -> tuple[list[float | None], str]:
        """The metric of each model; where the mathematics fails, none and why."""
        work: Callable[[list[Any]], list[float | None]] = self._alone
        if isinstance(models[0], TwoStep):
            work = self._by_steps
        elif isinstance(models[0], InverseModel):
            several = len({model.formula().penalties for model in models if isinstance(model, InverseModel)}) > 1
            work = self._by_path if several else self._by_inverse
        elif isinstance(models[0], Spectral) and models[0].closed_form:
            work = self._by_spectrum
        try:
            found = work(models)
        except (NumericalError, MemoryBudgetError) as error:
            self.trouble = error
            return [None] * len(models), str(error)
        return [value if value is not None and np.isfinite(value) else None for value in found], ""

    def _alone(self, models: list[Recommender]) -> list[float | None]:
        return [self._tried(model, self.log) for model in models]

    def _tried(self, model: Recommender, source: Any) -> float | None:
        """Fit and measure a model; none where who watches it had it stopped."""
        watch = self.watches.get(Setting.of(model.name, model.params()))
        if watch is None:
            return self._measured(model.fit(source, **self.task.how))
        try:
            inputs = replace(model.inputs(source), between=watch.between(self._value))
            model.fit_from(inputs, FitOptions.parse(**self.task.how))
        except Stopped:
            return None
        epochs, value = len(model.report_.objectives), self._measured(model)
        watch.end(epochs, value)
        return value

    def _measured(self, model: Recommender) -> float:
        values, _ = measure_model(model, self.task.split, (self.task.metric,), self.threads)
        model.unfit()
        return float(values.mean())

    def _value(self, weights: Weights) -> float:
        """The metric of weights that no model has yet."""
        values, _ = measure_weights(weights, self.log, self.task.split, (self.task.metric,), self.threads)
        return float(values.mean())

    def _by_spectrum(self, models: list[Spectral]) -> list[float | None]:
        rank = max(model._wanted() or FIRST_RANK for model in models)
        held = self.spectrum(models[0].target, rank)
        while not all(model._wanted() or model._enough(held) for model in models):
            held = self.spectrum(models[0].target, 2 * held.rank)
        return [self._measured(model.fit(held, **self.task.how)) for model in models]

    def _by_inverse(self, models: list[InverseModel]) -> list[float | None]:
        """Students first: the shared weights take the place of the inverse."""
        held = self._invert(models)
        values: dict[int, float | None] = {}
        for student in sorted((one for one in models if isinstance(one, Student)), key=lambda one: -one.rank):
            values[id(student)] = self._tried(student, held)
        full = [one for one in models if isinstance(one, FullRank)]
        if full:
            thetas = np.array([held.solved.head(model.formula().head)[0] for model in full])
            weights = held.into_shared_weights(self.threads)
            found = measure_heads(weights, thetas, self.log, self.task.split, (self.task.metric,), self.threads)
            values |= {id(model): float(one.mean()) for model, (one, _) in zip(full, found, strict=True)}
        return [values[id(model)] for model in models]

    def _by_steps(self, models: list[TwoStep]) -> list[float | None]:
        """Models of two steps that have the first in common."""
        able = self._able(models)
        ranks = [model.directions for model in able]
        basis = self._directions(max(ranks))  # while there is no inverse beside it
        inverse = self._invert(able)
        alike: dict[tuple[float, float, int], list[TwoStep]] = {}
        for model, rank in zip(able, ranks, strict=True):
            alike.setdefault((model.second, model.low_pass, rank), []).append(model)
        mixtures = [
            Mixture(*key, np.array([user_weights.popularity(inverse.solved.counts, one.item_power) for one in group]))
            for key, group in alike.items()
        ]
        held = Mixtures(inverse.into_shared_weights(self.threads), basis)
        found = measure(
            lambda rows, rules, k: held.heads(mixtures, rows, rules, k, self.threads),
            self.log, self.task.split, (self.task.metric,), len(able),
        )  # fmt: skip
        return _in_order(models, alike.values(), found)

    def _able(self, models: list[TwoStep]) -> list[TwoStep]:
        """Those for which there is memory; one whose rank is too high does not keep the others from being tried."""
        options, _, _ = self._room(models)
        plans = [model._plan(self.size, options) for model in models]
        able = [model for model, one in zip(models, plans, strict=True) if one.fits]
        if not able:
            min(plans, key=lambda one: one.chosen.bytes).require()
        for rank in sorted({model.rank for model, one in zip(models, plans, strict=True) if not one.fits}):
            words = f"low_pass with rank {rank} was not tried: there is no memory for it"
            warnings.warn(words, MonogramWarning, stacklevel=2)
        return able

    def _directions(self, rank: int) -> NDArray[Any]:
        """At least so many, or all there are."""
        if self._basis[0] < rank:
            self._basis = rank, directions(self.log, rank, self.options())
        return self._basis[1]

    def _by_path(self, models: list[FullRank]) -> list[float | None]:
        """Models of several l2 whose penalties are multiples of each other's, by one eigendecomposition."""
        data, by_l2 = self.data(models[0]), dict[float, list[FullRank]]()
        d, counts = squares(data), used(data)
        for model in models:
            by_l2.setdefault(model.formula().penalties.l2, []).append(model)
        first = models[0].formula().penalties
        held = ridge_path.decompose(
            data,
            first.of(d) / first.l2,
            known_gram=self._keep(models[0]),
            dtype=self.task.dtype,
            threads=self.threads,
        )
        scales = {}
        for (l2, group), c in zip(by_l2.items(), held.diagonals(list(by_l2)), strict=True):
            _check(c)
            formulas = [model.formula() for model in group]
            scales[l2] = np.array([one.head(c, one.penalties.of(d), d, counts)[0] / c for one in formulas])

        def rank(rows: Any, rules: Eligible, k: int) -> Iterator[Best]:
            prepared = held.prepare(rows)
            for l2, factors in scales.items():
                yield from heads_by_scores(held.scores(prepared, l2), factors, rules, k, threads=self.threads)

        found = measure(rank, self.log, self.task.split, (self.task.metric,), len(models))
        return _in_order(models, by_l2.values(), found)

    def _invert(self, models: Sequence[InverseModel]) -> Inverse:
        """The inverse of a group, from the kept Gram where there is room for it."""
        options, chosen, largest = self._room(models)
        if not self.kept and self.keeps(chosen, options):
            self._keep(models[0])
            options = replace(options, budget=options.budget - self.square)
        shared = models[0].formula().shared
        ready = largest._planned(self.size, options).require().chosen
        solved = invert(*shared, FitInputs(self.log, gram=self._gram), options, options.report(), ready)
        _check(solved.inverse.diagonal)
        return Inverse.of_solved(self.log, shared, solved)

    def _room(self, models: Sequence[InverseModel]) -> tuple[FitOptions, Cost, InverseModel]:
        """How a group is inverted; a Gram of other weights of users goes, and one beside which it finds no room."""
        if self.recipe != models[0].formula().recipe:
            self._gram = None
        options = self.options()
        chosen, largest = self.chosen(models, options)
        if self.kept and chosen.bytes > options.budget:
            self._gram = None
            options = self.options()
            chosen, largest = self.chosen(models, options)
        return options, chosen, largest

    def _keep(self, model: InverseModel) -> NDArray[Any]:
        """The Gram of a model's data, made where it is not there yet; that of other weights of users makes room."""
        recipe = model.formula().recipe
        if self._gram is None or self.recipe != recipe:
            self._gram = None  # its memory first
            self._gram = np.empty((self.log.n_items, self.log.n_items), self.task.dtype, order="F")
            gram(self.data(model), self._gram, threads=self.threads)
            self._recipe = recipe
        return self._gram


def _in_order(
    models: Sequence[Recommender], groups: Iterable[Sequence[Recommender]], found: list[Measured]
) -> list[float | None]:
    """The values of models, from what was measured group by group; none for one that was not."""
    ordered = (model for group in groups for model in group)
    values = {id(model): float(one.mean()) for model, (one, _) in zip(ordered, found, strict=True)}
    return [values.get(id(model)) for model in models]


def _check(diagonal: NDArray[np.float64]) -> None:
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        raise NumericalError("the inverse is not finite: raise l2, or use dtype='float64'")
