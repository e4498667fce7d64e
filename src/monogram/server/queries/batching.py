"""Batching: requests that arrive together are ranked together, by one thread at a time for each model."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

MAX_ROWS = 512  # rows in one batch


class BatchJob(Protocol):
    """The work of one request."""

    @property
    def size(self) -> int:
        """Number of rows."""


class Load:
    """Counts of the server: requests in progress (`active`), and those of them that wait for a batch (`waiting`)."""

    def __init__(self) -> None:
        self.active = self.waiting = 0


Encode = Callable[[], list[Any]]
Rank = Callable[[Sequence[Any]], Encode]


class Batcher:
    """Collects jobs for a function that ranks several at once.

    A job that arrives while no other request is in progress starts at once. Otherwise the first job waits for others,
    up to `gather` seconds. Jobs that arrive while a batch is being ranked form the next batch, which starts as soon as
    that ranking ends; the answers of the first batch are encoded meanwhile.

    Parameters
    ----------
    rank : ranks jobs and returns a function that encodes their answers, in order; an answer that is an exception is
        raised to the caller of `submit`
    pool : executor that runs `rank` and the encoding
    load : counts of the server
    gather : seconds
    """

    def __init__(self, rank: Rank, pool: Executor, load: Load, gather: float) -> None:
        self.rank, self.pool, self.load, self.gather = rank, pool, load, gather
        self.waiting: deque[tuple[BatchJob, asyncio.Future[Any]]] = deque()
        self.busy = False
        self.timer: asyncio.TimerHandle | None = None

    async def submit(self, job: BatchJob) -> Any:
        """Add a job to a batch, and wait for its answer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self.waiting.append((job, future))
        self.load.waiting += 1
        try:
            if not self.busy:
                self._start_or_wait(loop)
            return await future
        finally:
            self.load.waiting -= 1

    def _start_or_wait(self, loop: asyncio.AbstractEventLoop) -> None:
        alone = self.load.active <= self.load.waiting
        if alone or self.gather <= 0 or sum(job.size for job, _ in self.waiting) >= MAX_ROWS:
            self._start(loop)
        elif self.timer is None:
            self.timer = loop.call_later(self.gather, self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        batch: list[tuple[BatchJob, asyncio.Future[Any]]] = []
        size = 0
        while self.waiting and (not batch or size + self.waiting[0][0].size <= MAX_ROWS):
            job, future = self.waiting.popleft()
            if not future.done():  # the client may have disconnected
                batch.append((job, future))
                size += job.size
        if not batch:
            return
        self.busy = True
        futures = [future for _, future in batch]
        ranking = loop.run_in_executor(self.pool, self._run, [job for job, _ in batch])
        ranking.add_done_callback(lambda done: self._ranked(loop, futures, done))

    def _run(self, jobs: list[BatchJob]) -> list[Any] | Encode:
        """Rank a batch; encode its answers here, too, unless other jobs wait to be ranked."""
        encode = self.rank(jobs)
        return encode if self.waiting else encode()

    def _ranked(
        self, loop: asyncio.AbstractEventLoop, futures: list[asyncio.Future[Any]], done: asyncio.Future[Any]
    ) -> None:
        self.busy = False
        if self.waiting:
            self._start(loop)
        if done.exception() is None and callable(done.result()):
            done = loop.run_in_executor(self.pool, done.result())
            done.add_done_callback(lambda done: _deliver(futures, done))
        else:
            _deliver(futures, done)


def _deliver(futures: list[asyncio.Future[Any]], done: asyncio.Future[list[Any]]) -> None:
    error = done.exception()
    answers = [error] * len(futures) if error is not None else done.result()
    for future, answer in zip(futures, answers, strict=True):
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
