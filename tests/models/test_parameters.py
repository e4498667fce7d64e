"""Parameters, declared or plain fields, are converted to their type or refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

from monogram.errors import ParameterError
from monogram.models.base import Recommender
from monogram.models.parameters import param


@dataclass(kw_only=True, eq=False)
class Plain(Recommender):
    name: ClassVar[str] = "plain"
    shrink: float = 10.0
    power: float = 2  # an integer by its default, a number by its annotation
    rank: int = 10
    mode: str = "x"
    flag: bool = False
    seed: int | None = None
    stages: Any = field(default_factory=list)
    size: int = param(10, "how many", low=1, high=50)
    share: float = param(0.5, "how much", low=0, high=1, below=True)
    slope: float = param(0.0, "any", high=3)
    limit: int | None = param(None, "most", low=1)


@dataclass(kw_only=True, eq=False)
class Required(Recommender):
    name: ClassVar[str] = "required"
    value: Any


def test_the_defaults_are_kept():
    of_all_models = {"recency": 0.0, "recency_unit": "1 event", "half_life": None}
    assert Plain().params() == of_all_models | {
        "shrink": 10.0,
        "power": 2.0,
        "rank": 10,
        "mode": "x",
        "flag": False,
        "seed": None,
        "stages": [],
        "size": 10,
        "share": 0.5,
        "slope": 0.0,
        "limit": None,
    }


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("shrink", 3, 3.0),
        ("shrink", np.float32(0.5), 0.5),
        ("shrink", -1e9, -1e9),
        ("power", 2.5, 2.5),
        ("rank", 10.0, 10),
        ("rank", np.int64(7), 7),
        ("rank", np.float64(7), 7),
        ("rank", -3, -3),
        ("rank", 2**60 + 1, 2**60 + 1),
        ("mode", "y", "y"),
        ("mode", np.str_("y"), "y"),
        ("flag", np.True_, True),
        ("seed", 5, 5),
        ("seed", np.int64(5), 5),
        ("seed", "any", "any"),
        ("stages", [1], [1]),
        ("size", 50.0, 50),
        ("limit", 3, 3),
    ],
)
def test_a_value_is_converted_to_its_type(name, given, expected):
    actual = getattr(Plain(**{name: given}), name)
    assert actual == expected
    assert type(actual) is type(expected)


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("shrink", "10", "shrink = '10'; expected a number$"),
        ("shrink", float("nan"), "expected a number$"),
        ("shrink", None, "expected a number$"),
        ("shrink", True, "expected a number$"),
        ("rank", 3.7, "rank = 3.7; expected a whole number$"),
        ("rank", np.float64(3.7), "expected a whole number$"),
        ("rank", "3", "expected a whole number$"),
        ("rank", True, "expected a whole number$"),
        ("rank", np.True_, "expected a whole number$"),
        ("rank", float("inf"), "expected a whole number$"),
        ("mode", 3, "mode = 3; expected a text$"),
        ("flag", 1, "flag = 1; expected True or False$"),
        ("size", 3.7, "size = 3.7; expected a whole number of at least 1 and at most 50 .how many.$"),
        ("size", 0, "expected a whole number of at least 1 and at most 50 .how many.$"),
        ("share", 1, "share = 1; expected a number of at least 0 and below 1 .how much.$"),
        ("slope", 4, "slope = 4; expected a number at most 3 .any.$"),
        ("limit", 0, "limit = 0; expected a whole number of at least 1 .most.$"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name, given, text):
    with pytest.raises(ParameterError, match=text):
        Plain(**{name: given})


@pytest.mark.parametrize("value", [3, 2.5, "x", True, None, [1]])
def test_a_parameter_without_default_has_the_type_of_its_value(value):
    actual = Required(value=value).value
    assert actual == value
    assert type(actual) is type(value)


def test_a_number_without_default_is_finite_and_plain():
    assert type(Required(value=np.int64(3)).value) is int
    with pytest.raises(ParameterError, match="value = nan"):
        Required(value=np.nan)


@dataclass(kw_only=True, eq=False)
class Several(Recommender):
    name: ClassVar[str] = "several"
    mode: str = param("fast", "how", choices=("fast", "exact"))
    weights: float | tuple[float, ...] | None = param(None, "of each", low=0, many=True)


@pytest.mark.parametrize("given", [[1, 2.5], (1, 2.5), np.array([1, 2.5])])
def test_several_numbers_become_a_tuple(given):
    actual = Several(weights=given).weights
    assert actual == (1.0, 2.5)
    assert all(type(one) is float for one in actual)
    assert Several(weights=3).weights == 3
    assert Several().weights is None


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("mode", "slow", "mode = 'slow'; expected one of fast, exact .how."),
        ("weights", [], "a number, or a list of numbers"),
        ("weights", [[1.0]], "a number, or a list of numbers"),
        ("weights", [1.0, -1.0], "weights = -1.0; expected a number of at least 0"),
        ("weights", "1,2", "expected a number"),
    ],
)
def test_values_outside_the_choices_and_non_numbers_are_refused(name, given, text):
    with pytest.raises(ParameterError, match=text):
        Several(**{name: given})


@dataclass(kw_only=True, eq=False)
class Timed(Recommender):
    name: ClassVar[str] = "timed"
    seconds: float | None = param(None, "limit", low=0.001)


def test_an_optional_number_is_not_a_whole_number():
    assert type(Timed(seconds=3).seconds) is float
    assert Timed().seconds is None
    with pytest.raises(ParameterError, match=r"seconds = 0; expected a number of at least 0.001"):
        Timed(seconds=0)
