"""The parameters of a model: dataclass fields with bounds, a description and a search axis.

The dataclass is the only source for the constructor, the flags of the command line, the header of a saved model, the
documentation and the search space. A plain dataclass field is a parameter without bounds. The type of a parameter is
the type of its default; without a default, the type of its value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monogram.data.spans import parse_span
from monogram.errors import ParameterError
from monogram.models.search_axes import Search


def param(
    default: Any,
    help: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    below: bool = False,
    choices: tuple[str, ...] = (),
    many: bool = False,
    span: bool = False,
    seldom: bool = False,
    search: Search | None = None,
) -> Any:
    """Declare a parameter.

    Parameters
    ----------
    default : its value where none is given
    help : one line, for the command line and the documentation
    low, high : bounds, both allowed
    below : whether `high` itself is not allowed
    choices : the texts that are allowed
    many : whether a list of numbers is allowed, each within the bounds
    span : whether it is a span of time (`data.spans`), which is stored as a text
    seldom : whether it is shown only where it is set, because most models leave it at its default
    search : the values that `tune` tries; None: `tune` uses the default
    """
    described = {"help": help, "low": low, "high": high, "below": below, "choices": choices, "many": many}
    described |= {"span": span, "seldom": seldom}
    return dataclasses.field(default=default, metadata=described | {"search": search})


def search_axes(model_class: type[Any]) -> dict[str, Search]:
    """The search axes that a class declares, by parameter, in the order in which they are searched."""
    declared = {field.name: field.metadata.get("search") for field in dataclasses.fields(model_class)}
    axes = {name: search for name, search in declared.items() if search is not None}
    return dict(sorted(axes.items(), key=lambda named: named[1].order))


def check(model: Any) -> None:
    """Convert each parameter of a model to its type; a ParameterError names the first that is not allowed."""
    checks: dict[type, Callable[[Any, Any], Any]] = {
        bool: _boolean,
        int: _whole,
        float: _number,
        str: _text,
        tuple: _numbers,
    }
    for field in dataclasses.fields(model):
        if field.init:
            value = _plain(getattr(model, field.name))
            if field.metadata.get("span"):
                setattr(
                    model, field.name, None if value is None is field.default else str(parse_span(value, field.name))
                )
                continue
            kind = _kind(field, value)
            setattr(model, field.name, checks[kind](field, value) if kind in checks else value)


def _kind(field: Any, value: Any) -> type:
    """The type of a parameter: bool, int, float, str or tuple (numbers); object where any value is allowed."""
    default = _plain(field.default)
    if field.metadata.get("many"):
        return object if value is None and default is None else tuple
    bounded = default is None and value is not None and "low" in field.metadata
    if default is dataclasses.MISSING or bounded:
        default = value
    if bounded and whole(field):
        return int
    if bounded and field.type in ("float | None", float | None):
        return float
    kind = next((known for known in (bool, int, float, str) if isinstance(default, known)), object)
    return float if kind is int and field.type in (float, "float") else kind


def whole(field: Any) -> bool:
    """Whether a parameter without a default is a whole number, by its annotation."""
    return field.type in ("int | None", int | None)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _boolean(field: Any, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refusal(field, value, "True or False")
    return value


def _text(field: Any, value: Any) -> str:
    choices = field.metadata.get("choices", ())
    if not isinstance(value, str) or (choices and value not in choices):
        raise _refusal(field, value, f"one of {', '.join(choices)}" if choices else "a text")
    return value


def _numbers(field: Any, values: Any) -> float | tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        return _number(field, values)
    if len(values) == 0 or np.ndim(values) != 1:
        raise _refusal(field, values, "a number, or a list of numbers")
    return tuple(_number(field, _plain(value)) for value in values)


def _whole(field: Any, value: Any) -> int:
    number = _number(field, value, "a whole number")
    if not number.is_integer():
        raise _refusal(field, value, "a whole number" + _bounds(field))
    return int(value)


def _number(field: Any, value: Any, what: str = "a number") -> float:
    low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    at_open_bound = number == high and field.metadata.get("below", False)
    if not (low <= number <= high and math.isfinite(number)) or at_open_bound:
        raise _refusal(field, value, what + _bounds(field))
    return number


def _bounds(field: Any) -> str:
    low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
    lower = "" if low == -math.inf else f" of at least {low:g}"
    upper = "" if high == math.inf else f"{'below' if field.metadata.get('below') else 'at most'} {high:g}"
    return lower + (" and " if lower and upper else " " if upper else "") + upper


def _refusal(field: Any, value: Any, expected: str) -> ParameterError:
    meaning = field.metadata.get("help")
    return ParameterError(f"{field.name} = {value!r}; expected {expected}" + (f" ({meaning})" if meaning else ""))
