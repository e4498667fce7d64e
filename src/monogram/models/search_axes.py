"""Search axes: the values of a parameter that `tune` tries, declared as `param(..., search=Search(...))`.

`monogram.tuning.spaces` turns the declarations of a class into a search space on a log. A parameter without a
declaration is not searched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from monogram.engine.runtime.arrays import Float64
from monogram.errors import ParameterError

SCALES = ("factor", "whole", "odds", "rest", "plain")
UNITS = ("", "popularity", "threshold")
Thresholds = Callable[[Float64, Float64], Float64]


@dataclass(frozen=True)
class Search:
    """The coarse values of one parameter; a search tries them first, then finer ones around the best.

    Parameters
    ----------
    values : ascending, at least two for a parameter that is to be refined; empty for the unit "threshold"
    scale : the scale on which neighbouring values are equally far apart
        "factor" (the logarithm), "whole" (the logarithm, rounded to whole numbers), "odds" (the logarithm of
        p/(1 − p)), "rest" (the logarithm of 1 − p) or "plain" (the value itself).
    unit : what the values are multiples of
        "" for plain values; "popularity" for multiples of the median of the popularities d = diag(XᵀX) of the items
        that occur, the unit of a penalty on XᵀX; "threshold" for values that follow from thresholds on the singular
        values of the log, see `at`.
    at : with the unit "threshold", the parameter at thresholds μ: a function of (μ, singular values)
    target : with the unit "threshold", the target of the `Spectrum` that gives the singular values
    free : whether another value costs no new fit; all values are then tried wherever the other axes are refined
    largest : largest value, as a share of the smaller side of the log (users or items); for ranks
    order : axes of a lower order are searched in an outer loop, so that a factorisation they share is computed once
    only_with_shift : search it only where the validation part can measure a shift in popularity
    only_with_order : search it only where the order of events is known, and the validation part is later than train
    apart : the coarse grid tries its values with the middle values of the other axes only, and a finer grid with their
        best values only, so that the grids do not multiply; the first value is that of all other settings
    unless : parameters that exclude this one: where values are given for one of them, this one is not searched
    """

    values: tuple[float, ...] = ()
    scale: str = "factor"
    unit: str = ""
    at: Thresholds | None = None
    target: str = "plain"
    free: bool = False
    largest: float = math.inf
    order: int = 0
    only_with_shift: bool = False
    only_with_order: bool = False
    apart: bool = False
    unless: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value, known in (("scale", self.scale, SCALES), ("unit", self.unit, UNITS)):
            if value not in known:
                raise ParameterError(f"{name} = {value!r} of a Search; expected one of {', '.join(map(repr, known))}")
        if (self.unit == "threshold") != (self.at is not None) or bool(self.values) == (self.at is not None):
            raise ParameterError(
                "a Search needs values, or unit='threshold' with a function `at` that gives them; "
                f"given: values = {self.values!r}, unit = {self.unit!r}, at = {self.at!r}"
            )


RANKS = (16, 32, 64, 128, 256)
L2 = Search((0.25, 1.0, 4.0, 16.0, 64.0), unit="popularity")
DROPOUT = Search((0.25, 0.5, 0.75), "odds")
RANK = Search(RANKS, "whole", largest=1.0)
USER_POWER = Search((0.0, 0.5, 1.0), "plain", order=-1)  # first: one Gram serves all settings of one user_power
DECAY = Search((0.0, 0.3, 0.6, 1.0), "plain", order=2, only_with_order=True, apart=True)
RECENCY = Search((0.0, 0.3, 0.5, 0.7, 1.0), "plain", free=True, order=3, only_with_order=True, apart=True)
