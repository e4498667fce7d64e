"""The speed of this machine, measured once for each precision and number of threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from monogram.engine.runtime import parallel

SIDE = 1024  # side of the matrices that are multiplied
LENGTH = 4_000_000  # numbers that are copied: more than fit in a processor's cache
FACTOR_SHARE = 0.75  # speed of the Cholesky factorisation and inverse, relative to a matrix product


@cache
def calibrate(dtype: str, threads: int) -> tuple[float, float]:
    """Flops per second of the factorisation, and bytes per second of a copy.

    The first call allocates up to 40 MB (float32) for a moment: `fit` makes it before its memory is measured.
    """
    return _flop_rate(dtype, threads), _copy_rate(dtype)


def _flop_rate(dtype: str, threads: int) -> float:
    block = np.full((SIDE, SIDE), 0.5, dtype)
    with parallel.blas_threads(threads):
        seconds = min(_timed(lambda: block @ block) for _ in range(4))
    return FACTOR_SHARE * 2 * SIDE**3 / seconds


def _copy_rate(dtype: str) -> float:
    numbers = np.ones(LENGTH, dtype)
    return numbers.nbytes / min(_timed(numbers.copy) for _ in range(3))


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
