"""Groups of settings that share a computation, tried together.

Each model says what it shares (`Recommender.shared_fit`):

- Models with equal (recipe, penalties) share one inverse. Those that rescale the columns of its weights also share one
  pass of scores, from which each of them ranks. Where several l2 have the same ratio of dropout/(1 − dropout) to l2,
  one eigendecomposition may replace their inverses (see `plan`). Low-rank students are fitted from the inverse, and a
  lower rank takes the first singular pairs of a higher one. `TwoStep` models share the inverse of their first step, one
  pass of scores by each step, and the directions of `low_pass`. Where no inverse fits in memory, they share local
  regressions.
- Spectral models with equal targets share one spectrum.
- `SLIM` models that differ in l1 alone share the rows of the Gram, and each starts from the weights of the one before,
  the highest l1 first.
- All other models are fitted one by one.

Models that differ in recency alone share a fit, and models with equal recency a pass of scores.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from monogram.data.splits import Split
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import local, ridge_path
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.errors import MemoryBudgetError, MonogramError, MonogramWarning, NumericalError, warn
from monogram.evaluation.metrics import Metric
from monogram.evaluation.protocol import Measured, measure, measure_weights
from monogram.evaluation.shared_fits import (
    Model,
    by_recency,
    inverse_key,
    measure_fit,
    measure_inverse,
    measure_recencies,
    measured_together,
    without_recency,
)
from monogram.models.base import Recommender
from monogram.models.full_rank import Tempered
from monogram.models.inverse import item_counts
from monogram.models.inverse_model import InverseModel
from monogram.models.recipe import GramRecipe, Penalties
from monogram.models.spectral import Spectral
from monogram.models.spectrum import Spectrum, default_recipe
from monogram.models.two_step import TwoStep
from monogram.ranking import Recency
from monogram.tuning.epochs import EpochObserver, StoppedEarly
from monogram.tuning.settings import Setting, Trial
from monogram.tuning.shared_inverses import SharedInverses, check_finite
from monogram.tuning.spaces import largest_rank
from monogram.weights import Local, Mixture, Mixtures, Weights

Group = list[Setting]


@dataclass(frozen=True)
class Task:
    """What settings are tried on: a validation split, a metric of users, and options of `fit`."""

    split: Split
    metric: Metric
    dtype: str = "float32"
    memory: int | float | str | None = None
    threads: int | None = None

    @property
    def fit_options(self) -> dict[str, Any]:
        """The options of `fit`."""
        return {"dtype": self.dtype, "memory": self.memory, "threads": self.threads}


def grouped(settings: Iterable[Setting]) -> list[Group]:
    """The settings in groups that share a computation, in the order of their first settings."""
    groups: dict[Any, Group] = {}
    for setting in dict.fromkeys(settings):
        groups.setdefault(_group_key(setting), []).append(setting)
    return list(groups.values())


def _group_key(setting: Setting) -> Any:
    shared = setting.make().shared_fit()
    if shared is None:
        return setting.model, repr(without_recency(setting.make()))
    if shared.computation == "spectrum":  # the spectrum is kept: each model is a group of its own
        return shared, setting.model
    return shared.key, shared.reading == "two_steps"


def inverse_keys(group: Group) -> list[tuple[GramRecipe, Penalties]]:
    """Each (recipe, penalties) of a group, in the order of their first settings; none where no inverse is shared."""
    keys = (inverse_key(setting.make()) for setting in group)
    return list(dict.fromkeys(key for key in keys if key is not None))


class GroupRunner:
    """Tries groups of settings on a task; a Gram, spectra and directions are kept for later groups.

    Attributes
    ----------
    inverses : plans and makes the inverses
    observers : of settings yet to be tried, those whose training is observed
    last_error : the last error because of which a group has no values; None where there was none
    """

    def __init__(self, task: Task) -> None:
        self.task, self.log = task, task.split.train
        self.threads = parallel.count(task.threads)
        self.inverses = SharedInverses(self.log, task.dtype, task.memory, self.threads)
        self.observers: dict[Setting, EpochObserver] = {}
        self.last_error: MonogramError | None = None
        self._spectra: dict[tuple[str, GramRecipe], Spectrum] = {}

    def spectrum(self, target: str, rank: int, recipe: GramRecipe | None = None) -> Spectrum:
        """The spectrum of a target and a recipe, by default that of the target, with at least so many pairs, or all."""
        key = target, recipe or default_recipe(target)
        spectrum = self._spectra.get(key)
        if spectrum is None or (spectrum.rank < rank and not spectrum.complete):
            self._spectra.pop(key, None)
            spectrum = Spectrum(self.log, rank, target=target, recipe=key[1], **self.task.fit_options)
            self._spectra[key] = spectrum
        return spectrum

    def run(self, group: Group) -> list[Trial]:
        """Try a group from `grouped`, or several groups on one path (see `plan`): a trial for each setting, in order.

        A group whose fit fails, for its numbers or for memory, gives trials without a value.
        """
        start = time.perf_counter()
        models = [setting.make() for setting in group]
        with warnings.catch_warnings(record=True) as caught, parallel.blas_threads(self.task.threads):
            warnings.simplefilter("always", MonogramWarning)
            values, error = self._values(models)
        messages = [str(warning.message) for warning in caught if issubclass(warning.category, MonogramWarning)]
        note = "; ".join(dict.fromkeys([*messages, *([error] if error else [])]))
        seconds = (time.perf_counter() - start) / len(group)
        return [self._trial(setting, value, seconds, note) for setting, value in zip(group, values, strict=True)]

    def _trial(self, setting: Setting, value: float | None, seconds: float, note: str) -> Trial:
        observer = self.observers.pop(setting, None)
        if observer is None:
            return Trial(setting, value, seconds, note)
        notes = "; ".join(filter(None, (note, observer.note(setting.parameters["epochs"]))))
        return Trial(setting, value, seconds, notes, tuple(observer.values), observer.stopped)

    def _values(self, models: list[Recommender]) -> tuple[list[float | None], str]:
        """The metric of each model, None where it is not finite; and the message where the group failed."""
        try:
            values = self._run_by(models)(models)
        except (NumericalError, MemoryBudgetError) as error:
            self.last_error = error
            return [None] * len(models), str(error)
        return [value if value is not None and np.isfinite(value) else None for value in values], ""

    def _run_by(self, models: list[Recommender]) -> Callable[[list[Any]], list[float | None]]:
        """The method that tries a group."""
        shared = models[0].shared_fit()
        if shared is None:
            return self._by_fits
        if shared.computation == "spectrum":
            return self._by_spectrum
        if shared.computation == "sequence":
            return self._by_sequence
        if self.inverses.local_models(cast("list[InverseModel]", models)):
            return self._by_local
        if shared.reading == "two_steps":
            return self._by_two_steps
        return self._by_path if len({inverse_key(model) for model in models}) > 1 else self._by_inverse

    def _by_fits(self, models: list[Recommender]) -> list[float | None]:
        return self._fitted_values(models, self.log)

    def _fitted_values(self, models: Sequence[Recommender], source: Any) -> list[float | None]:
        """The metric of models that are fitted on a source, those that differ in recency alone once."""
        values: dict[int, float | None] = {}
        for alike in _alike(models):
            values |= dict(zip(map(id, alike), self._values_of_fit(alike, source), strict=True))
        return [values[id(model)] for model in models]

    def _values_of_fit(self, alike: list[Recommender], source: Any) -> list[float | None]:
        """The metric of models that differ in recency alone; None where their observers stopped the training."""
        split, metrics, options = self.task.split, (self.task.metric,), self.task.fit_options
        observers = [self.observers.get(Setting.of(model.name, model.params())) for model in alike]
        if all(observer is None for observer in observers):
            _, measured = measure_recencies(alike, source, split, metrics, options)
            return [_mean(result) for result in measured]
        return [self._observed_value(model, source, each) for model, each in zip(alike, observers, strict=True)]

    def _observed_value(self, model: Recommender, source: Any, observer: EpochObserver | None) -> float | None:
        """The metric of a model whose training is observed; None where it was stopped."""
        between = None
        if observer is not None:
            between = observer.between(lambda weights: self._weights_value(weights, model.recency_rule()))
        try:
            report, measured = measure_fit(
                model, source, self.task.split, (self.task.metric,), self.task.fit_options, between
            )
        except StoppedEarly:
            return None
        if observer is not None:
            observer.finish(len(report.objectives), _mean(measured))
        return _mean(measured)

    def _weights_value(self, weights: Weights, recency: Recency) -> float:
        """The metric of weights, such as those in the middle of a training."""
        return _mean(measure_weights(weights, self.log, self.task.split, (self.task.metric,), self.threads, recency))

    def _by_spectrum(self, models: list[Spectral]) -> list[float | None]:
        kind, first = models[0], largest_rank(self.log)
        spectrum = self.spectrum(kind.target, max(model.pairs_needed or first for model in models), kind.recipe())
        while not all(model.is_served_by(spectrum) for model in models):
            spectrum = self.spectrum(kind.target, 2 * spectrum.rank, kind.recipe())
        return self._fitted_values(models, spectrum)

    def _by_sequence(self, models: list[Recommender]) -> list[float | None]:
        """Models that start from each other's weights; one that fails, for its numbers or for memory, has no value."""
        shared = [(alike, alike[0].shared_fit()) for alike in _alike(models)]
        ordered = sorted((fit.order, at, alike) for at, (alike, fit) in enumerate(shared) if fit is not None)
        first = shared[0][1]
        assert first is not None
        assert first.source is not None
        source, values = first.source(self.log), dict[int, float | None]()
        for _, _, alike in ordered:
            try:
                values |= dict(zip(map(id, alike), self._values_of_fit(alike, source), strict=True))
            except (MemoryBudgetError, NumericalError) as error:
                self.last_error = error
                warn(f"{alike[0]!r} has no value: {error}")
        return [values.get(id(model)) for model in models]

    def _by_inverse(self, models: list[InverseModel]) -> list[float | None]:
        """Models that are fitted from the inverse come first: the shared weights then take its memory."""
        inverse = self.inverses.invert(models)
        values: dict[int, float | None] = {}
        heads = [model for model in models if measured_together(model, self.task.split)]
        fitted = [model for model in models if model not in heads]
        fitted.sort(key=lambda model: -model.params().get("rank", 0))
        values |= dict(zip(map(id, fitted), self._fitted_values(fitted, inverse), strict=True))
        if heads:
            measured = measure_inverse(inverse, heads, self.task.split, (self.task.metric,), self.threads)
            values |= {id(model): _mean(result) for model, result in zip(heads, measured, strict=True)}
        return [values[id(model)] for model in models]

    def _by_local(self, models: list[InverseModel]) -> list[float | None]:
        """Models of one inverse that does not fit in memory: local regressions, computed once for all heads.

        Students, which need the inverse itself, are not tried.
        """
        lean = self.inverses.local_models(models)
        if len(lean) < len(models):
            names = ", ".join(sorted({model.name for model in models if model not in lean}))
            warn(f"{names}: not tried, because no inverse fits in memory")
        recipe, penalties, _ = models[0].formula()
        times: dict[str, Any] = {"decay": recipe.decay, "decay_unit": str(recipe.decay_unit), "floor": recipe.floor}
        shared = Tempered(l2=penalties.l2, dropout=penalties.dropout, user_power=recipe.user_power, **times)
        shared.fit(self.log, solver=local.NAME, **self.task.fit_options)
        two_steps = [model for model in lean if isinstance(model, TwoStep)]
        others = [model for model in lean if not isinstance(model, TwoStep)]
        values = dict(zip(map(id, others), self._fitted_values(others, shared), strict=True))
        if two_steps:
            basis = self.inverses.directions(max(model.directions for model in two_steps))
            assert isinstance(shared.weights_, Local)
            values |= self._values_of_mixtures(
                two_steps, Mixtures(shared.weights_, basis), item_counts(self.log.matrix)
            )
        return [values.get(id(model)) for model in models]

    def _by_two_steps(self, models: list[TwoStep]) -> list[float | None]:
        """`TwoStep` models with the same first step."""
        fitting = self.inverses.within_memory(models)
        basis = self.inverses.directions(
            max(model.directions for model in fitting)
        )  # before the inverse takes its memory
        inverse = self.inverses.invert(fitting)
        counts = inverse.solved.counts
        values = self._values_of_mixtures(fitting, Mixtures(inverse.into_shared_weights(self.threads), basis), counts)
        return [values.get(id(model)) for model in models]

    def _values_of_mixtures(self, models: list[TwoStep], weights: Mixtures, counts: Float64) -> dict[int, float | None]:
        """The values of models that share the first step, by id: one pass of scores for each recency."""
        values: dict[int, float | None] = {}
        for recency, same in by_recency(models).items():
            by_mixture: dict[tuple[float, ...], list[TwoStep]] = {}
            for model in same:
                by_mixture.setdefault(
                    (model.second, model.low_pass, model.directions, model.repeat, model.low_pass_power), []
                ).append(model)
            mixtures = [
                Mixture(
                    share,
                    weight,
                    int(rank),
                    np.array([model.item_factors(self.log, counts) for model in alike]),
                    repeat,
                    alike[0].projection_powers(counts),
                )
                for (share, weight, rank, repeat, _), alike in by_mixture.items()
            ]
            measured = self._measured(partial(weights.heads, mixtures), len(same), recency)
            values |= _by_id(by_mixture.values(), measured)
        return values

    def _measured(self, heads: Callable[..., Iterable[Best]], number: int, recency: Recency) -> list[Measured]:
        """The metric of heads that are ranked together; `heads` takes histories, eligible items, k and threads."""
        return measure(
            lambda rows, rules, k: heads(rows, rules, k, self.threads),
            self.log, self.task.split, (self.task.metric,), number, recency,
        )  # fmt: skip

    def _by_path(self, models: list[InverseModel]) -> list[float | None]:
        """Models of several l2 whose penalties are multiples of each other, by one eigendecomposition."""
        recipe, first, _ = models[0].formula()
        data = self.inverses.data(recipe)
        d, counts = squares(data), item_counts(data)
        path = ridge_path.decompose(
            data,
            first.of(d) / first.l2,
            kernel=recipe.kernel(self.log),
            known_gram=self.inverses.gram(recipe),
            dtype=self.task.dtype,
            threads=self.threads,
        )
        every_l2 = list(dict.fromkeys(model.formula().penalties.l2 for model in models))
        diagonals = dict(zip(every_l2, path.diagonals(every_l2), strict=True))
        values: dict[int, float | None] = {}
        for recency, same in by_recency(models).items():
            scales, by_l2 = {}, dict[float, list[InverseModel]]()
            for model in same:
                by_l2.setdefault(model.formula().penalties.l2, []).append(model)
            for l2, alike in by_l2.items():
                c = diagonals[l2]
                check_finite(c)
                formulas = [model.formula() for model in alike]
                scales[l2] = np.array([each.head(c, each.penalties.of(d), d, counts)[0] / c for each in formulas])
            measured = self._measured(partial(_on_path, path, scales), len(same), recency)
            values |= _by_id(by_l2.values(), measured)
        return [values[id(model)] for model in models]


def _on_path(
    path: ridge_path.RidgePath, scales: dict[float, Float64], rows: Any, rules: Eligible, k: int, threads: int
) -> Iterator[Best]:
    """The lists of each head of each l2 of a path."""
    prepared = path.prepare(rows)
    for l2, factors in scales.items():
        yield from heads_by_scores(path.scores(prepared, l2), factors, rules, k, threads=threads)


def _alike(models: Iterable[Model]) -> list[list[Model]]:
    """Models that differ in recency alone together, in the order of their first models."""
    groups: dict[Any, list[Model]] = {}
    for model in models:
        groups.setdefault((type(model), repr(without_recency(model))), []).append(model)
    return list(groups.values())


def _mean(measured: Measured) -> float:
    return float(measured[0].mean())


def _by_id(parts: Iterable[Sequence[Recommender]], measured: list[Measured]) -> dict[int, float | None]:
    """The values of models that were measured part by part."""
    ordered = (model for part in parts for model in part)
    return {id(model): _mean(result) for model, result in zip(ordered, measured, strict=True)}
