"""What is given as a cluster, and what is said when it cannot be used."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

import monogram as mg
from monogram.cluster import Cluster, client, open_cluster
from monogram.errors import ClusterError, MissingExtraError, ParameterError


@pytest.mark.parametrize("given", [3, object(), ["tcp://host:1"], True])
def test_another_type_is_refused(given, logs):
    with pytest.raises(ParameterError, match=r"expected a distributed.Client, an address"):
        mg.EASE(l2=20).fit(logs["binary"], cluster=given)


@pytest.mark.parametrize(
    "address", ["", "nowhere", "local:x", "local:0", "host", "a b:3", "tcp://host", "foo://host:1"]
)
def test_another_text_is_refused(address, logs):
    with pytest.raises(ParameterError, match="expected"):
        mg.EASE(l2=20).fit(logs["binary"], cluster=address)


def test_a_cluster_in_place_of_its_client_is_told_what_to_write():
    from distributed import LocalCluster

    with (
        pytest.raises(ParameterError, match=r"write distributed.Client\(cluster\)"),
        open_cluster(LocalCluster.__new__(LocalCluster)),
    ):
        pass


def test_nobody_at_the_address(logs, monkeypatch):
    monkeypatch.setattr(client, "CONNECTING", 1.0)
    start = time.monotonic()
    with pytest.raises(ClusterError, match=r"there is no scheduler at tcp://127.0.0.1:9: nothing answered in 1 s"):
        mg.EASE(l2=20).fit(logs["binary"], cluster="tcp://127.0.0.1:9")
    assert time.monotonic() - start < 15


def test_a_closed_client(logs, shared_client):
    from distributed import Client

    closed = Client(shared_client.scheduler.address, set_as_default=False)
    closed.close()
    with pytest.raises(ClusterError, match="the client is closed, not running; connect a new client"):
        mg.EASE(l2=20).fit(logs["binary"], cluster=closed)


def test_a_client_that_is_calling_again_is_waited_for(logs, shared_client):
    from distributed import Client

    with Client(shared_client.scheduler.address, set_as_default=False) as held:
        lost = held.scheduler_comm
        held.loop.add_callback(lost.comm.abort)
        deadline = time.monotonic() + 10
        while held.scheduler_comm is lost and time.monotonic() < deadline:
            pass  # as soon as it knows
        assert mg.EASE(l2=20).fit(logs["binary"], cluster=held).report_.solver == "cluster (one worker)"


def test_a_client_that_calls_in_vain_is_not_waited_for_long(logs, shared_client, monkeypatch):
    monkeypatch.setattr(client, "CONNECTING", 0.1)
    monkeypatch.setattr(shared_client, "status", "connecting")
    with pytest.raises(ClusterError, match="the client is connecting, not running; connect a new client"):
        mg.EASE(l2=20).fit(logs["binary"], cluster=shared_client)


@pytest.mark.parametrize("error", [asyncio.CancelledError, concurrent.futures.CancelledError])
def test_work_that_was_cancelled(error):
    refused = pytest.raises(ClusterError, match="the Gram: the scheduler stopped or the tasks were cancelled")
    with refused, client.translated_errors("the Gram"):
        raise error


def test_no_workers(logs, monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(client, "CONNECTING", 0.5)
    none = {"n_workers": 0, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    refused = pytest.raises(ClusterError, match=r"the cluster has no workers: none connected in 0.5 s; start one: dask")
    with LocalCluster(**none) as local, Client(local, set_as_default=False) as held, refused:
        mg.EASE(l2=20).fit(logs["binary"], cluster=held)


def test_without_dask_the_command_is_named(logs, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "distributed" else found(name, *a)
    )
    with pytest.raises(MissingExtraError, match=r"pip install 'monogram\[dask\]'"):
        mg.EASE(l2=20).fit(logs["binary"], cluster="local:1")


def test_settings_are_checked():
    with pytest.raises(ParameterError, match="solve = 'all'; expected one of auto, one_worker, tiles"):
        Cluster(None, solve="all")
    for name, value in (("tile", 0), ("tile", 2.5), ("part", -5), ("group", "4"), ("bundle", 0), ("patience", -1)):
        with pytest.raises(ParameterError, match=f"{name} = "):
            Cluster(None, **{name: value})
    with pytest.raises(ParameterError, match="cluster is of type NoneType"):
        mg.EASE(l2=20).fit([("a", "b")], cluster=Cluster(None))


def run(*arguments):
    command = [sys.executable, "-m", "monogram", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"COLUMNS": "120"})


def test_the_commands(tmp_path, logs):
    """One process of its own; nothing but our words on stderr; then the same with the scheduler gone."""
    log = tmp_path / "log.csv"
    rows = zip(*logs["binary"].matrix.nonzero(), strict=True)
    log.write_text("user,item\n" + "".join(f"u{user},i{item}\n" for user, item in rows))
    done = run("fit", log, "-o", tmp_path / "a.mono", "--l2", 20, "--cluster", "local:1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["solver"] == "cluster (one worker)"
    assert "1 workers; about" in done.stderr
    assert not [line for line in done.stderr.splitlines() if "distributed" in line or "Warning" in line]
    done = run("recommend", tmp_path / "a.mono", "-k", 3, "-o", f"{tmp_path}/lists/", "--cluster", "local:1")
    assert done.returncode == 0, done.stderr
    assert "files in" in done.stderr
    expected = mg.load(tmp_path / "a.mono").recommend(k=3).to_arrow()
    assert pq.read_table(tmp_path / "lists").equals(expected)
    done = run("fit", log, "-o", tmp_path / "b.mono", "--cluster", "tcp://127.0.0.1:9")
    assert done.returncode == ClusterError.exit_code
    assert done.stderr.startswith("monogram: there is no scheduler at tcp://127.0.0.1:9")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "b.mono").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_with_its_code_in_silence_and_leaves_no_process(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("user,item\n" + "".join(f"u{n % 5000},i{n * n % 3001}\n" for n in range(60_000)))
    command = [sys.executable, "-m", "monogram", "fit", log, "-o", tmp_path / "a.mono", "--cluster", "local:1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))  # fmt: skip
    for line in process.stderr:
        if "workers; about" in line:
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
    assert [one.name for one in tmp_path.iterdir()] == ["log.csv"]
    deadline = time.monotonic() + 20
    while left := subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True, text=True).stdout:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
