"""The study of time: what the order of events adds, on public data sets. It resumes from the file of its numbers.

    python benchmarks/time_study.py docs/study/time-numbers.json --data DIR -o docs/study/time-numbers.md

A row that the file holds is neither searched nor measured again; delete it there to repeat it. Without --data the file
is only written as a report. Rows: `time_rows.py`; their search: `time_search.py`.

Every setting is chosen on a validation part that is cut from train in the same way as the test part: each user's latest
events (public lists), the last part of the time (logs with times), or the latest sessions. The test part is read once,
for the rows of the table, by the models of the library; the first row is fitted again for the gains of rows that are
added later.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from time_rows import SETS, Row, Set
from time_search import THREADS, ZERO, Part, Setting, climb, neighbour_scores, shown, span, text

import monogram as mg
from monogram.engine.runtime.arrays import Float64
from monogram.engine.topk.best import heads_by_scores
from monogram.evaluation import metrics, statistics
from monogram.evaluation.protocol import measure, measure_model
from monogram.models.context import FitOptions
from monogram.models.inverse import item_counts
from monogram.models.two_step import directions
from monogram.reports import writers
from monogram.reports.blocks import Block, Grid, Heading, Text
from monogram.safe import whole_file
from monogram.weights.projection import Projection

MODELS = (mg.EASE, mg.EDLAE, mg.RDLAE, mg.DEQL, mg.Tempered, mg.TwoStep, mg.SLIST, mg.Popularity)
Stored = dict[str, Any]  # a row in the file of the numbers; one without "test" has been searched, and not measured


class Rows:
    """The rows of a data set that are in the file, and those that are to be added."""

    def __init__(self, data: Set, stored: list[Stored], save: Callable[[], None]) -> None:
        self.data, self.save = data, save
        self.stored = {row["name"]: row for row in stored}
        self.list, self.order = stored, [row.name for row in data.rows]

    def choose(self, row: Row) -> Setting:
        """The setting of a row: that of the file, or the result of a search."""
        if row.name not in self.stored:
            after = next((each for each in self.data.rows if each.name == row.after), None)
            base = {} if after is None else self.choose(after)
            start = ZERO | base | _given(row) | {"model": row.model}
            if row.exact:
                setting, value = start, self.stored[row.after]["validation"] if row.after else None
            else:
                setting, value = climb(self.part, row.axes, start, len(self.data.metrics) - 1, self.data.thorough)
            found = {"name": row.name, "chosen by": row.chosen_by, "setting": shown(setting), "validation": value}
            self._add(row, found | {"order": _uses_order(setting)})
            print(f"  {row.name}: {value} {text(setting)}", flush=True)
        return ZERO | self.stored[row.name]["setting"]

    @functools.cached_property
    def part(self) -> Part:
        """The validation part."""
        return Part(self.data.validation, self.data.metrics, 200 if self.data.thorough else 100, self.data.ages)

    @functools.cached_property
    def first(self) -> Float64:
        """The choosing metric of each test user for the first row."""
        row = self.data.rows[0]
        return fitted(self.data, row, self.choose(row))[0][:, -1]

    def test(self, row: Row) -> None:
        """Measure a row on the test part."""
        setting = self.choose(row)
        values, seconds, peak, milliseconds = fitted(self.data, row, setting)
        gain = None
        if row.name == self.order[0]:
            self.first = values[:, -1]
        else:
            difference = statistics.paired(values[:, -1], self.first)
            gain = _rounded(difference.value, difference.low, difference.high)
        low, high = statistics.interval(statistics.bootstrap(values))
        ends = [_rounded(*each) for each in zip(values.mean(0), low, high, strict=True)]
        costs = {"seconds": round(seconds, 1), "bytes": int(peak), "milliseconds": round(milliseconds, 2)}
        self._add(row, self.stored[row.name] | {"test": ends, "gain": gain} | costs)
        print(f"  test: {row.name} {ends} {seconds:.1f} s", flush=True)

    def _add(self, row: Row, values: Stored) -> None:
        self.stored[row.name] = values
        self.list[:] = sorted(self.stored.values(), key=lambda each: self.order.index(each["name"]))
        self.save()


def _given(row: Row) -> Setting:
    """What a row starts from: of a row that comes after another, only the parameters that it searches."""
    searched = {axis.name for axis in row.axes}
    return {name: value for name, value in row.start.items() if not row.after or name in searched}


def _uses_order(setting: Setting) -> bool:
    if setting["model"] == "popularity":
        return bool(setting["trend_half_life"])
    return setting["model"] == "slist" or any(setting[name] for name in ("decay", "recency", "trend"))


def _rounded(*values: float) -> list[float]:
    return [round(float(value), 6) for value in values]


def fitted(data: Set, row: Row, setting: Setting) -> tuple[Float64, float, int, float]:
    """A model fitted on train: its values by test user, the seconds and the peak of the fit, milliseconds a list."""
    names = tuple(map(metrics.parse, data.metrics))
    started = time.perf_counter()
    if setting["model"] == "filter":
        values, seconds, peak = _filtered(data, setting, names)
        started += seconds
    else:
        model = _model(setting, data.ages)
        how: dict[str, Any] = {"solver": "local", "neighbours": data.neighbours} if "local" in model.solvers else {}
        model.fit(data.test.train, **({"solver": "primal", "dtype": "float32"} if row.exact else how))
        seconds = sum(spent for stage, spent in model.report_.seconds.items() if stage != "compile")
        peak = model.report_.peak_bytes
        started = time.perf_counter()
        values = measure_model(model, data.test, names, THREADS)[0]
    return values, seconds, peak, (time.perf_counter() - started) * 1000 / len(values)


def _model(setting: Setting, ages: str) -> mg.Recommender:
    """The model of a setting."""
    half_life = span(setting, ages)
    if setting["model"] == "popularity":
        return mg.Popularity(half_life=half_life)
    setting = setting | {"trend_half_life": half_life if setting["trend"] else None}
    setting["half_life"] = f"{setting['half_life']} events" if setting["half_life"] else None
    kind = next(each for each in MODELS if each.name == setting["model"])
    known = kind.__dataclass_fields__
    ignored = {name for name in shown(setting) if name not in known} - {"model", "rank"}
    assert not ignored, ignored
    return kind(**{name: value for name, value in setting.items() if name in known})


def _filtered(data: Set, setting: Setting, names: Any) -> tuple[Any, float, int]:
    """The filter D⁻¹(R̃ᵀR̃ + αVVᵀ)D, which is no model of the library."""
    log, power = data.test.train, setting["low_pass_power"]
    started, counts = time.perf_counter(), item_counts(log.matrix)
    basis = directions(log, int(setting["rank"]), FitOptions(threads=THREADS))
    seconds = time.perf_counter() - started
    powers = np.maximum(counts, 0.5) ** power
    projection = Projection(basis, powers)

    def rank(rows: Any, rules: Any, k: int) -> Any:
        scores = neighbour_scores(log, counts, power, rows)
        scores += setting["low_pass"] * projection.scores(projection.coordinates(rows.astype(basis.dtype)))
        return heads_by_scores(scores, np.ones((1, log.n_items)), rules, k, threads=THREADS)

    return measure(rank, log, data.test, names)[0][0], seconds, basis.nbytes


def report(found: dict[str, Any], made_by: str) -> list[Block]:
    """The tables of the study."""
    about = (
        "Settings are chosen by the last metric of each table on the validation part, with local regressions on "
        "100 candidates (Gowalla: 200), and measured on the test part once. The models of the tables are local "
        "regressions on 300 candidates, where nothing else is said; the seconds are those of the fit. Other work ran "
        "beside most fits: the seconds are upper bounds."
    )
    blocks: list[Block] = [
        Heading(1, "The study of time: the numbers"),
        Text("Made with this command, which measures the rows that its file lacks:"),
        Text(made_by, code=True),
        Text(about),
    ]
    for name in SETS:
        data = found.get(name, {"rows": []})
        if not any("test" in row for row in data["rows"]):
            continue
        chosen_by = data["metrics"][-1]
        headers = ["model", "uses order", "chosen by", "setting", f"{chosen_by}, validation", *data["metrics"]]
        headers += [f"{chosen_by}, gain on the first row", "fit, seconds", "peak", "ms a list"]
        cells = [_cells(row) for row in data["rows"] if "test" in row]
        blocks += [Heading(2, name), Text(data["about"]), Grid("With 95% intervals over users", headers, cells)]
    return blocks


def _cells(row: Stored) -> list[str]:
    ends = ("{:.4f} [{:.4f}, {:.4f}]".format(*each) for each in row["test"])
    gain = "{:+.4f} [{:+.4f}, {:+.4f}]".format(*row["gain"]) if row["gain"] else ""
    costs = f"{row['seconds']:.1f}", f"{row['bytes'] / 1e9:.2f} GB", f"{row['milliseconds']:.2f}"
    validation = "not searched" if row["validation"] is None else f"{row['validation']:.4f}"
    order = "yes" if row["order"] else "no"
    return [row["name"], order, row["chosen by"], text(row["setting"]), validation, *ends, gain, *costs]


def write(found: dict[str, Any], path: Path) -> None:
    """Write the file of the numbers, a row on each line."""
    rows = {name: ",\n  ".join(map(json.dumps, data["rows"])) for name, data in found.items()}
    sets = (f"{json.dumps(name)}: {json.dumps(found[name] | {'rows': []})[:-2]}\n  {rows[name]}]}}" for name in found)
    with whole_file(path) as file:
        file.write(("{" + ",\n ".join(sets) + "}\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", type=Path, help="JSON file of the numbers, which is read and extended")
    parser.add_argument("--data", type=Path, help="folder of the data sets; without it nothing is measured")
    parser.add_argument("-o", "--output", action="append", default=[], help="file to write: .md or .html")
    parser.add_argument("--sets", default=",".join(SETS), help="names of data sets")
    parser.add_argument("--rows", help="names of rows, with a semicolon between them; by default all but exact ones")
    parser.add_argument("--exact", action="store_true", help="also the rows that need a dense inverse")
    parser.add_argument("--search-only", action="store_true", help="choose the settings, and measure nothing on test")
    given = parser.parse_args()
    unknown = set(given.sets.split(",")) - set(SETS)
    if unknown:
        parser.error(f"unknown data set {min(unknown)!r}; expected some of {', '.join(SETS)}")
    found: dict[str, Any] = json.loads(given.numbers.read_text()) if given.numbers.exists() else {}
    for name in given.sets.split(",") if given.data else ():
        study(SETS[name](given.data / f"{name}.npz"), found, given)
    made_by = f"python benchmarks/time_study.py {given.numbers} --data DIR --exact -o {' -o '.join(given.output)}"
    for output in given.output:
        for path in writers.write(report(found, made_by), output):
            print(path)


def study(data: Set, found: dict[str, Any], given: argparse.Namespace) -> None:
    """Add the rows that are asked for and that the file lacks."""
    print(data.name, flush=True)
    entry = found.setdefault(data.name, {"about": data.about, "metrics": data.metrics, "rows": []})
    rows = Rows(data, entry["rows"], functools.partial(write, found, given.numbers))
    names = given.rows.split(";") if given.rows else [row.name for row in data.rows if given.exact or not row.exact]
    wanted = [row for row in data.rows if row.name in names and "test" not in rows.stored.get(row.name, {})]
    for row in wanted:
        rows.choose(row)
    rows.__dict__.pop("part", None)  # its memory
    for row in () if given.search_only else wanted:
        rows.test(row)


if __name__ == "__main__":
    main()
