"""Queries on fitted weights: rank, score, explain. `Recommender` and the server both call these functions.

`rank`, `score` and `shares` take and give indices and arrays, for many small requests; `recommend` and `explain` give
the library's results, by id.

Several queries share one kernel call where this changes no bit of their answers: where the weights rank each history
alone (`batch_invariant`) and the rules are the same. They are then ranked with the largest k: the first k items of a
longer list are the list of k, since the order is total. Other weights solve or multiply whole batches, whose rounding
depends on the batch: there each query has a kernel call of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monogram.data.vocabulary import Vocabulary
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64, Indices
from monogram.engine.topk.best import Best
from monogram.errors import ParameterError, UnknownIdError
from monogram.ranking.explanation import Explanation, Shares
from monogram.ranking.ids import shorten
from monogram.ranking.recommendations import Recommendations, tabulate
from monogram.ranking.requests import Histories
from monogram.ranking.rules import Rules, eligible_items
from monogram.weights import Weights

EVERY_UNSEEN_ITEM = Rules()


@dataclass(frozen=True, eq=False)
class Query:
    """Histories to rank: the k best items of each, by some weights and rules.

    Where several queries are ranked together, `allow` and `deny` of the rules must be None or tuples of ids.
    """

    histories: Histories
    weights: Weights
    k: int
    rules: Rules = EVERY_UNSEEN_ITEM


@dataclass(frozen=True, eq=False)
class RankedLists:
    """The answer to a query: ranked indices with their scores, and the unknown ids of its rules."""

    best: Best
    unknown_items: tuple[Any, ...]


@dataclass(frozen=True)
class KernelCall:
    """Rows and seconds of one call of a top-k kernel."""

    rows: int
    seconds: float


def rank(queries: Sequence[Query], items: Vocabulary, threads: int) -> tuple[list[RankedLists], list[KernelCall]]:
    """The lists of each query, bit-identical to single queries, in as few kernel calls as possible; and those calls."""
    answers: list[Any] = [None] * len(queries)
    calls = []
    for numbers in _groups(queries):
        group = [queries[number] for number in numbers]
        lists, call = _ranked_together(group, items, threads)
        calls.append(call)
        start = 0
        for number, query in zip(numbers, group, strict=True):
            stop = start + len(query.histories)
            best = lists.best if len(group) == 1 else _part(lists.best, start, stop, min(query.k, len(items)))
            answers[number] = RankedLists(best, lists.unknown_items)
            start = stop
    return answers, calls


def _groups(queries: Sequence[Query]) -> list[list[int]]:
    """Positions of the queries that share a kernel call."""
    if len(queries) == 1:
        return [[0]]
    groups: dict[Any, list[int]] = {}
    for number, query in enumerate(queries):
        key = (id(query.weights), query.rules) if query.weights.batch_invariant else number
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def _ranked_together(queries: Sequence[Query], items: Vocabulary, threads: int) -> tuple[RankedLists, KernelCall]:
    """One kernel call for the rows of queries with the same weights and rules, with the largest k."""
    first = queries[0]
    histories = Histories.stack([query.histories for query in queries])
    eligible, unknown = eligible_items(first.rules, histories, items)
    k = min(max(query.k for query in queries), len(items))
    start = time.perf_counter()
    best = first.weights.best(histories.matrix, eligible, k, threads)
    return RankedLists(best, unknown), KernelCall(len(histories), time.perf_counter() - start)


def _part(best: Best, start: int, stop: int, k: int) -> Best:
    """The first k items of some rows."""
    residuals = None if best.residuals is None else best.residuals[start:stop]
    counts = np.minimum(best.counts[start:stop], k)
    return Best(best.items[start:stop, :k], best.scores[start:stop, :k], counts, residuals)


def recommend(
    weights: Weights,
    histories: Histories,
    items: Vocabulary,
    *,
    k: int,
    allow: Any = None,
    deny: Any = None,
    exclude_seen: bool = True,
    threads: int | None = None,
    names: tuple[str, str] = ("user", "item"),
) -> Recommendations:
    """For each history the k best of the items it may get, as a table.

    Parameters
    ----------
    allow, deny, exclude_seen : see `Rules`
    names : columns of the labels and of the ranked items
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ParameterError(f"k = {k!r}; expected a whole number of at least 1")
    query = Query(histories, weights, int(k), Rules(allow, deny, exclude_seen))
    [lists], _ = rank([query], items, parallel.count(threads))
    return tabulate(lists.best, histories, items, names, lists.unknown_items)


def score(weights: Weights, histories: Histories, index: Indices, threads: int) -> Float64:
    """Scores of items for each history (histories × items); NaN where the index of an item is negative (unknown)."""
    known = index >= 0
    scores = np.full((len(histories), len(index)), np.nan)
    if len(histories) and known.any():
        scores[:, known] = weights.score(histories.matrix, index[known], threads)
    return scores


def shares(weights: Weights, history: Csr, item: int) -> Shares:
    """What each entry of a history (a CSR matrix of one row) adds to the score of an item, or what it changes."""
    of_item = np.array([item])
    total = None if weights.additive else float(weights.score(history, of_item, 1)[0, 0])
    return Shares(weights.shares(history, item), float(weights.base(of_item)[0]), total)


def explain(weights: Weights, histories: Histories, item: Any, items: Vocabulary) -> Explanation:
    """The shares of the first history in the score of an item, by id."""
    index = item_index(item, items)
    history = histories.row_matrix(0)
    item_shares = shares(weights, history, index)
    pairs = zip(items.ids(history.indices), item_shares.values.tolist(), strict=True)
    of_events = tuple(history.data.astype(np.float64).tolist())
    total = item_shares.total
    return Explanation(items[index], tuple(pairs), item_shares.base, histories.unknown_items, of_events, total)


def item_index(item: Any, items: Vocabulary) -> int:
    """The index of an item, which must be known."""
    index = int(items.index([item])[0])
    if index < 0:
        raise UnknownIdError(f"item {shorten(item)!r} is not one of the {len(items):,} items this model knows")
    return index
