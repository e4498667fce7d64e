"""The time that gradient-trained rows of a paper may take, and their learning curves.

A row with a parameter `seconds` is trained within a budget of time for each data set. What is left of it is divided
equally among the fits that are still to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from monogram.data.splits import Split
from monogram.engine.runtime import parallel
from monogram.evaluation import shared_fits
from monogram.evaluation.metrics import Metric
from monogram.evaluation.protocol import Measured, measure_weights
from monogram.models.base import Recommender
from monogram.models.report import Report
from monogram.weights import Weights

DEFAULT = 3600.0  # seconds for each data set
LIMIT = "seconds"  # the parameter of a model that limits its training


def is_trained(kind: type[Recommender]) -> bool:
    """Whether the training of models of a class can be limited in time."""
    return LIMIT in kind.__dataclass_fields__


def with_parameters(model: Recommender, **parameters: Any) -> Recommender:
    """A model with other values of some parameters, not fitted."""
    return type(model)(**(model.params() | parameters))


@dataclass
class TrainingTime:
    """The budget of time of one data set.

    Attributes
    ----------
    total : seconds for all fits that are limited
    fits : number of those that are still to be done
    planned : number of those that are asked for, the stored ones included
    """

    total: float = DEFAULT
    fits: int = 0
    planned: int = 0
    spent: float = field(default=0.0, init=False)

    def equal_share(self) -> float:
        """The seconds of a fit if no result were stored and every fit took its share."""
        return self.total / max(1, self.planned)

    def share(self) -> float:
        """The seconds that the next fit may take."""
        return max(1.0, (self.total - self.spent) / max(1, self.fits))

    def spend(self, seconds: float) -> None:
        """Note a finished fit."""
        self.spent, self.fits = self.spent + seconds, self.fits - 1


def is_outdated(result: Mapping[str, Any], share: float) -> bool:
    """Whether a stored result was ended by a lower share of a budget than the present one."""
    return bool(result.get("stopped")) and result["share"] < share


def record(report: Report) -> dict[str, Any]:
    """The epochs of a fit, for the cache."""
    return {"epochs": len(report.epoch_seconds), "stopped": report.stopped}


def measure_curve(
    models: Sequence[Recommender], split: Split, metrics: tuple[Metric, ...], fit: Mapping[str, Any]
) -> list[tuple[Report, Measured]]:
    """Models that differ in `epochs` alone, measured during one fit: that of the most epochs.

    The seconds of each are those of a fit that ends after its epochs. An end by the time limit of the model is the end
    of all that have more epochs.
    """
    longest = max(models, key=_epochs)
    threads = parallel.count(fit.get("threads"))
    by_epoch: dict[int, Measured] = {}
    wanted = {_epochs(model) for model in models}

    def between(epoch: int, weights: Callable[[], Weights]) -> None:
        if epoch in wanted:
            rule = longest.recency_rule()
            by_epoch[epoch] = measure_weights(weights(), split.train, split, metrics, threads, rule)

    report, last = shared_fits.measure_fit(longest, split.train, split, metrics, fit, between)
    done = len(report.epoch_seconds)
    return [(_report_after(report, min(_epochs(model), done)), by_epoch.get(_epochs(model), last)) for model in models]


def _epochs(model: Recommender) -> int:
    return int(model.params()["epochs"])


def _report_after(report: Report, epochs: int) -> Report:
    """The report of a fit that had ended after some of its epochs."""
    other = {stage: seconds for stage, seconds in report.seconds.items() if stage not in ("epochs", "validation")}
    seconds = list(accumulate(report.epoch_seconds))[epochs - 1]
    stopped = report.stopped and epochs == len(report.epoch_seconds)
    return replace(
        report, seconds=other | {"epochs": seconds}, epoch_seconds=report.epoch_seconds[:epochs], stopped=stopped
    )
