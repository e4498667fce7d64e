"""Models that are trained in epochs: Optuna proposes their settings (TPE), and stops poor settings early.

A setting is stopped by the median rule: after 4, 8, 16, … epochs, where its best value so far is below the median of
the values that the finished settings had after as many epochs. The rule needs no number of epochs in advance (which may
be searched itself), and depends only on the values in the study file, so that a resumed search decides as an
uninterrupted one. Successive halving and Hyperband depend on the numbers of trials, which a crash shifts.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from monogram.errors import MissingExtraError
from monogram.models.registry import model_class
from monogram.tuning.epochs import EpochObserver
from monogram.tuning.journal import OptunaJournal
from monogram.tuning.settings import Setting, Trial
from monogram.tuning.spaces import Axis, Space
from monogram.tuning.study import Study

FINISHED = 5  # settings, before one is stopped
# Epochs before a setting is stopped: after two the order is not yet that of the end (RG2 by als: ρ = 0.78, then 0.94).
FIRST = 4


def trained_in_epochs(name: str, axes: Space) -> bool:
    """Whether the fit of a model runs in epochs for some setting of a space."""
    training = model_class(name).epoch_training
    if training is None:
        return False
    default = model_class(name)().params().get("solver")
    return any(training.runs_with(solver) for solver in (axes["solver"].values if "solver" in axes else [default]))


def needs_optuna(name: str, axes: Space) -> bool:
    """Whether a model is searched with Optuna: trained in epochs, and not only on given values."""
    return trained_in_epochs(name, axes) and any(axis.scale != "given" for axis in axes.values())


def require_optuna(names: Iterable[str]) -> None:
    """Raise MissingExtraError where Optuna, which searches these models, is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise MissingExtraError(
            f"the settings of {', '.join(names)}, trained in epochs, are searched with Optuna, which is not installed; "
            "install it with: pip install 'monogram[tune]'"
        )


def proposals(spaces: dict[str, Space], study: Study, seed: int) -> dict[str, Proposals]:
    """The proposals of Optuna for each of these models; Optuna is imported only where there is a model."""
    if not spaces:
        return {}
    require_optuna(spaces)
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = OptunaJournal(study.path)
    return {name: Proposals(name, axes, study, journal, seed) for name, axes in spaces.items()}


class Proposals:
    """The settings that Optuna proposes for one model, and the results it learns from.

    The study file is the source of truth. Trials that Optuna's journal lacks are added from the study file, trials that
    a crash left running are marked as failed, and where the journal holds other trials than the file, a new Optuna
    study is started in it.

    Parameters
    ----------
    name, axes : the model and its space
    study : the trials so far
    journal : where Optuna keeps its record
    seed : the same trials and seed give the same setting, so that a resumed search continues as an uninterrupted one
    """

    def __init__(self, name: str, axes: Space, study: Study, journal: OptunaJournal, seed: int) -> None:
        import optuna

        self.name, self.axes, self.seed, self._journal = name, axes, seed, journal
        self._states, self._new = optuna.trial.TrialState, optuna.trial.create_trial
        self._distributions = {parameter: _distribution(axis, optuna.distributions) for parameter, axis in axes.items()}
        self._running: dict[Setting, Any] = {}
        known = [self._finished(trial) for trial in study.trials if self._counts(trial)]
        with journal.errors_named():
            self._study = self._open(_title(name, axes, study.about), known)

    def next(self, trials: list[Trial]) -> Setting:
        """The next setting, given the trials of the model so far; the first one has the defaults of the model."""
        if not trials:
            first = {parameter: axis.values[0] for parameter, axis in self.axes.items() if axis.scale == "given"}
            return self._setting(first)
        import optuna

        self._study.sampler = optuna.samplers.TPESampler(seed=self.seed + len(trials))
        with self._journal.errors_named():
            running = self._study.ask(self._distributions)
        setting = self._setting(running.params)
        self._running[setting] = running
        return setting

    def observers(self, setting: Setting) -> dict[Setting, EpochObserver]:
        """The observer of a setting's training, by setting; none where it does not run in epochs."""
        training = model_class(self.name).epoch_training
        if training is None or not training.runs_with(setting.parameters.get("solver")):
            return {}
        running = self._running.get(setting)

        def should_stop(epochs: int, value: float) -> bool:
            if running is None:  # the defaults: there is nothing yet to compare them with
                return False
            with self._journal.errors_named():
                running.report(value, epochs)
                return bool(running.should_prune())

        return {setting: EpochObserver(should_stop)}

    def tell(self, trial: Trial) -> None:
        """Pass the result of a setting to Optuna; the study file must have it already."""
        running = self._running.pop(trial.setting, None)
        with self._journal.errors_named():
            if running is not None:
                self._study.tell(running, trial.value, state=self._state(trial))
            elif self._counts(trial):
                self._study.add_trial(self._finished(trial))

    def end(self) -> None:
        """Mark settings that were proposed and will not be tried as failed."""
        with self._journal.errors_named():
            while self._running:
                self._study.tell(self._running.popitem()[1], state=self._states.FAIL)

    def _setting(self, parameters: dict[str, Any]) -> Setting:
        return Setting.of(self.name, parameters)

    def _open(self, title: str, known: list[Any]) -> Any:
        """The first study of a title whose finished trials are the first known ones; the other known ones are added."""
        import optuna

        pruner = optuna.pruners.MedianPruner(n_startup_trials=FINISHED, n_warmup_steps=FIRST)
        how = {"storage": self._journal.storage, "direction": "maximize", "pruner": pruner, "load_if_exists": True}
        for number in itertools.count(1):
            study = optuna.create_study(study_name=title if number == 1 else f"{title} ({number})", **how)
            recorded = study.get_trials(deepcopy=False, states=(self._states.COMPLETE, self._states.PRUNED))
            if [_content(trial) for trial in recorded] == [_content(trial) for trial in known[: len(recorded)]]:
                break
        for interrupted in study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
            study.tell(interrupted.number, state=self._states.FAIL)
        for missing in known[len(recorded) :]:
            study.add_trial(missing)
        return study

    def _counts(self, trial: Trial) -> bool:
        """Whether Optuna can learn from a trial: it has a value, and lies in this space."""
        if trial.setting.model != self.name or (trial.value is None and not trial.stopped):
            return False
        searched = self._searched(trial)
        inside = all(_inside(self.axes[parameter], value) for parameter, value in searched.items())
        return inside and self._setting(searched) == trial.setting

    def _searched(self, trial: Trial) -> dict[str, Any]:
        """The values of the searched parameters of a trial."""
        return {parameter: trial.setting.parameters[parameter] for parameter in self.axes}

    def _finished(self, trial: Trial) -> Any:
        """A trial as a trial of Optuna; the value of a stopped trial is its last one, as in Optuna."""
        return self._new(
            state=self._state(trial),
            value=trial.epochs[-1][1] if trial.stopped else trial.value,
            params=self._searched(trial),
            distributions=self._distributions,
            intermediate_values=dict(trial.epochs),
        )

    def _state(self, trial: Trial) -> Any:
        if trial.stopped:
            return self._states.PRUNED
        return self._states.FAIL if trial.value is None else self._states.COMPLETE


def _content(trial: Any) -> tuple[Any, ...]:
    """What the sampler and the pruner read of a finished trial."""
    return trial.state, trial.value, trial.params, trial.intermediate_values


def _title(name: str, axes: Space, about: dict[str, Any]) -> str:
    """The name of a study of Optuna: another space, or other data, is another study."""
    space = {parameter: [axis.scale, *_plain(axis)] for parameter, axis in axes.items()}
    digest = hashlib.sha256(json.dumps([about, space], sort_keys=True).encode()).hexdigest()
    return f"{name}, {about.get('metric', '')}, {digest[:8]}"


def _plain(axis: Axis) -> list[Any]:
    """The values of an axis as Python numbers, for the journal."""
    return [value.item() if isinstance(value, np.generic) else value for value in axis.values]


def _inside(axis: Axis, value: Any) -> bool:
    return value in axis.values if axis.scale == "given" else bool(axis.values[0] <= value <= axis.values[-1])


def _distribution(axis: Axis, distributions: Any) -> Any:
    values = _plain(axis)
    if axis.scale == "given":
        return distributions.CategoricalDistribution(values)
    if axis.scale == "whole":
        return distributions.IntDistribution(values[0], values[-1], log=True)
    return distributions.FloatDistribution(values[0], values[-1], log=axis.scale == "factor")
