"""The k best items by summed rows, for many users at once: candidates in float32, decided in float64.

The rows of W that occur in the histories are copied in panels of 64 columns. A panel stays in the caches while the sums
of all users are made in vector registers, and every user keeps the items with the highest float32 sums. A bound of the
rounding errors shows that no other item is among the k best; the sums of the items kept are then made again in float64,
in the order of operations of `by_rows`. Where the bound is too wide, the user remains, and `by_rows` makes the list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Indices
from monogram.engine.runtime.jit import kernel
from monogram.engine.runtime.simd import LANES, lowest_bit, sum_short_rows
from monogram.engine.topk.best import Eligible
from monogram.engine.topk.selection import offer, sort

SPARE = 8  # candidates kept beyond k
REUSE = 2  # users of a row, on average, from which on copying the rows pays
ENTRIES = 4096  # of all histories, from which on the calls for each panel pay
CANDIDATES = 1 << 23  # of all users of one part: 64 MB
PANELS = 1 << 23  # bytes of the panels that all threads copy before they sum: they stay in the shared cache
LARGEST = 1e37  # of the terms of a sum: far from the overflow of float32


def rank_by_panels(weights: Float, histories: Csr, eligible: Eligible, best: Any, *, threads: int = 1) -> Indices:
    """Fill the lists (items, scores, counts) of users with histories that share rows; return the other users.

    The lists are bit-identical to those of `by_rows`. With lists of only allowed items, all users remain.
    """
    users, n = histories.shape
    room = 2 * (best[0].shape[1] + SPARE)
    remaining = np.ones(users, np.bool_)
    if 4 * room <= n and users > 1 and not eligible.only_pointers.size:
        for start in range(0, users, max(1, CANDIDATES // room)):
            part = slice(start, min(start + max(1, CANDIDATES // room), users))
            pointers = histories.indptr[part.start : part.stop + 1]
            used = np.zeros(n, np.bool_)
            used[histories.indices[pointers[0] : pointers[-1]]] = True
            rows = np.flatnonzero(used)
            if pointers[-1] - pointers[0] >= max(ENTRIES, REUSE * len(rows)):
                _rank(weights, rows, histories, eligible, best, remaining, part, room, threads)
    return np.flatnonzero(remaining)


def _rank(
    weights: Float,
    rows: Indices,
    histories: Csr,
    eligible: Eligible,
    best: Any,
    remaining: NDArray[np.bool_],
    part: slice,
    room: int,
    threads: int,
) -> None:
    """The lists of a part of the users; `remaining` stays True where a list was not made."""
    users, n = part.stop - part.start, histories.shape[1]
    threads = max(1, min(threads, users // 8))
    pairs = slice(histories.indptr[part.start], histories.indptr[part.stop])
    indptr = (histories.indptr[part.start : part.stop + 1] - pairs.start).astype(np.int64)
    indices, data = histories.indices[pairs], histories.data[pairs].astype(np.float64)
    place = np.empty(n, np.int32)
    place[rows] = np.arange(len(rows))
    places = place[indices]
    with np.errstate(over="ignore", under="ignore"):
        factors = data.astype(np.float32)
    items, scores, counts = (
        np.empty((users, room), np.int32),
        np.empty((users, room), np.float32),
        np.zeros(users, np.int64),
    )
    floors, largest, panels = np.full(users, -np.inf, np.float32), np.zeros(len(rows), np.int32), _panels(len(rows), n)
    out_pointers = eligible.out_pointers[part.start : part.stop + 1]
    row_bounds = np.linspace(0, len(rows), threads + 1).astype(int)
    user_bounds = np.searchsorted(
        indptr + 4 * np.arange(users + 1), np.linspace(0, 1, threads + 1) * (len(data) + 4 * users)
    )

    def work(number: int, wait: Callable[[], Any]) -> None:
        own_rows = slice(*row_bounds[number : number + 2])
        own = slice(*user_bounds[number : number + 2])
        own_pointers = slice(own.start, own.stop + 1)
        candidates = items[own], scores[own], counts[own], floors[own]
        total = np.empty(LANES, np.float32)
        for start in range(0, n, len(panels) * LANES):
            columns = range(start, min(start + len(panels) * LANES, n), LANES)
            for panel, first in zip(panels, columns, strict=False):
                _copy(weights, rows[own_rows], first, panel[own_rows], largest[own_rows])
            wait()
            for panel, first in zip(panels, columns, strict=False):
                _collect(
                    panel,
                    first,
                    indptr[own_pointers],
                    places,
                    factors,
                    eligible.mask,
                    out_pointers[own_pointers],
                    eligible.out,
                    best[0].shape[1] + SPARE,
                    *candidates,
                    total,
                )
            wait()
        _decide(
            weights,
            indptr[own_pointers],
            indices,
            data,
            places,
            largest.view(np.float32),
            *candidates,
            *(array[part][own] for array in best),
            remaining[part][own],
            np.empty(room),
            np.empty(room, np.int64),
        )

    parallel.in_step(work, threads)


def _panels(rows: int, n: int) -> Any:
    """Panels of `LANES` columns, as many as fit in the cache: in none of them, rows share a cache line."""
    line, bytes_of_panel = 64, rows * LANES * 4
    number = min(max(1, PANELS // max(1, bytes_of_panel)), -(-n // LANES))
    memory = np.empty(number * bytes_of_panel + line, np.uint8)
    skip = -memory.ctypes.data % line
    return memory[skip : skip + number * bytes_of_panel].view(np.float32).reshape(number, rows, LANES)


@kernel
def _collect(
    panel: Any,
    first: int,
    indptr: Any,
    places: Any,
    factors: Any,
    mask: Any,
    out_pointers: Any,
    out: Any,
    keep: int,
    items: Any,
    scores: Any,
    counts: Any,
    floors: Any,
    total: Any,
) -> None:
    """Add the items of a panel to the candidates of each user, which are all items above the floor of the user.

    When there is no more room, the floor is raised; at least `keep` candidates stay, but for ties.
    """
    allowed = _bits(mask[first : first + LANES])
    for user in range(len(counts)):
        floor = floors[user]
        above = allowed & sum_short_rows(panel, places, factors, indptr[user], indptr[user + 1], floor, total)
        if above == 0:
            continue
        above &= ~_bits_of(out[out_pointers[user] : out_pointers[user + 1]], first)
        count = counts[user]
        while above != 0:
            t = lowest_bit(above)
            above &= above - 1
            if not total[t] > floor:  # the floor may have been raised
                continue
            items[user, count], scores[user, count] = first + t, total[t]
            count += 1
            if count == scores.shape[1]:
                floor = _floor(scores[user], keep, keep // 4)
                count = _above(items[user], scores[user], floor)
        counts[user], floors[user] = count, floor


@kernel
def _bits(mask: Any) -> Any:
    """At most 64 values as the bits of an int64."""
    bits = np.int64(0)
    for t in range(len(mask)):
        bits |= np.int64(mask[t]) << t
    return bits


@kernel
def _bits_of(items: Any, first: int) -> Any:
    """The bits of the items from `first` to `first` + 63 in a sorted list."""
    bits = np.int64(0)
    for p in range(np.searchsorted(items, first), len(items)):
        if items[p] >= first + LANES:
            break
        bits |= np.int64(1) << (items[p] - first)
    return bits


@kernel
def _copy(weights: Any, rows: Any, first: int, panel: Any, largest: Any) -> None:
    """Copy columns of the rows; `largest` are the bits of the largest |w| of each row, those of infinity and NaN."""
    size = min(LANES, weights.shape[1] - first)
    bits = panel.view(np.int32)
    for r in range(len(rows)):
        source = weights[rows[r], first : first + size]
        target, target_bits = panel[r], bits[r]
        for t in range(size):
            target[t] = source[t]
        for t in range(size, LANES):
            target[t] = 0
        high = largest[r]
        for t in range(LANES):
            high = max(high, target_bits[t] & np.int32(0x7FFFFFFF))
        largest[r] = high


@kernel
def _floor(scores: Any, keep: int, more: int) -> Any:
    """A value that at least `keep` scores exceed, or the lowest score; apart from ties, at most `more` others do."""
    low = high = scores[0]
    for score in scores:
        low, high = min(low, score), max(high, score)
    while True:  # bisection, by loops without branches
        middle = low + (high - low) / np.float32(2)
        if not low < middle < high:
            return low
        above = 0
        for t in range(len(scores)):
            above += scores[t] > middle
        if above < keep:
            high = middle
        else:
            low = middle
            if above <= keep + more:
                return low


@kernel
def _above(items: Any, scores: Any, floor: float) -> int:
    """Remove the candidates at or below the floor; their number. The order stays."""
    count = 0
    for t in range(len(scores)):
        item, score = items[t], scores[t]
        items[count], scores[count] = item, score
        count += score > floor
    return count


@kernel
def _decide(
    weights: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    places: Any,
    largest: Any,
    items: Any,
    scores: Any,
    counts: Any,
    floors: Any,
    best_items: Any,
    best_scores: Any,
    best_counts: Any,
    remaining: Any,
    total: Any,
    chosen: Any,
) -> None:
    k = best_items.shape[1]
    for user in range(len(counts)):
        pairs = slice(indptr[user], indptr[user + 1])
        number, low, error = counts[user], -np.inf, _error(data[pairs], places[pairs], largest)
        if error == np.inf:
            continue
        if floors[user] > -np.inf:  # else the candidates are all eligible items
            if number < k:
                continue
            low = _floor(scores[user, :number], k, 0) - 2 * error
            if not floors[user] < low:
                continue
        count = 0
        for t in range(number):
            if scores[user, t] >= low:
                chosen[count] = items[user, t]
                count += 1
        total[:count] = 0.0
        add_at(weights, indices[pairs], data[pairs], chosen[:count], total)
        size = 0
        for t in range(count):
            size = offer(best_items[user], best_scores[user], size, chosen[t], total[t])
        sort(best_items[user], best_scores[user], size)
        best_counts[user], remaining[user] = size, False


@kernel
def _error(factors: Any, places: Any, largest: Any) -> float:
    """A bound of |float32 sum − float64 sum| for every item; infinite where float32 may overflow.

    The sum of m products is wrong by at most (m + 1)·2⁻²⁴ of the sum of |factor·w|, and by 2⁻²⁴ more for each operand
    that is rounded to float32, times 1 + O(m·2⁻²⁴). Underflow adds 2⁻¹⁵⁰ for each product, and 2⁻¹⁵⁰ times the other
    operand for each operand. The factor 1.1 and 2⁻¹⁴⁸ for 2⁻¹⁵⁰ also cover the errors of float64.
    """
    products, operands = 0.0, 0.0
    for p in range(len(factors)):
        factor, high = abs(factors[p]), np.float64(largest[places[p]])
        products += factor * high
        operands += factor + high + 1
    if not products + operands < LARGEST:
        return np.inf
    return 1.1 * (len(factors) + 4) * 2.0**-24 * products + operands * 2.0**-148


@kernel
def add_at(weights: Any, rows: Any, factors: Any, columns: Any, total: Any) -> None:
    """Add rows of the weights at some columns to the total, in the order of operations of `by_rows`."""
    number = len(rows)
    whole = number - number % 4
    for p in range(0, whole, 4):
        a, b, c, d = weights[rows[p]], weights[rows[p + 1]], weights[rows[p + 2]], weights[rows[p + 3]]
        fa, fb, fc, fd = factors[p], factors[p + 1], factors[p + 2], factors[p + 3]
        for t in range(len(columns)):
            j = columns[t]
            total[t] += (fa * a[j] + fb * b[j]) + (fc * c[j] + fd * d[j])
    for p in range(whole, number):
        row, factor = weights[rows[p]], factors[p]
        for t in range(len(columns)):
            total[t] += factor * row[columns[t]]
