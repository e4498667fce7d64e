"""Numba kernels: compiled without the GIL and cached on disk. Only `simd`, beside this module, imports numba too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

_REORDERED = {"contract", "reassoc", "nsz"}  # NaN and infinity keep their meaning


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first call, with a cache on disk; in memory only where no cache folder is writable."""
    return _compiled(function)


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, with fused multiply-add and reordered sums, so that the compiler can vectorise sums of products.

    The order is fixed when the kernel is compiled: a call gives the same bits for any number of threads.
    """
    return _compiled(function, fastmath=_REORDERED)


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    try:
        compiled: Callable[..., Any] = njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:
        compiled = njit(nogil=True, **options)(function)
    return compiled
