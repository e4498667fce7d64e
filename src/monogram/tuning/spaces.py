"""Search spaces: the coarse values of each parameter on a log, and finer values around the best setting.

The axes of a model stand on its class (`param(..., search=Search(...))`); this module evaluates them on a log. An axis
is refined on the scale on which its parameter acts: l2 by factors, dropout by factors of its odds p/(1 − p), `keep` by
factors of 1 − p, powers as they are. On that scale the distance between neighbours is a difference.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monogram.data.interactions import Interactions
from monogram.engine.gram.accumulate import squares
from monogram.engine.runtime.arrays import Float64
from monogram.errors import ParameterError
from monogram.models.base import Recommender
from monogram.models.parameters import search_axes
from monogram.models.registry import model_class
from monogram.models.search_axes import RANKS, Search
from monogram.tuning.settings import Setting

FINEST = 1 / 8  # of the coarse step: refinement ends there
MOST_CHECKED = 10_000  # combinations of given values
SAME = 1 / 50  # of the coarse step: values nearer to each other are one value
LEVELS = 5  # thresholds on singular values
SCALES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "factor": (math.log, math.exp),
    "whole": (math.log, math.exp),
    "odds": (lambda p: math.log(p / (1 - p)), lambda u: 1 / (1 + math.exp(-u))),
    "rest": (lambda p: -math.log(1 - p), lambda u: 1 - math.exp(-u)),
    "plain": (float, float),
}
SingularValues = Callable[[str, int], Float64]


@dataclass(frozen=True)
class Axis:
    """The values of one parameter on a log.

    Attributes
    ----------
    values : coarse, ascending where they are numbers
    scale : as of `Search`; "given" for values of the caller, which are not refined
    free : whether another value costs no new fit; all values are then tried wherever the other axes are refined
    """

    values: tuple[Any, ...]
    scale: str = "factor"
    free: bool = False

    @property
    def step(self) -> float:
        """The distance between coarse values on the scale of the axis; 0 where the axis is not refined."""
        if self.scale == "given" or len(self.values) < 2:
            return 0.0
        to_scale = SCALES[self.scale][0]
        return (to_scale(self.values[-1]) - to_scale(self.values[0])) / (len(self.values) - 1)

    def around(self, value: Any, share: float) -> list[Any]:
        """A value and its neighbours at a share of the coarse step; of a free axis all coarse values too."""
        if not self.step:
            return list(self.values)
        to_scale, from_scale = SCALES[self.scale]
        near = [
            self._snapped(_rounded(from_scale(to_scale(value) + side * share * self.step), self.scale))
            for side in (-1, 1)
        ]
        return sorted({value, *near, *(self.values if self.free else ())})

    def _snapped(self, value: Any) -> Any:
        """The coarse value that differs from this value by rounding alone; without one, the value itself."""
        to_scale = SCALES[self.scale][0]
        nearest = min(self.values, key=lambda coarse_value: abs(to_scale(coarse_value) - to_scale(value)))
        return nearest if abs(to_scale(nearest) - to_scale(value)) < SAME * self.step else value


Space = dict[str, Axis]


def _rounded(value: float, scale: str) -> Any:
    """A value with three significant digits."""
    if scale == "whole":
        return max(1, round(value))
    return 1 - float(f"{1 - value:.3g}") if scale == "rest" else float(f"{value:.3g}")


def space(
    name: str,
    log: Interactions,
    singular_values: SingularValues,
    own_values: Mapping[str, Any],
    *,
    shift: bool = False,
) -> Space:
    """The axes of a model on a log, by parameter, in the order in which they are searched.

    Parameters
    ----------
    name : of the model
    log : what the settings are fitted on
    singular_values : the leading singular values for a target and a rank (fewer where there are fewer)
    own_values : values of parameters to try as they are: a list, or a single value
    shift : whether the validation part can measure a shift in popularity; else axes that need it are left out
    """
    known = model_class(name)().params()
    own = {parameter: Axis(_several(values), "given") for parameter, values in own_values.items()}
    unknown = sorted(set(own) - set(known))
    if unknown:
        raise ParameterError(
            f"{name} has no parameter {unknown[0]!r} to search; its parameters are {', '.join(known) or 'none'}"
        )
    _check(name, own)
    axes = _declared(name, log, singular_values, own, shift) | own
    shared = {field.name for field in dataclasses.fields(Recommender)}
    if set(known) - shared and not axes:
        raise ParameterError(
            f"{name} declares no search axes; give space={{{name!r}: {{...}}}} with values of its parameters "
            f"({', '.join(known)}), or declare axes with param(..., search=Search(...))"
        )
    return axes


def _declared(name: str, log: Interactions, singular_values: SingularValues, own: Space, shift: bool) -> Space:
    """The axes that the class of a model declares, evaluated on a log; given values replace their axis."""
    return {
        parameter: own[parameter] if parameter in own else _axis(search, log, singular_values)
        for parameter, search in search_axes(model_class(name)).items()
        if (shift or not search.only_with_shift) and not any(other in own for other in search.unless)
    }


def _axis(search: Search, log: Interactions, singular_values: SingularValues) -> Axis:
    values: tuple[Any, ...] = search.values
    if search.at is not None:
        sigma = singular_values(search.target, largest_rank(log))
        values = _ascending(search.at(_thresholds(sigma), sigma), search.scale)
    elif search.unit == "popularity":
        unit = _median_popularity(log)
        values = _ascending((factor * unit for factor in search.values), search.scale)
    if math.isfinite(search.largest):
        values = _within(values, max(1, int(search.largest * min(log.matrix.shape))))
    return Axis(values, search.scale, search.free)


def largest_rank(log: Interactions) -> int:
    """The largest rank that is searched on a log."""
    return int(_within(RANKS, min(log.matrix.shape))[-1])


def _within(values: tuple[Any, ...], largest: int) -> tuple[Any, ...]:
    """The values up to the largest allowed; without one, the largest allowed."""
    return tuple(value for value in values if value <= largest) or (largest,)


def _ascending(values: Iterable[float], scale: str) -> tuple[Any, ...]:
    return tuple(sorted({_rounded(float(value), scale) for value in values}))


def _median_popularity(log: Interactions) -> float:
    """The median of d = diag(XᵀX) over the items that occur: the unit of a penalty on XᵀX."""
    d = squares(log.matrix)
    return float(np.median(d[d > 0]))


def _thresholds(sigma: Float64) -> Float64:
    """Levels from a quarter of the last singular value up to the ninth."""
    top, last = float(sigma[min(8, len(sigma) - 1)]), float(sigma[-1]) / 4
    return np.geomspace(last, max(top, 2 * last), LEVELS)


def _check(name: str, own: Space) -> None:
    """Raise ParameterError for a given value that the model refuses with every combination of the other values."""
    lists, refused = [axis.values for axis in own.values()], ParameterError("")
    accepted: dict[str, list[Any]] = {parameter: [] for parameter in own}
    for point in itertools.islice(itertools.product(*lists), MOST_CHECKED):
        try:
            Setting.of(name, dict(zip(own, point, strict=True)))
        except ParameterError as error:
            refused = error
            continue
        for parameter, value in zip(own, point, strict=True):
            accepted[parameter].append(id(value))
    for parameter, axis in own.items():
        for value in axis.values:
            if id(value) not in accepted[parameter] and math.prod(map(len, lists)) <= MOST_CHECKED:
                raise ParameterError(f"{name} cannot be tried with {parameter} = {value!r}: {refused}")


def _several(values: Any) -> tuple[Any, ...]:
    single = isinstance(values, str) or not isinstance(values, Sequence | np.ndarray | range)
    several = (values,) if single else tuple(values)
    if not several:
        raise ParameterError("a parameter was given no values to search; expected at least one")
    return several


def coarse(name: str, axes: Space) -> list[Setting]:
    """Every combination of the coarse values, those in the middle first."""
    lists = [_from_the_middle(list(axis.values)) for axis in axes.values()]
    return _settings(name, axes, itertools.product(*lists))


def finer(name: str, axes: Space, best: Mapping[str, Any], share: float) -> list[Setting]:
    """Every combination around the best setting, at a share of the coarse steps."""
    lists = [axis.around(best[parameter], share) for parameter, axis in axes.items()]
    return _settings(name, axes, itertools.product(*lists))


def _settings(name: str, axes: Space, points: Iterable[tuple[Any, ...]]) -> list[Setting]:
    """The settings of points; a point outside the bounds of the model is left out."""
    settings = []
    for point in points:
        try:
            settings.append(Setting.of(name, dict(zip(axes, point, strict=True))))
        except ParameterError:
            if all(axis.scale == "given" for axis in axes.values()):
                raise
    return settings


def _from_the_middle(values: list[Any]) -> list[Any]:
    middle = (len(values) - 1) / 2
    return [values[at] for at in sorted(range(len(values)), key=lambda at: abs(at - middle))]
