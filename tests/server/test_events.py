"""Events: stored before they are acknowledged, applied exactly, and not lost by a crash at any moment."""

from __future__ import annotations

import glob
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from urllib.parse import quote

import httpx
import numpy as np
import pyarrow as pa
import pytest

import monogram as mg
from monogram.errors import ParameterError, StorageError
from monogram.server.updates.database import connect
from monogram.server.updates.events import EventStore, EventWriter, LogChange
from monogram.server.updates.refresh import changed

from .conftest import Server, pairs


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """A private PostgreSQL server; the URL of its database."""
    debian = sorted(glob.glob("/usr/lib/postgresql/*/bin"))  # where PATH does not lead
    path = os.pathsep.join([os.environ["PATH"], *debian[::-1]])
    initdb, pg_ctl = (shutil.which(name, path=path) for name in ("initdb", "pg_ctl"))
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL is not installed here")
    pytest.importorskip("psycopg")
    folder = tmp_path_factory.mktemp("postgres")
    as_other = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        if not shutil.which("setpriv"):
            pytest.skip("PostgreSQL does not run as root, and there is no setpriv to be someone else")
        as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        shutil.chown(folder, 65534, 65534)
        for parent in folder.parents:
            if parent.owner() == "root" and parent != parent.parent and "pytest" in str(parent):
                parent.chmod(0o755)

    def run(*command: str) -> None:
        done = subprocess.run([*as_other, *command], capture_output=True, text=True, timeout=120, cwd=folder)
        if done.returncode:
            pytest.skip(f"PostgreSQL does not start here: {done.stderr[-300:]}")

    data, log = str(folder / "data"), str(folder / "log")
    run(initdb, "-D", data, "-U", "shop", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
    run(pg_ctl, "-D", data, "-l", log, "-w", "-o", f"-k {folder} -c listen_addresses=''", "start")
    yield f"postgresql://shop@/postgres?host={quote(str(folder))}"
    run(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "events.db")
    found = request.getfixturevalue("postgres")
    database = connect(found)
    for table in ("monogram_events", "monogram_store"):
        database.run(f"DROP TABLE IF EXISTS {table}")
    database.close()
    return found


def users(store, seq=0):
    return [(one.seq, one.user, one.item) for one in store.since(seq)]


def test_a_store_keeps_events_in_order(url):
    store = EventStore(url)
    assert store.write([[LogChange("ann", "tea"), LogChange("bob", "jam", 2.5, 1e9)], [LogChange("ann", "cup")]]) == [
        2,
        3,
    ]
    assert users(store) == [(1, "ann", "tea"), (2, "bob", "jam"), (3, "ann", "cup")]
    assert (store.since(1)[0].weight, store.since(1)[0].time) == (2.5, 1e9)
    assert len(store.since(0, 2)) == 2
    own = store.id
    store.close()
    again = EventStore(url)
    assert (again.id, again.last) == (own, 3)
    assert again.write([[LogChange("eve", "tea")]]) == [4]
    again.close()


def test_a_request_to_forget_deletes_earlier_rows_and_stays(url):
    store = EventStore(url)
    store.write([[LogChange("ann", "tea"), LogChange("bob", "jam")], [LogChange("ann")], [LogChange("ann", "cup")]])
    assert users(store) == [(2, "bob", "jam"), (3, "ann", None), (4, "ann", "cup")]
    assert store.write([[LogChange("ann")]]) == [5]
    assert users(store) == [(2, "bob", "jam"), (5, "ann", None)]
    assert store.write([[LogChange("bob", "tea")]]) == [6], "no number is given twice"
    store.close()


def test_all_of_a_transaction_or_nothing(url):
    store = EventStore(url)
    with pytest.raises((StorageError, TypeError, sqlite3.Error)):
        store.write([[LogChange("ann", "tea")], [LogChange("bob", "jam", weight={})]])
    assert users(store) == []
    assert store.write([[LogChange("ann", "tea")]]) == [1]
    store.close()


def test_a_full_disk_loses_nothing(tmp_path):
    store = EventStore(str(tmp_path / "events.db"))
    writer = EventWriter(store)
    assert writer.submit([LogChange("ann", "tea")]).result(10) == 1
    [(pages,)] = store._writes.run("PRAGMA page_count")
    store._writes.run(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="full"):
        writer.submit([LogChange("bob", "jam" * 1000) for _ in range(50)]).result(10)
    assert users(store) == [(1, "ann", "tea")]
    store._writes.run("PRAGMA max_page_count = 1000000")
    assert writer.submit([LogChange("eve", "cup")]).result(10) == 2
    writer.stop()
    store.close()


def test_a_lost_connection_is_an_error_and_is_opened_again(postgres):
    store, other = EventStore(postgres), connect(postgres)
    last = store.write([[LogChange("ann", "tea")]])[0]
    me = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'shop'"
    other.run(me)
    with pytest.raises(StorageError, match="failed"):
        store.write([[LogChange("bob", "jam")]])
    assert store.write([[LogChange("eve", "cup")]]) == [last + 1]
    with pytest.raises(StorageError, match="another server"):  # and it is alone again
        EventStore(postgres)
    with pytest.raises(StorageError, match="failed"):
        store.since(last)
    assert users(store, last) == [(last + 1, "eve", "cup")]
    store.close()
    other.close()


def test_only_one_server_stores(url):
    store = EventStore(url)
    with pytest.raises(StorageError, match="another server"):
        EventStore(url)
    store.close()
    EventStore(url).close()


def test_writers_share_transactions(url):
    store = EventStore(url)
    calls = []
    write = store.write
    store.write = lambda requests: calls.append(len(requests)) or write(requests)
    writer = EventWriter(store)
    futures = [writer.submit([LogChange(f"u{number}", "tea")]) for number in range(60)]
    assert [one.result(30) for one in futures] == list(range(1, 61))
    writer.stop()
    assert sum(calls) == 60
    assert [user for _, user, _ in users(store)] == [f"u{number}" for number in range(60)]
    store.close()


def test_no_bytes_of_a_forgotten_user_are_left_in_the_file(tmp_path):
    store = EventStore(str(tmp_path / "events.db"))
    store.write([[LogChange("ann", f"secret-{number}") for number in range(200)]])
    store.write([[LogChange("ann")]])
    for path in tmp_path.iterdir():
        assert b"secret" not in path.read_bytes()
    store.close()


def test_other_urls_are_refused():
    with pytest.raises(ParameterError, match="postgresql"):
        connect("mysql://x")


def test_changes_are_those_of_a_fit_on_the_changed_log(model):
    changes = [
        LogChange("ann", "new thing", seq=1), LogChange("zoe", "tea", seq=2), LogChange("bob smith", None, seq=3),
        LogChange("bob smith", "jam", seq=4), LogChange("gone", "tea", seq=5), LogChange("gone", None, seq=6),
    ]  # fmt: skip
    before = model.weights_.matrix.copy()
    fresh, forgot = changed(model, changes, 1)
    assert forgot
    kept = [pair for pair in pairs() if pair[0] != "bob smith"]
    wanted = mg.DEQL(**model.params()).fit([*kept, ("ann", "new thing"), ("zoe", "tea"), ("bob smith", "jam")])
    assert fresh.history("bob smith") == {"jam": 1.0}
    assert "gone" not in fresh.log_.users
    order = list(wanted.log_.items)
    mine = fresh.score([["tea", "jam"], ["new thing"]], order)
    np.testing.assert_allclose(mine, wanted.score([["tea", "jam"], ["new thing"]], order), atol=2e-5)
    np.testing.assert_array_equal(model.weights_.matrix, before, "readers of the old one see no change")
    once, _ = changed(fresh, [LogChange("ann", "spoon", seq=7)], 1)
    assert once.weights_.matrix is not fresh.weights_.matrix
    assert changed(fresh, [LogChange("who", None, seq=8)], 1) == (fresh, False)


def serve(folder, *more) -> Server:
    return Server(folder / "shop.mono", "--updates", "--refresh", 0.05, "--snapshot", 0.2, *more)


@pytest.fixture
def folder(shop, tmp_path):
    shutil.copy(shop / "shop.mono", tmp_path / "shop.mono")
    return tmp_path


def test_events_over_http_with_either_database(folder, url, model):
    server = serve(folder, "--events", url)
    try:
        body = {
            "events": [{"user": "zoe", "item": "tea"}, {"user": "zoe", "item": "quite new", "weight": 2, "time": 5}]
        }
        answer = server.post("/v1/events", body)
        assert (answer.status_code, answer.json()) == (202, {"seq": 2, "stored": 2, "applied": 0})
        server.wait_for(2)
        seen = server.post("/v1/recommend", {"users": ["zoe"], "with_history": True}).json()["results"][0]["seen"]
        assert [one["item"] for one in seen] == ["tea", "quite new"]
        assert server.client.delete(f"/v1/users/{quote('bob smith')}").json()["seq"] == 3
        server.wait_for(3, "saved")
        assert server.post("/v1/recommend", {"users": ["bob smith"]}).json()["unknown_users"] == ["bob smith"]
        saved = mg.load(folder / "shop.mono")
        assert "bob smith" not in saved.log_.users
        assert b"bob smith" not in (folder / "shop.mono").read_bytes()
        assert saved.history("zoe") == {"tea": 1.0, "quite new": 1.0}
        text = server.client.get("/metrics").text
        assert "monogram_events_stored 3.0" in text
        assert "monogram_events_applied 3.0" in text
    finally:
        server.stop()
    again = serve(folder, "--events", url)
    try:
        assert again.client.get("/v1/models").json()["models"][0]["updates"]["applied"] == 3
        model.save(folder / "shop.mono")  # an older file comes back: every event, and every wish, is new to it
        assert again.client.post("/admin/reload").status_code == 200
        found = again.post("/v1/recommend", {"users": ["zoe", "bob smith"]}).json()
        assert found["unknown_users"] == ["bob smith"]
    finally:
        again.stop()


@pytest.mark.parametrize(
    "event",
    [
        {"user": "", "item": "tea"}, {"user": " ", "item": "tea"}, {"user": "a\0", "item": "tea"},
        {"user": "a", "item": "tea", "weight": 0}, {"user": "a", "item": "tea", "weight": 1e9}, {"user": "a"},
        {"user": None, "item": "tea"}, {"user": "a", "item": "tea", "more": 1},
        {"user": "a", "item": "tea", "time": "soon"}, {"user": "a", "item": "tea", "time": 1e30},
        {"user": "a", "item": "tea", "time": True}, {"user": "a", "item": "tea", "time": "2026-02-30"},
    ],
)  # fmt: skip
def test_events_that_could_never_be_applied_are_refused(quiet, event):
    answer = quiet.post("/v1/events", {"events": [{"user": "fine", "item": "tea"}, event]})
    assert answer.status_code == 422
    assert quiet.client.get("/v1/models").json()["models"][0]["updates"]["stored"] == 0


def test_events_have_a_place_in_the_order_of_a_log_with_times(tmp_path):
    days = np.datetime64("2026-01-01") + np.arange(len(pairs()))
    rows = pa.table({"user": [user for user, _ in pairs()], "item": [item for _, item in pairs()], "when": days})
    model = mg.DEQL(l2=2, dropout=0.2, half_life="30d").fit(mg.read(rows, time="when", quiet=True))
    model.save(tmp_path / "shop.mono")
    events = [("jam", "2026-02-01"), ("cup", None), ("tea", 1767225600000000), ("honey", "2026-03-01T00:00:00Z")]
    body = [{"user": "zoe", "item": item, "time": time} for item, time in events]
    asked = {"users": ["zoe"], "with_history": True, "at": "2026-03-01"}
    for restart in range(2):
        server = serve(tmp_path)
        try:
            if not restart:
                assert server.post("/v1/events", {"events": body}).json()["seq"] == 4
            server.wait_for(4, "saved")
            seen = server.post("/v1/recommend", asked).json()["results"][0]["seen"]
        finally:
            server.stop()
        assert [one["item"] for one in seen] == ["tea", "jam", "honey", "cup"], "cup has the time of its arrival"
        weights = [0.5 ** (59 / 30), 0.5 ** (28 / 30), 1, 1]
        assert [one["weight"] for one in seen] == pytest.approx(weights, rel=1e-5)


@pytest.fixture(scope="module")
def quiet(shop, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quiet")
    shutil.copy(shop / "shop.mono", folder / "shop.mono")
    server = serve(folder)
    yield server
    server.stop()


def send(server, name: str, acknowledged: list, forgotten: list) -> None:
    """Send events until the server ends; record the acknowledged ones."""
    with httpx.Client(base_url=server.url, timeout=10) as client:
        for number in range(100_000):
            user = f"{name}-{number}"
            try:
                answer = client.post("/v1/events", json={"events": [{"user": user, "item": "tea"}]})
                if answer.status_code != 202:
                    return
                acknowledged.append(user)
                if number % 7 == 3:
                    if client.delete(f"/v1/users/{user}").status_code != 202:
                        return
                    forgotten.append(user)
            except httpx.HTTPError:
                return


def test_a_crash_at_any_moment_loses_no_acknowledged_event(folder):
    chance = random.Random(7)
    acknowledged: list[str] = []
    forgotten: list[str] = []
    for turn in range(3):
        server = serve(folder)
        clients = [
            threading.Thread(target=send, args=(server, f"k{turn}{one}", acknowledged, forgotten)) for one in range(3)
        ]
        for one in clients:
            one.start()
        time.sleep(chance.uniform(0.2, 1.2))  # when it is killed, not what is measured
        server.stop(signal.SIGKILL)
        for one in clients:
            one.join()
    assert len(acknowledged) > 20
    server = serve(folder)
    try:
        stored = server.client.get("/v1/models").json()["models"][0]["updates"]["stored"]
        assert server.wait_for(stored)["error"] is None
        alive = sorted(set(acknowledged) - set(forgotten))
        unknown = []
        for start in range(0, len(alive), 1000):
            found = server.post("/v1/recommend", {"users": alive[start : start + 1000], "k": 1}).json()
            unknown += found["unknown_users"]
        # Whoever was killed between the event and the answer to the wish may be forgotten or not.
        assert len([user for user in unknown if int(user.rpartition("-")[2]) % 7 != 3]) == 0
        for start in range(0, len(forgotten), 1000):
            part = forgotten[start : start + 1000]
            assert server.post("/v1/recommend", {"users": part, "k": 1}).json()["unknown_users"] == part
    finally:
        assert server.stop() == 0
    rows = sqlite3.connect(folder / "shop.mono.events").execute(
        "SELECT COUNT(*), COUNT(DISTINCT seq) FROM monogram_events"
    )
    assert len(set(rows.fetchone())) == 1
