"""The study of time: what the order of events adds, on public data sets. An interrupted run resumes from --cache.

    python benchmarks/time_study.py --data DIR -o docs/study/time-numbers.md --cache FOLDER [--sets gowalla-ordered,…]

Every setting is chosen on a validation part that is cut from train in the same way as the test part: each user's latest
events (public lists), the last part of the time (logs with times), or the latest sessions. The test part is read once,
for the rows of the table. The search goes from one parameter to the next: all values of one with the best values of the
others, for two rounds; parameters that need no new fit are all tried for every fit. Models are fitted by local
regressions with 300 candidates; for the public lists the exact fit of the last setting is beside it (--exact).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import monogram as mg
from monogram.data.parts import part_of
from monogram.data.splits import Split
from monogram.engine.gram import user_weights
from monogram.evaluation import metrics, statistics
from monogram.evaluation.protocol import measure
from monogram.models.context import FitOptions
from monogram.models.inverse import item_counts
from monogram.models.two_step import directions
from monogram.ranking import Recency
from monogram.reports import writers
from monogram.reports.blocks import Block, Grid, Heading, Text
from monogram.reproduce.cache import Cache
from monogram.weights import Mixture, Mixtures

THREADS = 2
ASKED = 3_000  # users of a validation part by which settings are compared
NEIGHBOURS = 300
RANK = 256  # of the low-pass filter
RESAMPLES = 1000
Setting = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """The values of a parameter that a search tries; a `free` one needs no new fit."""

    name: str
    values: tuple[float, ...]
    free: bool = False


L2 = Axis("l2", (2, 5, 10, 15, 20, 30, 50, 80))
DROPOUT = Axis("dropout", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7))
USER_POWER = Axis("user_power", (0.25, 0.5, 0.75))
DECAY = Axis("decay", (0.2, 0.4, 0.6, 0.8, 1.0))
FLOOR = Axis("floor", (0.0, 0.1))
RECENCY = Axis("recency", (0.3, 0.5, 0.7, 0.9, 1.2), free=True)
SECOND = Axis("second", (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), free=True)
LOW_PASS = Axis("low_pass", (0.0, 0.1, 0.2, 0.4, 0.8), free=True)
ITEM_POWER = Axis("item_power", (-0.2, -0.1, 0.0, 0.1, 0.2), free=True)
REPEAT = Axis("repeat", (0.0, 0.03, 0.1, 0.3, 1.0), free=True)
START: Setting = {
    "l2": 20, "dropout": 0.4, "user_power": 0.5, "decay": 0.0, "floor": 0.0,
    "recency": 0.0, "second": 0.0, "low_pass": 0.0, "item_power": 0.0, "repeat": 0.0,
}  # fmt: skip
OF_FIT = ("l2", "dropout", "user_power", "decay", "floor")
BLIND = (L2, DROPOUT, USER_POWER)
TIMED = (DECAY, L2, DROPOUT, FLOOR)


@dataclass(frozen=True)
class Row:
    """A model that is searched: its axes, and values to start from (those of an earlier row where it is named)."""

    name: str
    axes: tuple[Axis, ...]
    start: Setting
    after: str = ""

    @property
    def order(self) -> bool:
        """Whether it uses the order of events."""
        return any(axis.name in ("decay", "recency") for axis in self.axes)


LISTS = (
    Row("one step", (*BLIND, ITEM_POWER), {}),
    Row("two steps", (*BLIND, SECOND, ITEM_POWER), {"second": 0.8}, "one step"),
    Row("two steps, low-pass", (L2, LOW_PASS, SECOND, ITEM_POWER), {}, "two steps"),
    Row("one step, time", (*TIMED, RECENCY, ITEM_POWER), {"decay": 0.6, "recency": 0.7}, "one step"),
    Row("two steps, time", (*TIMED, RECENCY, SECOND, ITEM_POWER), {"decay": 0.6, "recency": 0.7}, "two steps"),
    Row("two steps, time, low-pass", (DECAY, L2, LOW_PASS, RECENCY, SECOND, ITEM_POWER), {}, "two steps, time"),
)
SESSIONS = (
    Row("two steps", (L2, DROPOUT, SECOND, REPEAT), {"second": 0.7, "dropout": 0.5, "user_power": 0}),
    Row(
        "two steps, time",
        (DECAY, L2, DROPOUT, RECENCY, SECOND, REPEAT),
        {"second": 0.7, "decay": 1.0, "recency": 1.0, "l2": 10, "dropout": 0.5, "user_power": 0, "repeat": 0.1},
    ),
)


@dataclass(frozen=True)
class Set:
    """A data set: its test part, its validation part, its metrics, and which of them chooses."""

    name: str
    test: Split
    validation: Split
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    about: str


def public(path: Path) -> Set:
    """Public lists: each user's latest fifth is the test part."""
    test = mg.splits.public(path)
    about = "public lists (each user's latest fifth); validation: the latest fifth of each train list"
    return Set(
        path.stem, test, asked_about(mg.splits.latest(test.train), ASKED), ("recall@20", "ndcg@20"), LISTS, about
    )


def timed(path: Path) -> Set:
    """A log with times: the events of the last tenth of the time are the test part, the tenth before for validation."""
    stored = np.load(path)
    table = pa.table({"user": stored["user"], "item": stored["item"], "time": stored["timestamp"]})
    unit = "d" if stored["timestamp"].max() < 10**6 else "s"
    test = mg.splits.temporal(mg.read(table, "user", "item", time="time", time_unit=unit, quiet=True), share=0.1)
    validation = asked_about(mg.splits.temporal(test.train, share=0.1), ASKED)
    about = "train: the first nine tenths of the events in time, test: the others; validation: the last tenth of train"
    return Set(path.stem, test, validation, ("recall@20", "ndcg@20"), LISTS, about)


def by_session(path: Path) -> Set:
    """Public session files: every prefix of a test session predicts its next item."""
    validation = asked_about(mg.splits.sessions(path, part="validation"), 4 * ASKED)
    about = "public split; validation: the latest tenth of the training sessions; repeats are allowed"
    return Set(path.stem, mg.splits.sessions(path), validation, ("recall@20", "mrr@20"), SESSIONS, about)


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


class Part:
    """A split on which settings are measured: one fit at a time is kept, and every free setting is ranked from it."""

    def __init__(self, name: str, split: Split, names: tuple[str, ...], solver: str = "local") -> None:
        self.name, self.split, self.metrics, self.solver = name, split, tuple(map(metrics.parse, names)), solver
        self._fitted: tuple[Any, Any] = None, None
        self._basis: Any = None
        self.seconds, self.bytes, self.fits = 0.0, 0, 0

    @property
    def basis(self) -> Any:
        """The directions of the low-pass filter."""
        if self._basis is None:
            self._basis = directions(self.split.train, RANK, FitOptions(threads=THREADS))
        return self._basis

    def by_user(self, settings: list[Setting]) -> list[Any]:
        """The metrics of each user, by settings that differ in free parameters alone."""
        weights, log = self.fitted(settings[0]), self.split.train
        counts, values = item_counts(log.matrix), {}
        for recency in dict.fromkeys(setting["recency"] for setting in settings):
            same = [at for at, setting in enumerate(settings) if setting["recency"] == recency]
            mixtures = [_mixture(settings[at], counts) for at in same]
            basis = self.basis if any(one.weight for one in mixtures) else np.zeros((log.n_items, 0), np.float32)
            heads = partial(Mixtures(weights, basis).heads, mixtures, threads=THREADS)
            ranked = measure(
                heads,
                log, self.split, self.metrics, len(same), Recency(recency),
            )  # fmt: skip
            values |= {at: found for at, (found, _) in zip(same, ranked, strict=True)}
        return [values[at] for at in range(len(settings))]

    def fitted(self, setting: Setting) -> Any:
        """The first step of a setting: the weights that were fitted last, or new ones."""
        key = {name: setting[name] for name in OF_FIT}
        if self._fitted[0] != key:
            self._fitted = None, None  # its memory
            model = mg.Tempered(**key)
            options = (
                {"solver": "local", "neighbours": NEIGHBOURS} if self.solver == "local" else {"solver": self.solver}
            )
            model.fit(self.split.train, **options)
            self.seconds = sum(seconds for stage, seconds in model.report_.seconds.items() if stage != "compile")
            self.bytes = model.report_.peak_bytes
            self._fitted = key, model.weights_
            self.fits += 1
        return self._fitted[1]


def _mixture(setting: Setting, counts: Any) -> Mixture:
    thetas = user_weights.popularity(counts, setting["item_power"])[None]
    rank = RANK if setting["low_pass"] else 0
    return Mixture(setting["second"], setting["low_pass"], rank, thetas, setting["repeat"])


def search(part: Part, cache: Cache, row: Row, start: Setting, choosing: int, rounds: int = 2) -> tuple[Setting, float]:
    """The best setting of a row, one axis after the other, and its value."""
    free = tuple(axis for axis in row.axes if axis.free)
    best, best_value = _best_free(part, cache, start, free, choosing)
    for _ in range(rounds):
        before = best
        for axis in row.axes:
            for value in () if axis.free else axis.values:
                if value != best[axis.name]:
                    tried, found = _best_free(part, cache, best | {axis.name: value}, free, choosing)
                    if found > best_value:
                        best, best_value = tried, found
                        print(f"  {row.name}: {found:.4f} {_text(best)}", flush=True)
        if before == best:
            break
    return best, best_value


def _best_free(
    part: Part, cache: Cache, setting: Setting, free: tuple[Axis, ...], choosing: int
) -> tuple[Setting, float]:
    """The best free parameters of a setting, one axis after the other, from one fit."""
    source = {
        "study": "time", "data": part.name, "events": part.split.train.n_events, "asked": part.split.targets.n_users,
        "metric": str(part.metrics[choosing]), "setting": setting, "free": {one.name: list(one.values) for one in free},
    }  # fmt: skip
    kept = cache.get(source)
    if kept is None:
        best, value = setting, float(part.by_user([setting])[0][:, choosing].mean())
        for axis in free:
            settings = [best | {axis.name: each} for each in axis.values if each != best[axis.name]]
            found = [float(values[:, choosing].mean()) for values in part.by_user(settings)]
            at = int(np.argmax(found))
            if found[at] > value:
                best, value = settings[at], found[at]
        kept = {"best": best, "value": value}
        cache.put(source, kept)
    return kept["best"], kept["value"]


def _text(setting: Setting) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in setting.items() if value or name in ("l2", "dropout"))


def asked_about(split: Split, number: int) -> Split:
    """The same split, measured by some of its users."""
    users = split.histories.n_users
    if users <= number:
        return split
    rows = np.sort(np.random.default_rng(0).permutation(users)[:number])
    every = np.arange(split.histories.n_items)
    return replace(split, histories=part_of(split.histories, rows, every), targets=part_of(split.targets, rows, every))


def studied(data: Set, cache: Cache, exact: bool) -> list[dict[str, Any]]:
    """The rows of a data set: what was chosen, and what it is worth on the test part."""
    source = {"study": "time", "data": data.name, "rows": [f"{row}" for row in data.rows], "exact": exact}
    kept = cache.get(source)
    if kept is not None:
        return list(kept["rows"])
    print(data.name, flush=True)
    choosing = 1
    part, chosen = Part(data.name, data.validation, data.metrics), dict[str, tuple[Setting, float]]()
    for row in data.rows:
        start = START | (chosen[row.after][0] if row.after else {}) | row.start
        chosen[row.name] = search(part, cache, row, start, choosing)
    del part  # its memory
    test = Part(data.name, data.test, data.metrics)
    rows = [_row(test, row, *chosen[row.name]) for row in data.rows]
    if exact:
        best = max((row for row in data.rows if row.order), key=lambda row: chosen[row.name][1])
        rows.append(
            _row(Part(data.name, data.test, data.metrics, "primal"), best, *chosen[best.name]) | {"exact": True}
        )
    cache.put(source, {"rows": rows})
    return rows


def _row(test: Part, row: Row, setting: Setting, value: float) -> dict[str, Any]:
    test.fitted(setting)
    start = time.perf_counter()
    found = test.by_user([setting])[0]
    milliseconds = (time.perf_counter() - start) * 1000 / len(found)
    low, high = statistics.interval(statistics.bootstrap(found, resamples=RESAMPLES))
    ends = list(zip(found.mean(0).tolist(), low.tolist(), high.tolist(), strict=True))
    print(f"  test: {row.name} {ends}", flush=True)
    return {
        "name": row.name, "order": row.order, "setting": _text(setting), "validation": value, "test": ends,
        "seconds": test.seconds, "bytes": test.bytes, "milliseconds": milliseconds, "exact": False,
    }  # fmt: skip


def report(found: dict[str, tuple[Set, list[dict[str, Any]]]], made_by: str) -> list[Block]:
    about = (
        "Settings are chosen by the last metric of each table on the validation part, and measured on the test part "
        f"once. Local regressions with {NEIGHBOURS} candidates; the seconds are those of the fit."
    )
    blocks: list[Block] = [
        Heading(1, "The study of time: the numbers"),
        Text("Made with this command:"),
        Text(made_by, code=True),
        Text(about),
    ]
    for data, rows in found.values():
        numbers = [_cells(row) for row in rows]
        headers = ["model", "uses order", "setting", f"{data.metrics[1]}, validation", *data.metrics]
        headers += ["fit, seconds", "peak", "ms a list"]
        blocks += [Heading(2, data.name), Text(data.about), Grid("With 95% intervals over users", headers, numbers)]
    return blocks


def _cells(row: dict[str, Any]) -> list[str]:
    ends = (f"{value:.4f} [{low:.4f}, {high:.4f}]" for value, low, high in row["test"])
    name = f"{row['name']}{', exact' if row['exact'] else ''}"
    costs = f"{row['seconds']:.0f}", f"{row['bytes'] / 1e9:.2f} GB", f"{row['milliseconds']:.2f}"
    return [name, "yes" if row["order"] else "no", row["setting"], f"{row['validation']:.4f}", *ends, *costs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("-o", "--output", action="append", required=True, help="file to write: .md or .html")
    parser.add_argument("--cache", type=Path, required=True, help="folder for finished results")
    parser.add_argument("--sets", default=",".join(SETS), help="names of data sets")
    parser.add_argument("--exact", action="store_true", help="also fit the last setting of public lists exactly")
    given = parser.parse_args()
    names = given.sets.split(",")
    unknown = [name for name in names if name not in SETS]
    if unknown:
        parser.error(f"unknown data set {unknown[0]!r}; expected some of {', '.join(SETS)}")
    found = {}
    for name in names:
        data = SETS[name](given.data / f"{name}.npz")
        found[name] = data, studied(data, Cache(given.cache), given.exact and SETS[name] is public)
    command = f"python benchmarks/time_study.py --data DIR -o {given.output[0]} --cache FOLDER --sets {given.sets}"
    for output in given.output:
        for path in writers.write(report(found, command + (" --exact" if given.exact else "")), output):
            print(path)


if __name__ == "__main__":
    main()
