"""Background refresh: a thread applies the stored events to the served model, exactly.

No event is lost or counted twice. The header of the model file names the database of events and the number of the last
event in the model (`applied`). File and number are one file, which is replaced atomically. At the start, and after a
reload, the events after that number are applied before the model is served. A crash at any moment therefore leaves a
file, and a database with every acknowledged event: those up to the file's number are in the file, those after it are
applied from the database. A file that this server did not write has no number, or one of another database: then every
event is applied to it.

Each update is made on a copy. The served arrays are read-only, so that the update makes new ones, and requests in
progress keep the old ones. The file is written after each update that forgets a user, otherwise every `snapshot`
seconds. Where changes cannot be applied, the requests to forget users among them still are; the server keeps running,
reports the error (`updates.error`), and tries again.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from monogram import store as store_
from monogram.errors import ModelFileError, MonogramError, StorageError
from monogram.models import files, updates
from monogram.models.change import UpdateOptions
from monogram.server import logs
from monogram.server.http import schemas
from monogram.server.model_registry import ModelRegistry, stamp
from monogram.server.updates.admission import Admission, Ticket
from monogram.server.updates.event_log import as_log
from monogram.server.updates.events import NO_LIMIT, EventStore, LogChange

if TYPE_CHECKING:
    from monogram.models.base import Recommender
    from monogram.models.full_rank import FullRank

RETRY, LONGEST_RETRY = 5.0, 60.0  # seconds to wait after a failure, doubled after each further one
MARK = "serve-"  # in the names of temporary model files: one that exists at the start is of a killed server


@dataclass(frozen=True)
class RefreshResult:
    """A model after the changes that could be applied.

    Attributes
    ----------
    model : the updated model
    seq : number of the last event in it
    forgot : whether it forgot a user
    error : what stopped the update, if anything
    unforgotten : whether a user who asked to be forgotten is still in it
    """

    model: Recommender
    seq: int
    forgot: bool = False
    error: MonogramError | None = None
    unforgotten: bool = False


class Refresher:
    """Applies the events of a store to one model of the registry, in a background thread."""

    def __init__(self, registry: ModelRegistry, store: EventStore) -> None:
        self.registry, self.store, self.settings = registry, store, registry.settings
        [(self.name, self.path)] = self.settings.models.items()
        self.admission = Admission()
        self.applied = self.saved = 0
        self.error: str | None = None
        self._must_save = False  # the file holds a user whom the model has forgotten
        self._wake, self._stop = threading.Event(), threading.Event()
        self._saved_at, self._pause = time.monotonic(), RETRY
        self._thread = threading.Thread(target=self._run, name="refresh", daemon=True)

    def start(self) -> None:
        """Bring the served model up to date, and start the thread."""
        served = self.registry.get(self.name)
        with self.registry.lock:
            self._adopt(served.model, served.header)
        self.registry.reloaders[self.name] = self._reload
        self._thread.start()

    def admit(self, changes: Sequence[LogChange]) -> Ticket:
        """See `Admission.admit`."""
        return self.admission.admit(changes, self.registry.get(self.name).model, self.applied)

    def notify(self) -> None:
        """Wake the thread: there are new events."""
        self._wake.set()

    def stop(self) -> bool:
        """Stop after the current update; whether the thread ended within `grace` seconds."""
        self._stop.set()
        self._wake.set()
        self._thread.join(self.settings.grace)
        return not self._thread.is_alive()

    def status(self) -> schemas.Updates:
        """The numbers of the last stored, applied and saved event, and the last error."""
        return schemas.Updates(self.store.last, self.applied, self.saved, self.error)

    def _reload(self) -> str:
        self._adopt(*self.registry.read(self.name, self.path))
        return "reloaded"

    def _adopt(self, model: Recommender, header: dict[str, Any]) -> None:
        """Serve a model read from the file, after the events it lacks; refuse one that still knows a forgotten user."""
        updates.check(model)
        mark = header.get("applied")
        same_store = isinstance(mark, dict) and mark.get("events") == self.store.id
        seq = int(mark["seq"]) if same_store and mark is not None else 0
        result = self._apply(model, seq)
        if result.error is not None and result.unforgotten:
            raise result.error
        self._serve(result, header)
        self.saved, self._must_save, self.error = seq, result.forgot, None
        try:
            self._remove_leftovers()
            self._save()
            if result.error is not None:
                raise result.error
        except MonogramError as error:
            self._failed(error)
            self._wake.set()

    def _apply(self, model: Recommender, seq: int) -> RefreshResult:
        """Apply every change after a number; where one cannot be applied, at least the requests to forget users."""
        forgot = False
        try:
            while changes := self.store.since(seq):
                model, forgot_now = changed(model, changes, self.registry.threads)
                seq, forgot = changes[-1].seq, forgot or forgot_now
        except MonogramError as error:
            deletions = [change for change in self.store.since(seq, NO_LIMIT) if change.item is None]
            try:
                model, forgot_now = changed(model, deletions, self.registry.threads)
            except MonogramError:
                return RefreshResult(model, seq, forgot, error, unforgotten=True)
            return RefreshResult(model, seq, forgot or forgot_now, error)
        return RefreshResult(model, seq, forgot)

    def _serve(self, result: RefreshResult, header: dict[str, Any]) -> None:
        self.registry.put(self.name, result.model, header)
        self.applied, self._must_save = result.seq, self._must_save or result.forgot
        self.registry.metrics.applied.set(result.seq)

    def _run(self) -> None:
        while not self._stop.is_set():
            woken = self._wake.wait(self.settings.snapshot or None)
            self._wake.clear()
            if woken:
                self._stop.wait(self.settings.refresh)  # events that arrive together are one update
            if not self._stop.is_set():
                self._step()

    def _step(self) -> None:
        try:
            with self.registry.lock:
                self._refresh()
            self.error, self._pause = None, RETRY
        except Exception as error:
            self._failed(error)
            self._stop.wait(self._pause)
            self._pause = min(2 * self._pause, LONGEST_RETRY)
            self._wake.set()

    def _failed(self, error: Exception) -> None:
        expected = isinstance(error, MonogramError)
        self.error = str(error) if expected else f"unexpected error ({type(error).__name__})"
        logs.LOG.error("the model could not be updated or saved; the server will try again", exc_info=error)

    def _refresh(self) -> None:
        start, served, before = time.monotonic(), self.registry.get(self.name), self.applied
        result = self._apply(served.model, before)
        if result.model is not served.model or result.seq != before:
            self._serve(result, served.header)
            milliseconds = round(1e3 * (time.monotonic() - start))
            logs.emit("refreshed", model=self.name, events=result.seq - before, ms=milliseconds)
        self._save()
        if result.error is not None:
            raise result.error

    def _save(self) -> None:
        """Write the model file if it is due: at once after a user was forgotten, else every `snapshot` seconds.

        A file that was replaced since it was read is not overwritten: it must be loaded first.
        """
        due = time.monotonic() - self._saved_at >= self.settings.snapshot
        if not self._must_save and (self.saved == self.applied or not due):
            return
        self._check_file()
        self._remove_leftovers()
        served = self.registry.get(self.name)
        metrics = {key: served.header[key] for key in ("metrics",) if key in served.header}
        mark = {"applied": {"events": self.store.id, "seq": self.applied}}
        files.save(served.model, self.path, extra=metrics | mark, mark=MARK, check=self._check_file)
        self.registry.stamps[self.name] = stamp(self.path)
        self.saved, self._saved_at, self._must_save = self.applied, time.monotonic(), False

    def _remove_leftovers(self) -> None:
        """Remove temporary files of a server that was killed while writing: they may hold a forgotten user."""
        try:
            for path in store_.leftovers(self.path, MARK):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"a temporary model file cannot be removed: {error.strerror}; check its folder"
            ) from error

    def _check_file(self) -> None:
        if stamp(self.path) != self.registry.stamps[self.name]:
            still = "; the file still holds users who were forgotten" if self._must_save else ""
            raise ModelFileError(f"the model file was replaced or removed and is not overwritten: reload it{still}")


def changed(model: Recommender, changes: list[LogChange], threads: int) -> tuple[Recommender, bool]:
    """A copy of a model after some changes, in their order; and whether it forgot a user it knew."""
    deletions = {change.user: change.seq for change in changes if change.item is None}
    events = [change for change in changes if change.item is not None and change.seq > deletions.get(change.user, 0)]
    known = [user for user in deletions if user in model.log_.users]
    if not known and not events:
        return model, False
    updates.check(model)
    # A copy shares the arrays and makes them read-only, so that the update makes new ones.
    fresh = cast("FullRank", copy.copy(model))
    options = UpdateOptions(threads=threads, on_large="refit")  # a served model follows every event
    if events:
        updates.exchange_users(fresh, known, as_log(events, model.log_), options)
    else:
        updates.forget_users(fresh, known, options)
    fresh.weights_.seal()  # read-only, as in a mapped file: the kernels are compiled for that
    return fresh, bool(known)
