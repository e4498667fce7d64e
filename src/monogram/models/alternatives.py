"""Models that fit a memory budget, named in the error message of a model that does not."""

from __future__ import annotations

from dataclasses import replace

from monogram.models.context import FitOptions
from monogram.models.registry import usable
from monogram.planning.cost import Alternative
from monogram.planning.size import Size


def fitting(size: Size, options: FitOptions, *, without: str = "") -> tuple[Alternative, ...]:
    """For each model with `lean_settings`, the first setting that fits the budget of the options.

    Parameters
    ----------
    without : name of a model to leave out
    """
    alternatives = []
    plain = replace(options, solver="auto", keep_gram=False, expand=False, cluster=None, scratch=None)
    for model_class in usable():
        for parameters in () if model_class.name == without else model_class.lean_settings:
            needed = model_class(**parameters).plan_size(size, plain).chosen.bytes
            if needed <= options.budget:
                values = ", ".join(f"{parameter}={value}" for parameter, value in parameters.items())
                alternatives.append(Alternative(f"{model_class.__name__}({values})", needed))
                break
    return tuple(alternatives)
