"""The parameters of a model: dataclass fields that carry their bounds and their help.

They are the only source for the constructor, the commands' flags, the saved header and the documentation.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from monogram.errors import ParameterError


def param(default: Any, help: str, *, low: float = -math.inf, high: float = math.inf, below: bool = False) -> Any:
    """Declare a parameter; `below` means that `high` itself is not allowed."""
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high, "below": below})


def check(model: Any) -> None:
    """Bring each parameter to its type, or say what is wrong with it."""
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        kind = type(field.default)
        setattr(model, field.name, _boolean(field, value) if kind is bool else _number(field, value))


def _boolean(field: Any, value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):
        raise ParameterError(f"{field.name} = {value!r}; expected True or False")
    return bool(value)


def _number(field: Any, value: Any) -> float:
    low, high, below = (field.metadata[key] for key in ("low", "high", "below"))
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (low <= number <= high and math.isfinite(number)) or (below and number == high):
        upper = "" if high == math.inf else f" and {'below' if below else 'at most'} {high:g}"
        raise ParameterError(
            f"{field.name} = {value!r}; expected a number of at least {low:g}{upper} ({field.metadata['help']})"
        )
    return number
