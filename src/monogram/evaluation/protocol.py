"""Full ranking over all items, never sampled negatives: models × metrics on one split."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.options import check_seed
from monogram.data.splits import Split
from monogram.engine.runtime import parallel
from monogram.engine.topk.best import Best, Eligible
from monogram.errors import MonogramWarning, ParameterError
from monogram.evaluation import metrics as metrics_
from monogram.evaluation.metrics import BY_CATALOGUE, BY_USER, Lists, Metric
from monogram.evaluation.result import Evaluation
from monogram.models.base import Recommender
from monogram.models.baselines import Popularity
from monogram.weights import Dense, Dual, Weights

# What each protocol reports in the papers that use it.
USUAL = {
    "strong": ("recall_capped@20", "recall_capped@50", "ndcg@100"),
    "ratio811": ("mrr@10", "ndcg@10"),
}
BATCH = 1024
Models = Recommender | Iterable[Recommender] | Mapping[str, Recommender]
Rank = Callable[[Any, Eligible, int], Iterable[Best]]  # histories, who may get what, k
Measured = tuple[NDArray[np.float64], dict[str, float]]


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
    """Rank every item for every test user, and measure.

    Parameters
    ----------
    models : a model, several, or a mapping from name to model
        One that has not been fitted is fitted on `split.train`, measured, and forgets it again, so that only one of
        them is in memory at a time. Popularity is added, as the floor.
    split : from `monogram.splits`
    metrics : names such as "recall@20"; by default what the protocol's papers report, else recall@20 and ndcg@20
    per_user : keep the value of every user (`result.users`)
    seed : of the bootstrap
    fit : options for `fit`, such as {"memory": "8 GB"}, for models that have not been fitted
    progress : receives the name of each model before it is worked on

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
    asked = _metrics(metrics, split)
    values: dict[str, NDArray[np.float64]] = {}
    catalogue: dict[str, dict[str, float]] = {}
    check_seed(seed)
    for name, model in _named(models).items():
        if progress:
            progress(name)
        fresh = "weights_" not in model.__dict__
        if fresh:
            model.fit(split.train, **{"threads": threads, **(fit or {})})
        else:
            _warn_of_leak(name, model, split)
        values[name], catalogue[name] = measure_model(model, split, asked, parallel.count(threads))
        if fresh:
            model.unfit()
    users = split.histories.users.take(np.arange(split.histories.n_users))
    return Evaluation(split.protocol, asked, values, catalogue, users if per_user else None, seed)


def _metrics(metrics: Iterable[str] | str | None, split: Split) -> tuple[Metric, ...]:
    if metrics is None:
        metrics = USUAL.get(split.protocol, ("recall@20", "ndcg@20"))
    parsed = tuple(metrics_.parse(one) for one in ([metrics] if isinstance(metrics, str) else metrics))
    if not parsed:
        raise ParameterError("no metric was given; expected at least one, such as 'recall@20'")
    return tuple(dict.fromkeys(parsed))


def _named(models: Models) -> dict[str, Recommender]:
    """Models by name; the same name twice is told apart by its parameters, then by a number."""
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
    """A model that learned from the events it is measured on has a number that means nothing."""
    log = model.fitted()[0]
    rows = log.users.index(split.targets.users.ids(np.arange(split.targets.n_users)))
    known = np.flatnonzero(rows >= 0)
    if not len(known):
        return
    _, targets, _ = _aligned(split, log)
    seen = int((log.matrix[rows[known]] != 0).multiply(targets[known] != 0).nnz)
    if seen:
        warnings.warn(
            f"{name} has learned from {seen:,} of the {split.targets.n_events:,} events it is measured on; "
            "fit it on split.train",
            MonogramWarning,
            stacklevel=3,
        )


def measure_model(model: Recommender, split: Split, asked: tuple[Metric, ...], threads: int) -> Measured:
    """Values by user (users × metrics of users), and the metrics of the catalogue."""
    log, weights = model.fitted()
    return measure_weights(weights, log, split, asked, threads)


def measure_weights(
    weights: Weights, log: Interactions, split: Split, asked: tuple[Metric, ...], threads: int
) -> Measured:
    """What `measure_model` gives, for weights that were learned from a log."""
    return measure(lambda rows, rules, k: [weights.best(rows, rules, k, threads)], log, split, asked)[0]


def measure_heads(
    weights: Dense | Dual,
    thetas: NDArray[np.float64],
    log: Interactions,
    split: Split,
    asked: tuple[Metric, ...],
    threads: int,
) -> list[Measured]:
    """What `measure_model` gives, for each model whose scores are those of the weights times its row of `thetas`."""
    return measure(
        lambda rows, rules, k: weights.heads(thetas, rows, rules, k, threads), log, split, asked, len(thetas)
    )


def measure(rank: Rank, log: Interactions, split: Split, asked: tuple[Metric, ...], heads: int = 1) -> list[Measured]:
    """What `measure_model` gives, for each of several heads whose lists are made in one go.

    Parameters
    ----------
    rank : gives the best items of a batch of histories, one Best a head
    log : what was learned from; the items of the lists are its own
    """
    histories, targets, hidden = _aligned(split, log)
    by_user = [metric for metric in asked if metric.name in BY_USER]
    longest = min(max(metric.k for metric in asked), log.n_items)
    surprise, wanted = _surprise(log), np.diff(split.targets.matrix.indptr).astype(np.int64)
    out = np.empty((heads, histories.shape[0], len(by_user)))
    given = [metric for metric in asked if metric.name in BY_CATALOGUE]
    counts = np.zeros((heads, len(given), log.n_items), np.int64)
    for start in range(0, histories.shape[0], BATCH):
        part = slice(start, min(start + BATCH, histories.shape[0]))
        seen = histories[part] if hidden is None else _union(histories[part], hidden[part])
        held_back = targets[part]
        for head, best in enumerate(rank(histories[part], Eligible.all_but(seen), longest)):
            hits = best.among(held_back)
            for place, metric in enumerate(by_user):
                lists = _first(best, hits, wanted[part], surprise, metric.k)
                out[head, part, place] = BY_USER[metric.name](lists)
            for place, metric in enumerate(given):
                there = np.arange(longest) < np.minimum(best.counts, metric.k)[:, None]
                counts[head, place] += np.bincount(best.items[there], minlength=log.n_items)
    names = [(str(metric), BY_CATALOGUE[metric.name]) for metric in given]
    return [
        (values, {name: of(total) for (name, of), total in zip(names, totals, strict=True)})
        for values, totals in zip(out, counts, strict=True)
    ]


def _surprise(log: Interactions) -> NDArray[np.float64]:
    """Of each item −log2 of the share of learning users who have it."""
    counts = np.bincount(log.matrix.indices, minlength=log.n_items)
    learners = max(1, int((np.diff(log.matrix.indptr) > 0).sum()))
    return np.asarray(-np.log2(np.maximum(counts, 1) / learners))


def _aligned(split: Split, log: Any) -> tuple[Any, Any, Any]:
    """Histories, targets and hidden items in the item order of the model; what it does not know is left out.

    The number of wanted items stays that of the split: an item the model cannot give is a miss.
    """
    place = log.items.index(split.histories.items.ids(np.arange(split.histories.n_items)))
    if (place == np.arange(log.n_items)).all() if len(place) == log.n_items else False:
        return split.histories.matrix, split.targets.matrix, split.hidden
    if (place < 0).all():
        raise ParameterError("the model knows none of the items of this split; was it fitted on another log?")

    def moved(matrix: Any) -> Any:
        at = place[matrix.indices]
        keep = at >= 0
        pointers = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
        arrays = (matrix.data[keep], at[keep].astype(np.int32), pointers)
        out = sp.csr_array(arrays, shape=(matrix.shape[0], log.n_items))
        out.sort_indices()
        return out

    hidden = None if split.hidden is None else moved(split.hidden)
    return moved(split.histories.matrix), moved(split.targets.matrix), hidden


def _union(left: Any, right: Any) -> Any:
    both = ((left != 0).astype(np.float32) + (right != 0).astype(np.float32)).tocsr()
    both.sort_indices()
    return both


def _first(best: Best, hits: NDArray[np.bool_], wanted: NDArray[np.int64], surprise: Any, k: int) -> Lists:
    """The first k ranks; where the catalogue is smaller than k the lists end before, the denominators do not."""
    return Lists(k, hits[:, :k], best.items[:, :k], np.minimum(best.counts, k), wanted, surprise)
