"""The k best items of each history, without ever making a users × items matrix.

Three sources of scores here and one in `gathering`, one rule of choice (see `heap`).

*rows*: score = base + Σ h_i·W[i, :]. Columns are taken in tiles whose sums stay in the first cache; the rows of W that
users of one block share are found again in the larger ones.
*products*: score = base + p·Vᵀ for a vector p of each user. A block of users is multiplied in the precision of V, which
chooses a few candidates more than k; their scores are then summed again in float64, and those decide.
*sparse rows*: as rows, for a W that is mostly empty.

Rows, gathered sums and scores that are there already can be ranked for several heads at once: for models whose scores
differ by a factor of each item alone. The sums are then made once, and every head chooses from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime import parallel
from monogram.engine.runtime.jit import kernel
from monogram.engine.topk import several_heads
from monogram.engine.topk.scores import add_sparse_rows
from monogram.engine.topk.selection import close, keep, select, sort, worse
from monogram.engine.topk.several_heads import select_heads

TILE = 4096  # columns: 32 kB of float64 sums
USERS = 512  # a block of users shares the rows it reads
MULTIPLIED = 64  # users multiplied at once
SPARE = 16  # candidates beyond k whose exact scores are looked at


@dataclass(frozen=True)
class Eligible:
    """Who may get what: a mask for all, and sorted lists of indices for each user.

    Parameters
    ----------
    mask : bool array, one an item
    out_pointers, out : what each user must not get (CSR style)
    only_pointers, only : what alone each user may get; `only_pointers` of length 0 means everything
    """

    mask: NDArray[np.bool_]
    out_pointers: NDArray[np.int64]
    out: NDArray[np.int64]
    only_pointers: NDArray[np.int64]
    only: NDArray[np.int64]

    @classmethod
    def all_but(cls, seen: Any) -> Eligible:
        """Everything but what each row of a CSR batch holds."""
        none = np.zeros(0, np.int64)
        mask = np.ones(seen.shape[1], np.bool_)
        return cls(mask, seen.indptr.astype(np.int64), seen.indices.astype(np.int64), none, none)


@dataclass(frozen=True)
class Best:
    """The first counts[u] entries of row u are user u's items, best first, and their scores.

    `residuals` are those of the solution that a row's scores come from, where it was solved for.
    """

    items: NDArray[np.int64]
    scores: NDArray[np.float64]
    counts: NDArray[np.int64]
    residuals: NDArray[np.float64] | None = None

    def among(self, wanted: Any) -> NDArray[np.bool_]:
        """Whether each item is one that the same row of a CSR batch (sorted) holds; False beyond a list's end."""
        out = np.zeros(self.items.shape, np.bool_)
        _among(self.items, self.counts, wanted.indptr, wanted.indices, out)
        return out


def best_by_rows(
    weights: NDArray[Any],
    histories: Any,
    eligible: Eligible,
    k: int,
    *,
    base: NDArray[np.float64] | None = None,
    threads: int = 1,
) -> Best:
    """Top k by summed rows of a C-ordered matrix (n rows, or none where scores are the base alone)."""
    base = np.zeros(histories.shape[1]) if base is None else base
    return _by_rows(weights, base, np.empty((0, len(base))), histories, eligible, k, threads)[0]


def heads_by_rows(
    weights: NDArray[Any],
    scales: NDArray[np.float64],
    histories: Any,
    eligible: Eligible,
    k: int,
    *,
    threads: int = 1,
) -> list[Best]:
    """For each head, a row of `scales` with a factor an item: the top k by its factors times the summed rows."""
    return _by_rows(weights, np.zeros(histories.shape[1]), scales, histories, eligible, k, threads)


def _by_rows(
    weights: NDArray[Any],
    base: NDArray[np.float64],
    scales: NDArray[np.float64],
    histories: Any,
    eligible: Eligible,
    k: int,
    threads: int,
) -> list[Best]:
    """One Best for each head; without heads one, of the sums as they are."""
    best = empty(histories.shape[0], k, max(1, len(scales)))
    data, bounds_ = histories.data.astype(np.float64), several_heads.bounds(scales)

    def block(start: int, stop: int) -> None:
        _rows(
            weights,
            base,
            scales,
            *bounds_,
            histories.indptr,
            histories.indices,
            data,
            *arrays(eligible),
            *best,
            start,
            stop,
            np.empty(TILE),
        )

    parallel.parallel_for(block, histories.shape[0], min(USERS, _share(histories.shape[0], threads)), threads)
    return [Best(*one) for one in zip(*best, strict=True)]


def best_by_products(
    left: NDArray[np.float64],
    right: NDArray[Any],
    base: NDArray[np.float64],
    eligible: Eligible,
    k: int,
    *,
    threads: int = 1,
) -> Best:
    """Top k by base + left·rightᵀ (users × rank, items × rank)."""
    users = len(left)
    best, wide = (empty(users, size, 1) for size in (k, k + SPARE))
    chosen, found = (tuple(one[0] for one in arrays) for arrays in (best, wide))
    rough, start_from = left.astype(right.dtype), base.astype(right.dtype)

    def block(start: int, stop: int) -> None:
        scores = rough[start:stop] @ right.T
        scores += start_from
        whole(scores, *arrays(eligible), *found, start)
        _again(left, right, base, *found, start, stop)
        _first(*found, *chosen, start, stop)

    with parallel.blas_threads(1):  # each thread multiplies a block of its own
        parallel.parallel_for(block, users, min(MULTIPLIED, _share(users, threads)), threads)
    return Best(*chosen)


def best_by_sparse_rows(matrix: Any, histories: Any, eligible: Eligible, k: int, *, threads: int = 1) -> Best:
    """Top k by summed rows of a CSR matrix, in float64 and in the order of the items."""
    best = tuple(one[0] for one in empty(histories.shape[0], k, 1))
    data = histories.data.astype(np.float64)

    def block(start: int, stop: int) -> None:
        _sparse_rows(
            matrix.indptr,
            matrix.indices,
            matrix.data,
            histories.indptr,
            histories.indices,
            data,
            *arrays(eligible),
            *best,
            start,
            stop,
            np.empty((1, histories.shape[1])),
        )

    parallel.parallel_for(block, histories.shape[0], min(USERS, _share(histories.shape[0], threads)), threads)
    return Best(*best)


def heads_by_scores(
    scores: NDArray[Any], scales: NDArray[np.float64], eligible: Eligible, k: int, *, threads: int = 1
) -> list[Best]:
    """For each head, a row of `scales`: the top k by its factors times whole rows of scores, which are spent by it."""
    best, bounds_ = empty(len(scores), k, len(scales)), several_heads.bounds(scales)

    def block(start: int, stop: int) -> None:
        _whole_heads(scores, scales, *bounds_, *arrays(eligible), *best, start, stop)

    parallel.parallel_for(block, len(scores), min(USERS, _share(len(scores), threads)), threads)
    return [Best(*one) for one in zip(*best, strict=True)]


def _share(users: int, threads: int) -> int:
    return max(1, -(-users // (4 * threads)))


def empty(users: int, k: int, heads: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Room for the items, scores and counts of each head."""
    shape = (heads, users, k)
    return np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape[:2], np.int64)


def arrays(eligible: Eligible) -> tuple[Any, ...]:
    """The rules as a kernel takes them."""
    return eligible.mask, eligible.out_pointers, eligible.out, eligible.only_pointers, eligible.only


@kernel
def _among(items: Any, counts: Any, indptr: Any, indices: Any, out: Any) -> None:
    for user in range(len(counts)):
        row = indices[indptr[user] : indptr[user + 1]]
        for place in range(counts[user]):
            at = np.searchsorted(row, items[user, place])
            out[user, place] = at < len(row) and row[at] == items[user, place]


@kernel
def _add(weights: Any, rows: Any, factors: Any, first: int, total: Any) -> None:
    """Add rows of the weights, from a column on, to the total; four at a time, so that four are on their way."""
    size, number = len(total), len(rows)
    whole = number - number % 4
    for p in range(0, whole, 4):
        a = weights[rows[p], first : first + size]
        b = weights[rows[p + 1], first : first + size]
        c = weights[rows[p + 2], first : first + size]
        d = weights[rows[p + 3], first : first + size]
        fa, fb, fc, fd = factors[p], factors[p + 1], factors[p + 2], factors[p + 3]
        for t in range(size):
            total[t] += (fa * a[t] + fb * b[t]) + (fc * c[t] + fd * d[t])
    for p in range(whole, number):
        row = weights[rows[p], first : first + size]
        factor = factors[p]
        for t in range(size):
            total[t] += factor * row[t]


@kernel
def _rows(
    weights: Any,
    base: Any,
    scales: Any,
    sizes: Any,
    upper: Any,
    indptr: Any,
    indices: Any,
    data: Any,
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
    room: Any,
) -> None:
    n = len(base)
    tile = len(room)
    rows = weights.shape[0]
    chosen = np.empty(tile if len(scales) > 0 else 0, np.int64)
    for first in range(0, n, tile):
        size = min(tile, n - first)
        total = room[:size]
        for user in range(start, stop):
            total[:] = base[first : first + size]
            if rows > 0:
                _add(
                    weights,
                    indices[indptr[user] : indptr[user + 1]],
                    data[indptr[user] : indptr[user + 1]],
                    first,
                    total,
                )
            close(total, first, mask, out[out_pointers[user] : out_pointers[user + 1]])
            if len(only_pointers) > 0:
                keep(total, first, only[only_pointers[user] : only_pointers[user + 1]])
            if len(scales) == 0:
                counts[0, user] = select(total, first, best_items[0, user], best_scores[0, user], counts[0, user])
            else:
                select_heads(
                    total,
                    first,
                    scales,
                    sizes,
                    upper,
                    best_items,
                    best_scores,
                    counts,
                    user,
                    chosen,
                )
    if n <= tile and len(scales) > 0:
        return  # in one tile every head is sorted already
    for h in range(len(counts)):
        for user in range(start, stop):
            sort(best_items[h, user], best_scores[h, user], counts[h, user])


@kernel
def whole(
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
    """Choose from whole rows of scores: those of the users from `start` on."""
    for row in range(len(scores)):
        user = start + row
        total = scores[row]
        close(total, 0, mask, out[out_pointers[user] : out_pointers[user + 1]])
        if len(only_pointers) > 0:
            keep(total, 0, only[only_pointers[user] : only_pointers[user + 1]])
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
    room = np.empty(scores.shape[1], np.int64)
    for user in range(start, stop):
        total = scores[user]
        close(total, 0, mask, out[out_pointers[user] : out_pointers[user + 1]])
        if len(only_pointers) > 0:
            keep(total, 0, only[only_pointers[user] : only_pointers[user + 1]])
        select_heads(total, 0, scales, sizes, upper, best_items, best_scores, counts, user, room)


@kernel
def _again(left: Any, right: Any, base: Any, items: Any, scores: Any, counts: Any, start: int, stop: int) -> None:
    """The exact scores of the candidates, in float64, and their order by them."""
    rank = left.shape[1]
    for user in range(start, stop):
        for place in range(counts[user]):
            item = items[user, place]
            total = 0.0
            for t in range(rank):
                total += left[user, t] * right[item, t]
            scores[user, place] = total + base[item]
        for place in range(1, counts[user]):  # nearly sorted already: insertion
            score, item, at = scores[user, place], items[user, place], place
            while at > 0 and worse(scores[user, at - 1], items[user, at - 1], score, item):
                scores[user, at], items[user, at] = scores[user, at - 1], items[user, at - 1]
                at -= 1
            scores[user, at], items[user, at] = score, item


@kernel
def _first(
    items: Any, scores: Any, counts: Any, best_items: Any, best_scores: Any, best_counts: Any, start: int, stop: int
) -> None:
    k = best_items.shape[1]
    for user in range(start, stop):
        best_counts[user] = min(k, counts[user])
        for place in range(best_counts[user]):
            best_items[user, place], best_scores[user, place] = items[user, place], scores[user, place]


@kernel
def _sparse_rows(
    row_pointers: Any,
    columns: Any,
    values: Any,
    indptr: Any,
    indices: Any,
    data: Any,
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
    total: Any,
) -> None:
    for user in range(start, stop):
        total[:] = 0.0
        part = slice(indptr[user], indptr[user + 1])
        add_sparse_rows(row_pointers, columns, values, indices[part], data[part], total[0])
        whole(total, mask, out_pointers, out, only_pointers, only, best_items, best_scores, counts, user)
