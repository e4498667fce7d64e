"""A setting: a model's name and its parameters, and what trying it gave."""

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
    key : the parameters as JSON, in one spelling: settings with the same key are the same
    """

    model: str
    key: str

    @classmethod
    def of(cls, model: str, parameters: dict[str, Any]) -> Setting:
        """The setting, its parameters checked and completed by their defaults."""
        made = model_class(model)(**parameters)
        return cls(model, json.dumps(made.params(), sort_keys=True))

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        found: dict[str, Any] = json.loads(self.key)
        return found

    def make(self) -> Recommender:
        """The model, not fitted."""
        return model_class(self.model)(**self.parameters)


@dataclass(frozen=True)
class Trial:
    """A setting that was tried.

    Attributes
    ----------
    setting : what was tried
    value : the metric on the validation part; None where the mathematics could not be carried out, or it was stopped
    seconds : its share of the time its group took
    note : what was warned of, or why there is no value
    epochs : (epochs done, value) where it was measured while it was trained
    stopped : whether its training was stopped, since others were better after as many epochs
    """

    setting: Setting
    value: float | None
    seconds: float
    note: str = ""
    epochs: tuple[tuple[int, float], ...] = ()
    stopped: bool = False

    def row(self) -> dict[str, Any]:
        """As a dictionary: model, parameters, value, seconds, note."""
        return {
            "model": self.setting.model,
            "parameters": self.setting.parameters,
            "value": self.value,
            "seconds": self.seconds,
            "note": self.note,
        }


def best_of(trials: list[Trial], models: set[str] | None = None) -> Trial | None:
    """The trial with the highest value, the first of equals; of some models only, where they are named."""
    found = [one for one in trials if one.value is not None and (models is None or one.setting.model in models)]
    return max(found, key=lambda one: one.value or 0.0, default=None)
