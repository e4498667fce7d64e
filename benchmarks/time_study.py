"""The study of time: what the order of events adds, on public data sets. Interrupted runs resume from --cache.

    python benchmarks/time_study.py --data DIR -o docs/study/time-numbers.md --cache FOLDER [--sets gowalla-ordered,…]

Every setting is chosen on a validation part that is cut from train in the same way as the test part (each user's latest
events, the last part of the time, or the latest sessions); the test part is read once, for the rows of the table. The
search goes from one axis to the next: all values of an axis with the best values of the others, for a few rounds.
Models are fitted by local regressions; for the public lists the exact fit of the chosen setting is beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import monogram as mg
from monogram.data.parts import part_of
from monogram.data.splits import Split
from monogram.engine.gram import user_weights
from monogram.evaluation import metrics
from monogram.evaluation.protocol import measure
from monogram.models.context import FitOptions
from monogram.models.inverse import item_counts
from monogram.models.two_step import directions
from monogram.ranking import Recency
from monogram.reproduce.cache import Cache
from monogram.weights import Mixture, Mixtures

THREADS = 2
ASKED = 3_000  # users of a validation part that settings are compared on
NEIGHBOURS = 300
Setting = dict[str, Any]
RANK = 256  # of the low-pass filter


@dataclass(frozen=True)
class Axis:
    """The values of one parameter that a search tries; `free` ones need no new fit."""

    name: str
    values: tuple[Any, ...]
    free: bool = False


FIT_AXES = (
    Axis("decay", (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)),
    Axis("l2", (2, 5, 10, 15, 20, 30, 50, 80)),
    Axis("dropout", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)),
    Axis("user_power", (0.25, 0.375, 0.5, 0.625, 0.75)),
    Axis("floor", (0.0, 0.05, 0.1, 0.2)),
)
FREE = (
    Axis("recency", (0.3, 0.5, 0.6, 0.7, 0.8, 1.0), free=True),
    Axis("second", (0.5, 0.6, 0.7, 0.8, 0.9), free=True),
    Axis("low_pass", (0.0, 0.1, 0.3, 0.5), free=True),
    Axis("item_power", (-0.1, 0.0, 0.1, 0.2), free=True),
)
ORDER = ("decay", "floor", "recency")  # parameters that use the order of events
START: Setting = {
    "l2": 20, "dropout": 0.3, "user_power": 0.5, "second": 0.8, "low_pass": 0.0, "item_power": 0.0,
    "decay": 0.5, "floor": 0.0, "recency": 0.7,
}  # fmt: skip


class Part:
    """A split on which settings are measured: one fit at a time is kept, and every free setting is ranked from it."""

    def __init__(self, split: Split, metric: tuple[str, ...], neighbours: int = NEIGHBOURS) -> None:
        self.split, self.metrics, self.neighbours = split, tuple(metrics.parse(name) for name in metric), neighbours
        self._fitted: tuple[Any, Any] = None, None
        self._basis: Any = None
        self.seconds = 0.0

    @property
    def basis(self) -> Any:
        """The directions of the low-pass filter."""
        if self._basis is None:
            self._basis = directions(self.split.train, RANK, FitOptions(threads=THREADS))
        return self._basis

    def by_user(self, settings: list[Setting]) -> list[Any]:
        """The metrics of each user, by settings of `TwoStep` that differ in free parameters alone."""
        weights, log = self._fit(settings[0]), self.split.train
        counts, values = item_counts(log.matrix), {}
        for recency in dict.fromkeys(setting["recency"] for setting in settings):
            same = [at for at, setting in enumerate(settings) if setting["recency"] == recency]
            mixtures = [
                Mixture(
                    settings[at]["second"], settings[at]["low_pass"], RANK if settings[at]["low_pass"] else 0,
                    user_weights.popularity(counts, settings[at]["item_power"])[None],
                )
                for at in same
            ]  # fmt: skip
            basis = self.basis if any(mixture.weight for mixture in mixtures) else np.zeros((log.n_items, 0), "float32")
            ranked = measure(
                lambda rows, rules, k, basis=basis, mixtures=mixtures: Mixtures(weights, basis).heads(
                    mixtures, rows, rules, k, THREADS
                ),
                log, self.split, self.metrics, len(same), Recency(recency),
            )  # fmt: skip
            values |= {at: found for at, (found, _) in zip(same, ranked, strict=True)}
        return [values[at] for at in range(len(settings))]

    def _fit(self, setting: Setting) -> Any:
        key = {name: setting[name] for name in ("l2", "dropout", "user_power", "decay", "floor")}
        if self._fitted[0] != key:
            self._fitted = None, None  # its memory
            start = time.perf_counter()
            model = mg.Tempered(**key).fit(self.split.train, solver="local", neighbours=self.neighbours)
            self.seconds = time.perf_counter() - start
            self._fitted = key, model.weights_
        return self._fitted[1]


def search(part: Part, cache: Cache, start: Setting, axes: Iterable[Axis], choosing: int, rounds: int = 2) -> Setting:
    """The best setting by one axis after the other; of a fit all free axes are tried together."""
    several = tuple(axes)
    free, best, best_value = tuple(axis for axis in several if axis.free), dict(start), -1.0
    for _ in range(rounds):
        before = dict(best)
        for axis in [axis for axis in several if not axis.free]:
            for value in sorted({*axis.values, best[axis.name]}):
                tried, found = _best_free(part, cache, best | {axis.name: value}, free, choosing)
                if found > best_value:
                    best, best_value = tried, found
                    print(f"  {found:.4f} {_text(best)}", flush=True)
        if before == best:
            break
    return best


def _best_free(
    part: Part, cache: Cache, setting: Setting, free: tuple[Axis, ...], choosing: int
) -> tuple[Setting, float]:
    """The best of a setting's free parameters, again one axis after the other, from one fit."""
    source = {"study": "time", "data": part.split.train.n_events, "targets": part.split.targets.n_events,
              "protocol": part.split.protocol, "metric": str(part.metrics[choosing]), "candidates": part.neighbours,
              "setting": {**setting}, "free": {axis.name: list(axis.values) for axis in free}}  # fmt: skip
    kept = cache.get(source)
    if kept is None:
        best, value = dict(setting), -1.0
        for axis in free:
            settings = [best | {axis.name: each} for each in sorted({*axis.values, best[axis.name]})]
            found = [float(values[:, choosing].mean()) for values in part.by_user(settings)]
            at = int(np.argmax(found))
            if found[at] > value:
                best, value = settings[at], found[at]
        if not free:
            value = float(part.by_user([best])[0][:, choosing].mean())
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
