"""Pruning: a copy of a fitted model with only the largest weights of each item, and the effect on its lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from monogram.data.options import check_seed
from monogram.engine.runtime import memory
from monogram.engine.topk import column_topk
from monogram.engine.topk.best import Eligible
from monogram.errors import MemoryBudgetError, ParameterError
from monogram.models.report import LENGTH, Pruning
from monogram.ranking import training_histories
from monogram.weights import Sparse, Weights

if TYPE_CHECKING:
    from monogram.models.base import Recommender

SAMPLE = 1000  # users whose lists are compared
Model = TypeVar("Model", bound="Recommender")


def prune(model: Model, keep: int, *, seed: int, threads: int) -> Model:
    """A new model with the `keep` largest weights of each column; see `Recommender.prune`."""
    log, weights = model.fitted()
    _check(model, weights, keep)
    check_seed(seed)
    dtype = np.dtype(model.report_.dtype)
    _require_memory(log.n_items, min(keep, log.n_items), dtype)
    matrix = column_topk.thin(weights.columns, log.n_items, keep, dtype=dtype, diagonal=True, threads=threads)
    sparse = Sparse(matrix)
    overlap, users = _overlap(model, sparse, seed, threads)
    pruned = type(model)(**model.params())
    density = matrix.nnz / log.n_items**2
    pruned.adopt(log, sparse, model.report_, Pruning(int(keep), density, overlap, users, weights.nbytes, sparse.nbytes))
    return pruned


def _check(model: Recommender, weights: Weights, keep: Any) -> None:
    if isinstance(keep, bool) or not isinstance(keep, int | np.integer) or keep < 1:
        raise ParameterError(f"keep = {keep!r}; expected a whole number of at least 1 (weights kept for each item)")
    if weights.kind == "fixed":
        raise ParameterError(
            f"{type(model).__name__} has no weights to prune: its scores are the same for every history"
        )
    if not weights.linear:
        raise ParameterError(
            f"this {type(model).__name__} cannot be pruned to a sparse matrix: its weights are {weights.kind!r}, and "
            "its scores are not the history times one matrix"
        )


def _require_memory(items: int, keep: int, dtype: np.dtype[Any]) -> None:
    needed = items * (keep + 1) * column_topk.entry_bytes(dtype) + 3 * 8 * items * column_topk.WIDTH
    free = memory.parse(None)
    if needed > free:
        raise MemoryBudgetError(
            f"{keep:,} weights for each of {items:,} items need {memory.show(needed)}, but {memory.show(free)} "
            "is free; lower keep"
        )


def _overlap(model: Recommender, after: Weights, seed: int, threads: int) -> tuple[float, int]:
    """The mean overlap of the lists of sampled users before and after pruning, and the number of these users."""
    log, before = model.fitted()
    active = np.flatnonzero(np.diff(log.matrix.indptr))
    sample = np.sort(np.random.default_rng(seed).choice(active, min(SAMPLE, len(active)), replace=False))
    histories = training_histories(sample, log, model.recency_rule()).matrix
    eligible, k = Eligible.all_but(histories), min(LENGTH, log.n_items)
    first, second = (weights.best(histories, eligible, k, threads) for weights in (before, after))
    shares = [
        len(np.intersect1d(first.items[user, :count], second.items[user, :count])) / count
        for user, count in enumerate(first.counts)
        if count
    ]
    return float(np.mean(shares)) if shares else 1.0, len(shares)
