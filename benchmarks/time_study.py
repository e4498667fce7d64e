"""The study of time: what the order of events adds, on public data sets. An interrupted run resumes from --cache.

    python benchmarks/time_study.py --data DIR -o docs/study/time-numbers.md --cache FOLDER [--sets gowalla-ordered,…]

Every setting is chosen on a validation part that is cut from train in the same way as the test part: each user's latest
events (public lists), the last part of the time (logs with times), or the latest sessions. The test part is read once,
for the rows of the table, by the models of the library. The search (`time_search.py`) starts from given settings and
goes one value up or down on each axis while the validation part gains.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from time_search import OF_FIT, THREADS, Axis, Part, Setting, climb, neighbour_scores, span, text

import monogram as mg
from monogram.data.parts import part_of
from monogram.data.splits import Split
from monogram.engine.topk.best import heads_by_scores
from monogram.evaluation import metrics, statistics
from monogram.evaluation.protocol import measure, measure_model
from monogram.models.context import FitOptions
from monogram.models.inverse import item_counts
from monogram.models.two_step import directions
from monogram.reports import writers
from monogram.reports.blocks import Block, Grid, Heading, Text
from monogram.reproduce.cache import Cache
from monogram.weights.projection import Projection

ASKED = 3_000  # users of a validation part by which settings are compared
RESAMPLES = 1000

L2 = Axis("l2", (2, 5, 10, 15, 20, 30, 50, 80, 120, 200, 300))
DROPOUT = Axis("dropout", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8))
USER_POWER = Axis("user_power", (0.0, 0.25, 0.5, 0.75))
DECAY = Axis("decay", (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.3))
RECENCY = Axis("recency", (0.0, 0.15, 0.3, 0.5, 0.7, 0.9, 1.1, 1.4, 2.0))
SECOND = Axis("second", (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0))
LOW_PASS = Axis("low_pass", (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8))
FLOOR = Axis("floor", (0.0, 0.05, 0.1, 0.2, 0.3))
TREND = Axis("trend", (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0))
LOW_PASS_POWER = Axis("low_pass_power", (0.0, 0.2, 0.4, 0.5, 0.6, 0.8))
RANK = Axis("rank", (64, 128, 256, 512))
ITEM_POWER = Axis("item_power", (-0.3, -0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1, 0.15, 0.2, 0.3))
RELAX = Axis("relax", (0.0, 0.05, 0.1, 0.2, 0.3))
B = Axis("b", (0.0, 0.1, 0.5, 1.0, 1.5, 2.0))
REPEAT = Axis("repeat", (0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0))
START: Setting = {
    "model": "two_step", "l2": 20, "dropout": 0.4, "user_power": 0.5, "decay": 0.0, "floor": 0.0,
    "recency": 0.0, "second": 0.0, "low_pass": 0.0, "low_pass_power": 0.0, "rank": 256, "item_power": 0.0,
    "repeat": 0.0, "trend": 0.0, "trend_half_life": 0.0,
}  # fmt: skip
FILTERED = (LOW_PASS, LOW_PASS_POWER, RANK)
ONE_STEP: Setting = {"user_power": 0.0, "second": 0.0, "low_pass": 0.0, "item_power": 0.0}


@dataclass(frozen=True)
class Row:
    """A model that is searched: its axes, and the values to start from, beside those of the row `after`."""

    name: str
    model: str
    axes: tuple[Axis, ...]
    start: Setting
    after: str = ""
    tested: bool = True

    @property
    def order(self) -> bool:
        """Whether it uses the order of events."""
        return any(axis.name in ("decay", "recency", "trend_half_life") for axis in self.axes)


def half_lives(*values: float) -> Axis:
    """The half-lives of the trend, in the unit of the ages of a data set."""
    return Axis("trend_half_life", values)


LEFT_OUT = ("EASE, time", "RDLAE, time", "DEQL, time", "GF-CF-type filter, recency")  # of a search that is not thorough
STEPS = ("RDLAE", "DEQL", "TwoStep", "TwoStep, recency", "TwoStep, time")  # searched, but not measured on test
LOW: Setting = {"low_pass": 0.1}
OF_EVENTS = half_lives(2, 3, 5, 7, 10, 15, 25, 50)


def lists(blind: Setting, timed: Setting, one: Setting, thorough: bool) -> tuple[Row, ...]:
    """The rows of a public list, with settings to start from."""
    again = (L2, DROPOUT, USER_POWER, DECAY, FLOOR) if thorough else ()
    steps, of_trend = (L2, DROPOUT, USER_POWER, SECOND, ITEM_POWER), (TREND, OF_EVENTS)
    half = {"l2": one["l2"] / 2, "dropout": one["dropout"] * 0.8, "decay": 0.4, "recency": 0.7}
    every = (
        Row("EASE", "ease", (L2,), ONE_STEP | {"l2": 120, "dropout": 0.0}),
        Row("EDLAE", "edlae", (L2, DROPOUT), ONE_STEP | one),
        Row("RDLAE", "rdlae", (RELAX,), {"relax": 0.1}, "EDLAE"),
        Row("DEQL", "deql", (B,), {"b": 0.5}, "EDLAE"),
        Row("Tempered", "tempered", (L2, DROPOUT, USER_POWER, ITEM_POWER), {"user_power": 0.5}, "EDLAE"),
        Row("GF-CF-type filter", "filter", FILTERED, {"low_pass": 0.2, "low_pass_power": 0.4, "rank": 512}),
        Row("TwoStep", "two_step", steps, blind | {"low_pass": 0.0}),
        Row("TwoStep, low-pass", "two_step", (*FILTERED, SECOND, ITEM_POWER), blind, "TwoStep"),
        Row("EASE, time", "ease", (DECAY, L2, RECENCY), ONE_STEP | half | {"l2": 60, "dropout": 0.0}),
        Row("EDLAE, time", "edlae", (DECAY, L2, DROPOUT, RECENCY), ONE_STEP | half),
        Row("RDLAE, time", "rdlae", (RELAX, RECENCY), {"relax": 0.1}, "EDLAE, time"),
        Row("DEQL, time", "deql", (B, RECENCY), {"b": 0.5}, "EDLAE, time"),
        Row("Tempered, time", "tempered", (USER_POWER, ITEM_POWER, RECENCY), {"user_power": 0.5}, "EDLAE, time"),
        Row("GF-CF-type filter, recency", "filter", (*FILTERED, RECENCY), {"recency": 0.5}, "GF-CF-type filter"),
        Row("TwoStep, recency", "two_step", (RECENCY, SECOND, ITEM_POWER), {"recency": 0.7}, "TwoStep"),
        Row("TwoStep, time", "two_step", (DECAY, FLOOR, *steps, RECENCY), timed | {"low_pass": 0.0, "trend": 0.0}),
        Row(
            "TwoStep, time, trend", "two_step", (*again, SECOND, ITEM_POWER, RECENCY, *of_trend), timed, "TwoStep, time"
        ),
        Row(
            "TwoStep, time, trend, low-pass",
            "two_step",
            (*FILTERED, *of_trend, RECENCY, SECOND, ITEM_POWER),
            timed,
            "TwoStep, time, trend",
        ),
    )
    if thorough:
        return every
    return tuple(replace(row, tested=row.name not in STEPS) for row in every if row.name not in LEFT_OUT)


def sessions(timed: Setting, of_trend: tuple[Axis, ...]) -> tuple[Row, ...]:
    """The rows of a set of sessions, with settings to start from."""
    free = (RECENCY, SECOND, REPEAT, ITEM_POWER)
    blind = timed | {"decay": 0.0, "recency": 0.0, "trend": 0.0}
    return (
        Row("TwoStep", "two_step", (L2, SECOND, REPEAT, ITEM_POWER), blind),
        Row("SLIST, default, recency 1", "slist", (), {"recency": 1.0}),
        Row("TwoStep, time", "two_step", (DECAY, L2, DROPOUT, USER_POWER, *free), timed | {"trend": 0.0}),
        Row("TwoStep, time, trend", "two_step", (*free, *of_trend), timed, "TwoStep, time"),
        Row("TwoStep, time, trend, low-pass", "two_step", (*FILTERED, *free, *of_trend), LOW, "TwoStep, time, trend"),
    )


@dataclass(frozen=True)
class Set:
    """A data set: its test part, its validation part, its metrics (the last one chooses), and its rows."""

    name: str
    test: Split
    validation: Split
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    about: str
    neighbours: int = 300  # of the models of the table
    thorough: bool = False  # a thorough search, by local regressions on 200 candidates instead of 100
    ages: str = " events"  # unit of the half-lives of the trend


def public(path: Path) -> Set:
    """Public lists: each user's latest fifth is the test part."""
    test = mg.splits.public(path)
    about = "public lists (each user's latest fifth); validation: the latest fifth of each train list"
    thorough = path.stem == "gowalla-ordered"
    validation = asked_about(mg.splits.latest(test.train), 5_000 if thorough else ASKED)
    rows = lists(*STARTS[path.stem], thorough=thorough)
    return Set(
        path.stem,
        test,
        validation,
        ("recall@20", "ndcg@20"),
        rows,
        about,
        thorough=thorough,
    )


def timed(path: Path) -> Set:
    """A log with times: the events of the last tenth of the time are the test part, the tenth before for validation."""
    stored = np.load(path)
    table = pa.table({"user": stored["user"], "item": stored["item"], "time": stored["timestamp"]})
    unit = "d" if stored["timestamp"].max() < 10**6 else "s"
    test = mg.splits.temporal(mg.read(table, "user", "item", time="time", time_unit=unit, quiet=True), share=0.1)
    validation, test = (asked_about(mg.splits.temporal(test.train, share=0.1), ASKED), asked_about(test, 2 * ASKED))
    about = "train: the first nine tenths of the events in time, test: the others; validation: the last tenth of train"
    about += f"; test values of {test.histories.n_users:,} users, at random where there are more"
    hours = float(np.ptp(test.train.times)) * (24 if unit == "d" else 1 / 3600)
    values = half_lives(*(float(f"{share * hours:.1g}") for share in (3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3)))
    start = {"trend_half_life": values.values[3]}
    default = mg.TwoStep().params()
    start |= {name: default[name] for name in ("l2", "dropout", "user_power", "second")}
    times, trend = {"decay": 0.4, "recency": 0.5}, {"trend": 1.0}
    rows = (
        Row("TwoStep, default", "two_step", (), start),
        Row("Popularity", "popularity", (), {}),
        Row("Popularity, half-life", "popularity", (values,), start),
        Row("TwoStep, default, recency", "two_step", (RECENCY,), start | {"recency": 0.5}),
        Row("TwoStep, default, time", "two_step", (DECAY, RECENCY), start | times),
        Row("TwoStep, default, trend", "two_step", (TREND, values), start | trend),
        Row("TwoStep, default, trend 1", "two_step", (), start | trend | {"trend_half_life": 0.0}),
        Row("TwoStep, default, time, trend", "two_step", (TREND, values, RECENCY, DECAY), start | times | trend),
    )
    return Set(path.stem, test, validation, ("recall@20", "ndcg@20"), rows, about, ages="h")


def by_session(path: Path) -> Set:
    """Public session files: every prefix of a test session predicts its next item. A session's time is its number."""
    validation = asked_about(numbered(mg.splits.sessions(path, part="validation")), 2 * ASKED)
    about = (
        "public split; validation: the latest tenth of the training sessions; repeats are allowed; for the trend the "
        "time of a session is its number, since the files have no times"
    )
    number = validation.train.n_users
    values = half_lives(*(float(f"{share * number:.1g}") for share in (0.003, 0.01, 0.03, 0.1, 0.3)))
    rows = sessions({"trend": 0.4, "trend_half_life": values.values[2], **STARTS[path.stem][0]}, (TREND, values))
    test = numbered(mg.splits.sessions(path))
    return Set(path.stem, test, validation, ("recall@20", "mrr@20"), rows, about, ages="")


def numbered(split: Split) -> Split:
    """The same split; the time of each training event is the number of its session."""
    train = split.train
    return replace(split, train=replace(train, times=np.repeat(np.arange(train.n_users), np.diff(train.matrix.indptr))))


def starting(**values: Any) -> Setting:
    return {"user_power": 0.5, "low_pass": 0.0} | values


# Settings to start a search from: found on the same validation parts by earlier searches.
STARTS: dict[str, tuple[Setting, ...]] = {
    "gowalla-ordered": (
        starting(l2=20, dropout=0.4, second=0.7, low_pass=0.2, low_pass_power=0.4, rank=256),
        starting(l2=15, dropout=0.2, user_power=0.25, decay=0.7, floor=0.1, recency=0.9, second=0.8, item_power=0.05,
                 trend=0.8, trend_half_life=10, low_pass=0.1, low_pass_power=0.6, rank=512),
        {"l2": 80, "dropout": 0.8},
    ),
    "yelp2018-ordered": (
        starting(l2=30, dropout=0.4, second=0.7, low_pass=0.5, low_pass_power=0.2, rank=256),
        starting(l2=30, dropout=0.4, decay=0.3, recency=0.7, second=0.8, item_power=-0.05,
                 trend=0.6, trend_half_life=10, low_pass=0.2, low_pass_power=0.0, rank=256),
        {"l2": 120, "dropout": 0.6},
    ),
    "diginetica-sessions": (
        starting(l2=10, dropout=0.5, user_power=0.0, decay=1.0, recency=1.1, second=0.7, repeat=0.1),
    ),
    "retailrocket-sessions": (
        starting(l2=10, dropout=0.5, user_power=0.0, decay=1.0, recency=1.1, second=0.7, repeat=0.1),
    ),
}  # fmt: skip

SETS: dict[str, Callable[[Path], Set]] = {
    "gowalla-ordered": public,
    "yelp2018-ordered": public,
    "diginetica-sessions": by_session,
    "retailrocket-sessions": by_session,
    "ml-1m-timestamps": timed,
    "amazon2018-games": timed,
    "food-com": timed,
    "globo-clicks": timed,
    "online-retail": timed,
}


def asked_about(split: Split, number: int) -> Split:
    """The same split, measured by some of its users."""
    users = split.histories.n_users
    if users <= number:
        return split
    rows = np.sort(np.random.default_rng(0).permutation(users)[:number])
    every = np.arange(split.histories.n_items)
    return replace(split, histories=part_of(split.histories, rows, every), targets=part_of(split.targets, rows, every))


def studied(data: Set, cache: Cache, exact: bool, search_only: bool) -> list[dict[str, Any]]:
    """The rows of a data set: what was chosen, and what it is worth on the test part; none after a search only."""
    print(data.name, flush=True)
    part, chosen = (
        Part(data.name, data.validation, data.metrics, 200 if data.thorough else 100, data.ages),
        dict[str, tuple[Setting, float]](),
    )
    for row in data.rows:
        start = START | (chosen[row.after][0] if row.after else {}) | _given(row) | {"model": row.model}
        if row.model == "slist":  # not searched: its fits are dense
            chosen[row.name] = START | row.start | {"model": "slist"}, math.nan
            continue
        chosen[row.name] = climb(part, cache, row.axes, start, len(data.metrics) - 1, data.thorough)
        print(f"  {row.name}: {chosen[row.name][1]:.4f} {text(chosen[row.name][0])}", flush=True)
    print(f"  {part.fits} fits", flush=True)
    del part  # its memory
    if search_only:
        return []
    wanted = [(row, "local") for row in data.rows if row.tested and (exact or row.model != "slist")]  # dense
    if exact and SETS[data.name] is public:  # in one step: B² of two steps takes twice as long as the inverse
        wanted.append(
            (
                max(
                    (row for row in data.rows if row.order and row.model != "two_step"),
                    key=lambda row: chosen[row.name][1],
                ),
                "primal",
            )
        )
    return [_row(data, cache, row, solver, *chosen[row.name]) for row, solver in wanted]


def _given(row: Row) -> Setting:
    """What a row starts from: of a row that comes after another, only the parameters that it searches."""
    searched = {axis.name for axis in row.axes}
    return {name: value for name, value in row.start.items() if not row.after or name in searched}


def _row(data: Set, cache: Cache, row: Row, solver: str, setting: Setting, value: float) -> dict[str, Any]:
    """A row of the table: a model of the library, fitted on train and measured on the test part."""
    source = {"study": "time", "data": data.name, "setting": setting, "solver": solver, "neighbours": data.neighbours}
    kept = cache.get(source)
    if kept is None:
        kept = _tested(data, setting, solver)
        cache.put(source, kept)
    by_user = kept["by_user"]
    low, high = statistics.interval(statistics.bootstrap(np.array(by_user), resamples=RESAMPLES))
    ends = list(zip(np.mean(by_user, axis=0).tolist(), low.tolist(), high.tolist(), strict=True))
    print(f"  test: {row.name} {ends} {kept['seconds']:.1f} s", flush=True)
    name = row.name + (", exact" if solver == "primal" else "")
    return kept | {
        "name": name,
        "order": bool(setting["decay"] or setting["recency"] or setting["trend"])
        or (setting["model"] == "popularity" and bool(setting["trend_half_life"])),
        "setting": "recency 1" if setting["model"] == "slist" else text(setting),
        "validation": value,
        "test": ends,
    }


def _tested(data: Set, setting: Setting, solver: str) -> dict[str, Any]:
    names = tuple(map(metrics.parse, data.metrics))
    if setting["model"] == "filter":
        started = time.perf_counter()
        values, seconds, peak = _filtered(data, setting, names)
        ranking = time.perf_counter() - started - seconds
    else:
        model = _model(setting, data.ages)
        how: dict[str, Any] = {"solver": solver} | ({"neighbours": data.neighbours} if solver == "local" else {})
        how = {} if setting["model"] in ("popularity", "slist") else how
        model.fit(data.test.train, **how)
        seconds = sum(spent for stage, spent in model.report_.seconds.items() if stage != "compile")
        peak = model.report_.peak_bytes
        started = time.perf_counter()
        values = measure_model(model, data.test, names, THREADS)[0]
        ranking = time.perf_counter() - started
    return {
        "by_user": np.round(values, 6).tolist(), "seconds": seconds, "bytes": peak,
        "milliseconds": ranking * 1000 / len(values),
    }  # fmt: skip


def _model(setting: Setting, ages: str) -> mg.Recommender:
    """The model of a setting."""
    half_life = span(setting, ages)
    if setting["model"] == "popularity":
        return mg.Popularity(half_life=half_life)
    if setting["model"] == "slist":
        return mg.SLIST(recency=setting["recency"])
    setting = setting | {"trend_half_life": half_life if setting["trend"] else None}
    classes = {one.name: one for one in (mg.EASE, mg.EDLAE, mg.RDLAE, mg.DEQL, mg.Tempered, mg.TwoStep)}
    kind = classes[setting["model"]]
    known = kind.__dataclass_fields__
    parameters = {name: value for name, value in setting.items() if name in known}
    ignored = {name for name, value in setting.items() if value and name not in known} - {"model", "rank", *OF_FIT}
    assert not ignored, ignored
    return kind(**parameters)


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


def report(found: dict[str, tuple[Set, list[dict[str, Any]]]], made_by: str) -> list[Block]:
    """The tables of the study."""
    about = (
        "Settings are chosen by the last metric of each table on the validation part, with local regressions on "
        "100 candidates (Gowalla: 200), and measured on the test part once. The models of the tables are local "
        "regressions on 300 candidates, where nothing else is said; the seconds are those of the fit."
    )
    blocks: list[Block] = [
        Heading(1, "The study of time: the numbers"),
        Text("Made with this command:"),
        Text(made_by, code=True),
        Text(about),
    ]
    for data, rows in found.values():
        headers = ["model", "uses order", "setting", f"{data.metrics[-1]}, validation", *data.metrics]
        headers += [f"{data.metrics[-1]}, gain on the first row", "fit, seconds", "peak", "ms a list"]
        cells = [_cells(row, rows[0]) for row in rows]
        blocks += [Heading(2, data.name), Text(data.about), Grid("With 95% intervals over users", headers, cells)]
    return blocks


def _cells(row: dict[str, Any], first: dict[str, Any]) -> list[str]:
    ends = (f"{value:.4f} [{low:.4f}, {high:.4f}]" for value, low, high in row["test"])
    costs = f"{row['seconds']:.1f}", f"{row['bytes'] / 1e9:.2f} GB", f"{row['milliseconds']:.2f}"
    gain = ""
    if row is not first:
        difference = statistics.paired(np.array(row["by_user"])[:, -1], np.array(first["by_user"])[:, -1])
        gain = f"{difference.value:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"
    order = "yes" if row["order"] else "no"
    validation = "not searched" if math.isnan(row["validation"]) else f"{row['validation']:.4f}"
    return [row["name"], order, row["setting"], validation, *ends, gain, *costs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("-o", "--output", action="append", required=True, help="file to write: .md or .html")
    parser.add_argument("--cache", type=Path, required=True, help="folder for finished results")
    parser.add_argument("--sets", default=",".join(SETS), help="names of data sets")
    parser.add_argument("--search-only", action="store_true", help="choose the settings, and measure nothing on test")
    parser.add_argument(
        "--exact", action="store_true", help="also the best setting of public lists by one inverse, and SLIST"
    )
    given = parser.parse_args()
    names = given.sets.split(",")
    unknown = [name for name in names if name not in SETS]
    if unknown:
        parser.error(f"unknown data set {unknown[0]!r}; expected some of {', '.join(SETS)}")
    found = {}
    for name in names:
        data = SETS[name](given.data / f"{name}.npz")
        found[name] = data, studied(data, Cache(given.cache), given.exact, given.search_only)
    if given.search_only:
        return
    command = f"python benchmarks/time_study.py --data DIR -o {given.output[0]} --cache FOLDER --sets {given.sets}"
    for output in given.output:
        for path in writers.write(report(found, command + (" --exact" if given.exact else "")), output):
            print(path)


if __name__ == "__main__":
    main()
