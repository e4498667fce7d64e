"""The search: a coarse grid over every model, then finer grids around the best setting of each, within a budget."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from monogram._version import __version__
from monogram.data.options import check_seed
from monogram.data.splits import Split
from monogram.engine.runtime.arrays import Float64
from monogram.errors import MonogramWarning, NumericalError, ParameterError
from monogram.evaluation import metrics as metrics_
from monogram.models.context import check_dtype
from monogram.models.parameters import search_axes
from monogram.models.registry import BASELINE, FLOOR, TUNED_BY_DEFAULT, model_class
from monogram.tuning import budget as budget_
from monogram.tuning import spaces, tpe
from monogram.tuning.group_runner import Group, GroupRunner, Task, inverse_keys
from monogram.tuning.plan import SearchPlan, plan
from monogram.tuning.result import Tuning, finish
from monogram.tuning.settings import Setting, Trial, best_of
from monogram.tuning.study import Study, fingerprint
from monogram.tuning.validation import split_of, validation_of

# Protocols whose validation part cannot measure a shift in popularity: train has events of the same days.
WITHOUT_SHIFT = {
    "holdout": "a random split",
    "strong": "a random split",
    "ratio811": "a random split",
    "leave_last": "a split at each user's own time",
}
# Protocols whose validation part cannot measure what the order of events tells: train has events that are later.
WITHOUT_ORDER = ("holdout", "strong", "ratio811")


@dataclass(frozen=True)
class SearchState:
    """The progress of a search.

    Attributes
    ----------
    tried : number of settings tried
    best : the best trials so far, best first
    seconds : seconds spent
    left : seconds left, or settings left, of the budget
    plan : the plan of the coarse grid, with its cost; it prints
    """

    tried: int
    best: tuple[Trial, ...]
    seconds: float
    left: budget_.Budget
    plan: SearchPlan


def tune(
    log: Any,
    models: str | Iterable[str] = TUNED_BY_DEFAULT,
    *,
    protocol: str | Callable[[Any], Split] | Split = "holdout",
    metric: str = "ndcg@20",
    budget: str | float = "20m",
    space: Mapping[str, Mapping[str, Any]] | None = None,
    study: str | os.PathLike[str] | None = None,
    validation: Callable[[Any], Split] | Split | None = None,
    seed: int = 0,
    dtype: str = "float32",
    memory: int | float | str | None = None,
    threads: int | None = None,
    progress: Callable[[SearchState], None] | None = None,
) -> Tuning:
    """Find the best setting for a log; settings that share a computation are tried together.

    Models with equal user_power, l2 and dropout share an inverse (and the full-rank ones, and `TwoStep`, a pass of
    scores); spectral models share a spectrum. Models that are trained in epochs are searched with Optuna
    (`pip install 'monogram[tune]'`): a setting that is worse than the others after its first epochs is stopped early,
    and has no value.

    Parameters
    ----------
    log : anything `monogram.read` takes; for the protocol "public" the npz file. It is not used where the protocol is
        a Split
    models : names of the models to choose from. EASE is searched too, for comparison, without decay and recency
    protocol : how the test part is split off: a name, a function of the log that returns a Split, or a Split
        The test part is read once, at the end.
    metric : the metric to maximise, one of users such as "ndcg@20"
    budget : "20m", "90s", "1h" or seconds of search, or "200 settings"; trials of a resumed study are included
    space : by model, values of parameters to try as they are: {"deql": {"b": [0.5, 1], "a": 1}}
    study : a file to which every finished group of settings is written, and from which a search resumes
        Optuna's own record is a second file, with ".optuna" after its name.
    validation : how the validation part is split off from train: a function of the log, or a Split
        By default as the protocol splits (temporal, latest, sessions, strong, leave_last, ratio811), the latest 20% of
        each user's events for the protocol public where its train list has an order, else 10% of each user's events.
        `result.validation` says which. item_power is searched only on a validation part that is later than train
        (temporal, latest, sessions), or on your own; otherwise a warning says so. The same holds for decay and recency,
        which are searched where the log has an order.
    seed : of the splits, of Optuna's search, and of the bootstrap
    dtype, memory, threads : as for `fit`
    progress : receives a SearchState before the first group of settings, and after each group

    Returns
    -------
    Tuning
        Prints as a table; `.best`, `.model` (refitted on train), `.test`, `.differences`, `.rows()`, `.curve()`,
        `.plan`.
    """
    names, parsed, limit = _names(models), metrics_.parse(metric), budget_.parse(budget)
    if parsed.name not in metrics_.BY_USER:
        raise ParameterError(f"metric {metric!r} is one of the catalogue; expected one of users, such as 'ndcg@20'")
    check_seed(seed)
    check_dtype(dtype)
    split = split_of(log, protocol, seed)
    chosen = validation_of(log, protocol, split, validation, seed)
    task = Task(chosen.split, parsed, dtype, memory, threads)
    recorded = Study(about(task, split.protocol), study)
    search = ModelSearch(task, names, dict(space or {}), recorded, limit, seed, progress, baselines=(BASELINE,))
    search.run()
    best, baseline = search.best(set(names)), search.best({BASELINE})
    if best is None:
        notes = [trial.note for trial in search.study.trials if trial.setting.model in names]
        reason = search.runner.last_error or NumericalError(notes[-1])
        raise type(reason)(f"none of the settings could be fitted: {reason}") from reason
    middle = spaces.coarse(BASELINE, search.spaces[BASELINE])[0]
    compared = [baseline.setting if baseline else middle, Setting.of(FLOOR, {})]
    tuning = finish(search.study, split, task, best, seed, compared)
    tuning.plan, tuning.validation = search.plan, chosen.how
    return tuning


def about(task: Task, protocol: str) -> dict[str, Any]:
    """The first line of a task's study file; a file with another first line belongs to another task."""
    return {
        "version": __version__,
        "metric": str(task.metric),
        "protocol": protocol,
        "dtype": task.dtype,
        "data": fingerprint(task.split),
    }


class ModelSearch:
    """Tries settings on a task until the budget is spent, or no finer setting is left.

    Parameters
    ----------
    task : what the settings are tried on
    names : the models to choose from
    space : by model, values of parameters to try as they are
    study : the trials so far; new trials are added to it
    limit : the budget
    seed : of Optuna's search
    progress : receives a SearchState before the first group, and after each
    baselines : models that are searched too, only for comparison
    by_order : whether parameters that use the order of events, such as decay and recency, are searched where the log
        has one and the validation part is later than train
    """

    def __init__(
        self,
        task: Task,
        names: list[str],
        space: dict[str, Mapping[str, Any]],
        study: Study,
        limit: budget_.Budget,
        seed: int = 0,
        progress: Callable[[SearchState], None] | None = None,
        *,
        baselines: tuple[str, ...] = (),
        by_order: bool = True,
    ) -> None:
        unknown = [name for name in space if name not in names]
        if unknown:
            raise ParameterError(f"space has values for {unknown[0]!r}, which is not one of the models searched")
        self.study, self.limit, self.seed, self.progress = study, limit, seed, progress
        self.names, self.runner = names, GroupRunner(task)
        shift = task.split.protocol not in WITHOUT_SHIFT
        if not shift:
            _warn_of_shift(names, space, task.split.protocol)
        order = by_order and task.split.train.has_order and task.split.histories.has_order
        if order and task.split.protocol in WITHOUT_ORDER:
            order = False
            _warn_of_order(names, space, task.split.protocol)
        self.spaces = {
            name: spaces.space(
                name,
                task.split.train,
                self._singular_values,
                space.get(name, {}),
                shift=shift,
                order=order and name in names,  # baselines are those of a log without order
            )
            for name in dict.fromkeys([*names, *baselines])
        }
        for name in space:
            for setting in spaces.coarse(name, self.spaces[name]):
                setting.make().require_ages(task.split.histories)
        by_optuna = {name: axes for name, axes in self.spaces.items() if tpe.needs_optuna(name, axes)}
        self.proposals = tpe.proposals(by_optuna, study, seed)
        self._shares = dict.fromkeys((name for name in self.spaces if name not in self.proposals), 1.0)
        self._best_before: dict[str, Setting] = {}
        self._last_seconds = 0.0
        others = [name for name in self._shares if name not in names]
        self._waiting = [setting for name in others for setting in spaces.coarse(name, self.spaces[name])]
        study.rewind()

    def run(self) -> None:
        """Try the coarse grid, then finer ones; a model that Optuna searches gets one setting a round.

        Trials of a resumed study are replayed in their order, not tried again: the search then decides as it would
        have without the interruption.
        """
        settings = self._first_round
        if self.progress:
            self.progress(self._state())
        while settings and self._try(settings):
            ready = [name for name in self._shares if name in self.names or not self._waiting]
            settings = [setting for name in ready for setting in self._finer(name)]
            settings += self._proposed() + self._of_baselines()
        for proposals in self.proposals.values():
            proposals.end()
        self.study.forward()

    @cached_property
    def plan(self) -> SearchPlan:
        """The plan of the coarse grid; it is made before the grid is tried, and stays."""
        return plan(self.runner, self._new(self._first_round), self._left())

    @cached_property
    def _first_round(self) -> list[Setting]:
        grids = [setting for name in self._own_grids for setting in spaces.coarse(name, self.spaces[name])]
        return grids + self._proposed() + self._of_baselines()

    @property
    def _own_grids(self) -> list[str]:
        """The models to choose from that are searched on a grid."""
        return [name for name in self._shares if name in self.names]

    def _of_baselines(self) -> list[Setting]:
        """The next settings of the baselines: all of them after a grid, else one a round, as Optuna has."""
        number = len(self._waiting) if self._own_grids else 1
        settings, self._waiting = self._waiting[:number], self._waiting[number:]
        return settings

    def best(self, models: set[str]) -> Trial | None:
        """The best trial of some models within their spaces: a resumed study may have others."""
        return best_of([trial for trial in self.study.trials if self._within(trial.setting)], models)

    def _within(self, setting: Setting) -> bool:
        """Whether a setting has one of the given values wherever values were given."""
        axes, parameters = self.spaces.get(setting.model, {}), setting.parameters
        fixed = {parameter: axis for parameter, axis in axes.items() if axis.scale == "given"}
        return all(parameters[parameter] in map(_plain, axis.values) for parameter, axis in fixed.items())

    def _new(self, settings: list[Setting]) -> list[Setting]:
        return [setting for setting in settings if not self.study.knows(setting)]

    def _groups(self, settings: list[Setting]) -> list[Group]:
        """The new settings of a round, in groups that share a computation."""
        first = settings is self._first_round
        planned = self.plan if first else plan(self.runner, self._new(settings), self._left())
        return planned.groups

    def _singular_values(self, target: str, rank: int) -> Float64:
        return self.runner.spectrum(target, rank).values

    def _proposed(self) -> list[Setting]:
        """The next setting of each model that Optuna searches; a setting that was tried before ends its search."""
        settings = []
        for name, proposals in list(self.proposals.items()):
            setting = self.study.ahead(name)
            if setting is None:
                setting = proposals.next([trial for trial in self.study.trials if trial.setting.model == name])
                if setting in self.study:
                    self.proposals.pop(name).end()
                    continue
                self.runner.observers |= proposals.observers(setting)
            settings.append(setting)
        return settings

    def _finer(self, name: str) -> list[Setting]:
        """New settings around the best of a model; where a round found no better one, the step is halved."""
        best = self.best({name})
        if best is None:
            return []
        if self._best_before.get(name) == best.setting:
            self._shares[name] /= 2
        self._best_before[name] = best.setting
        while self._shares[name] >= spaces.FINEST:
            near = spaces.finer(name, self.spaces[name], best.setting.parameters, self._shares[name])
            new = [setting for setting in dict.fromkeys(near) if setting not in self.study]
            if new:
                return new
            self._shares[name] /= 2
        return []

    def _try(self, settings: list[Setting]) -> bool:
        """Try settings group by group; whether the budget lasted."""
        self.study.replay(settings)
        for group in self._groups(settings):
            left = self._left()
            if self.study.tried and (left.seconds < self._last_seconds or left.seconds <= 0 or left.settings < 1):
                return False
            part = group if left.settings == math.inf else group[: int(left.settings)]
            trials = self._run(part)
            inverses = max(1, len(inverse_keys(part)))  # a path has several
            self._last_seconds = sum(trial.seconds for trial in trials) / inverses
        return self._left().settings >= 1

    def _run(self, group: Group) -> list[Trial]:
        """Try a group, record its trials in the study, then pass them to Optuna and report progress."""
        trials = self.runner.run(group)
        self.study.add(trials)
        for trial in trials:
            if trial.setting.model in self.proposals:
                self.proposals[trial.setting.model].tell(trial)
        if self.progress:
            self.progress(self._state())
        return trials

    def _left(self) -> budget_.Budget:
        return budget_.Budget(self.limit.seconds - self.study.seconds, self.limit.settings - self.study.tried)

    def _state(self) -> SearchState:
        trials = self.study.trials
        valued = [trial for trial in trials if trial.value is not None and trial.setting.model in self.names]
        best = sorted(valued, key=lambda trial: -(trial.value or 0.0))[:5]
        return SearchState(self.study.tried, tuple(best), self.study.seconds, self._left(), self.plan)


def _warn_of_shift(names: list[str], space: Mapping[str, Mapping[str, Any]], protocol: str) -> None:
    """Warn of parameters that are not, or should not be, searched on a validation part without a shift."""
    for name in names:
        for parameter in _needing_shift(name):
            values = np.atleast_1d(space.get(name, {}).get(parameter, []))
            if len(values) == 1:
                continue
            default = model_class(name)().params()[parameter]
            use = "is searched as given" if len(values) else f"is not searched, and stays at {default:g}"
            warnings.warn(
                f"{parameter} of {name} {use}: the validation part is {protocol!r}, {WITHOUT_SHIFT[protocol]}, which "
                "cannot measure a shift in popularity, so that the best value on it may be the worst in use; to search "
                f"{parameter} use the protocol temporal or latest or, in Python, a validation part of your own that "
                "resembles use",
                MonogramWarning,
                stacklevel=4,
            )


def _warn_of_order(names: list[str], space: Mapping[str, Mapping[str, Any]], protocol: str) -> None:
    """Warn of the parameters that are not searched, or searched as given, on a validation part of mixed times."""
    axes = {name: search_axes(model_class(name)).items() for name in names}
    of_order = {name: [parameter for parameter, search in own if search.only_with_order] for name, own in axes.items()}
    given = {name: [each for each in of_order[name] if each in space.get(name, {})] for name in names}
    several = [(name, each) for name in names for each in given[name] if np.size(space[name][each]) > 1]
    left = dict.fromkeys(each for name in names for each in of_order[name] if each not in given[name])
    notes = [f"{' and '.join(left)} {'is' if len(left) == 1 else 'are'} not searched"] if left else []
    notes += [f"{each} of {name} is searched as given" for name, each in several]
    if notes:
        warnings.warn(
            f"{'; '.join(notes)}: the validation part is {protocol!r}, a random split, for which train has later "
            "events than those held out, so that it cannot measure what the order of events tells; to search them use "
            "the protocol latest, temporal or sessions",
            MonogramWarning,
            stacklevel=4,
        )


def _needing_shift(name: str) -> list[str]:
    """The parameters of a model that are searched only where a shift in popularity can be measured."""
    axes = search_axes(model_class(name))
    return [parameter for parameter, search in axes.items() if search.only_with_shift]


def _plain(value: Any) -> Any:
    """A value as JSON returns it: a sequence is a list."""
    return list(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) else value


def _names(models: str | Iterable[str]) -> list[str]:
    names = [models] if isinstance(models, str) else list(models)
    if not names:
        raise ParameterError("no model was named; expected at least one, such as 'deql'")
    for name in names:
        model_class(name)
    return list(dict.fromkeys(names))
