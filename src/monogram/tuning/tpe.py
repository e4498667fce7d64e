"""Models that are trained in epochs: Optuna proposes their settings (TPE), and stops those that fall behind.

A setting is stopped by the median rule: after 4, 8, 16, … epochs, where its best value so far is below the median of
what the finished settings had after as many. The rule needs no number of epochs given beforehand (which may be searched
itself), and knows nothing but the values in the study file, so that a search that was interrupted judges as it would
have: successive halving keeps rungs of its own, and Hyperband goes by the numbers of trials, which a crash shifts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
from typing import Any

import numpy as np

from monogram.errors import MissingExtraError
from monogram.tuning.epochs import Watch
from monogram.tuning.journal import Journal
from monogram.tuning.settings import Setting, Trial
from monogram.tuning.spaces import Axis, Space
from monogram.tuning.study import Study

EPOCHS = {
    "wrmf": None,
    "slim": None,
    "rg2": ("als", "newton_cg"),
    "low_rank_edlae": ("alternating", "admm", "zero_diagonal"),
}
BY_COLUMN = ("slim",)  # the columns end one by one: there are no epochs of the whole model to measure after
FINISHED = 5  # settings, before one is stopped
# Epochs before one is stopped: after two the order is not yet that of the end (RG2 by als: ρ = 0.78, then 0.94).
FIRST = 4


def iterative(name: str, axes: Space) -> bool:
    """Whether a model in this space is trained in epochs."""
    if name not in EPOCHS:
        return False
    solvers = EPOCHS[name]
    return solvers is None or ("solver" in axes and any(one in solvers for one in axes["solver"].values))


def needed(name: str, axes: Space) -> bool:
    """Whether a model is searched with Optuna: trained in epochs, and not only on values that are all given."""
    return iterative(name, axes) and any(axis.scale != "given" for axis in axes.values())


def need() -> None:
    """Raise MissingExtraError where Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise MissingExtraError(
            "wrmf, slim and iterative solvers are searched with Optuna, which is not installed; "
            "install it with: pip install 'monogram[tune]'"
        )


def proposals(spaces: dict[str, Space], study: Study, seed: int) -> dict[str, Proposals]:
    """What Optuna proposes for each of these models; it is imported only where there is one."""
    if not spaces:
        return {}
    need()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = Journal(study.path)
    return {name: Proposals(name, axes, study, journal, seed) for name, axes in spaces.items()}


class Proposals:
    """What Optuna proposes for one model, and what it is told of it.

    The study file is the truth: what the journal lacks is added from it, what a crash left running has failed, and
    where the journal holds other trials than the file, another study is begun in it.

    Parameters
    ----------
    name, axes : the model and its space
    study : what was tried before
    journal : where Optuna keeps its record
    seed : the same trials and seed give the same setting: a search that was interrupted goes on as it would have
    """

    def __init__(self, name: str, axes: Space, study: Study, journal: Journal, seed: int) -> None:
        import optuna

        self.name, self.axes, self.seed, self._journal = name, axes, seed, journal
        self._states, self._new = optuna.trial.TrialState, optuna.trial.create_trial
        self._kinds = {one: _distribution(axis, optuna.distributions) for one, axis in axes.items()}
        self._running: dict[Setting, Any] = {}
        known = [self._finished(one) for one in study.trials if self._counts(one)]
        with journal.used():
            self._study = self._opened(_title(name, axes, study.about), known)

    def next(self, trials: list[Trial]) -> Setting:
        """The next setting, from the trials of the model so far; the first are the model's defaults."""
        if not trials:
            return self._setting({one: axis.values[0] for one, axis in self.axes.items() if axis.scale == "given"})
        import optuna

        self._study.sampler = optuna.samplers.TPESampler(seed=self.seed + len(trials))
        with self._journal.used():
            running = self._study.ask(self._kinds)
        setting = self._setting(running.params)
        self._running[setting] = running
        return setting

    def watched(self, setting: Setting) -> dict[Setting, Watch]:
        """Who watches a setting while it is trained: nobody, where there are no epochs of the whole model."""
        solvers = EPOCHS[self.name]
        if self.name in BY_COLUMN or (solvers is not None and setting.parameters["solver"] not in solvers):
            return {}
        running = self._running.get(setting)

        def judge(done: int, value: float) -> bool:
            if running is None:  # the defaults: there is nothing yet to compare them with
                return False
            with self._journal.used():
                running.report(value, done)
                return bool(running.should_prune())

        return {setting: Watch(judge)}

    def tell(self, trial: Trial) -> None:
        """Tell what came of a setting, once the study file has it."""
        running = self._running.pop(trial.setting, None)
        with self._journal.used():
            if running is not None:
                self._study.tell(running, trial.value, state=self._state(trial))
            elif self._counts(trial):
                self._study.add_trial(self._finished(trial))

    def end(self) -> None:
        """What was proposed and will not be tried has failed, in Optuna's words."""
        with self._journal.used():
            while self._running:
                self._study.tell(self._running.popitem()[1], state=self._states.FAIL)

    def _setting(self, parameters: dict[str, Any]) -> Setting:
        return Setting.of(self.name, parameters)

    def _opened(self, title: str, known: list[Any]) -> Any:
        """The first study of a title whose finished trials are the first of those known, and the rest added."""
        import optuna

        pruner = optuna.pruners.MedianPruner(n_startup_trials=FINISHED, n_warmup_steps=FIRST)
        how = {"storage": self._journal.storage, "direction": "maximize", "pruner": pruner, "load_if_exists": True}
        for number in itertools.count(1):
            study = optuna.create_study(study_name=title if number == 1 else f"{title} ({number})", **how)
            held = study.get_trials(deepcopy=False, states=(self._states.COMPLETE, self._states.PRUNED))
            if [_seen(one) for one in held] == [_seen(one) for one in known[: len(held)]]:
                break
        for left in study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
            study.tell(left.number, state=self._states.FAIL)
        for missing in known[len(held) :]:
            study.add_trial(missing)
        return study

    def _counts(self, trial: Trial) -> bool:
        """Whether Optuna can learn from a trial: it has a value, and is of this space."""
        if trial.setting.model != self.name or (trial.value is None and not trial.stopped):
            return False
        given = self._given(trial)
        inside = all(_inside(self.axes[one], value) for one, value in given.items())
        return inside and self._setting(given) == trial.setting

    def _given(self, trial: Trial) -> dict[str, Any]:
        return {one: trial.setting.parameters[one] for one in self.axes}

    def _finished(self, trial: Trial) -> Any:
        """A trial as one of Optuna's; of one that was stopped the last value is its value, as Optuna has it."""
        return self._new(
            state=self._state(trial),
            value=trial.epochs[-1][1] if trial.stopped else trial.value,
            params=self._given(trial),
            distributions=self._kinds,
            intermediate_values=dict(trial.epochs),
        )

    def _state(self, trial: Trial) -> Any:
        if trial.stopped:
            return self._states.PRUNED
        return self._states.FAIL if trial.value is None else self._states.COMPLETE


def _seen(trial: Any) -> tuple[Any, ...]:
    """What the sampler and the pruner see of a finished trial."""
    return trial.state, trial.value, trial.params, trial.intermediate_values


def _title(name: str, axes: Space, about: dict[str, Any]) -> str:
    """The name of a study of Optuna: another space, or other data, is another study."""
    space = {one: [axis.scale, *_plain(axis)] for one, axis in axes.items()}
    digest = hashlib.sha256(json.dumps([about, space], sort_keys=True).encode()).hexdigest()
    return f"{name}, {about.get('metric', '')}, {digest[:8]}"


def _plain(axis: Axis) -> list[Any]:
    """The values of an axis as a journal can hold them."""
    return [one.item() if isinstance(one, np.generic) else one for one in axis.values]


def _inside(axis: Axis, value: Any) -> bool:
    return value in axis.values if axis.scale == "given" else bool(axis.values[0] <= value <= axis.values[-1])


def _distribution(axis: Axis, kinds: Any) -> Any:
    values = _plain(axis)
    if axis.scale == "given":
        return kinds.CategoricalDistribution(values)
    if axis.scale == "whole":
        return kinds.IntDistribution(values[0], values[-1], log=True)
    return kinds.FloatDistribution(values[0], values[-1], log=axis.scale == "factor")
