"""Questions to rank, and one kernel call for those that may share it.

Where the list of a history depends on that history alone, to the last bit (`ALONE`), the histories of several questions
are ranked in one call with the largest k: the first k of a longer list are the list, since the order is total. Other
weights solve or multiply whole batches, whose rounding depends on the batch: there each question has a call of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.engine.topk.best import Best
from monogram.ranking import Histories, eligible
from monogram.weights import Dense, Fixed, Sparse, Weights
from monogram.weights.rescaled import Rescaled

ALONE = (Dense, Fixed, Sparse, Rescaled)


@dataclass(frozen=True)
class Rows:
    """Some histories: CSR arrays, what each is called, and what is not known of them."""

    pointers: NDArray[np.int64]
    items: NDArray[Any]
    weights: NDArray[np.float32]
    labels: list[Any]
    unknown_users: list[Any]
    unknown_items: list[Any]

    def __len__(self) -> int:
        return len(self.labels)

    def one(self, row: int) -> slice:
        """Where a row stands."""
        return slice(int(self.pointers[row]), int(self.pointers[row + 1]))

    def matrix(self, columns: int) -> Any:
        """As a CSR array."""
        return sp.csr_array((self.weights, self.items, self.pointers), shape=(len(self), columns))


@dataclass(frozen=True)
class Question:
    """Rows to rank, and by what rules."""

    rows: Rows
    weights: Weights
    k: int
    allow: tuple[Any, ...] | None = None
    deny: tuple[Any, ...] | None = None
    exclude_seen: bool = True

    @property
    def rules(self) -> tuple[Any, ...]:
        """What questions of one call must have in common."""
        return id(self.weights), self.allow, self.deny, self.exclude_seen


def of_users(users: list[Any], log: Interactions) -> Rows:
    """The training histories of users."""
    index = log.users.index(users)
    at = index[index >= 0]
    matrix = log.matrix
    spans = [slice(matrix.indptr[row], matrix.indptr[row + 1]) for row in at]
    items = [matrix.indices[span] for span in spans]
    weights = [matrix.data[span] for span in spans]
    unknown = [one for one, place in zip(users, index, strict=True) if place < 0]
    return Rows(*_joined(items, weights, log), log.users.ids(at) if len(at) else [], unknown, [])


def of_histories(histories: list[Any], log: Interactions) -> Rows:
    """Histories by what they hold, merged as the log was: what `ranking.given_histories` gives."""
    found = log.items.index([item for one in histories for item in one])
    items, weights, start = [], [], 0
    unknown: dict[Any, None] = {}
    for one in histories:
        places = found[start : start + len(one)]
        start += len(one)
        if (places < 0).any():
            unknown |= dict.fromkeys(item for item, place in zip(one, places, strict=True) if place < 0)
        mine, values = _merged(places, one, log.merge == "binary")
        items.append(mine)
        weights.append(values)
    return Rows(*_joined(items, weights, log), list(range(len(histories))), [], list(unknown))


def _merged(places: NDArray[np.int64], history: Any, binary: bool) -> tuple[Any, Any]:
    """Sorted places and their weights."""
    if isinstance(history, dict):
        values = np.fromiter(history.values(), np.float64, len(history))
        keep = (places >= 0) & (values > 0)
        places, values = places[keep], np.minimum(values[keep], np.finfo(np.float32).max)
    else:
        places = places[places >= 0]
        values = np.ones(len(places))
    mine, where = np.unique(places, return_inverse=True)
    if binary:
        return mine, np.ones(len(mine), np.float32)
    return mine, np.bincount(where, values, len(mine)).astype(np.float32)


def _joined(items: list[Any], weights: list[Any], log: Interactions) -> tuple[Any, Any, Any]:
    pointers = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(one) for one in items], out=pointers[1:])
    none = log.matrix.indices[:0], log.matrix.data[:0]
    flat = np.concatenate([none[0], *items]).astype(log.matrix.indices.dtype, copy=False)
    return pointers, flat, np.concatenate([none[1], *weights])


def rank(questions: list[Question], log: Interactions, threads: int) -> tuple[list[Best], list[tuple[int, float]]]:
    """The lists of each question; and of each kernel call its rows and seconds."""
    groups: dict[Any, list[int]] = {}
    for number, question in enumerate(questions):
        alone = isinstance(question.weights, ALONE)
        groups.setdefault(question.rules if alone else number, []).append(number)
    found: list[Any] = [None] * len(questions)
    calls = []
    for numbers in groups.values():
        mine = [questions[number] for number in numbers]
        best, seconds = _call(mine, log, threads)
        calls.append((len(best.counts), seconds))
        start = 0
        for number, question in zip(numbers, mine, strict=True):
            found[number] = _part(best, start, len(question.rows), min(question.k, log.n_items))
            start += len(question.rows)
    return found, calls


def _call(questions: list[Question], log: Interactions, threads: int) -> tuple[Best, float]:
    first = questions[0]
    matrix = _together([one.rows for one in questions]).matrix(log.n_items)
    asked = Histories(matrix, None)
    rules, _ = eligible(asked, log.items, first.allow, first.deny, first.exclude_seen)
    k = min(max(one.k for one in questions), log.n_items)
    if not matrix.shape[0]:
        return Best(np.zeros((0, k), np.int64), np.zeros((0, k)), np.zeros(0, np.int64)), 0.0
    start = time.perf_counter()
    best = first.weights.best(matrix, rules, k, threads)
    return best, time.perf_counter() - start


def _together(rows: list[Rows]) -> Rows:
    if len(rows) == 1:
        return rows[0]
    shifts = np.cumsum([0, *(one.pointers[-1] for one in rows)])
    pointers = [one.pointers[1:] + shift for one, shift in zip(rows, shifts, strict=False)]
    items, weights = (np.concatenate([getattr(one, name) for one in rows]) for name in ("items", "weights"))
    labels = [label for one in rows for label in one.labels]
    return Rows(np.concatenate([np.zeros(1, np.int64), *pointers]), items, weights, labels, [], [])


def _part(best: Best, start: int, rows: int, k: int) -> Best:
    mine = slice(start, start + rows)
    return Best(best.items[mine, :k], best.scores[mine, :k], np.minimum(best.counts[mine], k))
