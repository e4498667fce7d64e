"""Numba kernels: compiled without the GIL and cached on disk.

Only the modules of vector instructions, `simd` and `engine/gram/time_simd.py`, import numba beside this one.

Numba itself is imported when the first kernel is called, so that a short command which calls none starts fast.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

_REORDERED = {"contract", "reassoc", "nsz"}  # NaN and infinity keep their meaning
_lock = threading.Lock()


class Kernel:
    """A function that is compiled on its first call; it may call other kernels."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        update_wrapper(self, function)
        self._function, self._options = function, options
        self._dispatcher: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        return (self._dispatcher or self.dispatcher())(*arguments)

    def __reduce__(self) -> str:
        """Pickle by name, as a function."""
        return str(self.__qualname__)  # type: ignore[attr-defined]

    def dispatcher(self) -> Any:
        """Numba's own object for this function, made on first use."""
        with _lock:  # two threads must not compile the same function twice
            if self._dispatcher is None:
                self._dispatcher = _dispatcher(self._function, self._options)
        return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks for where another kernel calls this one."""
        return self.dispatcher()._numba_type_


def load() -> None:
    """Import Numba now, where its time and memory must not count for the first kernel that is called."""
    import numba  # noqa: F401


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first call, with a cache on disk; in memory only where no cache folder is writable."""
    return Kernel(function)


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, with fused multiply-add and reordered sums, so that the compiler can vectorise sums of products.

    The order is fixed when the kernel is compiled: a call gives the same bits for any number of threads.
    """
    return Kernel(function, fastmath=_REORDERED)


def _dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    from numba import njit

    try:
        return njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no cache folder is writable
        return njit(nogil=True, **options)(function)
