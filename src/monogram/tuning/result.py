"""What a search gives: the best setting, how it was found, and what it is worth on the test part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from monogram.data.splits import Split
from monogram.engine.runtime import parallel
from monogram.evaluation.protocol import measure_model
from monogram.evaluation.result import Evaluation
from monogram.evaluation.statistics import Difference
from monogram.models.base import Recommender
from monogram.reports import writers
from monogram.tuning import report as report_
from monogram.tuning.families import Task
from monogram.tuning.plan import SearchPlan
from monogram.tuning.settings import Setting, Trial
from monogram.tuning.study import Study

SHOWN = 5


class Tuning:
    """The outcome of `tune`.

    Attributes
    ----------
    best : the best setting on the validation part: model, parameters, value, seconds, note
    model : the best model, fitted on all of train
    metric : what was searched for
    test : Evaluation of the best, of the best EASE of the same search (of one that was too short for it, EASE in the
        middle of its range), and of popularity, on the test part
    differences : on the test part, the paired difference to "ease" and to "popularity" (less where one is the best)
    plan : what the coarse grid of the search shared, and what that cost; it prints
    """

    plan: SearchPlan

    def __init__(self, trials: list[Trial], best: Trial, model: Recommender, metric: str, test: Evaluation) -> None:
        self._trials, self._best = trials, best
        self.best, self.model, self.metric, self.test = best.row(), model, metric, test
        names = list(dict.fromkeys(row["model"] for row in test.rows()))
        self.differences: dict[str, Difference] = {name: test.compare(names[0], name) for name in names[1:]}

    def rows(self) -> list[dict[str, Any]]:
        """Every setting tried, in order: model, parameters, value (on the validation part), seconds, note."""
        return [one.row() for one in self._trials]

    def curve(self) -> list[dict[str, Any]]:
        """After each setting: how many were tried, seconds so far, its value, and the best value so far."""
        rows: list[dict[str, Any]] = []
        seconds, best = 0.0, None
        for number, one in enumerate(self._trials, 1):
            seconds += one.seconds
            best = one.value if best is None else max(best, one.value if one.value is not None else best)
            rows.append({"tried": number, "seconds": seconds, "value": one.value, "best": best})
        return rows

    def document(self) -> dict[str, Any]:
        """All of it but the model, for JSON."""
        return {
            "metric": self.metric,
            "best": self.best,
            "test": self.test.rows(),
            "differences": {name: vars(one) for name, one in self.differences.items()},
            "settings": self.rows(),
        }

    def report(self, path: str | Path, *, command: str = "") -> list[Path]:
        """Write a report for people: tables and pictures (these need the extra `plot`).

        Parameters
        ----------
        path : ending in .html, one file; or in .md, with its pictures beside it
        command : what made it, to be shown

        Returns
        -------
        list of Path
            What was written.
        """
        return writers.write(report_.report(self, command), path)

    def __repr__(self) -> str:
        seconds = sum(one.seconds for one in self._trials)
        lines = [f"{len(self._trials):,} settings in {seconds:.1f} s; the best on validation, by {self.metric}:"]
        found = sorted((one for one in self._trials if one.value is not None), key=lambda one: -(one.value or 0.0))
        lines += [f"  {one.value:.4f}  {one.setting.make()!r}" for one in found[:SHOWN]]
        lines += ["", f"{self._best.setting.make()!r} on test:", repr(self.test)]
        for name, one in self.differences.items():
            lines.append(f"difference to {name}: {one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}], p = {one.p:.3g}")
        return "\n".join(lines)


def finish(study: Study, split: Split, task: Task, best: Trial, seed: int, ease: Setting) -> Tuning:
    """Refit the best on all of train, and read the test part, once. One large model is in memory at a time.

    Parameters
    ----------
    ease : what to compare with
    """
    others = {"ease": ease, "popularity": Setting.of("popularity", {})}
    values, catalogue = {}, {}
    for name, setting in others.items():
        if name != best.setting.model:
            values[name], catalogue[name], _ = _measured(setting, split, task)
    own, counted, model = _measured(best.setting, split, task, keep=True)
    values, catalogue = {best.setting.model: own} | values, {best.setting.model: counted} | catalogue
    test = Evaluation(split.protocol, (task.metric,), values, catalogue, None, seed)
    return Tuning(study.trials, best, model, str(task.metric), test)


def _measured(setting: Setting, split: Split, task: Task, keep: bool = False) -> tuple[Any, dict[str, float], Any]:
    model = setting.make().fit(split.train, **task.how)
    values, catalogue = measure_model(model, split, (task.metric,), parallel.count(task.threads))
    if not keep:
        model.unfit()
    return values, catalogue, model
