"""The model follows the stored events, exactly, behind the back of those who read it.

How nothing is lost or counted twice. The model file says in its header which database it follows and the number of
the last event in it (`applied`). File and number are one file, which appears whole or not at all. At the start, and
after a reload, the events after that number are added before the model is served. So a kill at any moment leaves some
file and, in the database, every event that was acknowledged: those up to the file's number are in the file, those after
it are added from there. A file that was not written here has no number, or one of another database: then every event
is new to it.

Each change is made to a copy: the arrays that are served are read-only, so the library makes new ones. The file is
written after each change that forgets someone, else every `snapshot` seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.errors import ModelFileError, MonogramError
from monogram.models import files, updates
from monogram.models.full_rank import FullRank
from monogram.server import logs, schemas
from monogram.server.events import Change, EventStore
from monogram.server.shelf import Shelf, stamp
from monogram.weights import Dense

if TYPE_CHECKING:
    from monogram.models.base import Recommender

AGAIN = 5.0  # seconds after a failure


class Follower:
    """Keeps one model of a shelf up with a store of events, in a thread of its own."""

    def __init__(self, shelf: Shelf, store: EventStore) -> None:
        self.shelf, self.store, self.settings = shelf, store, shelf.settings
        [(self.name, self.path)] = self.settings.models.items()
        self.applied = self.saved = 0
        self.error: str | None = None
        self._lock = threading.Lock()
        self._news, self._stop = threading.Event(), threading.Event()
        self._saved_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="refresh", daemon=True)

    def begin(self) -> None:
        """Bring the model of the shelf up to date, and go on from there."""
        entry = self.shelf.get(self.name)
        updates.check(entry.model)
        with self._lock:
            self._adopt(entry.model, entry.header)
        self.shelf.own[self.name] = self._reload
        self._thread.start()

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
        with self._lock:
            self._adopt(*self.shelf.read(self.path))
        return "reloaded"

    def _adopt(self, model: Recommender, header: dict[str, Any]) -> None:
        """Serve a model that was read from the file, with all events it lacks."""
        updates.check(model)
        mark = header.get("applied")
        known = isinstance(mark, dict) and mark.get("events") == self.store.id
        at = int(mark["seq"]) if known and mark is not None else 0
        model, now, forgot = self._advanced(model, at)
        self.shelf.put(self.name, model, header)
        self.applied, self.saved = now, at
        self.shelf.metrics.applied.set(now)
        if forgot:
            self._save()

    def _advanced(self, model: Recommender, at: int) -> tuple[Recommender, int, bool]:
        """The model with every event after a number; the last number, and whether someone was forgotten."""
        forgot = False
        while changes := self.store.since(at):
            model, gone = changed(model, changes, self.shelf.threads)
            at, forgot = changes[-1].seq, forgot or gone
        return model, at, forgot

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
            with self._lock:
                self._follow()
            self.error = None
        except Exception as error:
            told = isinstance(error, MonogramError)
            self.error = str(error) if told else f"it does not work ({type(error).__name__})"
            logs.LOG.error("refresh failed: the model stays as it was", exc_info=error)
            self._stop.wait(AGAIN)
            self._news.set()

    def _follow(self) -> None:
        entry = self.shelf.get(self.name)
        model, now, forgot = self._advanced(entry.model, self.applied)
        if now != self.applied:
            start = time.monotonic()
            self.shelf.put(self.name, model, entry.header)
            logs.tell(
                "refreshed", model=self.name, events=now - self.applied, ms=round(1e3 * (time.monotonic() - start))
            )
            self.applied = now
            self.shelf.metrics.applied.set(now)
        due = time.monotonic() - self._saved_at >= self.settings.snapshot
        if forgot or (self.saved < self.applied and due):
            self._save()

    def _save(self) -> None:
        """Write the file, unless it was replaced by another since it was read: that one is to be loaded first."""
        if stamp(self.path) != self.shelf.stamps[self.name]:
            logs.tell(
                "the model file was replaced: it is not written over; reload it", logging.WARNING, model=self.name
            )
            return
        entry = self.shelf.get(self.name)
        kept = {key: entry.header[key] for key in ("metrics",) if key in entry.header}
        mark = {"applied": {"events": self.store.id, "seq": self.applied}}
        files.save(entry.model, self.path, extra=kept | mark)
        self.shelf.stamps[self.name] = stamp(self.path)
        self.saved, self._saved_at = self.applied, time.monotonic()


def changed(model: Recommender, changes: list[Change], threads: int) -> tuple[Recommender, bool]:
    """A copy of a model after some changes, in their order; and whether it forgot someone it knew."""
    wishes = {change.user: change.seq for change in changes if change.item is None}
    events = [one for one in changes if one.item is not None and one.seq > wishes.get(one.user, 0)]
    known = [user for user in wishes if user in model.log_.users]
    if not known and not events:
        return model, False
    if not isinstance(model, FullRank):
        raise ModelFileError(f"a {type(model).__name__} cannot follow events")
    fresh = type(model)(**model.params())
    fresh._become(model.log_, _sealed(model), model.report_, kept=model._kept)
    if known:
        fresh.forget_users(known, threads=threads)
        _sealed(fresh)
    if events:
        fresh.add_users(_log(events, model.log_), new_items=True, threads=threads)
    _sealed(fresh)
    return fresh, bool(known)


def _sealed(model: FullRank) -> Any:
    """The weights of a model, made read-only: a change then makes new arrays, and readers keep what they have."""
    weights = model.weights_
    if isinstance(weights, Dense):
        weights.matrix.setflags(write=False)
    if model._kept is not None and model._kept.gram is not None:
        model._kept.gram.setflags(write=False)
    return weights


def _log(events: list[Change], log: Interactions) -> Interactions:
    """Events as a log, merged as another one and with ids of its kinds."""
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    at = [(users.setdefault(one.user, len(users)), items.setdefault(str(one.item), len(items))) for one in events]
    rows, columns = zip(*at, strict=True)
    matrix = sp.coo_array(([one.weight for one in events], (rows, columns)), shape=(len(users), len(items))).tocsr()
    ids = [log.users.same_kind(one) for one in users], [log.items.same_kind(one) for one in items]
    return Interactions.from_csr(matrix, *ids, merge=log.merge)
