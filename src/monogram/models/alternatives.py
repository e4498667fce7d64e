"""Models that fit a memory budget, for the message of one that does not."""

from __future__ import annotations

from dataclasses import replace

from monogram.models.context import FitOptions
from monogram.models.registry import MODELS
from monogram.planning.cost import Alternative
from monogram.planning.size import Size


def fitting(size: Size, options: FitOptions, *, without: str = "") -> tuple[Alternative, ...]:
    """Of each model that names `lean_settings`, the first setting that fits; `without` leaves out a model by name."""
    alternatives = []
    plain = replace(options, solver="auto", keep_gram=False, cluster=None, scratch=None)
    for name, model_class in MODELS.items():
        for parameters in () if name == without else model_class.lean_settings:
            needed = model_class(**parameters).plan_size(size, plain).chosen.bytes
            if needed <= options.budget:
                values = ", ".join(f"{parameter}={value}" for parameter, value in parameters.items())
                alternatives.append(Alternative(f"{model_class.__name__}({values})", needed))
                break
    return tuple(alternatives)
