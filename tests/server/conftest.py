"""Shared by the server's tests: models of a small shop, and servers in processes of their own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

import monogram as mg

ITEMS = ["tea", "earl grey", "café noir", "jam", "honey", "cup", "saucer", "42", "spoon", "Tee/Kanne"]
USERS = ["ann", "bob smith", "élodie", *(f"u{number:02}" for number in range(40))]
TITLES = {name: f"The {name.title()}" for name in ITEMS[:-1]}


def pairs(seed: int = 3) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    used = rng.random((len(USERS), len(ITEMS))) < 0.4
    used[:, 0] |= ~used.any(axis=1)
    used[:, 1] &= ~used.all(axis=1)
    return [(USERS[user], ITEMS[item]) for user, item in np.argwhere(used)]


class Server:
    """A server in a process of its own; its stderr is read line by line."""

    def __init__(self, *arguments: object, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "monogram", "serve", *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.lines: list[dict] = []
        self._news: queue.SimpleQueue = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = f"http://127.0.0.1:{self.said('serving')['port']}"
        self.port = int(self.url.rpartition(":")[2])
        self.client = httpx.Client(base_url=self.url, timeout=30)
        self.said("ready")

    def _read(self) -> None:
        for line in self.process.stderr:
            self.lines.append(json.loads(line) if line.startswith("{") else {"message": line})
            self._news.put(None)
        self.process.stderr.close()
        self._news.put(None)

    def said(self, message: str, times: int = 1) -> dict:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = [line for line in list(self.lines) if line["message"] == message]
            if len(found) >= times:
                return found[-1]
            if self.process.poll() is not None and self._news.empty():
                raise AssertionError(f"the server ended with {self.process.returncode}: {self.lines}")
            try:
                self._news.get(timeout=0.5)
            except queue.Empty:
                continue
        raise AssertionError(f"nothing said {message!r}: {self.lines[-20:]}")

    def post(self, path: str, body: object, **options: object) -> httpx.Response:
        return self.client.post(path, json=body, **options)

    def wait_for(self, seq: int, what: str = "applied") -> dict:
        """The update status of the first model, once it has reached the event number."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            updates = self.client.get("/v1/models").json()["models"][0]["updates"]
            if updates[what] >= seq:
                return updates
            time.sleep(0.02)
        raise AssertionError(f"not followed to {seq}: {updates}")

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        self._reader.join(10)
        return code


@pytest.fixture(scope="session")
def model():
    return mg.DEQL(l2=2, dropout=0.2, b=0.5).fit(pairs())


@pytest.fixture(scope="session")
def other():
    return mg.EASE(l2=5).fit(pairs(4))


@pytest.fixture(scope="session")
def shop(model, other, tmp_path_factory) -> Path:
    """A folder with two models and a file of items."""
    folder = tmp_path_factory.mktemp("shop")
    model.save(folder / "shop.mono")
    other.save(folder / "other.mono")
    lines = [f'"{name}","{title}",{number}\n' for number, (name, title) in enumerate(TITLES.items())]
    (folder / "items.csv").write_text("item,title,shelf\n" + "".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def start():
    """Start servers that end with the module."""
    running: list[Server] = []

    def begin(*arguments: object, env: dict[str, str] | None = None) -> Server:
        running.append(Server(*arguments, env=env))
        return running[-1]

    yield begin
    for one in running:
        one.stop()
