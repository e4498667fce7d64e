"""The server process: a listening socket, uvicorn, signals; workers share the socket and the mapped model."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from monogram.errors import MissingExtraError, MonogramError, ParameterError
from monogram.server.settings import Settings

POLL = 1.0  # seconds between two checks of the watched files
SHORTEST_LIFE = 5.0  # seconds; a worker that ends sooner ends the server


def require_extra() -> None:
    """Raise MissingExtraError where the extra `serve` is not installed."""
    try:
        import fastapi  # noqa: F401
        import httptools  # noqa: F401
        import msgspec  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"a server needs {error.name}: pip install 'monogram[serve]'") from error


def serve(settings: Settings) -> None:
    """Serve until a signal stops the server."""
    require_extra()
    with bind(settings) as listening:
        if settings.workers == 1:
            serve_process(settings, listening)
        else:
            WorkerProcesses(settings, listening).run()


def bind(settings: Settings) -> socket.socket:
    """The listening socket."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise ParameterError(
            f"cannot listen at {settings.host} port {settings.port}: {error.strerror or error}; give another port"
        ) from error
    listening.listen(2048)
    listening.set_inheritable(True)
    return listening


def serve_process(settings: Settings, listening: socket.socket, parent: int | None = None) -> None:
    """Serve in this process; `parent` is the process that started it as a worker."""
    from monogram.server import logs
    from monogram.server.app import application, prepare

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # blocked until _start_tasks handles it
    logs.configure()
    try:
        state = prepare(settings)
    except MonogramError as error:
        if parent is None:
            raise
        sys.stderr.write(f"monogram: {error}\n")  # in the form of the command
        sys.exit(error.exit_code)
    host, port = listening.getsockname()[:2]
    server = _server(application(state, lambda state: _start_tasks(state, server, parent)), settings)
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    logs.emit("serving", url=url, host=host, port=port, models=list(settings.models), pid=os.getpid())
    server.run(sockets=[listening])
    logs.emit("stopped", pid=os.getpid())


def _server(app: Any, settings: Settings) -> Any:
    import uvicorn

    from monogram.server.http.protocol import limited_protocol

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # _start_tasks handles the signals: a requested stop is no error

    config = uvicorn.Config(
        app,
        http=limited_protocol(settings.reading),
        loop="auto",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_keep_alive=max(5, int(settings.reading)),
        timeout_graceful_shutdown=max(1, int(settings.grace)),
    )
    return Server(config)


def _start_tasks(state: Any, server: Any, parent: int | None) -> None:
    """Handle signals and watch files, on the event loop of the server."""
    from monogram.server import logs

    loop = asyncio.get_running_loop()

    def stop() -> None:
        state.draining, server.should_exit = True, True

    async def reload() -> None:
        with contextlib.suppress(Exception):  # the registry has logged the error, and keeps the old model
            await loop.run_in_executor(None, state.registry.reload)

    async def watch() -> None:
        while True:
            await asyncio.sleep(POLL)
            if state.registry.changed():
                await reload()

    async def stop_with_parent() -> None:
        while os.getppid() == parent:
            await asyncio.sleep(POLL)
        logs.emit("the parent process has ended: stopping", logging.ERROR)
        stop()

    tasks: set[asyncio.Task[None]] = set()

    def start(coroutine: Any) -> None:
        task = loop.create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, lambda: start(reload()))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    if state.registry.settings.watch:
        start(watch())
    if parent is not None:
        start(stop_with_parent())
        state.after_reload = lambda: os.kill(parent, signal.SIGHUP)  # the other workers
    logs.emit("ready", pid=os.getpid())


class WorkerProcesses:
    """Worker processes on one socket; each maps the same files, so that the model is in memory once."""

    def __init__(self, settings: Settings, listening: socket.socket) -> None:
        self.settings, self.listening = settings, listening
        self.context = multiprocessing.get_context("spawn")
        self.processes: list[tuple[Any, float]] = []
        self.stopping = False

    def run(self) -> None:
        """Start the workers, forward signals, and restart workers that end unexpectedly."""
        from monogram.server.metrics import FOLDER

        os.environ[FOLDER] = tempfile.mkdtemp(prefix="monogram-metrics-")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, lambda *_: self._send(signal.SIGHUP))
        try:
            self.processes = [(self._start(), time.monotonic()) for _ in range(self.settings.workers)]
            while not self.stopping:
                time.sleep(0.2)
                self._restart_ended()
            self._join()
        finally:
            shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True)

    def _start(self) -> Any:
        process = self.context.Process(target=serve_process, args=(self.settings, self.listening, os.getpid()))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # inherited by the worker
        process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process

    def _restart_ended(self) -> None:
        for at, (process, started) in enumerate(self.processes):
            if process.is_alive() or self.stopping:
                continue
            if time.monotonic() - started < SHORTEST_LIFE:
                self._send(signal.SIGTERM)
                self._join()
                sys.exit(process.exitcode if process.exitcode and process.exitcode > 0 else 1)
            self.processes[at] = (self._start(), time.monotonic())

    def _stop(self, *_: Any) -> None:
        self.stopping = True
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for process, _ in self.processes:
            if process.is_alive():
                os.kill(process.pid, number)

    def _join(self) -> None:
        end = time.monotonic() + self.settings.grace + 5
        for process, _ in self.processes:
            process.join(max(0.1, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
