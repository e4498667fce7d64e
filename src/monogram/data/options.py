"""Checks of the options of splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.errors import ParameterError


def check_share(share: Any) -> None:
    """Raise ParameterError unless a share is between 0 and 1."""
    if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 < share < 1:
        raise ParameterError(f"share = {share!r}; expected a number between 0 and 1")


def check_seed(seed: Any) -> int:
    """The seed as an int; raise ParameterError unless it is a whole number of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ParameterError(f"seed = {seed!r}; expected a whole number of at least 0")
    return int(seed)


def check_users(users: Any) -> None:
    """Raise ParameterError unless the users to hold out are a number or a share."""
    if isinstance(users, bool) or not isinstance(users, int | float | np.number):
        raise ParameterError(f"users = {users!r}; expected a share between 0 and 1, or a number of users to hold out")


def check_repeats(repeats: Any) -> None:
    """Raise ParameterError unless `repeats` is True or False."""
    if not isinstance(repeats, bool):
        raise ParameterError(f"repeats = {repeats!r}; expected True or False")


def check_part(part: Any) -> None:
    """Raise ParameterError unless a part is "test" or "validation"."""
    if part not in ("test", "validation"):
        raise ParameterError(f"part = {part!r}; expected 'test' or 'validation'")
