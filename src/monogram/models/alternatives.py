"""Models that fit a memory budget, for the message of one that does not."""

from __future__ import annotations

from monogram.models.registry import MODELS
from monogram.models.work import Work
from monogram.planning.cost import Alternative
from monogram.planning.size import Size


def fitting(size: Size, *, dtype: str, budget: int, threads: int, without: str = "") -> tuple[Alternative, ...]:
    """Of each model that names `lean_settings`, the first setting that fits; `without` leaves out a model by name."""
    alternatives = []
    for name, model_class in MODELS.items():
        for parameters in () if name == without else model_class.lean_settings:
            needed = model_class(**parameters)._plan(size, Work(dtype, budget, threads)).chosen.bytes
            if needed <= budget:
                values = ", ".join(f"{parameter}={value}" for parameter, value in parameters.items())
                alternatives.append(Alternative(f"{model_class.__name__}({values})", needed))
                break
    return tuple(alternatives)
