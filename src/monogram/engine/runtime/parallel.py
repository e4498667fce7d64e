"""Threads: how many, and how a range of work is shared among them.

Kernels release the interpreter lock and run on ordinary Python threads: safe to call from a server's threads,
and the number is ours to set on every call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from monogram.errors import ParameterError


def count(threads: int | None) -> int:
    """The number of threads to use: what was asked, else the cores this process may run on."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise ParameterError(f"threads = {threads!r}; expected a whole number of at least 1, or None for all cores")
    return int(threads)


_lock = threading.Lock()
_inside: list[int] = []  # what each block asked for: BLAS has one number for the whole process
_before: list[Any] = []  # what restores BLAS


@contextmanager
def blas_threads(threads: int | None) -> Iterator[int]:
    """Hold BLAS to at most the given number of threads inside the block.

    The number is the whole process's: while several blocks are entered, in one thread or in many, the smallest of
    theirs holds, and the last to leave restores what was there before.
    """
    import scipy.linalg.cython_blas  # noqa: F401  (the pool must be loaded to be limited)

    number = count(threads)
    with _lock:
        _inside.append(number)
        if len(_inside) == 1 or number < min(_inside[:-1]):
            _before.append(_limit(number))
    try:
        yield number
    finally:
        with _lock:
            smallest = min(_inside)
            _inside.remove(number)
            if not _inside:
                _before[0].restore_original_limits()
                _before.clear()
            elif min(_inside) > smallest:
                _limit(min(_inside))


def _limit(number: int) -> Any:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=number, user_api="blas")


def parallel_for(
    work: Callable[[int, int], Any],
    size: int,
    chunk: int,
    threads: int,
    done: Callable[[int], None] | None = None,
) -> None:
    """Call work(start, stop) over range(size) in chunks, taken by threads as they become free."""
    ranges = [(start, min(start + chunk, size)) for start in range(0, size, chunk)]

    def run(span: tuple[int, int]) -> int:
        work(*span)
        return span[1] - span[0]

    if threads == 1 or len(ranges) <= 1:
        finished: Any = map(run, ranges)
        for number in finished:
            if done:
                done(number)
        return
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(run, span) for span in ranges]
        try:
            for future in futures:
                number = future.result()
                if done:
                    done(number)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
