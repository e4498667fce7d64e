"""The search: a coarse grid over every model, then finer around the best of each, as long as the budget lasts."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram._version import __version__
from monogram.data.options import check_seed
from monogram.data.splits import PROTOCOLS, Split, holdout, leave_last, ratio811, strong, temporal
from monogram.errors import DataError, MonogramWarning, NumericalError, ParameterError, one_of
from monogram.evaluation import metrics as metrics_
from monogram.models.context import check_dtype
from monogram.models.registry import model_class
from monogram.tuning import budget as budget_
from monogram.tuning import ranges, tpe
from monogram.tuning.families import Families, Group, Task, shared
from monogram.tuning.plan import SearchPlan, plan
from monogram.tuning.result import Tuning, finish
from monogram.tuning.settings import Setting, Trial, best_of
from monogram.tuning.study import Study, fingerprint

VALIDATION = 0.1  # of each user's events, or of the users, or of the time
USUAL = ("ease", "edlae", "dlae", "deql")
# Validation parts that cannot see a shift in popularity: train has the events of the same days.
BLIND = {
    "holdout": "a random cut",
    "strong": "a random cut",
    "ratio811": "a random cut",
    "leave_last": "a cut at each user's own time",
}


@dataclass(frozen=True)
class State:
    """Where a search stands.

    Attributes
    ----------
    tried : number of settings
    best : the best trials so far, best first
    seconds : spent
    left : seconds left, or settings left, of the budget
    plan : what the coarse grid does, and what that costs; it prints
    """

    tried: int
    best: tuple[Trial, ...]
    seconds: float
    left: budget_.Budget
    plan: SearchPlan


def tune(
    log: Any,
    models: str | Iterable[str] = USUAL,
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
    progress: Callable[[State], None] | None = None,
) -> Tuning:
    """Find the best setting for a log; what settings share is computed once.

    Full-rank models of one l2 and dropout share an inverse and a pass of scores, as do TwoSteps; spectral models share
    a spectrum, students their teacher. Models trained in epochs (wrmf, slim) are searched with Optuna:
    `pip install 'monogram[tune]'`; a setting that falls behind the others in its first epochs is stopped, and has no
    value.

    Parameters
    ----------
    log : anything `monogram.read` takes; for the protocol "public" the npz file; with a ready Split it is not looked at
    models : names; one of them becomes the best. EASE is searched beside them, to be compared with
    protocol : how the test part is cut off: a name, a function of the log that gives a Split, or a Split
        It is read once, at the end.
    metric : what is to be high, a metric of users such as "ndcg@20"
    budget : "20m", "90s", "1h" or seconds of search, or "200 settings"; what a study already holds is counted in
    space : by model, values of parameters to try as they are: {"deql": {"b": [0.5, 1], "a": 1}}
    study : a file that every finished group of settings is written to, and an interrupted search goes on from
        Optuna's own record lies beside it, with ".optuna" after its name.
    validation : how the validation part is cut from train: a function of the log, or a Split
        By default as the protocol does it (temporal, strong, leave_last, ratio811), else 10% of each user's events.
        The item_power of Tempered and TwoStep is searched on one by time or of your own alone; another is a warning.
    seed : of the cuts, of Optuna's search, and of the bootstrap
    dtype, memory, threads : as for `fit`
    progress : receives a State before the first group of settings, and after each

    Returns
    -------
    Tuning
        Prints as a table; `.best`, `.model` (refitted on train), `.test`, `.differences`, `.rows()`, `.curve()`,
        `.plan`.
    """
    names, asked, limit = _names(models), metrics_.parse(metric), budget_.parse(budget)
    if asked.name not in metrics_.BY_USER:
        raise ParameterError(f"metric {metric!r} is one of the catalogue; expected one of users, such as 'ndcg@20'")
    check_seed(seed)
    check_dtype(dtype)
    split = _cut(log, protocol, seed)
    inner = _validation(log, protocol, split, validation, seed)
    task = Task(inner, asked, dtype, memory, threads)
    held = Study(about(task, split.protocol), study)
    search = Search(task, names, dict(space or {}), held, limit, seed, progress, beside=("ease",))
    search.run()
    best, ease = search.best(set(names)), search.best({"ease"})
    if best is None:
        notes = [one.note for one in search.study.trials if one.setting.model in names]
        trouble = search.families.trouble or NumericalError(notes[-1])
        raise type(trouble)(f"none of the settings could be fitted: {trouble}") from trouble
    middle = ranges.coarse("ease", search.spaces["ease"])[0]
    found = finish(search.study, split, task, best, seed, ease.setting if ease else middle)
    found.plan = search.plan
    return found


def about(task: Task, protocol: str) -> dict[str, Any]:
    """What the study of a task is about: a file about anything else is not its."""
    return {
        "version": __version__,
        "metric": str(task.metric),
        "protocol": protocol,
        "dtype": task.dtype,
        "data": fingerprint(task.split),
    }


class Search:
    """Tries settings on a task until the budget is spent or nothing finer is left to try.

    Parameters
    ----------
    beside : models that are searched too, only to be compared with
    """

    def __init__(
        self,
        task: Task,
        names: list[str],
        space: dict[str, Mapping[str, Any]],
        study: Study,
        limit: budget_.Budget,
        seed: int = 0,
        progress: Callable[[State], None] | None = None,
        *,
        beside: tuple[str, ...] = (),
    ) -> None:
        strange = [name for name in space if name not in names]
        if strange:
            raise ParameterError(f"space has values for {strange[0]!r}, which is not one of the models searched")
        self.study, self.limit, self.seed, self.progress = study, limit, seed, progress
        self.names, self.families = names, Families(task)
        shift = task.split.protocol not in BLIND
        if not shift:
            _warn_of_powers(names, space, task.split.protocol)
        self.spaces = {
            name: ranges.space(name, task.split.train, self._sigma, space.get(name, {}), shift=shift)
            for name in dict.fromkeys([*names, *beside])
        }
        in_epochs = {name: axes for name, axes in self.spaces.items() if tpe.needed(name, axes)}
        self.asked = tpe.proposals(in_epochs, study, seed)
        self._shares = dict.fromkeys((name for name in self.spaces if name not in self.asked), 1.0)
        self._before: dict[str, Setting] = {}
        self._last = 0.0
        others = [name for name in self._shares if name not in names]
        self._waiting = [one for name in others for one in ranges.coarse(name, self.spaces[name])]
        study.rewind()

    def run(self) -> None:
        """Coarse, then finer; models that Optuna searches get one setting a round.

        What a study holds is met again on the way, not tried again, so that a search that was interrupted goes on as it
        would have.
        """
        wanted = self._begin
        if self.progress:
            self.progress(self._state())
        while wanted and self._try(wanted):
            ready = [name for name in self._shares if name in self.names or not self._waiting]
            wanted = [one for name in ready for one in self._finer(name)] + self._next() + self._beside()
        for proposals in self.asked.values():
            proposals.end()
        self.study.forward()

    @cached_property
    def plan(self) -> SearchPlan:
        """What the coarse grid does; asked for before the search runs, it is the plan of what it will do."""
        return plan(self.families, self._new(self._begin), self._left())

    @cached_property
    def _begin(self) -> list[Setting]:
        grids = [one for name in self._own_grids for one in ranges.coarse(name, self.spaces[name])]
        return grids + self._next() + self._beside()

    @property
    def _own_grids(self) -> list[str]:
        """Models that were asked for and are searched on a grid."""
        return [name for name in self._shares if name in self.names]

    def _beside(self) -> list[Setting]:
        """Of what is searched only to be compared with: all after a grid, else one a round, as Optuna gets."""
        number = len(self._waiting) if self._own_grids else 1
        taken, self._waiting = self._waiting[:number], self._waiting[number:]
        return taken

    def best(self, models: set[str]) -> Trial | None:
        """The best trial of some models, with the values given for their parameters: a study may hold others."""
        return best_of([one for one in self.study.trials if self._within(one.setting)], models)

    def _within(self, setting: Setting) -> bool:
        axes, own = self.spaces.get(setting.model, {}), setting.parameters
        return all(own[one] in map(_plain, axis.values) for one, axis in axes.items() if axis.scale == "given")

    def _new(self, settings: list[Setting]) -> list[Setting]:
        return [one for one in settings if not self.study.knows(one)]

    def _groups(self, settings: list[Setting]) -> list[Group]:
        """What is new of a round, in groups that share their work."""
        planned = self.plan if settings is self._begin else plan(self.families, self._new(settings), self._left())
        return planned.groups

    def _sigma(self, target: str, rank: int) -> NDArray[np.float64]:
        return self.families.spectrum(target, rank).values

    def _next(self) -> list[Setting]:
        """What Optuna proposes; a setting that was tried already ends the search of its model."""
        found = []
        for name, proposals in list(self.asked.items()):
            setting = self.study.ahead(name)
            if setting is None:
                setting = proposals.next([one for one in self.study.trials if one.setting.model == name])
                if setting in self.study:
                    self.asked.pop(name).end()
                    continue
                self.families.watches |= proposals.watched(setting)
            found.append(setting)
        return found

    def _finer(self, name: str) -> list[Setting]:
        """What is new around the best of a model; where a round did not move the best, the step is halved."""
        best = self.best({name})
        if best is None:
            return []
        if self._before.get(name) == best.setting:
            self._shares[name] /= 2
        self._before[name] = best.setting
        while self._shares[name] >= ranges.FINEST:
            near = ranges.finer(name, self.spaces[name], best.setting.parameters, self._shares[name])
            new = [one for one in dict.fromkeys(near) if one not in self.study]
            if new:
                return new
            self._shares[name] /= 2
        return []

    def _try(self, settings: list[Setting]) -> bool:
        """Try settings group by group; whether the budget lasted."""
        self.study.meet(settings)
        for group in self._groups(settings):
            left = self._left()
            if self.study.tried and (left.seconds < self._last or left.seconds <= 0 or left.settings < 1):
                return False
            part = group if left.settings == math.inf else group[: int(left.settings)]
            trials = self._run(part)
            self._last = sum(one.seconds for one in trials) / max(1, len(shared(part)))  # a path has several
        return self._left().settings >= 1

    def _run(self, group: list[Setting]) -> list[Trial]:
        """Try a group, write it down, then tell Optuna and whoever looks on."""
        trials = self.families.run(group)
        self.study.add(trials)
        for one in trials:
            if one.setting.model in self.asked:
                self.asked[one.setting.model].tell(one)
        if self.progress:
            self.progress(self._state())
        return trials

    def _left(self) -> budget_.Budget:
        return budget_.Budget(self.limit.seconds - self.study.seconds, self.limit.settings - self.study.tried)

    def _state(self) -> State:
        own = [one for one in self.study.trials if one.value is not None and one.setting.model in self.names]
        best = sorted(own, key=lambda one: -(one.value or 0.0))[:5]
        return State(self.study.tried, tuple(best), self.study.seconds, self._left(), self.plan)


def _warn_of_powers(names: list[str], space: Mapping[str, Mapping[str, Any]], protocol: str) -> None:
    """Say why a power of popularity is not searched on such a cut, or should not be."""
    for name in names:
        own = model_class(name)().params()
        given = np.atleast_1d(space.get(name, {}).get("item_power", []))
        if "item_power" not in own or len(given) == 1:
            continue
        done = "is searched as given" if len(given) else f"is not searched, and stays at {own['item_power']:g}"
        warnings.warn(
            f"item_power of {name} {done}: the validation part is {protocol!r}, {BLIND[protocol]}, which cannot see a "
            "shift in popularity, so that what is best on it may be worst in use; for a search of item_power use the "
            "protocol temporal or, in Python, a validation part of your own that resembles use",
            MonogramWarning,
            stacklevel=4,
        )


def _plain(value: Any) -> Any:
    """A value as a study gives it back: what was a sequence is a list."""
    return list(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) else value


def _names(models: str | Iterable[str]) -> list[str]:
    names = [models] if isinstance(models, str) else list(models)
    if not names:
        raise ParameterError("no model was named; expected at least one, such as 'deql'")
    for name in names:
        model_class(name)
    return list(dict.fromkeys(names))


def _cut(log: Any, protocol: Any, seed: int) -> Split:
    """The split whose test part is read at the end."""
    if isinstance(protocol, str):
        if protocol not in PROTOCOLS:
            raise ParameterError(f"there is no protocol {protocol!r}; {one_of(protocol, PROTOCOLS)}")
        cut = PROTOCOLS[protocol]
        protocol = cut(log, seed=seed) if "seed" in inspect.signature(cut).parameters else cut(log)
    elif callable(protocol):
        protocol = protocol(log)
    if not isinstance(protocol, Split):
        raise ParameterError(f"protocol is a {type(protocol).__name__}; expected a name, a function or a Split")
    return protocol


def _validation(log: Any, protocol: Any, split: Split, given: Any, seed: int) -> Split:
    """The split inside train, with which settings are compared."""
    own: dict[str, Callable[[Any], Split]] = {
        "temporal": lambda train: temporal(train, share=VALIDATION),
        "strong": lambda train: strong(train, users=VALIDATION, seed=seed),
        "leave_last": leave_last,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MonogramWarning)  # said of the test part already
        if given is not None:
            return given if isinstance(given, Split) else _cut(split.train, given, seed)
        if protocol == "ratio811":
            return ratio811(log, seed=seed, part="validation")
        cut = own.get(split.protocol, lambda train: holdout(train, share=VALIDATION, seed=seed))
        try:
            return cut(split.train)
        except DataError as error:
            raise DataError(f"no validation part can be cut from train: {error}; give one with validation=") from error
