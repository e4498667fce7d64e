"""Options that several ways of splitting have, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.errors import ParameterError


def check_share(share: Any) -> None:
    """Raise ParameterError unless a share is between 0 and 1."""
    if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 < share < 1:
        raise ParameterError(f"share = {share!r}; expected a number between 0 and 1")


def check_seed(seed: Any) -> int:
    """The seed, if it is one: a whole number of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ParameterError(f"seed = {seed!r}; expected a whole number of at least 0")
    return int(seed)
