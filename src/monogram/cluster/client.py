"""The one door to dask.distributed: a cluster that was given or named, its tasks, and what goes wrong, in words."""

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

CONNECTING = 10.0  # seconds to reach a scheduler, and to see its first worker
BRINGING = 4.0  # seconds for a result to come, before it is asked for again
LOOK = 1.0  # seconds between two looks at whether anybody is still there
WAYS = ("auto", "one_worker", "tiles")
LEAST = 8  # items of a tile, and bytes of what goes in one piece


@dataclass(frozen=True)
class Cluster:
    """A cluster and how it is used: `fit` and `recommend_all` take it in place of a client.

    Attributes
    ----------
    client : a `distributed.Client`
    solve : "one_worker", "tiles", or "auto": one worker where the square array fits there, else tiles
    tile : largest side of a tile of the Gram
    part : bytes of a partition of the users, at most
    group : bytes of the partitions that one task cuts into columns
    bundle : bytes of the columns that one task multiplies to a partial tile; partial tiles are what is dear to move
    patience : seconds without any worker, after which the work is given up
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
        """The workers by address, as the scheduler knows them."""
        with in_words("asking for its workers"):
            found: dict[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        return found


def need() -> None:
    """Raise MissingExtraError where Dask is not installed."""
    if importlib.util.find_spec("distributed") is None or importlib.util.find_spec("dask") is None:
        raise MissingExtraError("cluster= needs Dask: pip install 'monogram[dask]'")


@contextmanager
def opened(given: Any) -> Iterator[Cluster]:
    """A cluster from a client, from an address, or from "local" or "local:N", which end with the block."""
    need()
    if isinstance(given, str):
        with _quiet(), _named(given.strip()) as client:
            yield _ready(Cluster(client))
        return
    from distributed import Client

    found = given if isinstance(given, Cluster) else Cluster(given)
    if not isinstance(found.client, Client):
        kind = type(found.client).__name__
        hint = "; write distributed.Client(cluster)" if kind.endswith("Cluster") else ""
        raise ParameterError(
            f"cluster is of type {kind}; expected a distributed.Client, an address such as tcp://host:8786, "
            f"or 'local:N'{hint}"
        )
    yield _ready(found)


def _ready(cluster: Cluster) -> Cluster:
    """The cluster, if it can be asked and has a worker."""
    client = cluster.client
    if client.asynchronous:
        raise ParameterError("the client is asynchronous; expected one made with asynchronous=False")
    waited = time.monotonic() + CONNECTING
    while client.status == "connecting" and time.monotonic() < waited:  # it lost its scheduler and is calling again
        time.sleep(0.02)
    if client.status != "running":
        raise ClusterError(f"the client is {client.status}, not running; connect again")
    try:
        client.wait_for_workers(1, timeout=CONNECTING)
    except TimeoutError as error:
        raise ClusterError(
            f"the cluster has no workers: none came in {CONNECTING:g} s; start some: dask worker {_address(client)}"
        ) from error
    return cluster


def _address(client: Any) -> str:
    return str(client.scheduler.address) if client.scheduler is not None else "tcp://host:port"


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside, distributed says nothing of its own: what matters is an error of ours."""
    import distributed  # noqa: F401 (its loggers are there then, some with a level of their own)

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
    """A client of a scheduler by its address, or of worker processes started here."""
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
    """Worker processes on this machine, one a core where their number is not given."""
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
def in_words(doing: str) -> Iterator[None]:
    """Inside, what dask.distributed raises becomes an error of ours that says at what, and what to do."""
    from concurrent.futures import CancelledError

    from distributed.comm.core import CommClosedError
    from distributed.exceptions import WorkerStartTimeoutError
    from distributed.scheduler import KilledWorker
    from numpy.linalg import LinAlgError

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"{doing}: one task has cost {error.allowed_failures + 1} workers their lives, likely for lack of memory; "
            "give the workers more of it, or start more of them"
        ) from error
    except LinAlgError as error:
        raise NumericalError(f"the matrix is not positive definite ({error})") from error
    except MemoryError as error:
        raise ClusterError(f"{doing}: a worker ran out of memory; give the workers more of it") from error
    except ImportError as error:
        raise ClusterError(
            f"{doing}: a worker lacks what is needed ({error}); install the same monogram there"
        ) from error
    except (CancelledError, asyncio.CancelledError) as error:  # the second where the client itself is closed meanwhile
        raise ClusterError(f"{doing}: the scheduler is gone, or somebody cancelled the work; start it again") from error
    except (CommClosedError, ConnectionError, TimeoutError, WorkerStartTimeoutError) as error:
        raise ClusterError(f"{doing}: the connection to the cluster was lost ({error}); start it again") from error


class Run:
    """The tasks of one piece of work. Keys are its own, so that two of them never meet.

    Results are held by nobody but those who hold the futures: what is dropped here is freed there.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.mark = cluster, uuid.uuid4().hex[:12]
        self.doing = "starting"
        self._alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen = time.monotonic()

    @contextmanager
    def stage(self, doing: str) -> Iterator[None]:
        """One stage, by which an error names it; when it is left by one, or by Ctrl-C, its tasks are cancelled."""
        self.doing = doing
        try:
            with in_words(doing):
                yield
        except BaseException:
            self.cancel()
            raise

    def submit(self, function: Callable[..., Any], *arguments: Any, name: str, **options: Any) -> Any:
        """A task; its key says what it is."""
        future = self.cluster.client.submit(function, *arguments, key=f"monogram-{name}-{self.mark}", **options)
        self._alive.add(future)
        return future

    def watch(self, futures: Iterable[Any]) -> None:
        """Cancel these too, should it come to that."""
        self._alive.update(futures)

    def cancel(self) -> None:
        """Give up what is not done yet."""
        with suppress(Exception):  # the cluster may be what failed
            for future in list(self._alive):
                future.release()  # Client.cancel makes the scheduler drop the client where tasks nobody named follow

    def finished(self, futures: Iterable[Any]) -> Iterator[int]:
        """Wait for all; how many of them have just been done, as that happens. An error of a task is raised here."""
        from distributed import wait

        pending = set(futures)
        while pending:
            try:
                with self.cluster.client.as_current():
                    done = set(wait(pending, timeout=LOOK, return_when="FIRST_COMPLETED").done)
            except TimeoutError as error:
                error.with_traceback(None)  # its frames hold it, and the futures: results would stay on the workers
                self._look()
                continue
            for future in done:
                if future.status != "finished":
                    self.value(future)
            pending -= done
            yield len(done)

    def value(self, future: Any) -> Any:
        """The result of a task, brought here."""
        client, longest = self.cluster.client, BRINGING

        async def asked() -> asyncio.Task[Any]:
            task: asyncio.Task[Any] = asyncio.ensure_future(client.gather(future, asynchronous=True))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may ask any more
            await asyncio.wait([task], timeout=longest)  # not cancelled: later questions would be, too
            return task

        while True:
            task = client.sync(asked)
            if task.done():
                return task.result()
            self._look()  # who held it may be gone; asked again, another has it
            longest *= 2  # or it is large, and the line slow

    def stream(self, futures: Iterable[Any], ahead: int = 3) -> Iterator[Any]:
        """Results in their order; futures are taken from the iterator, and freed, as the results are."""
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

    def _look(self) -> None:
        """Give up when nobody has been there for long."""
        if self.cluster.client.status != "running":
            raise ClusterError(f"{self.doing}: the connection to the scheduler was lost; start it again")
        if self.cluster.workers():
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > self.cluster.patience:
            raise ClusterError(
                f"{self.doing}: every worker is gone, and none came back in {self.cluster.patience:g} s; start some, "
                "then start again"
            )
