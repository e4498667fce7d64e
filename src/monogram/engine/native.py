"""The one door to numba: compiled kernels that release the interpreter lock and are kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first call; where no folder for the cache can be written, compile in memory only."""
    try:
        compiled: Callable[..., Any] = njit(nogil=True, cache=True)(function)
    except RuntimeError:
        compiled = njit(nogil=True)(function)
    return compiled
