"""The budget of a search: a time, or a number of settings."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from monogram.errors import ParameterError

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Budget:
    """Seconds or settings; the other is infinite."""

    seconds: float = math.inf
    settings: float = math.inf


def parse(budget: Any) -> Budget:
    """Parse a budget: seconds, or a text such as "20m", "90s", "1h" or "200 settings"."""
    number = isinstance(budget, int | float) and not isinstance(budget, bool)
    text = f"{budget:f}" if number else budget.strip().lower() if isinstance(budget, str) else ""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|settings?|)", text)
    if match and float(match[1]) > 0:
        amount, unit = float(match[1]), match[2]
        if not unit.startswith("setting"):
            return Budget(seconds=amount * UNITS[unit])
        if amount.is_integer():
            return Budget(settings=amount)
    raise ParameterError(
        f'budget = {budget!r}; expected a time such as "20m", "90s", "1h" or a number of seconds, or "200 settings"'
    )
