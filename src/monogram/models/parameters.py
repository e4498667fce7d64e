"""The parameters of a model: dataclass fields that carry their bounds and their help.

They are the only source for the constructor, the commands' flags, the saved header and the documentation. A plain
field is a parameter too, without bounds. Its type follows its default; without a default, its value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monogram.errors import ParameterError


def param(
    default: Any,
    help: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    below: bool = False,
    choices: tuple[str, ...] = (),
    many: bool = False,
) -> Any:
    """Declare a parameter.

    `below` means that `high` itself is not allowed; `choices` are the texts it may be; `many` lets it be one number or
    several, each within the bounds.
    """
    described = {"help": help, "low": low, "high": high, "below": below, "choices": choices, "many": many}
    return dataclasses.field(default=default, metadata=described)


def check(model: Any) -> None:
    """Bring each parameter to its type, or say what is wrong with it."""
    checks: dict[type, Callable[[Any, Any], Any]] = {
        bool: _boolean,
        int: _whole,
        float: _number,
        str: _text,
        tuple: _several,
    }
    for field in dataclasses.fields(model):
        if field.init:
            value = _plain(getattr(model, field.name))
            kind = _kind(field, value)
            setattr(model, field.name, checks[kind](field, value) if kind in checks else value)


def _kind(field: Any, value: Any) -> type:
    """bool, int, float, str or tuple (of numbers), whichever a parameter must be; object when it may be anything."""
    default = _plain(field.default)
    if field.metadata.get("many"):
        return object if value is None and default is None else tuple
    bounded = default is None and value is not None and "low" in field.metadata
    if default is dataclasses.MISSING or bounded:
        default = value
    found = next((kind for kind in (bool, int, float, str) if isinstance(default, kind)), object)
    return float if found is int and field.type in (float, "float") else found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _boolean(field: Any, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(field, value, "True or False")
    return value


def _text(field: Any, value: Any) -> str:
    choices = field.metadata.get("choices", ())
    if not isinstance(value, str) or (choices and value not in choices):
        raise _wrong(field, value, f"one of {', '.join(choices)}" if choices else "a text")
    return value


def _several(field: Any, values: Any) -> float | tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        return _number(field, values)
    if len(values) == 0 or np.ndim(values) != 1:
        raise _wrong(field, values, "a number, or a list of numbers")
    return tuple(_number(field, _plain(value)) for value in values)


def _whole(field: Any, value: Any) -> int:
    number = _number(field, value, "a whole number")
    if not number.is_integer():
        raise _wrong(field, value, "a whole number" + _bounds(field))
    return int(value)


def _number(field: Any, value: Any, what: str = "a number") -> float:
    low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    at_end = number == high and field.metadata.get("below", False)
    if not (low <= number <= high and math.isfinite(number)) or at_end:
        raise _wrong(field, value, what + _bounds(field))
    return number


def _bounds(field: Any) -> str:
    low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
    lower = "" if low == -math.inf else f" of at least {low:g}"
    upper = "" if high == math.inf else f"{'below' if field.metadata.get('below') else 'at most'} {high:g}"
    return lower + (" and " if lower and upper else " " if upper else "") + upper


def _wrong(field: Any, value: Any, expected: str) -> ParameterError:
    meaning = field.metadata.get("help")
    return ParameterError(f"{field.name} = {value!r}; expected {expected}" + (f" ({meaning})" if meaning else ""))
