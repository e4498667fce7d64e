"""Where to look for each model: coarse values from the data, and finer ones around the best.

An axis is searched on the scale on which its parameter acts: l2 by factors, dropout by factors of its odds p/(1 − p),
`keep` by factors of what is not kept, powers as they are. There a step is a difference, and half a step is the middle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.gram.accumulate import squares
from monogram.errors import ParameterError
from monogram.models.registry import model_class
from monogram.tuning.settings import Setting

FINEST = 1 / 8  # of the coarse step: refinement ends there
MOST_CHECKED = 10_000  # combinations of given values
SAME = 1 / 50  # of it: nearer values are one
SCALES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "factor": (math.log, math.exp),
    "whole": (math.log, math.exp),
    "odds": (lambda p: math.log(p / (1 - p)), lambda u: 1 / (1 + math.exp(-u))),
    "rest": (lambda p: -math.log(1 - p), lambda u: 1 - math.exp(-u)),
    "plain": (float, float),
}
RANKS = (16, 32, 64, 128, 256)
DROPOUTS = (0.25, 0.5, 0.75)
USER_POWERS = (0.0, 0.5, 1.0)
ITEM_POWERS = tuple(step / 20 for step in range(-8, 9))
SECONDS = tuple(step / 10 for step in range(5, 11))
DIRECTIONS = 256  # or a quarter of the smaller side: with all of them a projection changes nothing
LOW_PASS = (0.0, 0.1, 0.2, 0.4, 0.8)
FACTORS = (0.25, 1.0, 4.0, 16.0, 64.0)  # of the median popularity


@dataclass(frozen=True)
class Axis:
    """The values of one parameter.

    Attributes
    ----------
    values : coarse, ascending where they are numbers
    scale : "factor", "whole", "odds", "rest" or "plain"; "given" for values that are tried as they are
    free : whether more values cost next to nothing: then all of them are tried wherever the others are refined
    """

    values: tuple[Any, ...]
    scale: str = "factor"
    free: bool = False

    @property
    def step(self) -> float:
        """The coarse step, on its scale; 0 where there is nothing to refine."""
        if self.scale == "given" or len(self.values) < 2:
            return 0.0
        to = SCALES[self.scale][0]
        return (to(self.values[-1]) - to(self.values[0])) / (len(self.values) - 1)

    def around(self, value: Any, share: float) -> list[Any]:
        """The value with its neighbours at a share of the coarse step; of a free axis the coarse values too."""
        if not self.step:
            return list(self.values)
        to, back = SCALES[self.scale]
        near = [self._known(_rounded(back(to(value) + side * share * self.step), self.scale)) for side in (-1, 1)]
        return sorted({value, *near, *(self.values if self.free else ())})

    def _known(self, value: Any) -> Any:
        """The coarse value that rounding alone keeps apart from this one; else this one."""
        to = SCALES[self.scale][0]
        near = min(self.values, key=lambda one: abs(to(one) - to(value)))
        return near if abs(to(near) - to(value)) < SAME * self.step else value


Space = dict[str, Axis]


def _rounded(value: float, scale: str) -> Any:
    """Three digits: enough to find it, and to read it."""
    if scale == "whole":
        return max(1, round(value))
    return 1 - float(f"{1 - value:.3g}") if scale == "rest" else float(f"{value:.3g}")


def space(
    name: str,
    log: Any,
    sigma: Callable[[str, int], NDArray[np.float64]],
    given: Mapping[str, Any],
    *,
    shift: bool = False,
) -> Space:
    """The axes of a model on a log.

    Parameters
    ----------
    sigma : gives the singular values of a target, so many or all
    given : values of parameters to try as they are: a list, or one value to hold fixed
    shift : whether what is measured on sees a shift in popularity: a power of it is then searched
    """
    own = {one: Axis(_several(values), "given") for one, values in given.items()}
    strange = sorted(set(own) - set(model_class(name)().params()))
    if strange:
        known = ", ".join(model_class(name)().params()) or "none"
        raise ParameterError(f"{name} has no parameter {strange[0]!r} to search; its parameters are {known}")
    _check(name, own)
    usual = _usual(name, log, sigma)
    if not shift:
        usual.pop("item_power", None)
    if "weights" in own or "scale" in own:  # of VLAE one or the other
        usual.pop("weights", None)
    axes = usual | own
    parameters = ", ".join(model_class(name)().params())
    if parameters and not axes:
        raise ParameterError(
            f"{name} has no search space of its own; give space={{{name!r}: {{...}}}} with values of its parameters "
            f"({parameters})"
        )
    return axes


def _check(name: str, own: Space) -> None:
    """Refuse a given value that the model does not take with any of the other given ones."""
    lists, refused = [axis.values for axis in own.values()], ParameterError("")
    taken: dict[str, list[Any]] = {one: [] for one in own}
    for point in itertools.islice(itertools.product(*lists), MOST_CHECKED):
        try:
            Setting.of(name, dict(zip(own, point, strict=True)))
        except ParameterError as error:
            refused = error
            continue
        for one, value in zip(own, point, strict=True):
            taken[one].append(id(value))
    for one, axis in own.items():
        for value in axis.values:
            if id(value) not in taken[one] and math.prod(map(len, lists)) <= MOST_CHECKED:
                raise ParameterError(f"{name} cannot be tried with {one} = {value!r}: {refused}")


def _several(values: Any) -> tuple[Any, ...]:
    plain = isinstance(values, str) or not isinstance(values, Sequence | np.ndarray | range)
    found = (values,) if plain else tuple(values)
    if not found:
        raise ParameterError("a parameter was given no values to search; expected at least one")
    return found


def _usual(name: str, log: Any, sigma: Callable[[str, int], NDArray[np.float64]]) -> Space:
    ranks = tuple(rank for rank in RANKS if rank <= min(log.matrix.shape)) or (min(log.matrix.shape),)
    rank = Axis(ranks, "whole")
    if name in ("ease", "dlae", "edlae", "deql", "tempered", "two_step", "low_rank_dlae", "low_rank_edlae", "slim"):
        return _by_popularity(name, log, rank)
    if name in ("regularized_pca", "wlae", "vlae", "lrr", "dropout_mf", "nuclear_power", "rg2"):
        return _by_spectrum(name, rank, sigma("rg2" if name == "rg2" else "plain", ranks[-1]))
    if name == "wrmf":
        return {"rank": rank, "l2": Axis((1e-4, 1e-3, 1e-2, 1e-1)), "alpha": Axis((1.0, 10.0, 100.0))}
    if name == "item_knn":
        return {"k": Axis((20, 60, 180), "whole"), "shrink": Axis((1.0, 10.0, 100.0))}
    return {}


def _by_popularity(name: str, log: Any, rank: Axis) -> Space:
    """A penalty is in units of the Gram, whose diagonal is the popularity of the items."""
    d = squares(log.matrix)
    median = float(np.median(d[d > 0]))
    l2 = Axis(tuple(_rounded(factor * median, "factor") for factor in FACTORS))
    found = {"l2": l2}
    if name == "slim":
        return found | {"l1": Axis(tuple(_rounded(factor * median, "factor") for factor in (0.01, 0.1, 1.0)))}
    if name != "ease":
        found["dropout"] = Axis(DROPOUTS, "odds")
    if name == "deql":
        found["b"] = Axis(tuple(_rounded(0.1 * 1.12**step, "factor") for step in range(32)), free=True)
    if name.startswith("low_rank"):
        found["rank"] = rank
    if name in ("tempered", "two_step"):  # the power first: one Gram serves all that follows
        found = {"user_power": Axis(USER_POWERS, "plain")} | found
        found["item_power"] = Axis(ITEM_POWERS, "plain", free=True)
    if name == "two_step":
        found |= {"second": Axis(SECONDS, "plain", free=True), "low_pass": Axis(LOW_PASS, "plain", free=True)}
        found["item_power"] = Axis(ITEM_POWERS[4:-4:2], "plain", free=True)
        found["rank"] = Axis((max(1, min(DIRECTIONS, min(log.matrix.shape) // 4)),), "whole")
    return found


def _by_spectrum(name: str, rank: Axis, sigma: NDArray[np.float64]) -> Space:
    """A threshold is worth trying between the first singular values and what lies below the last."""
    top, last = float(sigma[min(8, len(sigma) - 1)]), float(sigma[-1]) / 4
    levels = np.geomspace(last, max(top, 2 * last), 5)
    if name == "dropout_mf":
        return {"keep": Axis((0.9, 0.99, 0.999, 0.9999), "rest")}
    if name == "nuclear_power":  # the l2 of a threshold μ: 2μ/(2η), η = Σ(σ − μ)₊
        norms = [max(float(np.maximum(sigma - level, 0).sum()), 1e-12) for level in levels]
        return {"l2": _axis(level / norm for level, norm in zip(levels, norms, strict=True))}
    if name in ("wlae", "lrr"):
        return {"rank": rank, "weights" if name == "wlae" else "l2": _axis(levels**2)}
    if name == "vlae":
        return {"rank": rank, "weights": _axis(levels)}
    return {"rank": rank, "l2": _axis(levels * (math.sqrt(2) if name == "rg2" else 1.0))}


def _axis(values: Any) -> Axis:
    return Axis(tuple(sorted({_rounded(float(value), "factor") for value in values})))


def coarse(name: str, axes: Space) -> list[Setting]:
    """Every combination of the coarse values, those in the middle first."""
    lists = [_from_the_middle(list(axis.values)) for axis in axes.values()]
    return _settings(name, axes, itertools.product(*lists))


def finer(name: str, axes: Space, best: Mapping[str, Any], share: float) -> list[Setting]:
    """Every combination around the best, at a share of the coarse steps."""
    lists = [axis.around(best[one], share) for one, axis in axes.items()]
    return _settings(name, axes, itertools.product(*lists))


def _settings(name: str, axes: Space, points: Any) -> list[Setting]:
    """The settings of points; one that the model refuses (outside its bounds) is no point of its space."""
    found = []
    for point in points:
        try:
            found.append(Setting.of(name, dict(zip(axes, point, strict=True))))
        except ParameterError:
            if all(axis.scale == "given" for axis in axes.values()):
                raise
    return found


def _from_the_middle(values: list[Any]) -> list[Any]:
    middle = (len(values) - 1) / 2
    return [values[at] for at in sorted(range(len(values)), key=lambda at: abs(at - middle))]
