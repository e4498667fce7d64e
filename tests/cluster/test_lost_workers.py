"""A worker process that is killed in the middle of a stage changes nothing in the result."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

import monogram as mg
from monogram.cluster import Cluster, client
from monogram.engine.lowrank import spectrum
from monogram.errors import ClusterError

SMALL = {"tile": 48, "part": 6_000, "group": 9_000, "bundle": 4_000, "patience": 20.0}


@pytest.fixture
def mortal(started):
    """Three workers that can be killed, anew for each test; their nannies start others in their place."""
    from distributed import Client

    with started() as local, Client(local, set_as_default=False) as client:
        yield client


@pytest.fixture
def killer(mortal):
    """Makes a progress callback that kills, once, the worker that holds the most at the first word of a stage."""
    killed = []

    def make(stage, call=1):
        left = [call]

        def progress(name, amount):
            left[0] -= name == stage
            if name == stage and left[0] == 0:
                busy = {one: 100 * len(keys) for one, keys in mortal.processing().items()}
                held = mortal.has_what()
                victim = max(held, key=lambda one: len(held[one]) + busy.get(one, 0))
                pids = mortal.run(os.getpid, workers=[victim])
                killed.append(victim)
                os.kill(pids[victim], signal.SIGKILL)

        return progress

    yield make
    assert len(killed) == 1
    assert killed[0] not in mortal.scheduler_info(n_workers=-1)["workers"]


@pytest.mark.parametrize(
    ("way", "stage", "call"),
    [
        ("one_worker", "gram", 1),
        ("one_worker", "solve", 1),
        ("one_worker", "solve", 2),
        ("tiles", "factor", 2),
        ("tiles", "invert", 1),
        ("tiles", "collect", 1),
    ],
)
def test_a_fit_of_full_rank(way, stage, call, mortal, killer, logs, same_weights):
    expected = mg.EDLAE(l2=20).fit(logs["weighted"], dtype="float64", solver="primal")
    cluster = Cluster(mortal, solve=way, **SMALL)
    model = mg.EDLAE(l2=20).fit(logs["weighted"], dtype="float64", cluster=cluster, progress=killer(stage, call))
    same_weights(model, expected, "float64")


def test_a_spectrum(mortal, killer, logs, monkeypatch):
    monkeypatch.setattr(spectrum, "SMALL", 10)
    expected = mg.LRR(rank=6, l2=30).fit(logs["weighted"], dtype="float64", solver="primal")
    cluster = Cluster(mortal, **(SMALL | {"part": 30_000}))
    model = mg.LRR(rank=6, l2=30).fit(
        logs["weighted"], dtype="float64", cluster=cluster, progress=killer("spectrum", 2)
    )
    assert np.abs(model.item_weights() - expected.item_weights()).max() < 1e-7 * np.abs(expected.item_weights()).max()


@pytest.mark.parametrize("call", [1, 15], ids=["first", "last"])
def test_lists_for_everyone(mortal, killer, logs, tmp_path, call):
    model = mg.EASE(l2=20).fit(logs["binary"])
    found = model.recommend_all(
        tmp_path / "lists", k=5, batch=60, cluster=Cluster(mortal, **SMALL), progress=killer("users", call)
    )
    assert (found.files, found.resumed) == (15, 0)
    assert pq.read_table(tmp_path / "lists").equals(model.recommend(k=5).to_arrow())


def test_a_lost_worker_between_products_is_no_matter(mortal, killer, logs):
    """What was computed before on it is made again, from the arguments of its tasks."""
    cluster = Cluster(mortal, **SMALL)
    from monogram.cluster.operator import DistributedOperator

    held = DistributedOperator(cluster, logs["weighted"].matrix)
    block = np.random.default_rng(0).random((150, 4))
    before = held.item_gram_times(block)
    killer("now")("now", 0.0)
    assert np.allclose(held.item_gram_times(block), before, rtol=1e-14)


def test_every_worker_gone_is_a_clear_error_in_bounded_time(started, logs):
    from distributed import Client

    with started(1) as local, Client(local, set_as_default=False) as client:

        def end(name, amount):
            if name == "gram":
                local.scale(0)

        start = time.monotonic()
        with pytest.raises(ClusterError, match=r"Gram: every worker is gone.*start some"):
            mg.EASE(l2=20).fit(logs["binary"], cluster=Cluster(client, **(SMALL | {"patience": 2.0})), progress=end)
        assert time.monotonic() - start < 30


def test_a_task_that_kills_its_workers_is_a_clear_error(mortal):
    """As one that takes too much memory does; the scheduler gives it three more chances."""
    run = client.Run(Cluster(mortal, **SMALL))
    with pytest.raises(ClusterError, match="dying: one task has cost 4 workers their lives"), run.stage("dying"):
        run.value(run.submit(os._exit, 1, name="die"))


def test_an_interrupt_cancels_the_tasks(mortal, logs):
    def interrupt(name, amount):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mg.EASE(l2=20).fit(logs["binary"], cluster=Cluster(mortal, **SMALL), progress=interrupt)
    deadline = time.monotonic() + 10
    while any(mortal.processing().values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(mortal.processing().values())
