"""Reloads under load: no request fails, and an invalid file changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

import monogram as mg
from monogram.server import run

from .conftest import USERS, pairs


@pytest.fixture
def folder(shop, tmp_path):
    shutil.copy(shop / "shop.mono", tmp_path / "shop.mono")
    return tmp_path


def replace(folder, seed: int) -> mg.EASE:
    model = mg.EASE(l2=3).fit(pairs(seed))
    model.save(folder / "shop.mono")
    return model


class Crowd:
    """Clients that repeat one request and record the answers."""

    def __init__(self, server, clients: int = 4) -> None:
        self.server, self.found, self.wrong, self.end = server, set(), [], threading.Event()
        self.threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self) -> None:
        with httpx.Client(base_url=self.server.url, timeout=30) as client:
            while not self.end.is_set():
                answer = client.post("/v1/recommend", json={"users": USERS[:3], "k": 3})
                if answer.status_code != 200:
                    self.wrong.append(answer.text)
                self.found.add(answer.content)

    def __enter__(self):
        for one in self.threads:
            one.start()
        return self

    def __exit__(self, *_) -> None:
        self.end.set()
        for one in self.threads:
            one.join()


def test_reloads_under_load_fail_no_request(start, folder):
    server = start(folder / "shop.mono")
    expected = {server.post("/v1/recommend", {"users": USERS[:3], "k": 3}).content}
    with Crowd(server) as crowd:
        for seed in range(5, 13):
            replace(folder, seed)
            answer = server.client.post("/admin/reload")
            assert answer.json() == {"models": [{"name": "shop", "status": "reloaded"}]}
            expected.add(server.post("/v1/recommend", {"users": USERS[:3], "k": 3}).content)
    assert crowd.wrong == []
    assert len(expected) == 9
    assert crowd.found <= expected, "every answer is of one whole model"
    assert server.client.post("/admin/reload").json()["models"][0]["status"] == "unchanged"


def truncated(path):
    path.write_bytes(path.read_bytes()[:-100])


def other_bytes(path):
    path.write_bytes(b"not a model")


def no_file(path):
    path.unlink()


def a_header_that_was_altered(path):
    path.write_bytes(path.read_bytes().replace(b"ease", b"eese", 1))


@pytest.mark.parametrize("damage", [truncated, other_bytes, no_file, a_header_that_was_altered])
def test_a_bad_file_leaves_the_old_model(start, folder, damage):
    server = start(folder / "shop.mono")
    before = server.post("/v1/recommend", {"users": ["ann"]}).content
    replace(folder, 5)
    new = folder / "new.mono"
    shutil.copy(folder / "shop.mono", new)
    damage(new)
    (folder / "shop.mono").unlink()
    if new.exists():
        os.replace(new, folder / "shop.mono")
    answer = server.client.post("/admin/reload")
    assert answer.status_code == 422
    assert answer.json()["error"]["kind"] == "model_file"
    assert "keeps the models" in answer.json()["error"]["message"]
    assert server.said("reload failed: the server keeps the old model")["level"] == "error"
    assert server.post("/v1/recommend", {"users": ["ann"]}).content == before
    assert 'monogram_reloads_total{model="shop",outcome="failed"} 1.0' in server.client.get("/metrics").text
    replace(folder, 6)
    assert server.client.post("/admin/reload").status_code == 200
    assert server.post("/v1/recommend", {"users": ["ann"]}).content != before
    server.stop()


def test_a_signal_reloads_and_so_does_a_watched_file(start, folder):
    server = start(folder / "shop.mono", "--watch")
    found = [server.post("/v1/recommend", {"users": ["ann"]}).content]
    replace(folder, 5)
    server.send(signal.SIGHUP)
    server.said("reloaded")
    found.append(server.post("/v1/recommend", {"users": ["ann"]}).content)
    replace(folder, 6)
    server.said("reloaded", 2)
    found.append(server.post("/v1/recommend", {"users": ["ann"]}).content)
    assert len(set(found)) == 3


def test_items_are_read_again(start, folder, shop):
    shutil.copy(shop / "items.csv", folder / "items.csv")
    server = start(folder / "shop.mono", "--items", folder / "items.csv")
    (folder / "items.csv").write_text("id,name\ntea,Second flush\n", encoding="utf-8")
    assert server.client.post("/admin/reload").json()["models"][0]["status"] == "unchanged"
    [found] = server.client.get("/v1/items?query=second").json()["items"]
    assert (found["item"], found["columns"]) == ("tea", {"name": "Second flush"})
    (folder / "items.csv").write_bytes(b"\xff,\x00")
    assert server.client.post("/admin/reload").status_code == 422
    assert server.client.get("/v1/items?query=second").json()["total"] == 1


def test_an_invalid_file_is_an_error_at_every_reload(start, folder):
    server = start(folder / "shop.mono")
    good = (folder / "shop.mono").read_bytes()
    (folder / "next").write_bytes(good[: len(good) // 2])
    (folder / "next").replace(folder / "shop.mono")
    assert [server.client.post("/admin/reload").status_code for _ in range(2)] == [422, 422]
    (folder / "next").write_bytes(good)
    (folder / "next").replace(folder / "shop.mono")
    assert [server.client.post("/admin/reload").json()["models"][0]["status"] for _ in range(2)] == [
        "reloaded", "unchanged",
    ]  # fmt: skip


def half_asked(server) -> tuple[socket.socket, bytes]:
    """A connection on which the server has begun to read a request, and the remaining bytes of the request."""
    body = json.dumps({"users": USERS[:3], "k": 3}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    head = "POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:10])
    assert server.client.get("/healthz").status_code == 200  # it has looked at all that came before
    return connection, body[10:]


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_shutdown_finishes_requests_in_progress(start, folder):
    server = start(folder / "shop.mono")
    connection, rest = half_asked(server)
    with connection:
        server.send(signal.SIGTERM)
        while listens(server.port):
            time.sleep(0.01)
        connection.sendall(rest)
        found = b""
        while more := connection.recv(65536):
            found += more
    assert found.startswith(b"HTTP/1.1 200 ")
    assert len(json.loads(found.partition(b"\r\n\r\n")[2])["results"]) == 3
    assert server.process.wait(20) == 0
    assert server.said("stopped")


def test_shutdown_waits_for_the_grace_period_only(start, folder):
    server = start(folder / "shop.mono", "--grace", 1, "--read-timeout", 500)
    connection, _ = half_asked(server)
    with connection:
        server.send(signal.SIGTERM)
        assert server.process.wait(60) == 0


def test_sighup_during_the_start_stops_no_worker(folder, start):
    server = start(folder / "shop.mono", "--workers", 2)
    server.said("ready", 2)
    gone = next(line["pid"] for line in server.lines if line["message"] == "ready")
    time.sleep(run.SHORTEST_LIFE)  # one that ends sooner ends the server
    os.kill(gone, signal.SIGKILL)
    while len([line for line in server.lines if line["message"] == "ready"]) < 3:
        server.send(signal.SIGHUP)
        time.sleep(0.02)
    assert server.client.get("/readyz").status_code == 200
    assert server.stop() == 0
    assert len([line for line in server.lines if line["message"] == "stopped"]) == 2


def test_workers_end_with_the_process_that_started_them(start, folder):
    server = start(folder / "shop.mono", "--workers", 2)
    server.said("ready", 2)
    server.send(signal.SIGKILL)
    server._reader.join(60)  # their stderr is closed when the last of them has ended
    assert len([line for line in server.lines if line["message"] == "stopped"]) == 2
    assert not listens(server.port)


def test_workers_that_cannot_start_print_the_error(folder):
    (folder / "shop.mono").write_bytes(b"nothing")
    command = [sys.executable, "-m", "monogram", "serve", str(folder / "shop.mono"), "--port", "0", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 6
    assert "Traceback" not in done.stderr
    assert "monogram: cannot load" in done.stderr


def test_watching_sees_new_items_too(start, folder, shop):
    shutil.copy(shop / "items.csv", folder / "items.csv")
    server = start(folder / "shop.mono", "--items", folder / "items.csv", "--watch")
    (folder / "items.csv").write_text("id,name\ntea,Second flush\n", encoding="utf-8")
    server.said("items", 2)
    assert server.client.get("/v1/items?query=second").json()["total"] == 1


def test_workers_share_a_socket_and_reload_together(start, folder):
    server = start(folder / "shop.mono", "--workers", 2)
    server.said("ready", 2)
    ids = {line["pid"] for line in server.lines if line["message"] == "ready"}
    assert len(ids) == 2
    before = server.post("/v1/recommend", {"users": ["ann"]}).content
    with Crowd(server) as crowd:
        replace(folder, 5)
        assert server.client.post("/admin/reload").status_code == 200
        server.said("reloaded", 2)
        fresh = [httpx.post(f"{server.url}/v1/recommend", json={"users": ["ann"]}).content for _ in range(10)]
    assert crowd.wrong == []
    assert len(set(fresh)) == 1
    assert fresh[0] != before
    text = httpx.get(f"{server.url}/metrics").text
    assert sum(float(line.split()[-1]) for line in text.splitlines() if "reloads_total{" in line) == 2
    assert server.stop() == 0
    assert len([line for line in server.lines if line["message"] == "stopped"]) == 2
