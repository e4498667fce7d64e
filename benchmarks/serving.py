"""Benchmarks of the server: requests per second, latency, time outside the kernels, memory, seconds until ready.

The model is fitted on the full Gowalla log if MONOGRAM_DATA has it, else on a generated log. Clients and server run on
the same machine; the clients are plain sockets in a separate process, which take little of its time.

    python benchmarks/serving.py [--items N] [--seconds S] [--soak SECONDS] [--model FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import monogram as mg


def real_log() -> mg.Interactions | None:
    path = Path(os.environ.get("MONOGRAM_DATA", ".")) / "gowalla.npz"
    if not path.exists():
        return None
    stored = np.load(path)
    indices = stored["train_indices"]
    arrays = (np.ones(len(indices), np.float32), indices, stored["train_indptr"])
    return mg.Interactions.from_csr(sp.csr_array(arrays, shape=tuple(stored["shape"])))


def made_up(users: int, items: int, seed: int = 0) -> mg.Interactions:
    rng = np.random.default_rng(seed)
    chosen = (rng.zipf(1.3, (users, 25)) * 7919 + rng.integers(0, 50, (users, 25))) % items
    pairs = {(user, int(item)) for user, row in enumerate(chosen) for item in row}
    rows, columns = np.array(sorted(pairs)).T
    return mg.Interactions.from_csr(sp.coo_array((np.ones(len(rows)), (rows, columns)), (users, items)).tocsr())


class Server:
    """A server in a process of its own; its log goes nowhere once it is ready."""

    def __init__(self, path: Path, *flags: str, workers: int = 1) -> None:
        command = [sys.executable, "-m", "monogram", "serve", str(path), "--port", "0", "--workers", str(workers)]
        start = time.perf_counter()
        self.log = path.with_suffix(".log").open("w+")
        self.process = subprocess.Popen([*command, *flags], stderr=self.log)
        self.port, self.pids = self._wait(workers)
        self.seconds = time.perf_counter() - start

    def _wait(self, workers: int) -> tuple[int, list[int]]:
        while True:
            lines = [json.loads(line) for line in Path(self.log.name).read_text().splitlines() if line.endswith("}")]
            ready = [line["pid"] for line in lines if line["message"] == "ready"]
            if len(ready) == workers:
                return next(line["port"] for line in lines if line["message"] == "serving"), ready
            if self.process.poll() is not None:
                raise SystemExit(Path(self.log.name).read_text())
            time.sleep(0.01)

    def memory(self, what: str) -> float:
        """MB of all workers: Rss, or Pss, where what they share counts once."""
        total = 0
        for pid in self.pids:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(next(line for line in text.splitlines() if line.startswith(f"{what}:")).split()[1])
        return total / 1024

    def kernel(self) -> float:
        return asyncio.run(kernel_seconds(self.port))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.log.close()


async def kernel_seconds(port: int) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return sum(
        float(line.split()[-1]) for line in text.splitlines() if line.startswith("monogram_kernel_seconds_total")
    )


def bodies(log: mg.Interactions, size: int, number: int) -> list[bytes]:
    chance = random.Random(1)
    matrix = log.matrix
    out = []
    for _ in range(number):
        rows = [chance.randrange(log.n_users) for _ in range(size)]
        histories = [log.items.ids(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]][:50]) for row in rows]
        content = json.dumps({"histories": histories, "k": 10}, default=str).encode()
        head = b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        out.append(head + b"content-length: %d\r\n\r\n" % len(content) + content)
    return out


async def one_client(port: int, asks: list[bytes], first: int, end: float, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    at = first
    while time.perf_counter() < end:
        start = time.perf_counter()
        writer.write(asks[at % len(asks)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        content = await reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(content.decode())
        took.append(time.perf_counter() - start)
        at += 1
    writer.close()


def clients(port: int, asks: list[bytes], connections: int, seconds: float) -> list[float]:
    took: list[float] = []

    async def all_() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(one_client(port, asks, 17 * one, end, took) for one in range(connections)))

    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.run(all_())
        return took
    asyncio.run(all_())
    return took


def measured(server: Server, asks: list[bytes], connections: int, seconds: float) -> dict[str, float]:
    with get_context("spawn").Pool(1) as pool:
        pool.apply(clients, (server.port, asks, connections, min(1.0, seconds)))  # warm
        before, start = server.kernel(), time.perf_counter()
        took = sorted(pool.apply(clients, (server.port, asks, connections, seconds)))
        wall, spent = time.perf_counter() - start, server.kernel() - before
    return {
        "per second": len(took) / wall,
        "p50 ms": 1e3 * took[len(took) // 2],
        "p99 ms": 1e3 * took[int(len(took) * 0.99)],
        "outside kernel %": 100 * (1 - spent / wall / len(server.pids)),
    }


def soak(server: Server, asks: list[bytes], seconds: float, parts: int = 10) -> None:
    """Memory under full load, now and after each part; anonymous is what the process has for itself."""
    for part in range(parts + 1):
        if part:
            measured(server, asks, 64, seconds / parts)
        rss, own = (server.memory(what) for what in ("Rss", "Anonymous"))
        print(f"soak, {seconds / parts * part:3.0f} s: RSS {rss:,.0f} MB, anonymous {own:,.1f} MB", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--items", type=int, default=4_000, help="of the made-up log")
    options.add_argument("--users", type=int, default=6_000)
    options.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    options.add_argument(
        "--model", type=Path, help="a file that was fitted on the log before; made anew where it is not"
    )
    options.add_argument("--soak", type=float, default=0.0, help="seconds under load, memory before and after")
    given = options.parse_args()
    log = real_log() or made_up(given.users, given.items)
    print(log)
    with tempfile.TemporaryDirectory(dir=os.environ.get("MONOGRAM_SCRATCH")) as folder:
        path = given.model or Path(folder) / "model.mono"
        if not path.exists():
            mg.EDLAE(l2=100, dropout=0.3).fit(log, solver="primal").save(path)
        report(path, log, given)


def report(path: Path, log: mg.Interactions, given: argparse.Namespace) -> None:
    single, many = bodies(log, 1, 500), bodies(log, 100, 50)
    server = Server(path)
    print(f"start to ready: {server.seconds:.2f} s (target: below 1.5 s)")
    try:
        for name, asks in (("single histories", single), ("batches of 100", many)):
            for connections in (1, 16, 64):
                found = measured(server, asks, connections, given.seconds)
                shown = ", ".join(f"{key} {value:,.1f}" for key, value in found.items())
                print(f"{name}, {connections:2} connections: {shown}")
        print("(outside the kernel: target below 30 % at 64 connections; the kernel runs in one call at a time)")
        one = server.memory("Pss")
        if given.soak:
            soak(server, [*single, *many[:5]], given.soak)
    finally:
        server.stop()
    pair = Server(path, workers=2)
    try:
        measured(pair, single, 16, min(2.0, given.seconds))
        print(
            f"memory (what is shared counted once): 1 worker {one:,.0f} MB, 2 workers {pair.memory('Pss'):,.0f} MB; "
            f"2 workers to ready {pair.seconds:.2f} s"
        )
        found = measured(pair, single, 64, given.seconds)
        print("2 workers, single histories, 64 connections: " + ", ".join(f"{k} {v:,.1f}" for k, v in found.items()))
    finally:
        pair.stop()


if __name__ == "__main__":
    main()
