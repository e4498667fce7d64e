"""The next setting of a model that is trained in epochs: Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

import importlib.util
from typing import Any

from monogram.errors import MissingExtraError
from monogram.tuning.ranges import Axis, Space
from monogram.tuning.settings import Setting, Trial

EPOCHS = {
    "wrmf": None,
    "slim": None,
    "rg2": ("als", "newton_cg"),
    "low_rank_edlae": ("alternating", "admm", "zero_diagonal"),
}


def iterative(name: str, axes: Space) -> bool:
    """Whether a model in this space is trained in epochs."""
    if name not in EPOCHS:
        return False
    solvers = EPOCHS[name]
    return solvers is None or ("solver" in axes and any(one in solvers for one in axes["solver"].values))


def need() -> None:
    """Raise MissingExtraError where Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise MissingExtraError(
            "wrmf, slim and iterative solvers are searched with Optuna, which is not installed; "
            "install it with: pip install 'monogram[tune]'"
        )


def propose(name: str, axes: Space, trials: list[Trial], seed: int) -> Setting:
    """The next setting, from the trials of the model so far; the first are the model's defaults.

    The same trials and seed give the same setting: a search that was interrupted goes on as it would have.
    """
    if not trials:
        return Setting.of(name, {one: axis.values[0] for one, axis in axes.items() if axis.scale == "given"})
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds = {one: _distribution(axis, optuna) for one, axis in axes.items()}
    sampler = optuna.samplers.TPESampler(seed=seed + len(trials))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in trials:
        given = {one: trial.setting.parameters[one] for one in axes}
        if trial.value is not None and all(_inside(axes[one], value) for one, value in given.items()):
            study.add_trial(optuna.trial.create_trial(params=given, distributions=kinds, value=trial.value))
    return Setting.of(name, study.ask(kinds).params)


def _inside(axis: Axis, value: Any) -> bool:
    return value in axis.values if axis.scale == "given" else bool(axis.values[0] <= value <= axis.values[-1])


def _distribution(axis: Axis, optuna: Any) -> Any:
    if axis.scale == "given":
        return optuna.distributions.CategoricalDistribution(axis.values)
    low, high = axis.values[0], axis.values[-1]
    if axis.scale == "whole":
        return optuna.distributions.IntDistribution(low, high, log=True)
    return optuna.distributions.FloatDistribution(low, high, log=axis.scale == "factor")
