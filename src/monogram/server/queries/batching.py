"""Requests that come together are answered together: one thread at a time works for a model, on all that waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

MAX_ROWS = 512  # rows in one turn


class Job(Protocol):
    """One request's work."""

    @property
    def size(self) -> int:
        """How many rows it has."""


class Load:
    """How many requests are under way, and how many of them wait for a turn."""

    def __init__(self) -> None:
        self.active = self.held = 0


Rest = Callable[[], list[Any]]
Work = Callable[[Sequence[Any]], Rest]


class Batcher:
    """Gathers jobs for a function that answers several at once.

    A job that comes alone, while no other request is under way, starts at once. Else the first one waits for up to
    `gather` seconds for others. While a turn runs, what comes waits for the next, which begins as soon as that one is
    ranked: its answers are written meanwhile.

    Parameters
    ----------
    work : ranks jobs; gives what writes their answers, in order. An answer that is an exception is raised where it was
        asked for
    pool : where it runs
    load : the server's
    gather : seconds
    """

    def __init__(self, work: Work, pool: Executor, load: Load, gather: float) -> None:
        self.work, self.pool, self.load, self.gather = work, pool, load, gather
        self.waiting: deque[tuple[Job, asyncio.Future[Any]]] = deque()
        self.busy = False
        self.timer: asyncio.TimerHandle | None = None

    async def ask(self, job: Job) -> Any:
        """The answer to a job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self.waiting.append((job, future))
        self.load.held += 1
        try:
            if not self.busy:
                self._consider(loop)
            return await future
        finally:
            self.load.held -= 1

    def _consider(self, loop: asyncio.AbstractEventLoop) -> None:
        alone = self.load.active <= self.load.held
        if alone or self.gather <= 0 or sum(job.size for job, _ in self.waiting) >= MAX_ROWS:
            self._start(loop)
        elif self.timer is None:
            self.timer = loop.call_later(self.gather, self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        taken: list[tuple[Job, asyncio.Future[Any]]] = []
        size = 0
        while self.waiting and (not taken or size + self.waiting[0][0].size <= MAX_ROWS):
            job, future = self.waiting.popleft()
            if not future.done():  # its client may have gone
                taken.append((job, future))
                size += job.size
        if not taken:
            return
        self.busy = True
        futures = [future for _, future in taken]
        turn = loop.run_in_executor(self.pool, self._turn, [job for job, _ in taken])
        turn.add_done_callback(lambda done: self._ranked(loop, futures, done))

    def _turn(self, jobs: list[Job]) -> list[Any] | Rest:
        """Rank; and write the answers here, unless others wait to be ranked."""
        rest = self.work(jobs)
        return rest if self.waiting else rest()

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
