"""Evaluate models on a split: every item is ranked for every test user, without sampled negatives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.options import check_seed
from monogram.data.parts import events
from monogram.data.splits import Split
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64
from monogram.engine.topk.best import Best, Eligible
from monogram.errors import MonogramWarning, ParameterError
from monogram.evaluation import metrics as metrics_
from monogram.evaluation.metrics import BY_CATALOGUE, BY_USER, JudgedLists, Metric
from monogram.evaluation.result import Evaluation
from monogram.models.base import Recommender
from monogram.models.baselines import Popularity
from monogram.ranking import NO_RECENCY, Recency, known_users
from monogram.weights import Dense, Dual, Weights

# The metrics that papers report for each protocol.
DEFAULT_METRICS = {
    "strong": ("recall_capped@20", "recall_capped@50", "ndcg@100"),
    "ratio811": ("mrr@10", "ndcg@10"),
    "sessions": ("recall@20", "mrr@20"),
}
BATCH = 1024  # users ranked at once
Models = Recommender | Iterable[Recommender] | Mapping[str, Recommender]
Rank = Callable[[Any, Eligible, int], Iterable[Best]]  # histories, eligible items, k → one Best for each head
Measured = tuple[Float64, dict[str, float]]


def evaluate(
    models: Models,
    split: Split,
    metrics: Iterable[str] | str | None = None,
    *,
    per_user: bool = False,
    seed: int = 0,
    threads: int | None = None,
    fit: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Evaluation:
    """Rank every item for every test user, and compute metrics.

    Parameters
    ----------
    models : a model, several, or a mapping from name to model
        A model that is not fitted is fitted on `split.train`, measured, and left unfitted again, so that only one such
        model is in memory at a time. Popularity is added as a baseline.
    split : from `monogram.splits`
    metrics : names such as "recall@20"; by default those that papers with this protocol report, else recall@20 and
        ndcg@20
    per_user : keep the value of every user (`result.users`)
    seed : of the bootstrap
    fit : options for `fit`, such as {"memory": "8 GB"}, for models that have not been fitted
    progress : receives the name of each model before the model is fitted or measured

    Returns
    -------
    Evaluation
        Prints as a table; `.rows()`, `.compare(first, second, metric)`, `.to_markdown()`, `.to_csv()`, `.to_json()`,
        `.to_arrow()`.
    """
    if not isinstance(split, Split):
        raise ParameterError(
            f"split is a {type(split).__name__}; expected one of monogram.splits: train, test = mg.splits.holdout(log)"
        )
    parsed = _metrics(metrics, split)
    values: dict[str, Float64] = {}
    catalogue: dict[str, dict[str, float]] = {}
    check_seed(seed)
    named = _named(models)
    for model in named.values():
        model.require_ages(split.histories)
    for name, model in named.items():
        if progress:
            progress(name)
        unfitted = "weights_" not in model.__dict__
        if unfitted:
            model.fit(split.train, **{"threads": threads, **(fit or {})})
        else:
            _warn_of_leak(name, model, split)
        values[name], catalogue[name] = measure_model(model, split, parsed, parallel.count(threads))
        if unfitted:
            model.unfit()
    users = split.histories.users.take(np.arange(split.histories.n_users))
    return Evaluation(split.protocol, parsed, values, catalogue, users if per_user else None, seed)


def _metrics(metrics: Iterable[str] | str | None, split: Split) -> tuple[Metric, ...]:
    if metrics is None:
        metrics = DEFAULT_METRICS.get(split.protocol, ("recall@20", "ndcg@20"))
    parsed = tuple(metrics_.parse(name) for name in ([metrics] if isinstance(metrics, str) else metrics))
    if not parsed:
        raise ParameterError("no metric was given; expected at least one, such as 'recall@20'")
    return tuple(dict.fromkeys(parsed))


def _named(models: Models) -> dict[str, Recommender]:
    """Models by name; models of one name are named by their parameters, then by a number."""
    several: list[Any] = (
        [models] if isinstance(models, Recommender) or not isinstance(models, Iterable) else list(models)
    )
    for model in models.values() if isinstance(models, Mapping) else several:
        if not isinstance(model, Recommender):
            raise ParameterError(f"{model!r} is not a model; expected such as mg.EASE(l2=100), fitted or not")
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        kinds = [model.name for model in several]
        named = {}
        for model in several:
            name = model.name if kinds.count(model.name) == 1 else repr(model)
            number = 1
            while name in named:
                number += 1
                name = f"{model!r} {number}"
            named[name] = model
    if not any(isinstance(model, Popularity) for model in named.values()):
        named["popularity" if "popularity" not in named else "popularity (floor)"] = Popularity()
    return named


def _warn_of_leak(name: str, model: Recommender, split: Split) -> None:
    """Warn of a model that was fitted on events of the test part: its metrics are meaningless."""
    log = model.fitted()[0]
    rows = log.users.index(split.targets.users.ids(np.arange(split.targets.n_users)))
    known = np.flatnonzero(rows >= 0)
    if not len(known):
        return
    _, targets, _ = _aligned(split, log)
    seen = int((log.matrix[rows[known]] != 0).multiply(targets[known] != 0).nnz)
    if seen:
        warnings.warn(
            f"{name} was fitted on {seen:,} of the {split.targets.n_events:,} test events; fit it on split.train",
            MonogramWarning,
            stacklevel=3,
        )


def measure_model(model: Recommender, split: Split, metrics: tuple[Metric, ...], threads: int) -> Measured:
    """The values of a fitted model by user (users × metrics of users), and its metrics of the catalogue."""
    log, weights = model.fitted()
    if (log.users.index(split.histories.users.ids(np.arange(split.histories.n_users))) < 0).any():
        model.require_inductive("a split with users that are not in train")
    return measure_weights(weights, log, split, metrics, threads, model.recency_rule())


def measure_weights(
    weights: Weights,
    log: Interactions,
    split: Split,
    metrics: tuple[Metric, ...],
    threads: int,
    recency: Recency = NO_RECENCY,
) -> Measured:
    """As `measure_model`, for weights that were fitted on a log."""
    return measure(
        lambda rows, rules, k: [weights.best(rows, rules, k, threads)], log, split, metrics, recency=recency
    )[0]


def measure_heads(
    weights: Dense | Dual,
    thetas: Float64,
    log: Interactions,
    split: Split,
    metrics: tuple[Metric, ...],
    threads: int,
    recency: Recency = NO_RECENCY,
) -> list[Measured]:
    """As `measure_model`, for each model whose scores are those of the weights times its row of `thetas`."""
    return measure(
        lambda rows, rules, k: weights.heads(thetas, rows, rules, k, threads),
        log, split, metrics, len(thetas), recency,
    )  # fmt: skip


def measure(
    rank: Rank,
    log: Interactions,
    split: Split,
    metrics: tuple[Metric, ...],
    heads: int = 1,
    recency: Recency = NO_RECENCY,
) -> list[Measured]:
    """As `measure_model`, for several heads that are ranked together.

    Parameters
    ----------
    rank : returns the best items for a batch of histories, one Best for each head
    log : what the heads were fitted on; the lists have its item indices
    heads : how many
    recency : how the events of a history are weighted by their age
    """
    histories, targets, hidden = _aligned(split, log, recency)
    by_user = [metric for metric in metrics if metric.name in BY_USER]
    longest = min(max(metric.k for metric in metrics), log.n_items)
    surprise, wanted = _surprise(log), np.diff(split.targets.matrix.indptr).astype(np.int64)
    values = np.empty((heads, histories.shape[0], len(by_user)))
    by_catalogue = [metric for metric in metrics if metric.name in BY_CATALOGUE]
    counts = np.zeros((heads, len(by_catalogue), log.n_items), np.int64)
    for start in range(0, histories.shape[0], BATCH):
        part = slice(start, min(start + BATCH, histories.shape[0]))
        seen = _excluded(histories[part], None if hidden is None else hidden[part], split.exclude_seen)
        held_out = targets[part]
        for head, best in enumerate(rank(histories[part], Eligible.all_but(seen), longest)):
            hits = best.among(held_out)
            for column, metric in enumerate(by_user):
                lists = _first(best, hits, wanted[part], surprise, metric.k)
                values[head, part, column] = BY_USER[metric.name](lists)
            for row, metric in enumerate(by_catalogue):
                in_list = np.arange(longest) < np.minimum(best.counts, metric.k)[:, None]
                counts[head, row] += np.bincount(best.items[in_list], minlength=log.n_items)
    functions = [(str(metric), BY_CATALOGUE[metric.name]) for metric in by_catalogue]
    return [
        (of_head, {name: function(total) for (name, function), total in zip(functions, totals, strict=True)})
        for of_head, totals in zip(values, counts, strict=True)
    ]


def _surprise(log: Interactions) -> Float64:
    """Of each item −log2 of the share of training users who have it."""
    counts = np.bincount(log.matrix.indices, minlength=log.n_items)
    users = max(1, int((np.diff(log.matrix.indptr) > 0).sum()))
    return np.asarray(-np.log2(np.maximum(counts, 1) / users))


def _aligned(split: Split, log: Any, recency: Recency = NO_RECENCY) -> tuple[Any, Any, Any]:
    """Histories, targets and hidden items with the item indices of the model; items that it lacks are left out.

    The number of wanted items stays that of the split: a target that the model does not know is a miss. Histories are
    weighted by age after the items are left out, as those of requests are.
    """
    place = log.items.index(split.histories.items.ids(np.arange(split.histories.n_items)))
    if (place == np.arange(log.n_items)).all() if len(place) == log.n_items else False:
        return known_users(None, split.histories, recency).matrix, split.targets.matrix, split.hidden
    if (place < 0).all():
        raise ParameterError("the model has none of the items of this split; fit it on split.train")
    histories = events(split.histories, place[split.histories.matrix.indices] >= 0)

    def moved(matrix: Any) -> Any:
        at = place[matrix.indices]
        keep = at >= 0
        pointers = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
        arrays = (matrix.data[keep], at[keep].astype(np.int32), pointers)
        aligned = sp.csr_array(arrays, shape=(matrix.shape[0], log.n_items))
        aligned.sort_indices()
        return aligned

    hidden = None if split.hidden is None else moved(split.hidden)
    return moved(known_users(None, histories, recency).matrix), moved(split.targets.matrix), hidden


def _excluded(histories: Any, hidden: Any, exclude_seen: bool) -> Any:
    """The items that are not recommended: those of the history, where they are left out, and hidden ones."""
    if not exclude_seen:
        return sp.csr_array(histories.shape, dtype=np.float32) if hidden is None else hidden
    return histories if hidden is None else _union(histories, hidden)


def _union(left: Any, right: Any) -> Any:
    union = ((left != 0).astype(np.float32) + (right != 0).astype(np.float32)).tocsr()
    union.sort_indices()
    return union


def _first(best: Best, hits: NDArray[np.bool_], wanted: NDArray[np.int64], surprise: Any, k: int) -> JudgedLists:
    """The first k ranks; where the catalogue has fewer items, the lists are shorter, and k stays in the metrics."""
    return JudgedLists(k, hits[:, :k], best.items[:, :k], np.minimum(best.counts, k), wanted, surprise)
