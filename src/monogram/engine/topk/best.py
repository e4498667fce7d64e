"""Ranked lists, and the rules of what may be in them; no users × items matrix is made.

The modules beside this one differ in where the scores come from: `by_rows`, `by_products`, `by_sparse_rows`, `dual`.
All of them select with the rule of `selection`. `heads_by_scores` ranks scores that exist already. `few` has the same
functions for one request of a short process, in NumPy.

Rows, gathered sums and given scores can be ranked for several heads at once, for models whose scores differ by one
factor per item: the sums are made once, and every head selects from them (see `several_heads`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk import several_heads
from monogram.engine.topk.selection import exclude, exclude_all_but, select, sort
from monogram.engine.topk.several_heads import select_heads

USERS = 512  # a block of users shares the rows it reads


@dataclass(frozen=True)
class Eligible:
    """Which items may be in the list of each user: a mask for all users, and sorted item indices for each user.

    Parameters
    ----------
    mask : bool array, one entry for each item
    out_pointers, out : excluded items of each user, as the index arrays of a CSR matrix
    only_pointers, only : the only allowed items of each user; `only_pointers` of length 0 allows every item
    """

    mask: NDArray[np.bool_]
    out_pointers: Indices
    out: Indices
    only_pointers: Indices
    only: Indices

    @classmethod
    def all_but(cls, seen: Csr) -> Eligible:
        """Every item except those in the same row of a CSR batch."""
        none = np.zeros(0, np.int64)
        mask = np.ones(seen.shape[1], np.bool_)
        return cls(mask, seen.indptr.astype(np.int64), seen.indices.astype(np.int64), none, none)


@dataclass(frozen=True)
class Best:
    """Ranked lists: the first counts[u] entries of row u are the items of user u, best first, and their scores.

    `residuals` are those of the linear solves behind the scores of each row, for matrix-free weights.
    """

    items: Indices
    scores: Float64
    counts: Indices
    residuals: Float64 | None = None

    def among(self, wanted: Csr) -> NDArray[np.bool_]:
        """Whether each item is in the same row of a CSR batch (sorted indices); False beyond the end of a list."""
        out = np.zeros(self.items.shape, np.bool_)
        _among(self.items, self.counts, wanted.indptr, wanted.indices, out)
        return out


def heads_by_scores(scores: Float, scales: Float64, eligible: Eligible, k: int, *, threads: int = 1) -> list[Best]:
    """For each head, a row of `scales`: the top k by its factors times the scores; `scores` is overwritten."""
    best, bounds_ = empty(len(scores), k, len(scales)), several_heads.bounds(scales)

    def block(start: int, stop: int) -> None:
        _whole_heads(scores, scales, *bounds_, *arrays(eligible), *best, start, stop)

    parallel.parallel_for(block, len(scores), min(USERS, share_of_users(len(scores), threads)), threads)
    return [Best(*lists) for lists in zip(*best, strict=True)]


def share_of_users(users: int, threads: int) -> int:
    """Users of one task: at least four tasks for each thread."""
    return max(1, -(-users // (4 * threads)))


def empty(users: int, k: int, heads: int) -> tuple[Indices, Float64, Indices]:
    """Arrays for the items, scores and counts of each head."""
    shape = (heads, users, k)
    return np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape[:2], np.int64)


def arrays(eligible: Eligible) -> tuple[Any, ...]:
    """The fields of `Eligible` as kernels take them."""
    return eligible.mask, eligible.out_pointers, eligible.out, eligible.only_pointers, eligible.only


@kernel
def _among(items: Any, counts: Any, indptr: Any, indices: Any, out: Any) -> None:
    for user in range(len(counts)):
        row = indices[indptr[user] : indptr[user + 1]]
        for place in range(counts[user]):
            at = np.searchsorted(row, items[user, place])
            out[user, place] = at < len(row) and row[at] == items[user, place]


@kernel
def select_rows(
    scores: Any,
    mask: Any,
    out_pointers: Any,
    out: Any,
    only_pointers: Any,
    only: Any,
    best_items: Any,
    best_scores: Any,
    counts: Any,
    start: int,
) -> None:
    """Select from complete rows of scores, of the users from `start` on."""
    for row in range(len(scores)):
        user = start + row
        total = scores[row]
        exclude(total, 0, mask, out[out_pointers[user] : out_pointers[user + 1]])
        if len(only_pointers) > 0:
            exclude_all_but(total, 0, only[only_pointers[user] : only_pointers[user + 1]])
        counts[user] = select(total, 0, best_items[user], best_scores[user], counts[user])
        sort(best_items[user], best_scores[user], counts[user])


@kernel
def _whole_heads(
    scores: Any,
    scales: Any,
    sizes: Any,
    upper: Any,
    mask: Any,
    out_pointers: Any,
    out: Any,
    only_pointers: Any,
    only: Any,
    best_items: Any,
    best_scores: Any,
    counts: Any,
    start: int,
    stop: int,
) -> None:
    candidates = np.empty(scores.shape[1], np.int64)
    for user in range(start, stop):
        total = scores[user]
        exclude(total, 0, mask, out[out_pointers[user] : out_pointers[user + 1]])
        if len(only_pointers) > 0:
            exclude_all_but(total, 0, only[only_pointers[user] : only_pointers[user + 1]])
        select_heads(total, 0, scales, sizes, upper, best_items, best_scores, counts, user, candidates)
