"""One runner for all papers: rows become jobs, jobs become results, results become cells."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monogram.data.splits import Split
from monogram.errors import MonogramError, MonogramWarning, ParameterError
from monogram.evaluation import metrics as metrics_
from monogram.evaluation.metrics import Metric
from monogram.evaluation.protocol import Measured
from monogram.evaluation.result import Evaluation
from monogram.models.base import Recommender
from monogram.models.registry import model_class
from monogram.models.report import Report
from monogram.reproduce import cells as cells_
from monogram.reproduce import family, sets
from monogram.reproduce.cache import Cache
from monogram.reproduce.cells import Cell
from monogram.reproduce.paper import Paper, Row, Settings, Table
from monogram.reproduce.sets import Place

Result = dict[str, Any]
OF_FIT = ("rank", "seconds")  # metrics that the fit tells, not the lists
Choose = Callable[[Row, Place, Table], Settings]


@dataclass(frozen=True)
class Asked:
    """What of a paper is wanted; empty: all of it."""

    data: Sequence[str] = ()
    rows: Sequence[str] = ()
    tables: Sequence[str] = ()


@dataclass
class Job:
    """A row on a data set that is here."""

    table: Table
    row: Row
    data: str
    place: Place
    settings: Settings
    result: Result = field(default_factory=dict)

    def model(self) -> Recommender:
        """The model, not fitted."""
        return model_class(str(self.row.model))(**self.settings)

    def source(self, checksum: Mapping[str, Any]) -> dict[str, Any]:
        """What the result depends on."""
        metrics = sorted({*self.table.metrics} - {*OF_FIT})
        return {**checksum, "model": self.row.model, "parameters": self.model().params(), "metrics": metrics}


class Runner:
    """Works through papers.

    Parameters
    ----------
    folder : of the data; by default MONOGRAM_DATA
    cache : where results are kept
    fit : options for `fit`, such as {"memory": "8 GB"}
    tell : receives what is being done
    choose : finds the settings of a row (a search); by default those of the paper's module
    """

    def __init__(
        self,
        folder: Path | None = None,
        cache: Cache | None = None,
        *,
        fit: Mapping[str, Any] | None = None,
        tell: Callable[[str], None] | None = None,
        choose: Choose | None = None,
    ) -> None:
        self.folder, self.cache, self.fit, self.choose = folder, cache or Cache(), fit or {}, choose
        self.tell = tell or (lambda _: None)
        self._documents: dict[tuple[Place, str], dict[str, Any]] = {}

    def run(self, paper: Paper, asked: Asked | None = None) -> list[Cell]:
        """The cells of a paper, in its order."""
        asked = asked or Asked()
        check(paper, asked)
        planned = list(self._plan(paper, asked))
        jobs = [one for one in planned if isinstance(one, Job)]
        for (place, part), group in _grouped(jobs, lambda job: (job.place, job.table.part)).items():
            self._measure(place, part, group)
        out: list[Cell] = []
        for one in planned:
            out.extend(_cells(one) if isinstance(one, Job) else one)
        return out

    def _plan(self, paper: Paper, asked: Asked) -> Iterator[Job | list[Cell]]:
        for table in paper.tables:
            if asked.tables and table.name not in asked.tables:
                continue
            for data in table.data:
                stand_in = paper.stand_ins.get(data, data)
                if asked.data and data not in asked.data and stand_in not in asked.data:
                    continue
                here = [sets.find(name, self.folder, paper.protocol) for name in (data, stand_in)]
                place = here[0] or here[1]
                rows = [row for row in table.rows if not asked.rows or row.name in asked.rows]
                planned = [self._row(table, row, data, place) for row in rows]
                if not any(one is not None for one in planned):  # all of them are those of a stand-in
                    planned = [self._without(table, row, data, place) for row in _named_once(rows)]
                yield from (one for one in planned if one is not None)

    def _without(self, table: Table, row: Row, data: str, place: Place | None) -> list[Cell]:
        """The cells of a row that has settings for a stand-in only."""
        if place is None:
            return _empty(table, row, data, cells_.NO_DATA, sets.missing(data))
        return _empty(table, row, data, cells_.NO_SETTINGS, "settings are known for its stand-in alone")

    def _row(self, table: Table, row: Row, data: str, place: Place | None) -> Job | list[Cell] | None:
        """A job, or the cells of what cannot be measured; None for a row that this data set does not have."""
        if row.model is None:
            return _empty(table, row, data, cells_.NO_MODEL, row.note)
        if place is not None and self.choose is not None and row.settings and not table.axis:
            try:
                return Job(table, row, data, place, self.choose(row, place, table))
            except MonogramError as error:
                return _empty(table, row, data, cells_.FAILED, str(error))
        if place is not None and place.name in row.settings:
            return Job(table, row, data, place, row.settings[place.name])
        if data in row.settings and (place is None or place.name != data):
            return _empty(table, row, data, cells_.NO_DATA, sets.missing(data))
        if data not in row.printed:
            return None
        if place is None:
            return _empty(table, row, data, cells_.NO_DATA, sets.missing(data))
        return _empty(table, row, data, cells_.NO_SETTINGS, row.note or "the settings are not published")

    def _measure(self, place: Place, part: str, jobs: Sequence[Job]) -> None:
        """Fill in the results of jobs on one split: from the cache, else by fitting, families together."""
        document = self._document(place, part)
        for job in jobs:
            job.result = self.cache.get(job.source(document)) or {}
        left = [job for job in jobs if not job.result]
        if not left:
            return
        split = place.split(part)
        for group in _grouped(left, _family).values():
            self.tell(f"{place.name}, {part}: {', '.join(dict.fromkeys(repr(job.model()) for job in group))}")
            self._fit(split, group, document)

    def _document(self, place: Place, part: str) -> dict[str, Any]:
        if (place, part) not in self._documents:
            self._documents[place, part] = place.document(part)
        return self._documents[place, part]

    def _fit(self, split: Split, jobs: Sequence[Job], document: Mapping[str, Any]) -> None:
        by_model = _grouped(jobs, lambda job: repr(job.model()))
        groups = list(by_model.values())
        metrics = {metric: None for job in jobs for metric in job.table.metrics if metric not in OF_FIT}
        asked = tuple(metrics_.parse(metric) for metric in metrics)
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", MonogramWarning)
                report, found = family.measured([group[0].model() for group in groups], split, asked, self.fit)
        except MonogramError as error:
            for job in jobs:
                job.result = {"error": str(error)}
            return
        notes = list(dict.fromkeys(str(one.message) for one in said if issubclass(one.category, MonogramWarning)))
        for group, values in zip(groups, found, strict=True):
            result = result_of(report, split, asked, values) | {"warnings": notes, "shared": len(groups)}
            for job in group:
                job.result = result
                self.cache.put(job.source(document), result)


def result_of(report: Report, split: Split, asked: tuple[Metric, ...], found: Measured) -> Result:
    """What is kept of a model: its metrics with their intervals, and what its fit cost."""
    values: dict[str, Any] = {"seconds": [sum(report.seconds.values()), None, None]}
    if report.rank is not None:
        values["rank"] = [float(report.rank), None, None]
    if asked:
        rows = Evaluation(split.protocol, asked, {"it": found[0]}, {"it": found[1]}, None, 0).rows()
        values |= {row["metric"]: [row["value"], row["low"], row["high"]] for row in rows}
    return {"values": values, "users": split.histories.n_users, "bytes": report.peak_bytes, "solver": report.solver}


def check(paper: Paper, asked: Asked) -> None:
    """Refuse names that the paper does not have."""
    data = {name for table in paper.tables for name in table.data} | {*paper.stand_ins.values()}
    rows = {row.name: None for table in paper.tables for row in table.rows}
    known = {"data set": sorted(data), "row": list(rows), "table": [table.name for table in paper.tables]}
    for what, names in zip(known, (asked.data, asked.rows, asked.tables), strict=True):
        for name in names:
            if name not in known[what]:
                raise ParameterError(f"{paper.name} has no {what} {name!r}; expected one of {', '.join(known[what])}")


def _named_once(rows: Sequence[Row]) -> list[Row]:
    return list({row.name: row for row in rows}.values())


def _family(job: Job) -> Any:
    """Jobs with the same answer share one inverse; one without a family has its own."""
    model = job.model()
    return family.key(model) or repr(model)


def _cells(job: Job) -> list[Cell]:
    """The cells of a job that was worked on."""
    if "error" in job.result:
        return _empty(job.table, job.row, job.data, cells_.FAILED, job.result["error"], job.settings)
    stand_in = job.place.name != job.data
    reason = "; ".join(filter(None, [job.row.note, *job.result.get("warnings", [])]))
    out = []
    for empty in _empty(job.table, job.row, job.data, cells_.FAILED, reason, job.settings):
        value, low, high = job.result["values"].get(empty.metric, [None, None, None])
        verdict = cells_.FAILED if value is None else cells_.judge(
            empty.printed, value, low, high, metric=empty.metric, stand_in=stand_in
        )  # fmt: skip
        out.append(Cell(**{
            **vars(empty), "used": job.place.name, "value": value, "low": low, "high": high, "verdict": verdict,
            "users": job.result["users"], "seconds": job.result["values"]["seconds"][0], "bytes": job.result["bytes"],
        }))  # fmt: skip
    return out


def _empty(
    table: Table, row: Row, data: str, verdict: str, reason: str, settings: Settings | None = None
) -> list[Cell]:
    """Cells with the paper's numbers alone."""
    nothing = (None,) * len(table.metrics)
    numbers, spreads = row.printed.get(data, nothing), row.spread.get(data, nothing)
    return [
        Cell(table=table.name, data=data, row=row.name, metric=metric, printed=number, spread=spread, verdict=verdict,
             reason=reason, settings=settings or {})
        for metric, number, spread in zip(table.metrics, numbers, spreads, strict=True)
    ]  # fmt: skip


def _grouped(jobs: Sequence[Job], by: Callable[[Job], Any]) -> dict[Any, list[Job]]:
    groups: dict[Any, list[Job]] = {}
    for job in jobs:
        groups.setdefault(by(job), []).append(job)
    return groups
