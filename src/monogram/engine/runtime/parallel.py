"""Threads: their number, the limit for BLAS, and a parallel loop over a range.

Kernels release the GIL and run on ordinary Python threads: they are safe to call from the threads of a server, and
every call sets its own number of threads.
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
    """The number of threads: the argument, or by default the number of cores this process may run on."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise ParameterError(f"threads = {threads!r}; expected a whole number of at least 1, or None for all cores")
    return int(threads)


_lock = threading.Lock()
_limits: list[int] = []  # the limit of each active block: BLAS has one limit for the whole process
_restore: list[Any] = []  # restores the limit that BLAS had before


@contextmanager
def blas_threads(threads: int | None) -> Iterator[int]:
    """Limit BLAS to at most `threads` threads inside the block.

    The limit applies to the whole process. While several blocks are active, in one thread or in many, the smallest
    limit applies; the last block to exit restores the limit from before.
    """
    import scipy.linalg.cython_blas  # noqa: F401  (the pool must be loaded to be limited)

    number = count(threads)
    with _lock:
        _limits.append(number)
        if len(_limits) == 1 or number < min(_limits[:-1]):
            _restore.append(_limit(number))
    try:
        yield number
    finally:
        with _lock:
            smallest = min(_limits)
            _limits.remove(number)
            if not _limits:
                _restore[0].restore_original_limits()
                _restore.clear()
            elif min(_limits) > smallest:
                _limit(min(_limits))


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
    """Call work(start, stop) for every chunk of range(size), on a pool of threads; `done` receives chunk lengths."""
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


def in_step(work: Callable[[int, Callable[[], Any]], Any], threads: int) -> None:
    """Call work(number, wait) for each number below `threads`, on a thread each; wait() returns once all called it.

    Every call must wait equally often. Where one raises, the others end at their next wait, and the error is raised.
    """
    barrier = threading.Barrier(threads)

    def run(number: int) -> None:
        try:
            work(number, barrier.wait)
        except threading.BrokenBarrierError:
            return  # the thread that broke the barrier raises the error
        except BaseException:
            barrier.abort()
            raise

    if threads == 1:
        run(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        try:
            futures = [pool.submit(run, number) for number in range(threads)]
        except BaseException:
            barrier.abort()  # a thread did not start: the others must not wait for it
            raise
        for future in futures:
            future.result()
