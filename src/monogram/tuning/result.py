"""The result of a search: every trial, the best setting, its refitted model, and its metric on the test part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from monogram.data.splits import Split
from monogram.engine.runtime import parallel
from monogram.evaluation.protocol import measure_model
from monogram.evaluation.result import Evaluation
from monogram.evaluation.shared_fits import measure_fit
from monogram.evaluation.statistics import Difference
from monogram.models.base import Recommender
from monogram.reports import writers
from monogram.tuning import report as report_
from monogram.tuning.group_runner import Task
from monogram.tuning.plan import SearchPlan
from monogram.tuning.settings import Setting, Trial
from monogram.tuning.study import Study

SHOWN = 5  # settings in the printed table


class Tuning:
    """The result of `tune`.

    Attributes
    ----------
    best : the best setting on the validation part: model, parameters, value, seconds, note
    model : the best model, fitted on all of train
    metric : the metric that was maximised
    test : Evaluation on the test part: the best model, the best EASE of the same search (where the budget ended before
        EASE was tried, EASE in the middle of its range), and popularity
    differences : on the test part, the paired differences to "ease" and to "popularity"
        A model is not compared with itself.
    plan : the plan of the coarse grid, with its cost; it prints
    validation : which part of train the settings were compared on, and why
    """

    plan: SearchPlan
    validation: str = ""

    def __init__(self, trials: list[Trial], best: Trial, model: Recommender, metric: str, test: Evaluation) -> None:
        self._trials, self._best = trials, best
        self.best, self.model, self.metric, self.test = best.row(), model, metric, test
        names = list(dict.fromkeys(row["model"] for row in test.rows()))
        self.differences: dict[str, Difference] = {name: test.compare(names[0], name) for name in names[1:]}

    def rows(self) -> list[dict[str, Any]]:
        """Every setting tried, in order: model, parameters, value (on the validation part), seconds, note."""
        return [trial.row() for trial in self._trials]

    def curve(self) -> list[dict[str, Any]]:
        """After each setting: how many were tried, seconds so far, its value, and the best value so far."""
        rows: list[dict[str, Any]] = []
        seconds, best = 0.0, None
        for number, trial in enumerate(self._trials, 1):
            seconds += trial.seconds
            best = trial.value if best is None else max(best, trial.value if trial.value is not None else best)
            rows.append({"tried": number, "seconds": seconds, "value": trial.value, "best": best})
        return rows

    def document(self) -> dict[str, Any]:
        """The result without the model, for JSON."""
        return {
            "metric": self.metric,
            "validation": self.validation,
            "best": self.best,
            "test": self.test.rows(),
            "differences": {name: vars(difference) for name, difference in self.differences.items()},
            "settings": self.rows(),
        }

    def report(self, path: str | Path, *, command: str = "") -> list[Path]:
        """Write a report with tables and pictures; the pictures need the extra `plot`.

        Parameters
        ----------
        path : ending in .html (one file), or in .md (with its pictures as files beside it)
        command : the command that made it, which the report shows

        Returns
        -------
        list of Path
            The files written.
        """
        return writers.write(report_.report(self, command), path)

    def __repr__(self) -> str:
        seconds = sum(trial.seconds for trial in self._trials)
        lines = [f"{len(self._trials):,} settings in {seconds:.1f} s; the best on validation, by {self.metric}:"]
        lines += [f"  (validation: {self.validation})"] if self.validation else []
        valued = [trial for trial in self._trials if trial.value is not None]
        best = sorted(valued, key=lambda trial: -(trial.value or 0.0))[:SHOWN]
        lines += [f"  {trial.value:.4f}  {trial.setting.make()!r}" for trial in best]
        lines += ["", f"{self._best.setting.make()!r} on test:", repr(self.test)]
        for name, difference in self.differences.items():
            interval = f"[{difference.low:+.4f}, {difference.high:+.4f}]"
            lines.append(f"difference to {name}: {difference.value:+.4f} {interval}, p = {difference.p:.3g}")
        return "\n".join(lines)


def finish(study: Study, split: Split, task: Task, best: Trial, seed: int, baselines: list[Setting]) -> Tuning:
    """Refit the best setting on all of train, and measure it and the baselines on the test part.

    One large model is in memory at a time.

    Parameters
    ----------
    baselines : settings to compare the best with; one of the same model as the best is left out
    """
    metrics, options = (task.metric,), task.fit_options
    measured = {
        setting.model: measure_fit(setting.make(), split.train, split, metrics, options)[1]
        for setting in baselines
        if setting.model != best.setting.model
    }
    model = best.setting.make().fit(split.train, **options)
    measured = {best.setting.model: measure_model(model, split, metrics, parallel.count(task.threads))} | measured
    values = {name: by_user for name, (by_user, _) in measured.items()}
    catalogue = {name: by_catalogue for name, (_, by_catalogue) in measured.items()}
    test = Evaluation(split.protocol, metrics, values, catalogue, None, seed)
    return Tuning(study.trials, best, model, str(task.metric), test)
