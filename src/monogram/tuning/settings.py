"""Settings (a model's name and its parameters) and trials (a setting and its metric)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from monogram.models.base import Recommender
from monogram.models.registry import model_class


@dataclass(frozen=True)
class Setting:
    """A model's name and all of its parameters.

    Attributes
    ----------
    model : name, as in the registry
    key : the parameters as JSON in a canonical form: equal settings have equal keys
    """

    model: str
    key: str

    @classmethod
    def of(cls, model: str, parameters: dict[str, Any]) -> Setting:
        """A setting; parameters are checked, and missing ones have their defaults."""
        complete = model_class(model)(**parameters).params()
        return cls(model, json.dumps(complete, sort_keys=True))

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        parameters: dict[str, Any] = json.loads(self.key)
        return parameters

    def make(self) -> Recommender:
        """The model, not fitted."""
        return model_class(self.model)(**self.parameters)


@dataclass(frozen=True)
class Trial:
    """The result of one setting.

    Attributes
    ----------
    setting : what was tried
    value : the metric on the validation part; None where the fit failed or was stopped early
    seconds : its share of the seconds of its group
    note : warnings of the fit, or why there is no value
    epochs : (epochs, metric) pairs, where the training was observed
    stopped : whether the training was stopped early, because others were better after as many epochs
    """

    setting: Setting
    value: float | None
    seconds: float
    note: str = ""
    epochs: tuple[tuple[int, float], ...] = ()
    stopped: bool = False

    def row(self) -> dict[str, Any]:
        """The trial as a dictionary: model, parameters, value, seconds, note."""
        return {
            "model": self.setting.model,
            "parameters": self.setting.parameters,
            "value": self.value,
            "seconds": self.seconds,
            "note": self.note,
        }


def best_of(trials: list[Trial], models: set[str] | None = None) -> Trial | None:
    """The trial with the highest value, the first of equals; with `models`, of these models only."""
    valued = [trial for trial in trials if trial.value is not None]
    chosen = [trial for trial in valued if models is None or trial.setting.model in models]
    return max(chosen, key=lambda trial: trial.value or 0.0, default=None)
