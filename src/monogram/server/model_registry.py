"""The server's model registry: models by name, loaded, probed, then replaced in one step.

A request that has begun with a model ends with that model, whatever replaces it.
"""

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
from monogram.server.expand import expand_if_slow
from monogram.server.http import schemas
from monogram.server.metrics import Metrics
from monogram.server.queries import catalogue, responses
from monogram.server.queries.batching import Batcher, Load
from monogram.server.queries.catalogue import Catalogue, ItemTable
from monogram.server.settings import Settings
from monogram.weights import Weights

HEADS = 16  # sets of changed parameters whose weights are cached
Stamp = tuple[int, int, int]


class ServedModel:
    """A model with all that is needed to answer requests for it; immutable."""

    def __init__(self, name: str, model: Recommender, registry: ModelRegistry, header: dict[str, Any]) -> None:
        self.name, self.model, self.header, self.loaded = name, model, header, time.time()
        self.catalogue = Catalogue(model.log_, registry.table)
        self.kernel = registry.metrics.kernel.labels(name)
        self.batches = registry.metrics.batches.labels(name)
        rank = partial(responses.rank_all, self, threads=registry.threads)
        self.batcher = Batcher(rank, registry.pool, registry.load, registry.settings.gather)
        self._heads: dict[tuple[Any, ...], Weights] = {}

    def weights(self, parameters: dict[str, Any]) -> Weights:
        """The weights of the model, or under changed parameters; a few of the latter are cached."""
        self.recency(parameters)
        head = {name: value for name, value in parameters.items() if name not in live.RECENCY}
        if not head:
            return self.model.weights_
        key = tuple(sorted((name, type(value), value) for name, value in head.items()))
        weights = self._heads.get(key)
        if weights is None:
            weights = live.weights(self.model, head)
            if len(self._heads) >= HEADS:
                self._heads = {}
            self._heads[key] = weights
        return weights

    def recency(self, parameters: dict[str, Any]) -> ranking.Recency:
        """The recency of the model, or under changed parameters."""
        return live.recency(self.model, parameters)

    def count_calls(self, calls: list[ranking.KernelCall]) -> None:
        """Add kernel calls to the metrics."""
        for call in calls:
            self.kernel.inc(call.seconds)
            self.batches.observe(call.rows)

    def probe(self) -> None:
        """Rank for one history; raise where that fails."""
        log = self.model.log_
        histories = ranking.item_histories([log.items[0]], log)
        [lists], _ = ranking.rank([ranking.Query(histories, self.model.weights_, k=1)], log.items, threads=1)
        best = lists.best
        if not np.isfinite(best.scores[0, : best.counts[0]]).all():
            raise ModelFileError(f"the model {self.name!r} answered a probe with a score that is not finite")

    def card(self, updates: schemas.Updates | None) -> schemas.Card:
        """The details of the model."""
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
            log.unit_of_times,
        )


class ModelRegistry:
    """The models that one process serves."""

    def __init__(self, settings: Settings, metrics: Metrics, load: Load) -> None:
        self.settings, self.metrics, self.load = settings, metrics, load
        threads = parallel.count(settings.threads)
        self.threads = threads if settings.threads else max(1, threads // settings.workers)
        self.pool = ThreadPoolExecutor(8, thread_name_prefix="model")
        self.table: ItemTable | None = None
        self.models: dict[str, ServedModel] = {}
        self.stamps: dict[str, Stamp | None] = {}  # of the served files
        self.reloaders: dict[str, Callable[[], str]] = {}  # by name: what reloads a model that is updated
        self.lock = threading.RLock()  # held to replace a model, from before the old one is read
        self._items_stamp: Stamp | None = None
        self._tried: dict[str, Stamp | None] = {}  # of the files that were last read, successfully or not

    def open(self) -> None:
        """Load every model; an invalid file is an error."""
        self.table = catalogue.read(self.settings.items)
        self._items_stamp = None if self.settings.items is None else stamp(self.settings.items)
        for name, path in self.settings.models.items():
            self.stamps[name] = stamp(path)
            self.put(name, *self.read(name, path))
            self._log_items(name)

    def get(self, name: Any = UNSET) -> ServedModel:
        """A model by name; without a name the first."""
        if name is UNSET:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UnknownIdError(f"this server has no model {name[:60]!r}; {one_of(name[:60], self.models)}")
        return self.models[name]

    def read(self, name: str, path: str) -> tuple[Recommender, dict[str, Any]]:
        """A model and its header, memory-mapped; dual weights that rank slowly are expanded."""
        model, header = files.read(path, self.settings.verify)
        expand_if_slow(name, model, self.settings, self.threads)
        return model, header

    def put(self, name: str, model: Recommender, header: dict[str, Any]) -> None:
        """Serve a model under a name, after a successful probe."""
        served = ServedModel(name, model, self, header)
        served.probe()
        self.models[name] = served  # one assignment: a request gets the old model or the new one
        self.metrics.model(name, type(model).__name__, model.log_.n_users, model.log_.n_items)

    def reload(self) -> list[schemas.Reloaded]:
        """Load the files that have changed; an invalid file leaves the old model and is an error at the end."""
        with self.lock:
            errors = self._read_items()
            done = [schemas.Reloaded(name, self._reload(name)) for name in self.settings.models]
        failed = [f"{model.name}: {model.status}" for model in done if model.status not in ("reloaded", "unchanged")]
        if failed or errors:
            raise ModelFileError(f"{'; '.join([*failed, *errors])}. The server keeps the models and items it had")
        return done

    def _read_items(self) -> list[str]:
        """Read the file of items again if it has changed; the errors, where the old items stay."""
        path = self.settings.items
        if path is None or stamp(path) == self._items_stamp:
            return []
        now = self._tried[path] = stamp(path)
        try:
            self.table = catalogue.read(path)
        except DataError as error:
            logs.emit("reload of the items failed: the server keeps the old ones", logging.ERROR, reason=str(error))
            return [str(error)]
        self._items_stamp = now
        for name, served in list(self.models.items()):
            self.put(name, served.model, served.header)
            self._log_items(name)
        return []

    def _log_items(self, name: str) -> None:
        """Log how many items of the model are in the file of items; none is a warning."""
        if self.table is not None:
            matched = self.models[name].catalogue.matched
            logs.emit(
                "items", logging.INFO if matched else logging.WARNING,
                model=name, rows=len(self.table.ids), matched=matched,
            )  # fmt: skip

    def _reload(self, name: str) -> str:
        path = self.settings.models[name]
        now = stamp(path)
        if now is not None and now == self.stamps[name]:
            return "unchanged"
        before, self.stamps[name], self._tried[path] = self.stamps[name], now, now
        try:
            status = self.reloaders[name]() if name in self.reloaders else self._replace(name, path)
        except Exception as error:  # whatever an invalid file causes, the old model stays
            self.stamps[name] = before
            reason = str(error) if isinstance(error, MonogramError) else f"unexpected error ({type(error).__name__})"
            self.metrics.reloads.labels(name, "failed").inc()
            logs.emit("reload failed: the server keeps the old model", logging.ERROR, model=name, reason=reason)
            return reason
        self.metrics.reloads.labels(name, "reloaded").inc()
        logs.emit("reloaded", model=name)
        return status

    def _replace(self, name: str, path: str) -> str:
        self.put(name, *self.read(name, path))
        return "reloaded"

    def changed(self) -> bool:
        """Whether a file differs from the served one, and from the one that was last read."""
        served = {path: self.stamps[name] for name, path in self.settings.models.items()}
        if self.settings.items is not None:
            served[self.settings.items] = self._items_stamp
        return any(stamp(path) not in (None, self._tried.get(path), old) for path, old in served.items())


def stamp(path: str) -> Stamp | None:
    """Inode, size and modification time, which change when a file is replaced; None for a missing file."""
    try:
        status = os.stat(Path(path))
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
