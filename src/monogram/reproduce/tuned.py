"""Search the settings of a paper's rows on a validation part, never on the test part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from monogram._version import __version__
from monogram.data.splits import Split, holdout
from monogram.errors import NumericalError
from monogram.evaluation import metrics as metrics_
from monogram.reproduce.paper import PaperTable, Row, Settings
from monogram.reproduce.sets import SEED, Place
from monogram.safe import make_folder
from monogram.tuning import budget as budget_
from monogram.tuning.group_runner import Task
from monogram.tuning.search import ModelSearch, about
from monogram.tuning.study import Study
from monogram.tuning.validation import SHARE

FIXED = ("rank", "solver", "epochs", "tolerance", "zero_diagonal")


class Tuned:
    """Searches the settings of a row; `Runner` takes it as `choose`.

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
        self._splits: dict[Place, Split] = {}

    def __call__(self, row: Row, place: Place, table: PaperTable) -> Settings:
        """The best settings of a row on the validation part of a data set, by the last metric of its table."""
        name, fixed = str(row.model), fixed_of(row.settings.get(place.name) or next(iter(row.settings.values()), {}))
        task = Task(self._split(place), metrics_.parse(table.metrics[-1]), **self.fit)
        make_folder(self.folder, "give another with --cache")
        study = Study(about(task, place.protocol), self.folder / _file(place, name, fixed, str(task.metric)))
        self.progress(f"{place.name}: looking for the settings of {row.name}")
        space: dict[str, Mapping[str, Any]] = {name: {parameter: [value] for parameter, value in fixed.items()}}
        search = ModelSearch(task, [name], space, study, self.limit)
        search.run()
        best = search.best({name})
        if best is None:
            raise NumericalError(f"none of the settings of {row.name} could be fitted: {study.trials[0].note}")
        self.progress(
            f"{place.name}: {row.name} {best.value:.4f} on validation with {best.setting.make()!r}, the best of "
            f"{len(study.trials)} settings in {study.seconds:.0f} s"
        )
        return best.setting.parameters

    def _split(self, place: Place) -> Split:
        """The validation split of the protocol; where it has none, a seeded share of each user's train events."""
        if place not in self._splits:
            if place.protocol == "lightgcn":
                self._splits = {place: holdout(place.split("test").train, share=SHARE, seed=SEED)}
            else:
                self._splits = {place: place.split("validation")}
        return self._splits[place]


def fixed_of(settings: Settings) -> dict[str, Any]:
    """The settings that define a row and are not searched: those of FIXED, and those that are 0 (switched off)."""
    names = (*FIXED, "b") if settings.get("zero_diagonal") else FIXED  # with a zero diagonal b changes no ranking
    return {name: value for name, value in settings.items() if name in names or value == 0}


def _file(place: Place, name: str, fixed: Mapping[str, Any], metric: str) -> str:
    key = json.dumps([place.checksum(), place.protocol, name, fixed, metric, __version__], sort_keys=True)
    return f"{place.name}-{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.study.jsonl"
