"""The model follows the stored events, exactly, behind the back of those who read it.

How nothing is lost or counted twice. The model file says in its header which database it follows and the number of
the last event in it (`applied`). File and number are one file, which appears whole or not at all. At the start, and
after a reload, the events after that number are added before the model is served. So a kill at any moment leaves some
file and, in the database, every event that was acknowledged: those up to the file's number are in the file, those after
it are added from there. A file that was not written here has no number, or one of another database: then every event
is new to it.

Each change is made to a copy: the arrays that are served are read-only, so the library makes new ones. The file is
written after each change that forgets someone, else every `snapshot` seconds. Where changes cannot be carried out, the
wishes to be forgotten among them still are; the server goes on, says so (`updates.error`), and tries again.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import scipy.sparse as sp

from monogram import store as store_
from monogram.data.interactions import Interactions
from monogram.errors import ModelFileError, MonogramError, StorageError
from monogram.models import files, updates
from monogram.server import logs
from monogram.server.http import schemas
from monogram.server.model_registry import ModelRegistry, stamp
from monogram.server.updates.admission import Admission, Ticket
from monogram.server.updates.events import NO_LIMIT, Change, EventStore
from monogram.weights.common import share

if TYPE_CHECKING:
    from monogram.models.base import Recommender
    from monogram.models.full_rank import FullRank

RETRY, LONGEST = 5.0, 60.0  # seconds after a failure, twice as many after each further one
MARK = "serve-"  # in the names of files half written: one that is found is of a server that was killed


@dataclass(frozen=True)
class RefreshResult:
    """A model that followed: up to which number, whether someone was forgotten; and what stopped it, if anything."""

    model: Recommender
    at: int
    forgot: bool = False
    error: MonogramError | None = None
    kept: bool = False  # someone who was to be forgotten is still in it


class Refresher:
    """Keeps one model of a registry up with a store of events, in a thread of its own."""

    def __init__(self, registry: ModelRegistry, store: EventStore) -> None:
        self.registry, self.store, self.settings = registry, store, registry.settings
        [(self.name, self.path)] = self.settings.models.items()
        self.admission = Admission()
        self.applied = self.saved = 0
        self.error: str | None = None
        self._owed = False  # the file holds someone who was forgotten
        self._news, self._stop = threading.Event(), threading.Event()
        self._saved_at, self._pause = time.monotonic(), RETRY
        self._thread = threading.Thread(target=self._run, name="refresh", daemon=True)

    def begin(self) -> None:
        """Bring the model of the registry up to date, and go on from there."""
        served = self.registry.get(self.name)
        with self.registry.lock:
            self._adopt(served.model, served.header)
        self.registry.own[self.name] = self._reload
        self._thread.start()

    def admit(self, changes: Sequence[Change]) -> Ticket:
        """See `Admission.admit`."""
        return self.admission.admit(changes, self.registry.get(self.name).model, self.applied)

    def notify(self) -> None:
        """Tell that there are new events."""
        self._news.set()

    def stop(self) -> bool:
        """End after the change under way, within the grace; whether it did."""
        self._stop.set()
        self._news.set()
        self._thread.join(self.settings.grace)
        return not self._thread.is_alive()

    def status(self) -> schemas.Updates:
        """How far it is."""
        return schemas.Updates(self.store.last, self.applied, self.saved, self.error)

    def _reload(self) -> str:
        self._adopt(*self.registry.read(self.path))
        return "reloaded"

    def _adopt(self, model: Recommender, header: dict[str, Any]) -> None:
        """Serve a model that was read from the file, with the events it lacks, but nobody who was to be forgotten."""
        updates.check(model)
        mark = header.get("applied")
        known = isinstance(mark, dict) and mark.get("events") == self.store.id
        at = int(mark["seq"]) if known and mark is not None else 0
        found = self._advanced(model, at)
        if found.error is not None and found.kept:
            raise found.error
        self._serve(found, header)
        self.saved, self._owed, self.error = at, found.forgot, None
        try:
            self._sweep()
            self._write()
            if found.error is not None:
                raise found.error
        except MonogramError as error:
            self._failed(error)
            self._news.set()

    def _advanced(self, model: Recommender, at: int) -> RefreshResult:
        """The model with every change after a number, as far as they can be made; with every wish, if that can be."""
        forgot = False
        try:
            while changes := self.store.since(at):
                model, gone = changed(model, changes, self.registry.threads)
                at, forgot = changes[-1].seq, forgot or gone
        except MonogramError as error:
            wishes = [one for one in self.store.since(at, NO_LIMIT) if one.item is None]
            try:
                model, gone = changed(model, wishes, self.registry.threads)
            except MonogramError:
                return RefreshResult(model, at, forgot, error, kept=True)
            return RefreshResult(model, at, forgot or gone, error)
        return RefreshResult(model, at, forgot)

    def _serve(self, found: RefreshResult, header: dict[str, Any]) -> None:
        self.registry.put(self.name, found.model, header)
        self.applied, self._owed = found.at, self._owed or found.forgot
        self.registry.metrics.applied.set(found.at)

    def _run(self) -> None:
        while not self._stop.is_set():
            heard = self._news.wait(self.settings.snapshot or None)
            self._news.clear()
            if heard:
                self._stop.wait(self.settings.refresh)  # what comes together is one change
            if not self._stop.is_set():
                self._step()

    def _step(self) -> None:
        try:
            with self.registry.lock:
                self._follow()
            self.error, self._pause = None, RETRY
        except Exception as error:
            self._failed(error)
            self._stop.wait(self._pause)
            self._pause = min(2 * self._pause, LONGEST)
            self._news.set()

    def _failed(self, error: Exception) -> None:
        told = isinstance(error, MonogramError)
        self.error = str(error) if told else f"it does not work ({type(error).__name__})"
        logs.LOG.error("the model cannot follow, or cannot be saved: tried again", exc_info=error)

    def _follow(self) -> None:
        start, served, before = time.monotonic(), self.registry.get(self.name), self.applied
        found = self._advanced(served.model, before)
        if found.model is not served.model or found.at != before:
            self._serve(found, served.header)
            took = round(1e3 * (time.monotonic() - start))
            logs.emit("refreshed", model=self.name, events=found.at - before, ms=took)
        self._write()
        if found.error is not None:
            raise found.error

    def _write(self) -> None:
        """Write the file where it is due: at once after someone was forgotten, else every `snapshot` seconds.

        A file that was replaced by another since it was read is not written over: that one is to be loaded first.
        """
        due = time.monotonic() - self._saved_at >= self.settings.snapshot
        if not self._owed and (self.saved == self.applied or not due):
            return
        self._check_file()
        self._sweep()
        served = self.registry.get(self.name)
        kept = {key: served.header[key] for key in ("metrics",) if key in served.header}
        mark = {"applied": {"events": self.store.id, "seq": self.applied}}
        files.save(served.model, self.path, extra=kept | mark, mark=MARK, check=self._check_file)
        self.registry.stamps[self.name] = stamp(self.path)
        self.saved, self._saved_at, self._owed = self.applied, time.monotonic(), False

    def _sweep(self) -> None:
        """Remove what a server that was killed while it wrote has left: it may hold someone who was forgotten."""
        try:
            for one in store_.leftovers(self.path, MARK):
                one.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"half a model file cannot be removed from its folder: {error.strerror}") from error

    def _check_file(self) -> None:
        if stamp(self.path) != self.registry.stamps[self.name]:
            still = "; the file still holds users who were forgotten" if self._owed else ""
            raise ModelFileError(f"the model file was replaced or removed and is not written over: reload it{still}")


def changed(model: Recommender, changes: list[Change], threads: int) -> tuple[Recommender, bool]:
    """A copy of a model after some changes, in their order; and whether it forgot someone it knew."""
    wishes = {change.user: change.seq for change in changes if change.item is None}
    events = [one for one in changes if one.item is not None and one.seq > wishes.get(one.user, 0)]
    known = [user for user in wishes if user in model.log_.users]
    if not known and not events:
        return model, False
    updates.check(model)
    # A copy shares the arrays and makes them read-only, so that the update makes new ones.
    fresh = cast("FullRank", copy.copy(model))
    if events:
        updates.exchange_users(fresh, known, _log(events, model.log_), updates.How(threads=threads))
    else:
        fresh.forget_users(known, threads=threads)
    share(fresh.weights_)  # read-only as a model of a file: the kernels are compiled for that
    return fresh, bool(known)


def _log(events: list[Change], log: Interactions) -> Interactions:
    """Events as a log, merged as another one and with ids of its kinds."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    at = [(users.setdefault(one.user, len(users)), items.setdefault(str(one.item), len(items))) for one in events]
    rows, columns = zip(*at, strict=True)
    matrix = sp.coo_array(([one.weight for one in events], (rows, columns)), shape=(len(users), len(items))).tocsr()
    ids = [log.users.same_kind(one) for one in users], [log.items.same_kind(one) for one in items]
    return Interactions.from_csr(matrix, *ids, merge=log.merge)
