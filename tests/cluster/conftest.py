"""Worker processes shared by the tests of the cluster: starting them is what takes the time."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg

pytest.importorskip("distributed")

from monogram.cluster import Cluster

SMALL = {
    "tile": 48,
    "part": 6_000,
    "group": 9_000,
    "bundle": 4_000,
    "patience": 20.0,
}  # several tiles, partitions and groups


def processes(number: int = 3):
    from distributed import LocalCluster

    how = {"threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    return LocalCluster(n_workers=number, **how, silence_logs=logging.CRITICAL + 1)


@pytest.fixture(scope="session", autouse=True)
def impatient():
    """A worker that is gone is not called for half a minute."""
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "3s"}):
        yield


@pytest.fixture(scope="session")
def started():
    """Starts workers of one's own."""
    return processes


@pytest.fixture(scope="module")
def shared_client():
    """Three workers that nobody kills."""
    from distributed import Client

    with processes() as started, Client(started, set_as_default=False) as client:
        yield client


@pytest.fixture
def cluster(shared_client):
    return Cluster(shared_client, **SMALL)


@pytest.fixture(scope="session")
def logs():
    """900 users × 150 items, counted and weighted; an item nobody used, a user without events."""
    rng = np.random.default_rng(11)
    dense = rng.random((900, 150)) < rng.uniform(0.01, 0.15, 150)
    dense[:, 70], dense[40] = False, False
    weighted = dense * rng.uniform(0.5, 3, dense.shape)
    return {
        "binary": mg.Interactions.from_csr(sp.csr_array(dense.astype(np.float32))),
        "weighted": mg.Interactions.from_csr(sp.csr_array(weighted.astype(np.float32))),
    }


@pytest.fixture
def same_weights():
    def check(found, expected, dtype="float32"):
        largest = np.abs(expected.item_weights()).max()
        error = np.abs(found.item_weights() - expected.item_weights()).max() / largest
        assert error < (2e-5 if dtype == "float32" else 1e-11), error

    return check
