"""Callbacks with which a computation reports its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Stage = Callable[[str, float], None]  # stage name, flops (or columns) done since the last call
Between = Callable[[int, Callable[[], Any]], None]  # epochs done, and a function that returns the state they left


def silent(_: str, __: float) -> None:
    """Ignore progress."""
