"""Threads: how many, who waits for whom, and nothing left changed."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from monogram.engine.runtime import parallel
from monogram.errors import ParameterError


def test_concurrent_limits_leave_blas_as_it_was():
    with parallel.blas_threads(None):
        pass
    before = [one["num_threads"] for one in threadpool_info()]
    barrier = threading.Barrier(6)

    def work(number):
        for _ in range(20):
            barrier.wait()
            with parallel.blas_threads(1 + number % 3):
                np.ones((30, 30)) @ np.ones((30, 30))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one["num_threads"] for one in threadpool_info()] == before


def test_the_smallest_limit_holds_while_it_is_asked_for():
    def threads():
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with parallel.blas_threads(2):
        with parallel.blas_threads(3):
            assert threads() == {2}
        with parallel.blas_threads(1), parallel.blas_threads(2):
            assert threads() == {1}
        assert threads() == {2}


def test_every_piece_is_worked_on_once():
    for threads in (1, 3):
        seen, done = np.zeros(100, int), []

        def work(start, stop, seen=seen):
            seen[start:stop] += 1

        parallel.parallel_for(work, 100, 7, threads, done.append)
        assert (seen == 1).all()
        assert sum(done) == 100


def test_an_error_in_a_thread_is_raised():
    def work(start, stop):
        if start >= 50:
            raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        parallel.parallel_for(work, 100, 10, 2)


def test_threads_must_be_a_number():
    assert parallel.count(np.int64(2)) == 2
    for wrong in (0, -1, 1.5, True, "two"):
        with pytest.raises(ParameterError, match="threads"):
            parallel.count(wrong)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_calls_in_step_wait_for_each_other(threads):
    steps = []

    def work(number, wait):
        for step in range(20):
            steps.append((step, number))
            wait()

    parallel.in_step(work, threads)
    assert [step for step, _ in steps] == [step for step in range(20) for _ in range(threads)]
    assert sorted(steps) == [(step, number) for step in range(20) for number in range(threads)]


@pytest.mark.parametrize("failing", [0, 2])
def test_an_error_in_step_ends_all_calls(failing):
    def work(number, wait):
        wait()
        if number == failing:
            raise ValueError("a failure")
        wait()
        raise AssertionError("the others end at the wait")

    with pytest.raises(ValueError, match="a failure"):
        parallel.in_step(work, 3)


def test_a_thread_that_cannot_start_ends_all_calls(monkeypatch):
    start, started = threading.Thread.start, []

    def second_fails(thread):
        started.append(thread)
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", second_fails)
    with pytest.raises(RuntimeError, match="new thread"):
        parallel.in_step(lambda number, wait: wait(), 3)
