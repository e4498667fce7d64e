"""The models by name: loaded, probed, then swapped in. Whoever holds the old one keeps it until they are done."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from monogram import ranking
from monogram.engine.runtime import parallel
from monogram.errors import DataError, ModelFileError, MonogramError, UnknownIdError, one_of
from monogram.models import files, live
from monogram.models.base import Recommender
from monogram.server import logs
from monogram.server.http import schemas
from monogram.server.metrics import Metrics
from monogram.server.queries import catalogue, responses
from monogram.server.queries.batching import Batcher, Load
from monogram.server.queries.catalogue import Catalogue, ItemTable
from monogram.server.settings import Settings
from monogram.weights import Weights

HEADS = 16  # changed parameters whose factors are kept
Stamp = tuple[int, int, int]


class ServedModel:
    """One model as it is served; never changed."""

    def __init__(self, name: str, model: Recommender, registry: ModelRegistry, header: dict[str, Any]) -> None:
        self.name, self.model, self.header, self.loaded = name, model, header, time.time()
        self.catalogue = Catalogue(model.log_, registry.table)
        self.kernel = registry.metrics.kernel.labels(name)
        self.batches = registry.metrics.batches.labels(name)
        work = partial(responses.rank_all, self, threads=registry.threads)
        self.batcher = Batcher(work, registry.pool, registry.load, registry.settings.gather)
        self._heads: dict[tuple[Any, ...], Weights] = {}

    def weights(self, parameters: dict[str, Any]) -> Weights:
        """The weights, or those under other parameters; the last few of these are kept."""
        if not parameters:
            return self.model.weights_
        key = tuple(sorted((name, type(value), value) for name, value in parameters.items()))
        found = self._heads.get(key)
        if found is None:
            found = live.weights(self.model, parameters)
            if len(self._heads) >= HEADS:
                self._heads = {}
            self._heads[key] = found
        return found

    def count_calls(self, calls: list[ranking.KernelCall]) -> None:
        """Add kernel calls to the metrics."""
        for call in calls:
            self.kernel.inc(call.seconds)
            self.batches.observe(call.rows)

    def probe(self) -> None:
        """Have it answer a history, or raise."""
        log = self.model.log_
        histories = ranking.item_histories([log.items[0]], log)
        [lists], _ = ranking.rank([ranking.Query(histories, self.model.weights_, k=1)], log.items, threads=1)
        best = lists.best
        if not np.isfinite(best.scores[0, : best.counts[0]]).all():
            raise ModelFileError(f"the model {self.name!r} answered a probe with a score that is no number")

    def card(self, updates: schemas.Updates | None) -> schemas.Card:
        """All about the model."""
        model, log = self.model, self.model.log_
        pruning = None if model.pruning_ is None else asdict(model.pruning_)
        return schemas.Card(
            self.name,
            type(model).__name__,
            model.params(),
            live.parameters(model),
            log.n_users,
            log.n_items,
            log.n_events,
            log.merge,
            model.weights_.kind,
            model.weights_.nbytes,
            asdict(model.report_),
            self.header.get("metrics"),
            pruning,
            list(self.catalogue.names),
            updates,
            self.loaded,
        )


class ModelRegistry:
    """The models of one process."""

    def __init__(self, settings: Settings, metrics: Metrics, load: Load) -> None:
        self.settings, self.metrics, self.load = settings, metrics, load
        everything = parallel.count(settings.threads)
        self.threads = everything if settings.threads else max(1, everything // settings.workers)
        self.pool = ThreadPoolExecutor(8, thread_name_prefix="model")
        self.table: ItemTable | None = None
        self.models: dict[str, ServedModel] = {}
        self.stamps: dict[str, Stamp | None] = {}  # of the files that are served
        self.own: dict[str, Callable[[], str]] = {}  # models that are reloaded in a way of their own
        self.lock = threading.RLock()  # whoever replaces an served holds it, from before the look at the old one
        self._items_stamp: Stamp | None = None
        self._tried: dict[str, Stamp | None] = {}  # of the files that were looked at last

    def open(self) -> None:
        """Load every model; a bad file stops the start."""
        self.table = catalogue.read(self.settings.items)
        self._items_stamp = None if self.settings.items is None else stamp(self.settings.items)
        for name, path in self.settings.models.items():
            self.stamps[name] = stamp(path)
            self.put(name, *self.read(path))
            self._tell_items(name)

    def get(self, name: Any = UNSET) -> ServedModel:
        """A model by name, or the first."""
        if name is UNSET:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UnknownIdError(f"no model {name[:60]!r} is served; {one_of(name[:60], self.models)}")
        return self.models[name]

    def read(self, path: str) -> tuple[Recommender, dict[str, Any]]:
        """A model and its header, memory-mapped."""
        return files.read(path, self.settings.verify)

    def put(self, name: str, model: Recommender, header: dict[str, Any]) -> None:
        """Serve a model under a name, once it has answered a probe."""
        served = ServedModel(name, model, self, header)
        served.probe()
        self.models[name] = served  # one assignment: a request sees the old one or the new one
        self.metrics.model(name, type(model).__name__, model.log_.n_users, model.log_.n_items)

    def reload(self) -> list[schemas.Reloaded]:
        """Load the files that have changed; a bad one leaves the old model, and is an error once all were tried."""
        with self.lock:
            wrong = self._read_items()
            done = [schemas.Reloaded(name, self._again(name)) for name in self.settings.models]
        failed = [f"{one.name}: {one.status}" for one in done if one.status not in ("reloaded", "unchanged")]
        if failed or wrong:
            raise ModelFileError(f"{'; '.join([*failed, *wrong])}. What was there goes on serving")
        return done

    def _read_items(self) -> list[str]:
        """Read the file of items again if it has changed; what is wrong with it, where it leaves things as they are."""
        path = self.settings.items
        if path is None or stamp(path) == self._items_stamp:
            return []
        now = self._tried[path] = stamp(path)
        try:
            self.table = catalogue.read(path)
        except DataError as error:
            logs.emit("reload of the items failed: the old ones stay", logging.ERROR, reason=str(error))
            return [str(error)]
        self._items_stamp = now
        for name, served in list(self.models.items()):
            self.put(name, served.model, served.header)
            self._tell_items(name)
        return []

    def _tell_items(self, name: str) -> None:
        """Say how many items the file of items knows: none is most likely a mistake."""
        if self.table is not None:
            matched = self.models[name].catalogue.matched
            logs.emit(
                "items", logging.INFO if matched else logging.WARNING,
                model=name, rows=len(self.table.ids), matched=matched,
            )  # fmt: skip

    def _again(self, name: str) -> str:
        path = self.settings.models[name]
        now = stamp(path)
        if now is not None and now == self.stamps[name]:
            return "unchanged"
        before, self.stamps[name], self._tried[path] = self.stamps[name], now, now
        try:
            status = self.own[name]() if name in self.own else self._replace(name, path)
        except Exception as error:  # whatever a strange file does, the old model goes on
            self.stamps[name] = before
            reason = str(error) if isinstance(error, MonogramError) else f"it does not work ({type(error).__name__})"
            self.metrics.reloads.labels(name, "failed").inc()
            logs.emit("reload failed: the old model goes on serving", logging.ERROR, model=name, reason=reason)
            return reason
        self.metrics.reloads.labels(name, "reloaded").inc()
        logs.emit("reloaded", model=name)
        return status

    def _replace(self, name: str, path: str) -> str:
        self.put(name, *self.read(path))
        return "reloaded"

    def changed(self) -> bool:
        """Whether a file is another than the one that is served, and than the one that was last looked at."""
        served = {path: self.stamps[name] for name, path in self.settings.models.items()}
        if self.settings.items is not None:
            served[self.settings.items] = self._items_stamp
        return any(stamp(path) not in (None, self._tried.get(path), old) for path, old in served.items())


def stamp(path: str) -> Stamp | None:
    """What tells that a file was replaced; None where there is none."""
    try:
        found = os.stat(Path(path))
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
