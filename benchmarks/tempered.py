"""The study of Tempered: what the powers of users and of items are worth, and a second step, on six data sets.

For each data set the parameters of EDLAE, Tempered and TwoStep are searched on a validation part, one at a time, until
none of them gets better by a step. Then every user_power in steps of 1/8 is measured with every item_power in steps of
.05, on the validation part and on the test part. Where a factorisation takes minutes, the search is on a sample of the
users, cut in the same way. Every factorisation is kept in --cache: a run that was stopped goes on.

    python benchmarks/tempered.py --data DIR -o docs/tempered.md --cache FOLDER [--sets gowalla,ml-1m]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import monogram as mg
from monogram import plots
from monogram.data import changes
from monogram.data.splits import Split
from monogram.engine import weighting
from monogram.evaluation import metrics, statistics
from monogram.evaluation.protocol import measure_heads
from monogram.models.autoencoder import used
from monogram.reports import writers
from monogram.reports.blocks import Block, Grid, Heading, Items, Picture, Text
from monogram.reproduce.cache import Cache
from monogram.weights import Twice

METRICS = ("recall@20", "ndcg@20")
CHOOSING = 1  # by ndcg@20
ALPHAS = [step / 8 for step in range(9)]
SECONDS = [step / 10 for step in range(11)]
POWERS = [round(-0.3 + 0.05 * step, 2) for step in range(13)]
L2 = [10.0 * 2.0**step for step in range(-2, 8)]
DROPOUT = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
RESAMPLES = 1000
LARGE = 15_000  # users and items from which the search is on a sample
HUGE = 25_000  # from which user_power is measured in steps of 1/4
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
    def alphas(self) -> list[float]:
        return ALPHAS[:: 2 if self.side > HUGE else 1]


def pairs(path: Path) -> mg.Interactions:
    """A log whose rows are in the order of time for each user; the place of a row is its time."""
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

    def measured(self, part: str, point: Point, paired: bool = False) -> dict[str, Any]:
        """Means and intervals by item_power; seconds and bytes. `paired`: with the differences to the power 0, too."""
        known = self.points.get((part, point))
        if known is None or (paired and "apart" not in known):
            source = {"study": "tempered", "data": self.data.name, "part": part, "powers": POWERS, **point.source}
            found = self.cache.get(source)
            if found is None or (paired and "apart" not in found):
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
            return Twice(first, point.second, np.ones(log.n_items)), None
        self._first, held, first = (None, None), None, None  # its memory
        model = point.model.fit(log)
        weights: Any = model.weights_
        if isinstance(weights, Twice):
            self._first = one, weights.first
        return weights, model.report_

    def _measure(self, part: str, point: Point) -> dict[str, Any]:
        split, powers = getattr(self.data, part), [0.0] if part == "sample" else POWERS
        start = time.perf_counter()
        weights, report = self._fitted(part, point)
        seconds = time.perf_counter() - start
        counts = used(split.train.matrix)
        asked = tuple(metrics.parse(one) for one in METRICS)
        thetas = np.array([weighting.popularity(counts, power) for power in powers])
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
    tempered: Point
    two_step: Point
    powers: dict[Point, float]  # of items, chosen on a validation part by time, else 0

    def rows(self, part: str) -> Iterator[tuple[float, float, dict[str, Any]]]:
        """Every pair of powers at the chosen l2 and dropout, with its value."""
        for alpha in self.study.data.alphas:
            point = Point(alpha, self.tempered.l2, self.tempered.dropout)
            for power, value in zip(POWERS, self.study.measured(part, point, paired=True)["values"], strict=True):
                yield alpha, power, value


def examined(data: Set, cache: Cache) -> Outcome:
    study = Study(data, cache)
    edlae = study.searched(Point(0.0, 160.0, 0.5), ("dropout", "l2"))
    tempered = study.searched(Point(0.5, edlae.l2, edlae.dropout), ("user_power", "dropout", "l2"))
    start = replace(
        tempered, l2=max(L2[0], tempered.l2 / 4), dropout=max(0.0, round(tempered.dropout - 0.2, 1)), second=0.8
    )
    two_step = study.searched(start, ("l2", "second", "dropout", "user_power"))
    if data.searched_on == "sample":  # the more users, the less a second step has to do
        two_step = study.walked(two_step, ("second", "l2", "dropout", "user_power", "second"), "validation")
        study.measured("test", two_step)
        points = [replace(tempered, user_power=alpha) for alpha in data.alphas]
        tempered = max(points, key=lambda point: study.value("validation", point))
    powers = dict.fromkeys((edlae, tempered, two_step), 0.0)
    if data.by_time:
        for point in (tempered, two_step):
            powers[point] = max(POWERS, key=lambda one: study.value("validation", point, one))
    found = Outcome(study, edlae, tempered, two_step, powers)
    for part in ("validation", "test"):
        list(found.rows(part))
    for point in (edlae, two_step):
        study.measured("test", point)
    return found


def shown(value: dict[str, Any], metric: int) -> str:
    return f"{value['mean'][metric]:.4f} [{value['low'][metric]:.4f}, {value['high'][metric]:.4f}]"


def in_words(point: Point, power: float) -> str:
    second = f", second {point.second:g}" if point.second else ""
    return f"α {point.user_power:g}, t {power:g}, l2 {point.l2:g}, dropout {point.dropout:g}{second}"


def lines(one: Outcome) -> Iterator[tuple[str, Point, float]]:
    """What the table tells of a data set."""
    for label, point in (("EDLAE", one.edlae), ("Tempered", one.tempered), ("TwoStep", one.two_step)):
        yield f"{label}, chosen on validation", point, 0.0
        if one.powers[point]:
            yield f"{label}, chosen on validation, t too", point, one.powers[point]
    alpha, power, _ = max(one.rows("test"), key=lambda row: row[2]["mean"][CHOOSING])
    yield "Tempered, best α and t on test", replace(one.tempered, user_power=alpha), power
    yield "TwoStep, best t on test", one.two_step, max(POWERS, key=lambda t: one.study.value("test", one.two_step, t))


def main_table(outcomes: list[Outcome]) -> Grid:
    rows = []
    for one in outcomes:
        baseline = np.array(one.study.measured("test", one.edlae)["by_user"])
        for label, point, t in lines(one):
            found = one.study.measured("test", point)
            value = found["values"][POWERS.index(t)]
            apart = "" if point == one.edlae else f"{value['mean'][CHOOSING] / baseline[:, CHOOSING].mean() - 1:+.1%}"
            if t == 0.0 and point != one.edlae:
                difference = statistics.paired(np.array(found["by_user"])[:, CHOOSING], baseline[:, CHOOSING])
                apart += f" ({difference.value:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}])"
            ours, theirs = [shown(value, 0), shown(value, 1)], ["", ""]
            if "on test" in label:
                ours, theirs = theirs, ours
            rows.append([one.study.data.name, label, in_words(point, t), *ours, *theirs, apart])
    validation, test = (
        tuple(f"{metric}, {how}" for metric in METRICS) for how in ("chosen on validation", "best on test")
    )
    headers = ["data", "what", "setting", *validation, *test, "ndcg@20 against EDLAE's (paired)"]
    return Grid("On the test parts, with 95% intervals over users", headers, rows)


def costs(outcomes: list[Outcome]) -> Grid:
    rows = []
    for one in outcomes:
        log, points = one.study.data.test.train, one.study.points
        for name, wanted in (("Tempered", False), ("TwoStep", True)):
            chosen = [(part, found) for (part, point), found in points.items() if bool(point.second) == wanted]
            whole = [found for part, found in chosen if part != "sample" and found["fit"]]
            if not whole:
                continue
            sampled = sum(part == "sample" and bool(found["fit"]) for part, found in chosen)
            fits, ranked = ([found[what] for found in whole] for what in ("fit", "ranked"))
            size = f"{log.n_users:,} × {log.n_items:,}, {log.n_events:,}"
            rows.append([
                one.study.data.name, size, name, whole[-1]["solver"], str(len(whole)), str(sampled),
                f"{np.median(fits):.1f}", f"{max(found['peak'] or 0 for found in whole) / 1e9:.2f}",
                f"{np.median(ranked):.1f}",
            ])  # fmt: skip
    totals = [str(sum(int(row[at]) for row in rows)) for at in (4, 5)]
    rows.append(["all", "", "", "", *totals, "", "", ""])
    headers = [
        "data", "users × items, events of train", "model", "solver", "factorisations", "on a sample", "seconds a fit",
        "peak GB", "seconds to rank",
    ]  # fmt: skip
    return Grid("What it cost", headers, rows, frozenset({4, 5, 6, 7, 8}))


def shifts(outcomes: list[Outcome]) -> Grid:
    rows = []
    for one in outcomes:
        found = {
            part: mg.shift(split)
            for part, split in (("validation", one.study.data.validation), ("test", one.study.data.test))
        }
        for part, shift in found.items():
            ends = [f"{shift.deciles[at]['ratio']:.2f}" for at in (0, 4, 9)]
            rows.append([one.study.data.name, part, f"{shift.dispersion:.2f} ± {shift.spread:.2f}", *ends])
    headers = ["data", "part", "dispersion (random cut: 1)", "least popular decile", "fifth", "most popular"]
    return Grid("Whether the parts are random cuts", headers, rows, frozenset({2, 3, 4, 5}))


def pictures(one: Outcome) -> Iterator[Picture]:
    """The change against the power 0, so that both parts have one scale; the intervals are paired."""
    name, study, shown_as = one.study.data.name, one.study, f"change of {METRICS[1]}, %"
    curves: dict[str, list[dict[str, Any]]] = {"user_power": [], "item_power": []}
    for part in ("test", "validation"):
        plain = study.measured(part, replace(one.tempered, user_power=0.0))["by_user"]
        found = {alpha: study.measured(part, replace(one.tempered, user_power=alpha)) for alpha in study.data.alphas}
        ends = [("user_power", alpha, against(row["by_user"], plain)) for alpha, row in found.items()]
        held = study.measured(part, one.tempered)["apart"]
        ends += [("item_power", power, row) for power, row in zip(POWERS, held, strict=True)]
        for axis, at, (value, low, high) in ends:
            curves[axis].append({axis: at, shown_as: value, "low": low, "high": high, "model": f"{part} part"})
    for axis, rows in curves.items():
        figure = plots.against(rows, shown_as, x=axis, title=name)
        yield Picture(f"{name}-{axis}", f"Change of {METRICS[1]} of {name} against {axis}", plots.picture(figure))


def report(outcomes: list[Outcome], command: str) -> list[Block]:
    sampled = [one.study.data.name for one in outcomes if one.study.data.searched_on == "sample"]
    coarse = [one.study.data.name for one in outcomes if one.study.data.alphas != ALPHAS]
    blocks: list[Block] = [
        Heading(1, f"Tempered and TwoStep on {len(outcomes)} data sets: the numbers"),
        Text("Made with this command:"), Text(command, code=True),
        Text(
            "α is user_power: a user of |I| events weighs |I|^(−α). t is item_power: scores are multiplied by "
            "popularity to the power t. Settings are chosen by ndcg@20 on a validation part, one parameter at a time; "
            "t only where both parts are cut by the order of each user's events, since a random cut cannot see "
            "popularity shift. What is best on the test part itself is what many papers report: it is no result, and "
            "shows what is left to gain."
        ),
    ]  # fmt: skip
    if sampled:
        text = f"On {', '.join(sampled)} the search was on {SAMPLE:,} users, cut in the same way"
        blocks.append(
            Text(f"{text}; the α of Tempered and, in one more round, all of TwoStep's were then chosen on all.")
        )
    if coarse:
        text = f"On {', '.join(coarse)} α was measured in steps of 1/4, elsewhere in steps of 1/8"
        blocks.append(Text(f"{text}, and the validation part asks about {ASKED:,} users; all are learned from."))
    blocks += [
        main_table(outcomes), Heading(2, "Seconds, memory, factorisations"), costs(outcomes),
        Heading(2, "Are the parts random cuts?"),
        Text(
            "The dispersion of the items' shares of the held-back events (see mg.shift), and how often items of the "
            "least, of middle and of the greatest popularity are held back, relative to a random cut."
        ),
        shifts(outcomes), Heading(2, "Against the powers"),
        Text(
            "The change of ndcg@20 against the power 0, in per cent of it, with paired 95% intervals over users: "
            "user_power at t = 0, item_power at the α that was chosen."
        ),
        Items([f"{one.study.data.name}: {one.study.data.about}" for one in outcomes]),
    ]  # fmt: skip
    for one in outcomes:
        blocks += [Heading(3, one.study.data.name), *pictures(one)]
    return blocks


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    options.add_argument("-o", "--output", type=Path, required=True, help="the report: .md or .html")
    options.add_argument("--cache", type=Path, help="where what was measured is kept")
    options.add_argument("--sets", default=",".join(SETS), help="names, with commas")
    given = options.parse_args()
    outcomes = [examined(SETS[name](given.data / f"{name}.npz"), Cache(given.cache)) for name in given.sets.split(",")]
    command = f"python benchmarks/tempered.py --data DIR -o {given.output} --cache FOLDER --sets {given.sets}"
    for path in writers.write(report(outcomes, command), given.output):
        print(path)


if __name__ == "__main__":
    main()
