"""The metrics, one function each. Two definitions have two names.

A metric of users takes `JudgedLists` (the recommendations to a batch of users, and which of them are held-out items)
and returns one number for each user. A metric of the catalogue takes how often each item was recommended and returns
one number. T is a user's set of held-out items; hits are counted in the first k ranks; ranks start at 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime.arrays import Float64
from monogram.errors import ParameterError, one_of


@dataclass(frozen=True)
class JudgedLists:
    """The first k recommendations to a batch of users, each marked as a hit or not.

    Attributes
    ----------
    k : the requested length; lists are shorter where the catalogue is smaller
    hits : users × ranks, whether the item at that rank is in T (False beyond the end of a list)
    items : users × ranks, the items
    lengths : the length of each list, at most k
    wanted : |T|, at least 1
    surprise : −log2 of the share of training users who have the item, by item
    """

    k: int
    hits: NDArray[np.bool_]
    items: NDArray[np.int64]
    lengths: NDArray[np.int64]
    wanted: NDArray[np.int64]
    surprise: Float64


def recall(lists: JudgedLists) -> Float64:
    """Hits / |T|."""
    return np.asarray(lists.hits.sum(1) / lists.wanted)


def recall_capped(lists: JudgedLists) -> Float64:
    """Hits / min(k, |T|): what the Mult-VAE line of papers calls Recall."""
    return np.asarray(lists.hits.sum(1) / np.minimum(lists.k, lists.wanted))


def precision(lists: JudgedLists) -> Float64:
    """Hits / k."""
    return np.asarray(lists.hits.sum(1) / lists.k)


def hit(lists: JudgedLists) -> Float64:
    """1 if there is a hit, else 0."""
    return np.asarray(lists.hits.any(1), np.float64)


def ndcg(lists: JudgedLists) -> Float64:
    """Σ 1/log2(rank + 1) over hits, divided by the same sum over the first min(k, |T|) ranks."""
    possible = np.minimum(lists.k, lists.wanted)
    ranks = lists.hits.shape[1]
    gain = 1 / np.log2(np.arange(2, max(ranks, int(possible.max(initial=1))) + 2))
    return np.asarray((lists.hits * gain[:ranks]).sum(1) / np.cumsum(gain)[possible - 1])


def mrr(lists: JudgedLists) -> Float64:
    """1/rank of the first hit, else 0."""
    return np.asarray(lists.hits.any(1) / (lists.hits.argmax(1) + 1))


def map_(lists: JudgedLists) -> Float64:
    """Mean average precision: Σ (hits up to rank / rank) over hits, divided by min(k, |T|)."""
    ranks = np.arange(1, lists.hits.shape[1] + 1)
    precisions = np.cumsum(lists.hits, axis=1) / ranks
    return np.asarray((precisions * lists.hits).sum(1) / np.minimum(lists.k, lists.wanted))


def novelty(lists: JudgedLists) -> Float64:
    """Mean over the list of −log2(share of training users who have the item).

    An item without training users counts as having one.
    """
    in_list = np.arange(lists.hits.shape[1]) < lists.lengths[:, None]
    total = (lists.surprise[lists.items] * in_list).sum(1)
    return np.asarray(total / np.maximum(lists.lengths, 1))


def coverage(counts: NDArray[np.int64]) -> float:
    """Share of the catalogue that is in at least one list."""
    return float((counts > 0).mean())


def gini(counts: NDArray[np.int64]) -> float:
    """Inequality of how often items are recommended: Σ (2i − n − 1)·x_(i) / (n·Σx), x ascending; 0 is even."""
    total, n = counts.sum(), len(counts)
    if total == 0:
        return 0.0
    return float(((2 * np.arange(1, n + 1) - n - 1) * np.sort(counts)).sum() / (n * total))


BY_USER: dict[str, Callable[[JudgedLists], Float64]] = {
    "recall": recall,
    "recall_capped": recall_capped,
    "ndcg": ndcg,
    "mrr": mrr,
    "precision": precision,
    "hit": hit,
    "map": map_,
    "novelty": novelty,
}
BY_CATALOGUE: dict[str, Callable[[NDArray[np.int64]], float]] = {"coverage": coverage, "gini": gini}


@dataclass(frozen=True)
class Metric:
    """A metric at a length, such as recall@20."""

    name: str
    k: int

    def __str__(self) -> str:
        return f"{self.name}@{self.k}"


def parse(text: str) -> Metric:
    """Parse the name of a metric, such as "ndcg@100"."""
    match = re.fullmatch(r"([a-z_]+)@([1-9][0-9]{0,8})", text) if isinstance(text, str) else None
    if not match or match[1] not in {**BY_USER, **BY_CATALOGUE}:
        names = one_of(str(text).partition("@")[0], [*BY_USER, *BY_CATALOGUE])
        raise ParameterError(
            f"metric {text!r}; expected a name and a length, such as 'recall@20'; of the names {names}"
        )
    return Metric(match[1], int(match[2]))
