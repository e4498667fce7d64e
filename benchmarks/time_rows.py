"""The rows of the study of time: data sets, their test and validation parts, models, and settings to start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from time_search import Axis, Setting

import monogram as mg
from monogram.data.parts import part_of
from monogram.data.splits import Split

ASKED = 3_000  # users of a validation part by which settings are compared
ASKED_OF_LARGE = 2_000

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
FILTERED = (LOW_PASS, LOW_PASS_POWER, RANK)


@dataclass(frozen=True)
class Row:
    """A model: the axes that are searched, and the values to start from, beside those of the row `after`."""

    name: str
    model: str
    axes: tuple[Axis, ...]
    start: Setting
    after: str = ""
    exact: bool = False  # fitted by one dense inverse
    by: str = ""  # who chose the setting, where the search of this study did not

    @property
    def chosen_by(self) -> str:
        """Who chose the setting."""
        return self.by or ("validation" if self.axes or self.after else "default values")


def half_lives(*values: float) -> Axis:
    """The half-lives of the trend, in the unit of the ages of a data set."""
    return Axis("trend_half_life", values)


LEFT_OUT = ("EASE, time", "RDLAE, time", "DEQL, time", "GF-CF-type filter, recency")  # of a search that is not thorough
LOW: Setting = {"low_pass": 0.1}
OF_EVENTS = half_lives(2, 3, 5, 7, 10, 15, 25, 50)


def lists(blind: Setting, timed: Setting, one: Setting, thorough: bool) -> tuple[Row, ...]:
    """The rows of a public list, with settings to start from."""
    again = (L2, DROPOUT, USER_POWER, DECAY, FLOOR) if thorough else ()
    steps, of_trend = (L2, DROPOUT, USER_POWER, SECOND, ITEM_POWER), (TREND, OF_EVENTS)
    half = {"l2": one["l2"] / 2, "dropout": one["dropout"] * 0.8, "decay": 0.4, "recency": 0.7}
    every = (
        Row("EASE", "ease", (L2,), {"l2": 120}),
        Row("EDLAE", "edlae", (L2, DROPOUT), one),
        Row("RDLAE", "rdlae", (RELAX,), {"relax": 0.1}, "EDLAE"),
        Row("DEQL", "deql", (B,), {"b": 0.5}, "EDLAE"),
        Row("Tempered", "tempered", (L2, DROPOUT, USER_POWER, ITEM_POWER), {"user_power": 0.5}, "EDLAE"),
        Row("GF-CF-type filter", "filter", FILTERED, {"low_pass": 0.2, "low_pass_power": 0.4, "rank": 512}),
        Row("TwoStep", "two_step", steps, blind | {"low_pass": 0.0}),
        Row("TwoStep, low-pass", "two_step", (*FILTERED, SECOND, ITEM_POWER), blind, "TwoStep"),
        Row("EASE, time", "ease", (DECAY, L2, RECENCY), half | {"l2": 60, "dropout": 0.0}),
        Row("EDLAE, time", "edlae", (DECAY, L2, DROPOUT, RECENCY), half),
        Row("RDLAE, time", "rdlae", (RELAX, RECENCY), {"relax": 0.1}, "EDLAE, time"),
        Row("DEQL, time", "deql", (B, RECENCY), {"b": 0.5}, "EDLAE, time"),
        Row("Tempered, time", "tempered", (USER_POWER, ITEM_POWER, RECENCY), {"user_power": 0.5}, "EDLAE, time"),
        Row("Tempered, time, exact", "tempered", (), {}, "Tempered, time", exact=True),
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
    return every if thorough else tuple(row for row in every if row.name not in LEFT_OUT)


def sessions(timed: Setting, slist: Setting, of_trend: tuple[Axis, ...]) -> tuple[Row, ...]:
    """The rows of a set of sessions, with settings to start from."""
    free = (RECENCY, SECOND, REPEAT, ITEM_POWER)
    blind = timed | {"decay": 0.0, "recency": 0.0, "trend": 0.0}
    return (
        Row("TwoStep", "two_step", (L2, SECOND, REPEAT, ITEM_POWER), blind),
        Row("SLIST", "slist", (), slist, exact=True, by="its authors"),
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
    return Set(path.stem, test, validation, ("recall@20", "ndcg@20"), rows, about, thorough=thorough)


def timed(path: Path) -> Set:
    """A log with times: the events of the last tenth of the time are the test part, the tenth before for validation."""
    stored = np.load(path)
    table = pa.table({"user": stored["user"], "item": stored["item"], "time": stored["timestamp"]})
    unit = "d" if stored["timestamp"].max() < 10**6 else "s"
    test = mg.splits.temporal(mg.read(table, "user", "item", time="time", time_unit=unit, quiet=True), share=0.1)
    asked = ASKED_OF_LARGE if path.stem in ("food-com", "globo-clicks") else ASKED
    validation, test = asked_about(mg.splits.temporal(test.train, share=0.1), asked), asked_about(test, 2 * ASKED)
    about = "train: the first nine tenths of the events in time, test: the others; validation: the last tenth of train"
    about += f"; test values of {test.histories.n_users:,} users, at random where there are more"
    hours = float(np.ptp(test.train.times)) * (24 if unit == "d" else 1 / 3600)
    values = half_lives(*(float(f"{share * hours:.1g}") for share in (3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3)))
    middle, default = {"trend_half_life": values.values[3]}, mg.TwoStep().params()
    start = middle | {name: default[name] for name in ("l2", "dropout", "user_power", "second")}
    times, trend = {"decay": 0.4, "recency": 0.5}, {"trend": 1.0}
    rows = (
        Row("TwoStep, default", "two_step", (), start),
        Row("Popularity", "popularity", (), {}),
        Row("Popularity, half-life", "popularity", (values,), middle),
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
    timed, slist = STARTS[path.stem]
    rows = sessions({"trend": 0.4, "trend_half_life": values.values[2], **timed}, slist, (TREND, values))
    test = numbered(mg.splits.sessions(path))
    return Set(path.stem, test, validation, ("recall@20", "mrr@20"), rows, about, ages="")


def numbered(split: Split) -> Split:
    """The same split; the time of each training event is the number of its session."""
    train = split.train
    return replace(split, train=replace(train, times=np.repeat(np.arange(train.n_users), np.diff(train.matrix.indptr))))


def starting(**values: Any) -> Setting:
    return {"user_power": 0.5, "low_pass": 0.0} | values


# Settings to start a search from: found on the same validation parts by earlier searches. Those of SLIST are
# its authors' for five parts of each data set (jin530/SLIST, conf/save_slist): position_decay is 1/train_weight, and
# half_life (in events) predict_weight·ln 2. Their session_weight needs times of sessions, which the files do not have.
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
        {"alpha": 0.8, "l2": 10, "position_decay": 1.0, "half_life": 1.386},
    ),
    "retailrocket-sessions": (
        starting(l2=10, dropout=0.5, user_power=0.0, decay=1.0, recency=1.1, second=0.7, repeat=0.1),
        {"alpha": 0.2, "l2": 10, "position_decay": 4.0, "half_life": 2.773},
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
