"""The search of the study of time: settings are measured on a validation part, and each is improved step by step.

A setting is a dictionary of parameters. Those of a fit need a new fit; the others are read off the scores of one step
and of two steps, which are kept for the last fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import monogram as mg
from monogram.data.splits import Split
from monogram.engine.gram import user_weights
from monogram.engine.runtime import parallel
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.engine.topk.two_steps import two_steps
from monogram.evaluation import metrics
from monogram.evaluation.protocol import measure
from monogram.models.context import FitOptions
from monogram.models.inverse import item_counts
from monogram.models.trend import item_factors
from monogram.models.two_step import directions
from monogram.ranking import Recency
from monogram.weights.projection import Projection
from monogram.weights.two_step import own_scores

THREADS = parallel.count(None)
NAMES = (
    "l2", "dropout", "user_power", "relax", "b", "decay", "floor", "recency", "second", "low_pass", "low_pass_power",
    "rank", "item_power", "trend", "trend_half_life", "repeat", "alpha", "position_decay", "half_life",
)  # fmt: skip
DIRECTIONS = 512  # of the low-pass filter, at most
Setting = dict[str, Any]
ZERO: Setting = dict.fromkeys(NAMES, 0.0) | {"rank": 256}  # what a setting does not name
OF_FIT = ("l2", "dropout", "user_power", "decay", "floor")
OF_HEAD: dict[str, Any] = {"relax": mg.RDLAE, "b": mg.DEQL}


@dataclass(frozen=True)
class Axis:
    """The values of a parameter that a search tries, in ascending order."""

    name: str
    values: tuple[float, ...]

    @property
    def of_fit(self) -> bool:
        """Whether another value needs another fit."""
        return self.name in OF_FIT


class Part:
    """A split on which settings are measured, by local regressions with some number of candidates."""

    def __init__(self, split: Split, names: tuple[str, ...], neighbours: int, ages: str) -> None:
        self.split, self.metrics, self.ages = split, tuple(map(metrics.parse, names)), ages
        self.neighbours = neighbours
        self.counts = item_counts(split.train.matrix)
        self._model: tuple[Any, Any] = None, None
        self._steps: dict[Any, Any] = {}
        self._low: dict[Any, Any] = {}
        self._basis: Any = None
        self._factors: dict[Any, Any] = {}

    def values(self, settings: list[Setting]) -> list[Any]:
        """The metrics of each user, for settings that differ in free parameters alone."""
        found: dict[int, Any] = {}
        for recency in dict.fromkeys(setting["recency"] for setting in settings):
            alike = [at for at, setting in enumerate(settings) if setting["recency"] == recency]
            batches = iter(range(1 << 30))

            def heads(rows: Any, rules: Eligible, k: int, alike: Any = alike, batches: Any = batches) -> list[Best]:
                batch = next(batches)
                return [self._best(settings[at], rows, batch, rules, k) for at in alike]

            measured = measure(
                heads, self.split.train, self.split, self.metrics, len(alike), Recency(recency)
            )  # fmt: skip
            found |= {at: by_user for at, (by_user, _) in zip(alike, measured, strict=True)}
        return [found[at] for at in range(len(settings))]

    def _best(self, setting: Setting, rows: Any, batch: int, rules: Eligible, k: int) -> Best:
        if setting["model"] == "popularity":
            scores = np.tile(self._popular(setting), (rows.shape[0], 1))
            return heads_by_scores(scores, np.ones((1, scores.shape[1])), rules, k, threads=THREADS)[0]
        first, second = self._scores(setting, rows, batch)
        share = setting["second"]
        scores = (1 - share) * first if second is None else (1 - share) * first + share * second
        if setting["low_pass"]:
            scores += setting["low_pass"] * self._filtered(setting, rows, batch)
        theta = self.factors(setting)
        if setting["repeat"]:
            scores += own_scores(rows, setting["repeat"] / theta).astype(scores.dtype)
        return heads_by_scores(scores, theta[None], rules, k, threads=THREADS)[0]

    def factors(self, setting: Setting) -> Any:
        """The factor of each item."""
        key = setting["item_power"], setting["trend"], setting["trend_half_life"]
        if key not in self._factors:
            half_life = span(setting, self.ages)
            self._factors[key] = item_factors(self.counts, *key[:2], self.split.train, half_life)
        return self._factors[key]

    def _popular(self, setting: Setting) -> Any:
        half_life = span(setting, self.ages)
        if half_life not in self._factors:
            self._factors[half_life] = mg.Popularity(half_life=half_life).fit(self.split.train).weights_.scores
        return self._factors[half_life]

    def _scores(self, setting: Setting, rows: Any, batch: int) -> Any:
        """hB and hB² of a batch, in float32; kept for a few values of the recency."""
        head = {name: setting[name] for name in OF_HEAD if setting.get(name)}
        fit = {name: setting[name] for name in OF_FIT} | head
        of_filter = setting["low_pass_power"] if setting["model"] == "filter" else None
        key = repr(fit), setting["recency"], bool(setting["second"]), of_filter, batch
        if key not in self._steps:
            if len({(*each[:4],) for each in self._steps} | {key[:4]}) > 3:
                self._steps.clear()
            if setting["model"] == "filter":
                found = self._neighbours(setting["low_pass_power"], rows), None
            else:
                matrix = self._fitted({name: setting[name] for name in OF_FIT}, head).matrix
                if setting["second"]:
                    found = tuple(part.astype(np.float32) for part in two_steps(matrix, rows, threads=THREADS))
                else:
                    found = np.asarray((rows @ matrix).toarray(), np.float32), None
            self._steps[key] = found
        return self._steps[key]

    def _fitted(self, fit: Setting, head: Setting) -> Any:
        if self._model[0] != fit:
            self._model = None, None  # its memory
            self._steps.clear()
            model = mg.Tempered(**fit)
            self._model = fit, model.fit(self.split.train, solver="local", neighbours=self.neighbours)
        model = self._model[1]
        for name, value in head.items():
            parameters = {each: fit[each] for each in ("l2", "dropout", "decay", "floor")}
            model = OF_HEAD[name](**parameters, **{name: value}).fit(model)
        return model.weights_

    def _filtered(self, setting: Setting, rows: Any, batch: int) -> Any:
        """The scores of the low-pass projection of a batch, in float32."""
        rank, power = int(setting["rank"]), setting["low_pass_power"]
        key = setting["recency"], rank, power, batch
        if key not in self._low:
            if len({each[:3] for each in self._low} | {key[:3]}) > 6:
                self._low.clear()
            powers = user_weights.popularity(self.counts, power) if power else None
            projection = Projection(np.ascontiguousarray(self.basis[:, :rank]), powers)
            self._low[key] = projection.scores(projection.coordinates(rows.astype(self.basis.dtype)))
        return self._low[key]

    @property
    def basis(self) -> Any:
        """The directions of the low-pass filter."""
        if self._basis is None:
            log = self.split.train
            rank = min(DIRECTIONS, min(log.n_users, log.n_items) // 4)
            self._basis = directions(log, rank, FitOptions(threads=THREADS))
        return self._basis

    def _neighbours(self, power: float, rows: Any) -> Any:
        return neighbour_scores(self.split.train, self.counts, power, rows)


def span(setting: Setting, ages: str) -> str | None:
    """The half-life of the trend, a number of some unit, as a parameter."""
    return f"{setting['trend_half_life']:g}{ages}" if setting["trend_half_life"] else None


def neighbour_scores(log: Any, counts: Any, power: float, rows: Any) -> Any:
    """hD⁻¹R̃ᵀR̃D with R̃ the log, each entry divided by the roots of its row and column sums, and D = diag(n^power)."""
    balanced = sp.csr_array(user_weights.balanced(log.matrix))
    powers = user_weights.popularity(counts, power)
    scaled = sp.csr_array((rows.data / powers[rows.indices], rows.indices, rows.indptr), shape=rows.shape)
    return np.asarray(((scaled @ balanced.T) @ balanced).toarray() * powers, np.float32)


def climb(part: Part, axes: tuple[Axis, ...], start: Setting, choosing: int, thorough: bool) -> tuple[Setting, float]:
    """The best setting that is found from a start, and its value on the validation part.

    One axis after the other, the next value on either side is tried while it gains. A thorough search tries the free
    parameters, too, with each value that needs a fit; else they are searched before and after all others.
    """
    free = tuple(axis for axis in axes if not axis.of_fit)
    alone = free if thorough else ()
    best, value = _free(part, start, free, choosing)
    for axis in (each for each in axes if each.of_fit):
        for side in (-1, 1):
            while (following := _next(axis, best[axis.name], side)) is not None:
                tried, gained = _free(part, best | {axis.name: following}, alone, choosing)
                if gained <= value:
                    break
                best, value = tried, gained
                print(f"    {value:.4f} {text(best)}", flush=True)
    return (best, value) if thorough else _free(part, best, free, choosing)


def _free(part: Part, best: Setting, free: tuple[Axis, ...], choosing: int) -> tuple[Setting, float]:
    """The best free parameters near those of a setting, from one fit."""
    value = float(part.values([best])[0][:, choosing].mean())
    for axis in free:
        if axis.name in ("low_pass_power", "rank") and not best["low_pass"] and best["model"] != "filter":
            continue
        if axis.name == "trend_half_life" and not best["trend"] and best["model"] != "popularity":
            continue
        for side in (-1, 1):
            while (following := _next(axis, best[axis.name], side)) is not None:
                tried = best | {axis.name: following}
                gained = float(part.values([tried])[0][:, choosing].mean())
                if gained <= value:
                    break
                best, value = tried, gained
    return best, round(value, 6)


def _next(axis: Axis, value: float, side: int) -> float | None:
    """The next value of an axis on one side of a value; None at the end."""
    beyond = [each for each in axis.values if (each - value) * side > 0]
    return min(beyond, key=lambda each: abs(each - value)) if beyond else None


def shown(setting: Setting) -> Setting:
    """The model of a setting, and its parameters that are not 0 and have an effect."""
    hidden = () if setting.get("low_pass") else ("rank", "low_pass_power")
    if not setting.get("trend") and setting["model"] != "popularity":
        hidden += ("trend_half_life",)
    return {name: setting[name] for name in ("model", *NAMES) if setting.get(name) and name not in hidden}


def text(setting: Setting) -> str:
    """The parameters of a setting that are not 0, in words."""
    return ", ".join(f"{name} {value:g}" for name, value in shown(setting).items() if name != "model")
