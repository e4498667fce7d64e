"""The budget of a search: a time or a number of settings."""

from __future__ import annotations

import math

import pytest

from monogram.errors import ParameterError
from monogram.tuning.budget import Budget, parse


@pytest.mark.parametrize(
    ("given", "seconds", "settings"),
    [
        ("20m", 1200, math.inf),
        ("90s", 90, math.inf),
        ("1h", 3600, math.inf),
        ("1.5 h", 5400, math.inf),
        (45, 45, math.inf),
        (0.5, 0.5, math.inf),
        ("200 settings", math.inf, 200),
        ("1 setting", math.inf, 1),
    ],
)
def test_a_budget(given, seconds, settings):
    assert parse(given) == Budget(seconds, settings)


@pytest.mark.parametrize("given", ["soon", "", 0, -3, "0m", "20 apples", None, True, "1.5 settings", "nan"])
def test_what_is_none(given):
    with pytest.raises(ParameterError, match="20m"):
        parse(given)
