"""Connection to a dask.distributed cluster, its tasks, and the translation of its errors."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
import time
import uuid
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from monogram.errors import ClusterError, MissingExtraError, NumericalError, ParameterError

CONNECTING = 10.0  # seconds to wait for a scheduler and for its first worker
BRINGING = 4.0  # seconds to wait for a result before it is requested again
LOOK = 1.0  # seconds between two checks that workers are alive
WAYS = ("auto", "one_worker", "tiles")
LEAST = 8  # smallest tile (items) and smallest message (bytes)


@dataclass(frozen=True)
class Cluster:
    """A cluster and its settings: `fit` and `recommend_all` take it in place of a client.

    Attributes
    ----------
    client : a `distributed.Client`
    solve : "one_worker", "tiles", or "auto": one worker where the square array fits there, else tiles
    tile : largest side of a tile of the Gram
    part : maximum bytes of a partition of the users
    group : bytes of the partitions that one task cuts into columns
    bundle : bytes of the columns that one task multiplies to a partial tile; moving partial tiles is expensive
    patience : seconds without any worker before the run is cancelled
    """

    client: Any
    solve: str = "auto"
    tile: int = 4096
    part: int = 8_000_000
    group: int = 64_000_000
    bundle: int = 256_000_000
    patience: float = 60.0

    def __post_init__(self) -> None:
        if self.solve not in WAYS:
            raise ParameterError(f"solve = {self.solve!r}; expected one of {', '.join(WAYS)}")
        for name in ("tile", "part", "group", "bundle"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < LEAST:
                raise ParameterError(f"{name} = {value!r}; expected a whole number of at least {LEAST}")
        if not self.patience > 0:
            raise ParameterError(f"patience = {self.patience!r}; expected seconds above 0")

    def workers(self) -> dict[str, Any]:
        """The workers of the scheduler, by address."""
        with translated_errors("listing the workers"):
            workers: dict[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        return workers


def require_dask() -> None:
    """Raise MissingExtraError where Dask is not installed."""
    if importlib.util.find_spec("distributed") is None or importlib.util.find_spec("dask") is None:
        raise MissingExtraError("cluster= needs Dask: pip install 'monogram[dask]'")


@contextmanager
def open_cluster(cluster: Any) -> Iterator[Cluster]:
    """A cluster from a client, an address, or "local" or "local:N"; local workers stop at the end of the block."""
    require_dask()
    if isinstance(cluster, str):
        with _quiet(), _named(cluster.strip()) as client:
            yield _ready(Cluster(client))
        return
    from distributed import Client

    wrapped = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
    if not isinstance(wrapped.client, Client):
        kind = type(wrapped.client).__name__
        hint = "; write distributed.Client(cluster)" if kind.endswith("Cluster") else ""
        raise ParameterError(
            f"cluster is of type {kind}; expected a distributed.Client, an address such as tcp://host:8786, "
            f"or 'local:N'{hint}"
        )
    yield _ready(wrapped)


def _ready(cluster: Cluster) -> Cluster:
    """The cluster, once its client is connected and it has a worker."""
    client = cluster.client
    if client.asynchronous:
        raise ParameterError("the client is asynchronous; expected one made with asynchronous=False")
    waited = time.monotonic() + CONNECTING
    while client.status == "connecting" and time.monotonic() < waited:  # the client lost its scheduler and reconnects
        time.sleep(0.02)
    if client.status != "running":
        raise ClusterError(f"the client is {client.status}, not running; connect a new client")
    try:
        client.wait_for_workers(1, timeout=CONNECTING)
    except TimeoutError as error:
        raise ClusterError(
            f"the cluster has no workers: none connected in {CONNECTING:g} s; start one: dask worker {_address(client)}"
        ) from error
    return cluster


def _address(client: Any) -> str:
    return str(client.scheduler.address) if client.scheduler is not None else "tcp://host:port"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the loggers and warnings of distributed inside the block; failures are raised as errors."""
    import distributed  # noqa: F401 (creates its loggers, some with their own level)

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(dask|distributed)(\.|$)")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def _named(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address, or of local worker processes."""
    from distributed import Client

    local = re.fullmatch(r"local(?::(\d+))?", address)
    if local:
        with _local(local[1]) as started, Client(started, set_as_default=False) as client:
            yield client
        return
    if not re.fullmatch(r"((tcp|tls|ws|wss|ucx)://)?(\[[0-9a-fA-F:]+\]|[\w.\-]+):\d+", address):
        raise ParameterError(
            f"cluster {address!r}; expected an address such as tcp://host:8786, 'local', or 'local:N' for N processes"
        )
    try:
        client = Client(address, timeout=CONNECTING, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(
            f"there is no scheduler at {address}: nothing answered in {CONNECTING:g} s; check the address, or start "
            "one: dask scheduler"
        ) from error
    try:
        yield client
    finally:
        client.close(timeout=CONNECTING)


@contextmanager
def _local(number: str | None) -> Iterator[Any]:
    """Worker processes on this machine; by default one for each core."""
    from distributed import LocalCluster

    from monogram.engine.runtime import parallel

    workers = parallel.count(None) if number is None else int(number)
    if not 1 <= workers <= 1024:
        raise ParameterError(f"cluster 'local:{workers}'; expected 1 to 1024 processes")
    how: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "host": "127.0.0.1"}
    how |= {"preload": ["monogram.cluster.worker"]}
    with LocalCluster(**how, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL + 1) as started:
        yield started


@contextmanager
def translated_errors(doing: str) -> Iterator[None]:
    """Translate errors of dask.distributed inside the block; the message names the stage and what to do."""
    from concurrent.futures import CancelledError

    from distributed.comm.core import CommClosedError
    from distributed.exceptions import WorkerStartTimeoutError
    from distributed.scheduler import KilledWorker
    from numpy.linalg import LinAlgError

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"{doing}: {error.allowed_failures + 1} workers were killed while running one task, probably for lack of "
            "memory; give the workers more memory, or start more workers"
        ) from error
    except LinAlgError as error:
        raise NumericalError(f"the matrix is not positive definite ({error})") from error
    except MemoryError as error:
        raise ClusterError(f"{doing}: a worker ran out of memory; give the workers more memory") from error
    except ImportError as error:
        raise ClusterError(
            f"{doing}: a worker cannot import a module ({error}); install the same version of monogram on the workers"
        ) from error
    except (CancelledError, asyncio.CancelledError) as error:  # asyncio's error where the client itself is closed
        raise ClusterError(
            f"{doing}: the scheduler stopped or the tasks were cancelled; run the command again"
        ) from error
    except (CommClosedError, ConnectionError, TimeoutError, WorkerStartTimeoutError) as error:
        raise ClusterError(
            f"{doing}: the connection to the cluster was lost ({error}); run the command again"
        ) from error


class Run:
    """The tasks of one fit or batch, with keys that no other run uses.

    A result stays on the workers as long as its future exists here; dropping the future frees the result.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.mark = cluster, uuid.uuid4().hex[:12]
        self.doing = "starting"
        self._alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen = time.monotonic()

    @contextmanager
    def stage(self, doing: str) -> Iterator[None]:
        """A named stage for error messages; on an error or Ctrl-C the tasks of the run are cancelled."""
        self.doing = doing
        try:
            with translated_errors(doing):
                yield
        except BaseException:
            self.cancel()
            raise

    def submit(self, function: Callable[..., Any], *arguments: Any, name: str, **options: Any) -> Any:
        """Submit a task; its key contains `name`."""
        future = self.cluster.client.submit(function, *arguments, key=f"monogram-{name}-{self.mark}", **options)
        self._alive.add(future)
        return future

    def watch(self, futures: Iterable[Any]) -> None:
        """Include these futures in `cancel`."""
        self._alive.update(futures)

    def cancel(self) -> None:
        """Release all futures, which cancels unfinished tasks."""
        with suppress(Exception):  # the cluster itself may have failed
            for future in list(self._alive):
                future.release()  # Client.cancel can make the scheduler drop the client

    def finished(self, futures: Iterable[Any]) -> Iterator[int]:
        """Wait for all futures; yield the number that has just finished. The error of a task is raised here."""
        from distributed import wait

        pending = set(futures)
        while pending:
            try:
                with self.cluster.client.as_current():
                    done = set(wait(pending, timeout=LOOK, return_when="FIRST_COMPLETED").done)
            except TimeoutError as error:
                error.with_traceback(None)  # its frames refer to the futures, which would keep results on the workers
                self._check_workers()
                continue
            for future in done:
                if future.status != "finished":
                    self.value(future)
            pending -= done
            yield len(done)

    def value(self, future: Any) -> Any:
        """The result of a task, transferred to the client."""
        client, longest = self.cluster.client, BRINGING

        async def request() -> asyncio.Task[Any]:
            task: asyncio.Task[Any] = asyncio.ensure_future(client.gather(future, asynchronous=True))
            task.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # retrieve the exception, so that asyncio does not log it
            await asyncio.wait([task], timeout=longest)  # not cancelled: later requests would be cancelled too
            return task

        while True:
            task = client.sync(request)
            if task.done():
                return task.result()
            self._check_workers()  # the worker with the result may be lost; a new request recomputes it
            longest *= 2  # or the result is large and the network slow

    def stream(self, futures: Iterable[Any], ahead: int = 3) -> Iterator[Any]:
        """Yield results in order; futures are taken from the iterator, and freed, one by one."""
        waiting: deque[Any] = deque()
        source = iter(futures)
        while True:
            for future in source:
                waiting.append(future)
                del future
                if len(waiting) > ahead:
                    break
            if not waiting:
                return
            for _ in self.finished([waiting[0]]):
                pass
            yield self.value(waiting.popleft())

    def _check_workers(self) -> None:
        """Raise ClusterError where no worker has been alive for `patience` seconds."""
        if self.cluster.client.status != "running":
            raise ClusterError(f"{self.doing}: the connection to the scheduler was lost; run the command again")
        if self.cluster.workers():
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > self.cluster.patience:
            raise ClusterError(
                f"{self.doing}: all workers are lost, and none reconnected in {self.cluster.patience:g} s; "
                "start workers, then run the command again"
            )
