"""The search of the study in tempered.py: data sets, their splits, and settings, each measured once."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import monogram as mg
from monogram.data import changes
from monogram.data.splits import Split
from monogram.engine.gram import user_weights
from monogram.evaluation import metrics, statistics
from monogram.evaluation.protocol import measure_heads
from monogram.models.inverse import item_counts
from monogram.reproduce.cache import Cache
from monogram.weights import TwoStepDual

METRICS = ("recall@20", "ndcg@20")
CHOOSING = 1  # by ndcg@20
ALPHAS = [step / 8 for step in range(9)]
SECONDS = [step / 10 for step in range(11)]
POWERS = [round(-0.3 + 0.05 * step, 2) for step in range(13)]
L2 = [10.0 * 2.0**step for step in range(-2, 8)]
DROPOUT = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
RESAMPLES = 1000
LARGE = 15_000  # users and items from which the search is on a sample
HUGE = 25_000  # from which user_power is searched in steps of 1/4, the solver is the dual, and few are asked
SAMPLE = 8_000  # users that are searched on
ASKED = 5_000  # users that a huge set is validated by; all are learned from


@dataclass(frozen=True, eq=False)
class Set:
    """A data set, cut twice: train for the test part, and less of it for the validation part."""

    name: str
    cut: Callable[[mg.Interactions], Split]  # makes the validation part
    test: Split
    by_time: bool
    about: str

    @cached_property
    def validation(self) -> Split:
        found = self.cut(self.test.train)
        return asked_about(found, ASKED) if self.side > HUGE else found

    @cached_property
    def sample(self) -> Split:
        """The validation part of some users alone."""
        log = self.test.train
        others = np.random.default_rng(0).permutation(log.n_users)[SAMPLE:]
        return self.cut(changes.without_users(log, np.sort(others)).log)

    @property
    def side(self) -> int:
        """The smaller one."""
        return min(self.test.train.matrix.shape)

    @property
    def searched_on(self) -> str:
        return "sample" if self.side > LARGE else "validation"

    @property
    def solver(self) -> str:
        """Where fits take minutes the one that fits sooner; else the one that also answers quickly."""
        return "dual" if self.side > HUGE else "auto"

    @property
    def alphas(self) -> list[float]:
        """Those that are searched; all are measured."""
        return ALPHAS[:: 2 if self.side > HUGE else 1]


def pairs(path: Path) -> mg.Interactions:
    """A log; the place of a row is its time, for sets whose rows are in the order of time for each user."""
    held = np.load(path)
    users, items = held["user"], held["item"]
    table = pa.table({"user": users, "item": items, "time": np.arange(len(users))})
    return mg.read(table, "user", "item", time="time")


def asked_about(split: Split, number: int) -> Split:
    """The same training part, measured by some of the users."""
    users = split.targets.n_users
    others = np.sort(np.random.default_rng(0).permutation(users)[number:])
    known, held = (changes.without_users(log, others).log for log in (split.histories, split.targets))
    return replace(split, histories=known, targets=held)


def tenth(log: mg.Interactions) -> Split:
    return mg.splits.holdout(log, 0.1)


def public(path: Path) -> Set:
    test = mg.splits.public(path)
    return Set(path.stem, tenth, test, False, "public lists; validation: a random 10% of train")


def random(path: Path) -> Set:
    test = mg.splits.holdout(pairs(path), 0.2)
    return Set(path.stem, tenth, test, False, "a random 20% for test, 10% of the rest for validation")


def last(path: Path) -> Set:
    test = mg.splits.leave_last(pairs(path))
    about = "test: each user's last event; validation: the last but one"
    return Set(path.stem, mg.splits.leave_last, test, True, about)


SETS: dict[str, Callable[[Path], Set]] = {
    "gowalla": public,
    "yelp2018": public,
    "ml-1m": random,
    "amazon-video-games": last,
    "lastfm-2k": random,
    "citeulike-a": random,
}


@dataclass(frozen=True)
class Point:
    """A factorisation: what was fitted."""

    user_power: float
    l2: float
    dropout: float
    second: float = 0.0

    @property
    def model(self) -> mg.Recommender:
        if self.second:
            return mg.TwoStep(**vars(self))
        return mg.Tempered(user_power=self.user_power, l2=self.l2, dropout=self.dropout)

    @property
    def source(self) -> dict[str, float]:
        """What tells it from others in the cache."""
        return {name: value for name, value in vars(self).items() if name != "second" or value}


def options(about: str | None, known: Iterable[str]) -> argparse.Namespace:
    """What a script of the study is asked for; `sets` are names that are known."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the report: .md or .html")
    parser.add_argument("--cache", type=Path, help="where what was measured is kept")
    parser.add_argument("--sets", default=",".join(known), help="names, with commas")
    given = parser.parse_args()
    given.sets = given.sets.split(",")
    if unknown := set(given.sets) - set(known):
        parser.error(f"--sets: {', '.join(sorted(unknown))} is not among {', '.join(known)}")
    return given


def command(script: str, given: argparse.Namespace) -> str:
    """How it was asked."""
    names = ",".join(given.sets)
    return f"python benchmarks/{script} --data DIR -o {given.output} --cache FOLDER --sets {names}"


def against(by_user: Any, plain: Any) -> list[float]:
    """By how much ndcg@20 differs from another's, in per cent of it, with the ends of its paired interval."""
    one, other = (np.asarray(each)[:, CHOOSING] for each in (by_user, plain))
    found = statistics.paired(one, other)
    return [float(100 * part / other.mean()) for part in (found.value, found.low, found.high)]


class Study:
    """Measures points on a data set, each once."""

    def __init__(self, data: Set, cache: Cache) -> None:
        self.data, self.cache = data, cache
        self.points: dict[tuple[str, Point], dict[str, Any]] = {}
        self._first: tuple[Any, Any] = None, None

    def measured(self, part: str, point: Point) -> dict[str, Any]:
        """Means and intervals by item_power, with the differences to the power 0; seconds and bytes."""
        if (part, point) not in self.points:
            source = {"study": "tempered", "data": self.data.name, "part": part, "powers": POWERS, **point.source}
            found = self.cache.get(source)
            if found is None:
                found = self._measure(part, point)
                self.cache.put(source, found)
            self.points[part, point] = found
            best = found["values"][POWERS.index(0.0)]["mean"]
            print(f"{self.data.name}, {part}: {point} {best[0]:.4f} {best[1]:.4f}", flush=True)
        return self.points[part, point]

    def _fitted(self, part: str, point: Point) -> tuple[Any, Any]:
        """Weights, and the report of their fit; None where only the share of a second step is another."""
        log, one = getattr(self.data, part).train, (part, replace(point, second=0.0))
        held, first = self._first
        if point.second and held == one:
            return TwoStepDual(first, point.second, np.ones(log.n_items)), None
        self._first, held, first = (None, None), None, None  # its memory
        model = point.model.fit(log, solver=self.data.solver)
        weights: Any = model.weights_
        if isinstance(weights, TwoStepDual):
            self._first = one, weights.first
        return weights, model.report_

    def _measure(self, part: str, point: Point) -> dict[str, Any]:
        split, powers = getattr(self.data, part), [0.0] if part == "sample" else POWERS
        start = time.perf_counter()
        weights, report = self._fitted(part, point)
        seconds = time.perf_counter() - start
        counts = item_counts(split.train.matrix)
        asked = tuple(metrics.parse(one) for one in METRICS)
        thetas = np.array([user_weights.popularity(counts, power) for power in powers])
        found = measure_heads(weights, thetas, split.train, split, asked, 2)
        values: list[Any] = [None] * len(POWERS)
        plain, _ = found[powers.index(0.0)]
        apart = [against(by_user, plain) for by_user, _ in found]
        for power, (by_user, _) in zip(powers, found, strict=True):
            low, high = statistics.interval(statistics.bootstrap(by_user, resamples=RESAMPLES))
            values[POWERS.index(power)] = {"mean": by_user.mean(0).tolist(), "low": low.tolist(), "high": high.tolist()}
        ranked = time.perf_counter() - start - seconds
        return {
            "values": values, "by_user": np.round(plain, 6).tolist(), "apart": apart,
            "fit": seconds if report else None, "ranked": ranked,
            "peak": report and report.peak_bytes, "solver": report and report.solver, "users": len(found[0][0]),
        }  # fmt: skip

    def value(self, part: str, point: Point, power: float = 0.0) -> float:
        """What is chosen by."""
        return float(self.measured(part, point)["values"][POWERS.index(power)]["mean"][CHOOSING])

    def searched(self, start: Point, free: tuple[str, ...]) -> Point:
        """The best point, one parameter at a time, until a step in none of them is better."""
        before, best = None, start
        while best != before:
            before, best = best, self.walked(best, free, self.data.searched_on)
        return best

    def walked(self, point: Point, free: tuple[str, ...], part: str) -> Point:
        """One parameter after the other, each as long as it gets better."""
        axes = {"l2": L2, "dropout": DROPOUT, "user_power": self.data.alphas, "second": SECONDS}
        for name in free:
            point = self._climbed(point, name, axes[name], part)
        return point

    def _climbed(self, point: Point, name: str, axis: list[float], part: str) -> Point:
        """Up or down an axis as long as it gets better."""
        at = axis.index(getattr(point, name))
        for step in (1, -1):
            while 0 <= at + step < len(axis):
                other = Point(**{**vars(point), name: axis[at + step]})
                if self.value(part, other) <= self.value(part, point):
                    break
                point, at = other, at + step
        return point


@dataclass(frozen=True)
class Outcome:
    """What the study found on a data set."""

    study: Study
    edlae: Point
    grid: list[Point]  # every user_power, at the same l2 and dropout
    tempered: Point
    two_step: Point
    powers: dict[Point, float]  # of items, chosen on a validation part by time, else 0


def examined(data: Set, cache: Cache) -> Outcome:
    study = Study(data, cache)
    edlae = study.searched(Point(0.0, 160.0, 0.5), ("dropout", "l2"))
    tempered = study.searched(Point(0.5, edlae.l2, edlae.dropout), ("user_power", "dropout", "l2"))
    start = replace(
        tempered, l2=max(L2[0], tempered.l2 / 4), dropout=max(0.0, round(tempered.dropout - 0.2, 1)), second=0.8
    )
    two_step = study.searched(start, ("l2", "second", "dropout", "user_power"))
    grid = [replace(tempered, user_power=alpha) for alpha in ALPHAS]
    tempered = max(grid, key=lambda point: study.value("validation", point))
    if data.searched_on == "sample":  # the more users, the less a second step has to do: one round for each on all
        two_step = study.walked(two_step, ("second", "l2", "dropout", "user_power", "second"), "validation")
        tempered = study.walked(tempered, ("l2", "dropout"), "validation")
        edlae = study.walked(edlae, ("l2", "dropout"), "validation")
    powers = dict.fromkeys((edlae, tempered, two_step), 0.0)
    if data.by_time:
        for point in powers:
            powers[point] = max(POWERS, key=lambda one: study.value("validation", point, one))
    for point in (edlae, *grid, tempered, two_step):
        study.measured("test", point)
    return Outcome(study, edlae, grid, tempered, two_step, powers)
