"""The answers to decoded requests: queries of the ranking layer, and their results in the schemas' form.

These functions run in worker threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET

from monogram import ranking
from monogram.data.interactions import Interactions
from monogram.data.moments import moment_in
from monogram.engine.runtime.arrays import Float64, Indices
from monogram.errors import ParameterError, UnknownIdError
from monogram.ranking import Histories, Query, RankedLists, Rules
from monogram.server.http import schemas

if TYPE_CHECKING:
    from monogram.server.model_registry import ServedModel
    from monogram.weights import Weights

REASONS = 3  # shares of an item that explain=true shows


class ListsJob:
    """One request for ranked items: for users, for histories, or similar to items."""

    def __init__(self, served: ServedModel, request: schemas.Recommend | schemas.Similar) -> None:
        self.served, self.request = served, request
        self.reasons, self.with_history = 0, False
        if isinstance(request, schemas.Recommend):
            by_user = first_is_set(request.users, request.histories, "users", "histories")
            self.label = "user" if by_user else "history"
            self.size = len(request.users or request.histories)  # type: ignore[arg-type]
            self.reasons = REASONS if request.explain is True else int(request.explain)
            self.with_history = request.with_history
            if self.reasons and self.size * request.k > schemas.EXPLAINED:
                raise ParameterError(
                    f"reasons for {self.size:,} lists of {request.k:,} items; expected at most "
                    f"{schemas.EXPLAINED:,} items in all: ask for fewer, or without explain"
                )
        else:
            self.label, self.size = "item", len(request.items)

    def query(self) -> Query:
        """The histories to rank, and the rules."""
        request, log = self.request, self.served.model.log_
        weights = self.served.weights(request.parameters)
        if isinstance(request, schemas.Similar):
            return Query(ranking.item_histories(request.items, log), weights, request.k)
        histories = requested_histories(self.served, request, request.users, request.histories)
        entries = int(histories.pointers[-1])
        if self.reasons and entries * request.k > schemas.SHARES:
            raise ParameterError(
                f"reasons from histories of {entries:,} items in all for {request.k:,} items each; expected at "
                f"most {schemas.SHARES:,} shares: ask for fewer, or without explain"
            )
        if self.reasons:
            _check_differences(weights, histories, request.k)
        allow, deny = (None if rule is None else tuple(rule) for rule in (request.allow, request.deny))
        return Query(histories, weights, request.k, Rules(allow, deny, request.exclude_seen))

    def body(self, query: Query, lists: RankedLists) -> bytes:
        """The encoded answer."""
        histories, best, catalogue = query.histories, lists.best, self.served.catalogue
        labels, counts = histories.labels(), best.counts.tolist()
        indices = [best.items[row, :count].tolist() for row, count in enumerate(counts)]
        ids = iter(_ids([index for row in indices for index in row], self.served.model.log_))
        results = []
        for row, (row_indices, count) in enumerate(zip(indices, counts, strict=True)):
            scores = best.scores[row, :count].tolist()
            ranked = [
                schemas.Ranked(next(ids), score, rank, catalogue.columns(index))
                for rank, (index, score) in enumerate(zip(row_indices, scores, strict=True), 1)
            ]
            if self.reasons:
                self._add_reasons(query, row, row_indices, ranked)
            seen = self._seen(histories, row) if self.with_history else UNSET
            results.append(schemas.List(**{self.label: labels[row]}, items=ranked, seen=seen))
        unknown = list(dict.fromkeys([*histories.unknown_items, *lists.unknown_items]))
        empty = [labels[row] for row in histories.empty_rows()]
        answer = schemas.ListsResponse(self.served.name, results, list(histories.unknown_users), unknown, empty)
        return schemas.encode(answer)

    def _add_reasons(self, query: Query, row: int, indices: list[int], ranked: list[schemas.Ranked]) -> None:
        history = query.histories.row_matrix(row)
        ids = _ids(history.indices, self.served.model.log_)
        for index, item in zip(indices, ranked, strict=True):
            shares = ranking.shares(query.weights, history, index)
            item.because = _largest(shares, ids, history.data, self.reasons)
            item.additive = shares.total is None

    def _seen(self, histories: Histories, row: int) -> list[schemas.Seen]:
        span = histories.span(row)
        order = self._oldest_first(histories, row)
        indices = histories.items[span][order].tolist()
        weights = histories.weights[span][order].tolist()
        return [
            schemas.Seen(id_, weight, self.served.catalogue.columns(index))
            for id_, weight, index in zip(_ids(indices, self.served.model.log_), weights, indices, strict=True)
        ]

    def _oldest_first(self, histories: Histories, row: int) -> Indices:
        """The places of a row's entries from the oldest to the latest; as they are where there is no order."""
        log, request = self.served.model.log_, self.request
        items = histories.items[histories.span(row)]
        label = int(histories.label_index[row])
        if self.label == "history":
            ids, _, times = given_history(request.histories[label], label, log)  # type: ignore[union-attr,index]
            used = log.items.index(ids)
            used = used if times is None else used[np.argsort(times, kind="stable")]
        else:
            used = _used(label, log)
        last = dict(zip(used.tolist(), range(len(used)), strict=True))
        return np.argsort([last.get(item, -1) for item in items.tolist()], kind="stable")


def rank_all(served: ServedModel, jobs: Sequence[ListsJob], threads: int) -> Callable[[], list[Any]]:
    """Rank the requests of a batch to one model, in as few kernel calls as possible.

    Returns a function that encodes the answers, in order; the answer to a request that failed is its exception.
    """
    queries = [_result_or_error(job.query) for job in jobs]
    ready = [query for query in queries if isinstance(query, Query)]
    ranked, calls = ranking.rank(ready, served.model.log_.items, threads)
    served.count_calls(calls)

    def encode() -> list[Any]:
        lists = iter(ranked)
        return [
            _result_or_error(partial(job.body, query, next(lists))) if isinstance(query, Query) else query
            for job, query in zip(jobs, queries, strict=True)
        ]

    return encode


def _result_or_error(function: Callable[[], Any]) -> Any:
    """The result of a function, or the exception it raised: one request of a batch must not fail the others."""
    try:
        return function()
    except Exception as error:
        return error


def score(served: ServedModel, request: schemas.Score, threads: int) -> bytes:
    """The answer of /v1/score."""
    label = "user" if first_is_set(request.users, request.histories, "users", "histories") else "history"
    log = served.model.log_
    histories = requested_histories(served, request, request.users, request.histories)
    index = log.items.index(request.items)
    table = ranking.score(served.weights(request.parameters), histories, index, threads)
    results = [
        schemas.Scores(**{label: row_label}, scores=row)
        for row_label, row in zip(histories.labels(), table.tolist(), strict=True)
    ]
    unknown = list(dict.fromkeys([*histories.unknown_items, *ranking.unknown_ids(request.items, index)]))
    answer = schemas.Scored(served.name, list(request.items), results, list(histories.unknown_users), unknown)
    return schemas.encode(answer)


def explain(served: ServedModel, request: schemas.Explain) -> bytes:
    """The answer of /v1/explain."""
    by_user = first_is_set(request.user, request.history, "user", "history")
    users, contents = ([request.user], UNSET) if by_user else (UNSET, [request.history])
    log = served.model.log_
    histories = requested_histories(served, request, users, contents)
    if histories.unknown_users:
        name = ranking.shorten(request.user)
        raise UnknownIdError(f"user {name!r} is not one of the {log.n_users:,} users this model knows")
    index = ranking.item_index(request.item, log.items)
    history = histories.row_matrix(0)
    weights = served.weights(request.parameters)
    _check_differences(weights, histories, 1)
    shares = ranking.shares(weights, history, index)
    largest = _largest(shares, _ids(history.indices, log), history.data, history.nnz + 1)
    shown = [share for share in largest if share.item is not None][: request.top]
    hidden = len(shown) < history.nnz
    remainder = shares.score - shares.base - sum(share.share for share in shown) if hidden else 0.0
    return schemas.encode(
        schemas.Explained(
            model=served.name,
            item=log.items[index],
            score=shares.score,
            base=shares.base,
            shares=shown,
            rest=remainder if shares.total is None else UNSET,
            unknown_items=list(histories.unknown_items),
            columns=served.catalogue.columns(index),
            additive=shares.total is None,
        )
    )


def _check_differences(weights: Weights, histories: Histories, items: int) -> None:
    """Refuse reasons that take too long: a difference is a score of a history without one of its entries."""
    work = int((np.diff(histories.pointers).astype(np.int64) ** 2).sum()) * items
    if not weights.additive and work > schemas.DIFFERENCES:
        longest = math.isqrt(schemas.DIFFERENCES // items)
        raise ParameterError(
            f"reasons for {items:,} items from the {histories.pointers[-1]:,} events of the request; the scores of "
            f"this model are no sums, so that at most {longest:,} events of one history are explained for so many "
            "items: ask for fewer items, or send shorter histories"
        )


def _largest(shares: ranking.Shares, ids: list[Any], weights: Any, number: int) -> list[schemas.Share]:
    """The largest shares of a score by item id, with the weights of the items; None is the base, without a weight."""
    return [
        schemas.Share(None, share)
        if position is None
        else schemas.Share(ids[position], share, float(weights[position]))
        for position, share in shares.largest(number)
    ]


def _used(row: int, log: Interactions) -> Indices:
    """The items of a user of the log from the oldest to the latest; as they are stored where there is no order."""
    span = slice(log.matrix.indptr[row], log.matrix.indptr[row + 1])
    key = log.latest if log.order is None else log.order
    items: Indices = log.matrix.indices[span]
    return items if key is None else items[np.argsort(key[span], kind="stable")]


def _ids(indices: list[int] | np.ndarray[Any, Any], log: Interactions) -> list[Any]:
    """Ids of items by their indices."""
    return log.items.ids(indices) if len(indices) else []


Timed = schemas.Recommend | schemas.Score | schemas.Explain


def requested_histories(served: ServedModel, request: Timed, users: Any, histories: Any) -> Histories:
    """The rows of a request: of the users, or of the histories, whichever is set, with the weights of the recency."""
    log, recency = served.model.log_, served.recency(request.parameters)
    if histories is UNSET:
        return ranking.user_histories(users, log, recency, request.at)
    served.model.require_inductive("a history")
    contents = [given_history(history, position, log) for position, history in enumerate(histories)]
    return ranking.merged_histories(contents, log, recency, request.at)


def given_history(history: list[Any] | dict[Any, float], position: int, log: Interactions) -> Any:
    """A decoded history as ids, weights and times, each None where all are left out; the schemas have checked it."""
    if isinstance(history, dict):
        return list(history), np.fromiter(history.values(), np.float64, len(history)), None
    if not any(type(entry) is schemas.Entry for entry in history):
        return history, None, None
    entries = [entry if type(entry) is schemas.Entry else schemas.Entry(entry) for entry in history]
    weights = np.array([entry.weight for entry in entries], np.float64)
    return [entry.item for entry in entries], weights, _times(entries, position, log)


def _times(entries: list[schemas.Entry], position: int, log: Interactions) -> Float64 | None:
    """The times of the events of a history; an error where some have one and others have none."""
    given = [entry.time for entry in entries if entry.time is not None]
    if not given:
        return None
    if len(given) < len(entries):
        raise ParameterError(
            f"history {position} has a time for {len(given):,} of its {len(entries):,} events; "
            "expected a time for each of them, or for none"
        )
    subject = f"history {position} has the time {{}}"
    return np.array([moment_in(log, time, subject) for time in given], np.float64)


def first_is_set(left: Any, right: Any, first: str, second: str) -> bool:
    """Whether the first of two fields is set; both or neither is an error."""
    if (left is UNSET) == (right is UNSET):
        number = "both" if left is not UNSET else "neither"
        raise ParameterError(f"{number} of {first} and {second} was given; expected one of them")
    return left is not UNSET
