"""The runner of all papers: a row on a data set is a job, a job has a result or one for each seed, these give cells."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from monogram.data.splits import Split
from monogram.engine.runtime.arrays import Indices
from monogram.errors import MonogramError, MonogramWarning, ParameterError
from monogram.evaluation import metrics as metrics_
from monogram.evaluation import shared_fits
from monogram.evaluation.metrics import Metric
from monogram.evaluation.protocol import Measured
from monogram.evaluation.result import Evaluation
from monogram.models.base import Recommender
from monogram.models.registry import model_class
from monogram.models.report import Report
from monogram.reproduce import cells as cells_
from monogram.reproduce import embeddings, sets, training_time
from monogram.reproduce.cache import Cache
from monogram.reproduce.cells import Cell
from monogram.reproduce.paper import Choice, Paper, PaperTable, Row, Settings
from monogram.reproduce.sets import Place
from monogram.reproduce.training_time import TrainingTime
from monogram.weights import Factors

Result = dict[str, Any]
OF_FIT = ("rank", "seconds")  # metrics of the fit, not of the recommendations
OF_FACTORS = ("encoder cosine", "decoder cosine")  # of the embeddings of similar items; see `embeddings`
Choose = Callable[[Row, Place, PaperTable], Choice]


@dataclass(frozen=True)
class Selection:
    """The part of a paper to run; an empty selection selects all."""

    data: Sequence[str] = ()
    rows: Sequence[str] = ()
    tables: Sequence[str] = ()


@dataclass
class RowJob:
    """A row on a data set that is on this machine."""

    table: PaperTable
    row: Row
    data: str
    place: Place
    choice: Choice
    result: Result = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    derived: Settings | None = None  # parameters that `Row.derive` computed
    by_seed: tuple[RowJob, ...] = ()  # of a row that is a mean over seeds: its fits, in place of a result

    @property
    def settings(self) -> Settings:
        """The settings of the row, before `Row.derive`."""
        return self.choice.settings

    def model(self) -> Recommender:
        """The model, not fitted."""
        return model_class(str(self.row.model))(**(self.settings if self.derived is None else self.derived))

    @property
    def trained(self) -> bool:
        """Whether the training of the model can be limited in time."""
        return training_time.is_trained(model_class(str(self.row.model)))

    def derive(self, split: Split) -> None:
        """Compute the parameters that depend on the data."""
        if self.row.derive is not None:
            self.derived = self.row.derive(split.train, self.settings)

    def label(self) -> str:
        """The model with its settings; jobs with equal labels on a split have equal fits."""
        if self.row.derive is None:
            return repr(self.model())
        return f"{self.row.name} ({self.row.derive.__name__}: {dict(self.settings)})"

    def source(self, checksum: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that the result depends on: the key of the cache."""
        metrics = sorted({*self.table.metrics} - {*OF_FIT})
        source = {**checksum, "model": self.row.model, "metrics": metrics}
        similar = self.table.similar
        if similar is not None:
            source["similar"] = [similar.model, dict(similar.settings[self.place.name])]
        if self.row.derive is not None:
            return {**source, "derive": self.row.derive.__name__, "parameters": dict(self.settings)}
        parameters = self.model().params()
        parameters.pop(training_time.LIMIT, None)  # the result has the budget
        return {**source, "parameters": parameters}

    def with_seeds(self) -> RowJob:
        """The same job, with a fit for each seed of its row."""
        if self.row.seeds > 1:
            row = replace(self.row, seeds=1)
            choices = (replace(self.choice, settings={**self.settings, "seed": seed}) for seed in range(self.row.seeds))
            self.by_seed = tuple(replace(self, row=row, choice=choice) for choice in choices)
        return self


class Runner:
    """Runs papers.

    Parameters
    ----------
    folder : of the data; by default the environment variable MONOGRAM_DATA
    cache : where results are stored
    fit : options of `fit`, such as {"memory": "8 GB"}
    progress : receives a line of text before each step
    choose : a function that searches the settings of a row; by default the settings of the paper are used
    training : seconds for all gradient-trained fits on a data set
    """

    def __init__(
        self,
        folder: Path | None = None,
        cache: Cache | None = None,
        *,
        fit: Mapping[str, Any] | None = None,
        progress: Callable[[str], None] | None = None,
        choose: Choose | None = None,
        training: float = training_time.DEFAULT,
    ) -> None:
        self.folder, self.cache, self.fit, self.choose = folder, cache or Cache(), fit or {}, choose
        self.training, self._time = training, dict[str, TrainingTime]()
        self.progress = progress or (lambda _: None)
        self._sets: tuple[tuple[Place, str, str], Indices] | None = None
        self._documents: dict[tuple[Place, str], dict[str, Any]] = {}

    def run(self, paper: Paper, selection: Selection | None = None) -> list[Cell]:
        """The cells of a paper, in the order of the paper."""
        selection = selection or Selection()
        check(paper, selection)
        planned = [row.with_seeds() if isinstance(row, RowJob) else row for row in self._plan(paper, selection)]
        jobs = [job for row in planned if isinstance(row, RowJob) for job in row.by_seed or (row,)]
        groups = _grouped(jobs, lambda job: (job.place, job.table.part))
        self._read_cache(groups)
        for (place, part), group in groups.items():
            self._measure(place, part, group)
        cells: list[Cell] = []
        for row in planned:
            cells.extend(_cells(row) if isinstance(row, RowJob) else row)
        return cells

    def _plan(self, paper: Paper, selection: Selection) -> Iterator[RowJob | list[Cell]]:
        """A job for each row that can be measured, and the cells of each row that cannot."""
        for table in paper.tables:
            if selection.tables and table.name not in selection.tables:
                continue
            for data in table.data:
                stand_in = paper.stand_ins.get(data, data)
                if selection.data and data not in selection.data and stand_in not in selection.data:
                    continue
                places = [sets.find(name, self.folder, paper.protocol) for name in (data, stand_in)]
                place = places[0] or places[1]
                rows = [row for row in table.rows if not selection.rows or row.name in selection.rows]
                planned = [self._row(table, row, data, place) for row in rows]
                if not any(job is not None for job in planned):  # all rows belong to a stand-in
                    planned = [self._without(table, row, data, place) for row in _named_once(rows)]
                yield from (job for job in planned if job is not None)

    def _without(self, table: PaperTable, row: Row, data: str, place: Place | None) -> list[Cell]:
        """The cells of a row that has settings for the stand-in only."""
        if place is None:
            return _empty(table, row, data, cells_.NO_DATA, sets.missing(data), row.settings.get(data))
        return _empty(table, row, data, cells_.NO_SETTINGS, "settings are known for its stand-in only")

    def _row(self, table: PaperTable, row: Row, data: str, place: Place | None) -> RowJob | list[Cell] | None:
        """A job, or the cells of a row that cannot be measured; None for a row without this data set."""
        if row.model is None:
            return _empty(table, row, data, cells_.NO_MODEL, row.note)
        searched = row.settings and row.derive is None and not table.axis and table.similar is None
        if place is not None and self.choose is not None and searched:
            try:
                return RowJob(table, row, data, place, self.choose(row, place, table))
            except MonogramError as error:
                return _empty(table, row, data, cells_.FAILED, str(error))
        if place is not None and place.name in row.settings:
            return RowJob(table, row, data, place, Choice(row.settings[place.name]))
        if data in row.settings and (place is None or place.name != data):
            return _empty(table, row, data, cells_.NO_DATA, sets.missing(data), row.settings.get(data))
        if data not in row.printed:
            return None
        if place is None:
            return _empty(table, row, data, cells_.NO_DATA, sets.missing(data), row.settings.get(data))
        return _empty(table, row, data, cells_.NO_SETTINGS, row.note or "the settings are not published")

    def _read_cache(self, groups: Mapping[tuple[Place, str], Sequence[RowJob]]) -> None:
        """Set the results that are in the cache, and the time that the other fits of each data set share."""
        self._time = {place.name: TrainingTime(self.training) for place, _ in groups}
        for (place, _), jobs in groups.items():
            trained = [job for job in jobs if job.trained]
            self._time[place.name].planned += len(_grouped(trained, _shared_fit))
        for (place, part), jobs in groups.items():
            time_left = self._time[place.name]
            for job in jobs:
                result = self.cache.get(job.source(self._document(place, part))) or {}
                job.result = {} if training_time.is_outdated(result, time_left.equal_share()) else result
            limited = [job for job in jobs if not job.result and job.trained]
            time_left.fits += len(_grouped(limited, _shared_fit))

    def _measure(self, place: Place, part: str, jobs: Sequence[RowJob]) -> None:
        """Set the results of jobs on one split that are not in the cache; models that share a fit together."""
        document = self._document(place, part)
        missing = [job for job in jobs if not job.result]
        size = self.cache.get({**document, "size": "train"})
        if missing or size is None:
            split = place.split(part)
            size = {"users": split.train.n_users, "items": split.train.n_items, "events": split.train.n_events}
            self.cache.put({**document, "size": "train"}, size)
            self._fit_missing(place, part, split, missing)
        for job in jobs:
            job.size = {name: size[name] for name in ("users", "items", "events")}  # the cache sorts names

    def _fit_missing(self, place: Place, part: str, split: Split, missing: Sequence[RowJob]) -> None:
        document = self._document(place, part)
        for job in missing:
            try:
                job.derive(split)
            except MonogramError as error:
                job.result = {"error": str(error)}
        ready = [job for job in missing if not job.result]
        for group in _grouped(ready, _shared_fit).values():
            self.progress(f"{place.name}, {part}: {', '.join(dict.fromkeys(job.label() for job in group))}")
            if group[0].trained:
                self._train(place, split, group, document)
            elif group[0].table.similar is not None:
                self._compare(place, split, group, document)
            else:
                self._fit(split, group, document)

    def _train(self, place: Place, split: Split, jobs: Sequence[RowJob], document: Mapping[str, Any]) -> None:
        """Train a model within its share of the time, and measure it after the epochs of each job."""
        time_left, start = self._time[place.name], time.perf_counter()
        share, metrics = time_left.share(), _metrics(jobs)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", MonogramWarning)
                models = [training_time.with_parameters(job.model(), seconds=share) for job in jobs]
                curve = training_time.measure_curve(models, split, metrics, self.fit)
        except MonogramError as error:
            time_left.spend(time.perf_counter() - start)
            for job in jobs:
                job.result = {"error": str(error)}
            return
        time_left.spend(max(report.seconds["epochs"] for report, _ in curve))
        for job, (report, values) in zip(jobs, curve, strict=True):
            job.result = result_of(report, split, metrics, values) | training_time.record(report)
            job.result |= {"share": time_left.equal_share(), "warnings": _texts(caught)}
            self.cache.put(job.source(document), job.result)

    def _compare(self, place: Place, split: Split, jobs: Sequence[RowJob], document: Mapping[str, Any]) -> None:
        """Fit a low-rank model, and measure the cosines of its embeddings of similar items."""
        model, similar = jobs[0].model(), jobs[0].table.similar
        assert similar is not None
        try:
            sets_of_items = self._similar(similar, place, jobs[0].table.part, split)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", MonogramWarning)
                model.fit(split.train, **self.fit)
            result = cosines_of(model, sets_of_items) | {"users": split.train.n_users, "warnings": _texts(caught)}
        except MonogramError as error:
            for job in jobs:
                job.result = {"error": str(error)}
            return
        for job in jobs:
            job.result = result
            self.cache.put(job.source(document), result)

    def _similar(self, row: Row, place: Place, part: str, split: Split) -> Indices:
        """The similar items of each item, of the model that defines them; the last ones are kept."""
        key = (place, part, row.name)
        if self._sets is None or self._sets[0] != key:
            model = model_class(str(row.model))(**row.settings[place.name]).fit(split.train, **self.fit)
            self._sets = (key, embeddings.similar_items(model.fitted()[1], split.train.n_items))
        return self._sets[1]

    def _document(self, place: Place, part: str) -> dict[str, Any]:
        if (place, part) not in self._documents:
            self._documents[place, part] = place.document(part)
        return self._documents[place, part]

    def _fit(self, split: Split, jobs: Sequence[RowJob], document: Mapping[str, Any]) -> None:
        by_model = _grouped(jobs, RowJob.label)
        groups, metrics = list(by_model.values()), _metrics(jobs)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", MonogramWarning)
                models = [group[0].model() for group in groups]
                report, measured = shared_fits.measure_models(models, split, metrics, self.fit)
        except MonogramError as error:
            for job in jobs:
                job.result = {"error": str(error)}
            return
        notes = _texts(caught)
        for group, values in zip(groups, measured, strict=True):
            result = result_of(report, split, metrics, values) | {"warnings": notes, "shared": len(groups)}
            for job in group:
                job.result = result
                self.cache.put(job.source(document), result)


def result_of(report: Report, split: Split, metrics: tuple[Metric, ...], measured: Measured) -> Result:
    """The result of a model for the cache: its metrics with their intervals, and the cost of its fit."""
    values: dict[str, Any] = {"seconds": [_seconds(report), None, None]}
    if report.rank is not None:
        values["rank"] = [float(report.rank), None, None]
    if metrics:
        by_user, by_catalogue = measured
        rows = Evaluation(split.protocol, metrics, {"model": by_user}, {"model": by_catalogue}, None, 0).rows()
        values |= {row["metric"]: [row["value"], row["low"], row["high"]] for row in rows}
    return {"values": values, "users": split.histories.n_users, "bytes": report.peak_bytes, "solver": report.solver}


def cosines_of(model: Recommender, sets_of_items: Indices) -> Result:
    """The result of a low-rank model for the cache: medians and histograms of its cosines, and the cost of its fit."""
    report, weights = model.report_, model.fitted()[1]
    assert report is not None
    if not isinstance(weights, Factors):
        raise ParameterError(f"{model!r} has no factors U and V; expected a model of low rank")
    values: dict[str, Any] = {"seconds": [_seconds(report), None, None]}
    histograms = {}
    for metric, vectors in zip(OF_FACTORS, embeddings.balanced(weights), strict=True):
        cosines = embeddings.median_cosines(vectors, sets_of_items)
        values[metric] = [float(np.median(cosines)) if len(cosines) else None, None, None]
        histograms[metric] = embeddings.histogram(cosines)
    return {"values": values, "histograms": histograms, "bytes": report.peak_bytes, "solver": report.solver}


def _seconds(report: Report) -> float:
    """The seconds of a fit without compilation and imports, which only the first fit of a process has."""
    return sum(seconds for stage, seconds in report.seconds.items() if stage != "compile")


def _texts(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """The texts of the warnings of this library, each once."""
    own = (warning for warning in caught if issubclass(warning.category, MonogramWarning))
    return list(dict.fromkeys(str(warning.message) for warning in own))


def check(paper: Paper, selection: Selection) -> None:
    """Raise ParameterError for a name that the paper does not have."""
    data = {name for table in paper.tables for name in table.data} | {*paper.stand_ins.values()}
    rows = {row.name: None for table in paper.tables for row in table.rows}
    known = {"data set": sorted(data), "row": list(rows), "table": [table.name for table in paper.tables]}
    for kind, names in zip(known, (selection.data, selection.rows, selection.tables), strict=True):
        for name in names:
            if name not in known[kind]:
                raise ParameterError(f"{paper.name} has no {kind} {name!r}; expected one of {', '.join(known[kind])}")


def _named_once(rows: Sequence[Row]) -> list[Row]:
    return list({row.name: row for row in rows}.values())


def _metrics(jobs: Sequence[RowJob]) -> tuple[Metric, ...]:
    """The metrics of recommendations in the tables of some jobs."""
    names = {metric: None for job in jobs for metric in job.table.metrics if metric not in OF_FIT}
    return tuple(metrics_.parse(metric) for metric in names)


def _shared_fit(job: RowJob) -> Any:
    """Jobs with equal results are measured from one fit: of one inverse, of the same model, or of the most epochs."""
    model = job.model()
    if job.trained and not model.params()["patience"]:  # with patience the weights are those of the best epoch
        return repr(training_time.with_parameters(model, epochs=1))
    if job.table.similar is not None:
        return (job.table.name, repr(model))
    return shared_fits.inverse_key(model) if shared_fits.reads_heads(model) else repr(model)


def _cells(job: RowJob) -> list[Cell]:
    """The cells of a job with a result, or with a result for each seed."""
    results = [part.result for part in job.by_seed or (job,)]
    errors = [
        f"seed {seed}: " * bool(job.by_seed) + result["error"]
        for seed, result in enumerate(results)
        if "error" in result
    ]
    if errors:
        return _empty(job.table, job.row, job.data, cells_.FAILED, "; ".join(errors), job.settings)
    stand_in, size = job.place.name != job.data, (*job.by_seed, job)[0].size
    result = results[0] if len(results) == 1 else _mean(results)
    stopped, epochs = any(each.get("stopped") for each in results), result.get("epochs")
    ended = f"stopped by the budget after {epochs} epochs" if stopped else ""
    reason = "; ".join(filter(None, [job.row.note, ended, *result.get("warnings", [])]))
    closed_form = job.row.derive is not None or job.model().closed_form
    cells = []
    for empty in _empty(job.table, job.row, job.data, cells_.FAILED, reason, job.settings):
        value, low, high = result["values"].get(empty.metric, [None, None, None])
        verdict = cells_.FAILED if value is None else cells_.judge(
            empty.printed, value, low, high, metric=empty.metric, stand_in=stand_in
        )  # fmt: skip
        histogram = tuple(result.get("histograms", {}).get(empty.metric, ()))
        cells.append(Cell(**{
            **vars(empty), "used": job.place.name, "value": value, "low": low, "high": high, "verdict": verdict,
            "users": result["users"], "seconds": result["values"]["seconds"][0], "bytes": result["bytes"],
            "closed_form": closed_form, "size": size, "tried": job.choice.tried, "validation": job.choice.validation,
            "histogram": histogram, "epochs": epochs, "stopped": stopped, "seeds": len(results),
            "deviation": result.get("deviations", {}).get(empty.metric),
        }))  # fmt: skip
    return cells


def _mean(results: Sequence[Result]) -> Result:
    """The mean of results over seeds, with the standard deviations of their values."""
    values = {name: [result["values"][name][0] for result in results] for name in results[0]["values"]}
    return {
        **results[0],
        "values": {name: [float(np.mean(numbers)), None, None] for name, numbers in values.items()},
        "deviations": {name: float(np.std(numbers, ddof=1)) for name, numbers in values.items()},
        "bytes": max(result["bytes"] or 0 for result in results) or None,
        "epochs": round(np.mean([result["epochs"] for result in results])),
        "warnings": list(dict.fromkeys(text for result in results for text in result.get("warnings", []))),
    }


def _empty(
    table: PaperTable, row: Row, data: str, verdict: str, reason: str, settings: Settings | None = None
) -> list[Cell]:
    """Cells with the paper's numbers only."""
    nothing = (None,) * len(table.metrics)
    numbers, spreads = row.printed.get(data, nothing), row.spread.get(data, nothing)
    return [
        Cell(table=table.name, data=data, row=row.name, metric=metric, printed=number, spread=spread, verdict=verdict,
             reason=reason, settings=settings or {})
        for metric, number, spread in zip(table.metrics, numbers, spreads, strict=True)
    ]  # fmt: skip


def _grouped(jobs: Sequence[RowJob], by: Callable[[RowJob], Any]) -> dict[Any, list[RowJob]]:
    groups: dict[Any, list[RowJob]] = {}
    for job in jobs:
        groups.setdefault(by(job), []).append(job)
    return groups
