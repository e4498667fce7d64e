"""The one door to numba: compiled kernels that release the interpreter lock and are kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

_REORDERED = {"contract", "reassoc", "nsz"}  # nan and infinity keep their meaning


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first call; where no folder for the cache can be written, compile in memory only."""
    return _compiled(function)


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, for sums of products: they may be fused and summed in lanes, which is what makes them vectors.

    The order is chosen when the kernel is compiled, so a call gives the same bits whatever the threads.
    """
    return _compiled(function, fastmath=_REORDERED)


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    try:
        compiled: Callable[..., Any] = njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:
        compiled = njit(nogil=True, **options)(function)
    return compiled
