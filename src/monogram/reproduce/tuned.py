"""Search the settings of a paper's rows on a validation part, never on the test part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from monogram.errors import NumericalError
from monogram.evaluation import metrics as metrics_
from monogram.models.parameters import search_axes
from monogram.models.registry import model_class
from monogram.reproduce.paper import Choice, PaperTable, Row, Settings
from monogram.reproduce.sets import SEED, Place
from monogram.safe import make_folder
from monogram.tuning import budget as budget_
from monogram.tuning.group_runner import Task
from monogram.tuning.search import ModelSearch, about
from monogram.tuning.study import Study
from monogram.tuning.validation import Validation, validation_of

OF_PROTOCOL = {
    "strong": "the validation users of the protocol, held out beside those of the test part",
    "ratio811": "the validation tenth of each user's events that the protocol defines",
}

FIXED = ("rank", "solver", "epochs", "tolerance", "zero_diagonal")


class Tuned:
    """Searches the settings of a row; `Runner` takes it as `choose`.

    The public lists are validated on the latest part of each user's train events where the data folder has them in
    order (such as `gowalla-ordered.npz` beside `gowalla.npz`), because the test lists were cut that way. Without an
    order the validation part is a random share of each user's train events.

    Parameters
    ----------
    folder : of the cache; an interrupted search resumes from its study file there
    budget : of the search of each row
    fit : options of `fit`
    progress : receives a line of text before and after each search
    """

    def __init__(
        self,
        folder: Path,
        budget: str,
        fit: Mapping[str, Any],
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder, self.limit, self.fit = folder, budget_.parse(budget), dict(fit)
        self.progress = progress
        self._validations: dict[Place, Validation] = {}

    def __call__(self, row: Row, place: Place, table: PaperTable) -> Choice:
        """The best settings of a row on the validation part of a data set, by the last metric of its table."""
        name = str(row.model)
        fixed = fixed_of(name, row.settings.get(place.name) or next(iter(row.settings.values()), {}))
        validation = self.validation(place)
        task = Task(validation.split, metrics_.parse(table.metrics[-1]), **self.fit)
        make_folder(self.folder, "give another with --cache")
        task_line = about(task, place.protocol)
        study = Study(task_line, self.folder / _file(place, name, fixed, task_line))
        self.progress(f"{place.name}: looking for the settings of {row.name} on {validation.how}")
        space: dict[str, Mapping[str, Any]] = {name: {parameter: [value] for parameter, value in fixed.items()}}
        search = ModelSearch(task, [name], space, study, self.limit, by_order=False)  # as in the papers
        search.run()
        best = search.best({name})
        if best is None:
            raise NumericalError(f"none of the settings of {row.name} could be fitted: {study.trials[0].note}")
        self.progress(
            f"{place.name}: {row.name} {best.value:.4f} on validation with {best.setting.make()!r}, the best of "
            f"{len(study.trials)} settings in {study.seconds:.0f} s"
        )
        return Choice(best.setting.parameters, len(study.trials), validation.how)

    def validation(self, place: Place) -> Validation:
        """The validation part of the protocol; of the public lists, a part of train."""
        if place not in self._validations:
            self._validations = {place: _validation(place)}  # only that of one data set is held in memory
        return self._validations[place]


def _validation(place: Place) -> Validation:
    if place.protocol != "lightgcn":
        return Validation(place.split("validation"), OF_PROTOCOL[place.protocol])
    split = place.ordered() or place.split("test")
    return validation_of(None, split, split, None, SEED)


def fixed_of(model: str, settings: Settings) -> dict[str, Any]:
    """The settings that define a row and are not searched.

    They are those of FIXED, those that are 0 (switched off), and those of parameters that have no search axis.
    """
    names = (*FIXED, "b") if settings.get("zero_diagonal") else FIXED  # with a zero diagonal b changes no ranking
    axes = search_axes(model_class(model))
    return {name: value for name, value in settings.items() if name in names or value == 0 or name not in axes}


def _file(place: Place, name: str, fixed: Mapping[str, Any], task_line: Mapping[str, Any]) -> str:
    key = json.dumps([place.checksum(), name, fixed, dict(task_line)], sort_keys=True)
    return f"{place.name}-{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.study.jsonl"
