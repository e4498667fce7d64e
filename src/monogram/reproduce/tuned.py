"""Settings of a paper's rows chosen on a validation part, never on the test part, and kept beside the results."""

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
from monogram.safe import folder as made_folder
from monogram.tuning import budget as budget_
from monogram.tuning.group_runner import Task
from monogram.tuning.search import VALIDATION, ModelSearch, about
from monogram.tuning.study import Study

FIXED = ("rank", "solver", "epochs", "tolerance", "zero_diagonal")


class Tuned:
    """Chooses the settings of a row by a search; give it to `Runner` as `choose`.

    Parameters
    ----------
    folder : of the cache; an interrupted search goes on from its study there
    budget : of the search of each row
    fit : options for `fit`
    tell : receives what is being done
    """

    def __init__(
        self, folder: Path, budget: str, fit: Mapping[str, Any], tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.folder, self.limit, self.fit, self.tell = folder, budget_.parse(budget), dict(fit), tell
        self._cuts: dict[Place, Split] = {}

    def __call__(self, row: Row, place: Place, table: PaperTable) -> Settings:
        """The best settings of a row on the validation part of a place, by the last metric of its table."""
        name, fixed = str(row.model), fixed_of(row.settings.get(place.name) or next(iter(row.settings.values()), {}))
        task = Task(self._cut(place), metrics_.parse(table.metrics[-1]), **self.fit)
        made_folder(self.folder, "give another with --cache")
        study = Study(about(task, place.protocol), self.folder / _file(place, name, fixed, str(task.metric)))
        self.tell(f"{place.name}: looking for the settings of {row.name}")
        search = ModelSearch(task, [name], {name: {one: [value] for one, value in fixed.items()}}, study, self.limit)
        search.run()
        best = search.best({name})
        if best is None:
            raise NumericalError(f"none of the settings of {row.name} could be fitted: {study.trials[0].note}")
        self.tell(
            f"{place.name}: {row.name} {best.value:.4f} on validation with {best.setting.make()!r}, the best of "
            f"{len(study.trials)} settings in {study.seconds:.0f} s"
        )
        return best.setting.parameters

    def _cut(self, place: Place) -> Split:
        """The validation part of the protocol; where it has none, a seeded share of each user's train events."""
        if place not in self._cuts:
            if place.protocol == "lightgcn":
                self._cuts = {place: holdout(place.split("test").train, share=VALIDATION, seed=SEED)}
            else:
                self._cuts = {place: place.split("validation")}
        return self._cuts[place]


def fixed_of(settings: Settings) -> dict[str, Any]:
    """What makes a row the one it is, and is not searched: its rank, its solver, and what it leaves out (0)."""
    named = (*FIXED, "b") if settings.get("zero_diagonal") else FIXED  # without a diagonal no b ranks differently
    return {name: value for name, value in settings.items() if name in named or value == 0}


def _file(place: Place, name: str, fixed: Mapping[str, Any], metric: str) -> str:
    what = json.dumps([place.checksum(), place.protocol, name, fixed, metric, __version__], sort_keys=True)
    return f"{place.name}-{name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.study.jsonl"
