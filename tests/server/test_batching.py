"""Batching: concurrent requests share a batch, with answers identical to those of single requests."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from monogram.server.queries.batching import MAX_ROWS, Batcher, Load

from .conftest import USERS


@dataclass
class Ask:
    number: int
    size: int = 1


class Turns:
    """A rank function that waits for `go`, and records the jobs of each batch."""

    def __init__(self) -> None:
        self.turns, self.go = [], threading.Event()

    def __call__(self, jobs):
        self.turns.append([job.number for job in jobs])
        assert self.go.wait(10)
        return lambda: [ValueError("three") if job.number == 3 else job.number * 10 for job in jobs]


async def settled(*tasks):
    """Let the event loop run its ready tasks."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(story):
    with ThreadPoolExecutor(2) as pool:
        load, work = Load(), Turns()
        try:
            asyncio.run(story(Batcher(work, pool, load, 60.0), load, work))
        finally:
            work.go.set()
    return work.turns


def test_a_single_job_starts_at_once_and_later_jobs_share_a_batch():
    async def story(batcher, load, work):
        load.active = 1
        first = asyncio.create_task(batcher.submit(Ask(1)))
        await settled()
        load.active = 4
        rest = [asyncio.create_task(batcher.submit(Ask(number))) for number in (2, 3, 4)]
        await settled()
        work.go.set()
        found = await asyncio.gather(first, *rest, return_exceptions=True)
        assert [found[0], found[1], found[3]] == [10, 20, 40]
        assert isinstance(found[2], ValueError)
        assert (load.waiting, batcher.busy) == (0, False)

    assert run(story) == [[1], [2, 3, 4]]


def test_the_first_job_waits_while_other_requests_are_active():
    async def story(batcher, load, work):
        work.go.set()
        load.active = 2
        first = asyncio.create_task(batcher.submit(Ask(1)))
        await settled()
        assert not work.turns
        second = asyncio.create_task(batcher.submit(Ask(2)))  # all who are under way have come
        assert await asyncio.gather(first, second) == [10, 20]

    assert run(story) == [[1, 2]]


def test_a_batch_has_a_size_limit_and_skips_cancelled_jobs():
    async def story(batcher, load, work):
        load.active = 1
        first = asyncio.create_task(batcher.submit(Ask(1)))
        await settled()
        load.active = 4
        rest = [asyncio.create_task(batcher.submit(Ask(number, MAX_ROWS // 2 + 1))) for number in (2, 4, 5)]
        await settled()
        rest[1].cancel()
        await settled()
        work.go.set()
        assert await asyncio.gather(first, rest[0], rest[2]) == [10, 20, 50]

    assert run(story) == [[1], [2], [5]]


def test_answers_are_encoded_while_the_next_batch_is_ranked():
    async def story(batcher, load, work):
        second = threading.Event()

        def slowly(jobs):
            rest = work(jobs)
            if len(work.turns) == 2:
                second.set()
            return lambda: [second.wait(10), *rest()][1:]

        batcher.rank, load.active = slowly, 1
        first = asyncio.create_task(batcher.submit(Ask(1)))
        await settled()
        load.active = 2
        other = asyncio.create_task(batcher.submit(Ask(2)))
        await settled()
        work.go.set()
        assert await first == 10
        assert second.is_set(), "the first answer was not written before the second turn had begun"
        assert await other == 20

    assert run(story) == [[1], [2]]


def test_a_failed_batch_fails_its_own_jobs_only():
    async def story(batcher, load, work):
        def fails(jobs):
            rest = work(jobs)
            if 2 in work.turns[-1]:
                raise MemoryError
            return rest

        batcher.rank, load.active = fails, 1
        work.go.set()
        assert await batcher.submit(Ask(1)) == 10
        with pytest.raises(MemoryError):
            await batcher.submit(Ask(2))
        assert await batcher.submit(Ask(4)) == 40

    assert run(story) == [[1], [2], [4]]


def test_concurrent_requests_get_the_bytes_of_single_ones(start, shop):
    server = start(shop / "shop.mono")
    bodies = [
        {"users": [USERS[number]], "k": 1 + number % 5, "exclude_seen": number % 3 > 0, "explain": number % 2}
        for number in range(40)
    ]
    alone = [server.post("/v1/recommend", body).content for body in bodies]

    async def together():
        limits = httpx.Limits(max_connections=40)
        async with httpx.AsyncClient(base_url=server.url, limits=limits, timeout=30) as client:
            for _ in range(3):
                answers = await asyncio.gather(*(client.post("/v1/recommend", json=body) for body in bodies))
                assert [one.content for one in answers] == alone

    asyncio.run(together())
    text = server.client.get("/metrics").text
    calls, rows = (
        float(next(line for line in text.splitlines() if line.startswith(f"monogram_batch_rows_{name}{{")).split()[-1])
        for name in ("count", "sum")
    )
    assert rows == 4 * len(bodies)
    assert calls < rows, "some requests shared a kernel call"
