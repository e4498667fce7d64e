"""Kernels of local regression: choose the candidates of an item, gather their S, and solve; see `engine.inverse.local`.

The S of the candidates is gathered in two parts. Pairs of hubs, the most used items, are read from one array. Pairs
with an item that is no hub are summed over its users, in the cheapest of three ways: over lists of the candidates
that each user has; over such lists without the hubs, and the hubs in the users' rows; or over the whole rows of the
users.

With a time kernel each product of two entries of a user counts k at the distance of their positions. `clock` has the
positions by item, by user and of the hubs by user, and the table of k. Without a kernel it is None, and the kernels are
compiled without those branches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.gram.kernel_table import at_distance
from monogram.engine.linalg.small_cholesky import factor, substitute
from monogram.engine.runtime.jit import fused, kernel


@kernel
def gram_row(item: int, by_item: Any, by_user: Any, clock: Any, total: Any, place: Any, near: Any) -> int:
    """Add row `item` of S to `total`, and list in `near` the other items with an entry; return their number.

    `place` is −1 for all items before, and −2 for the listed items afterwards.
    """
    pointers, owners, values = by_item
    indptr, indices, data = by_user
    found = 0
    place[item] = -2
    for p in range(pointers[item], pointers[item + 1]):
        value = np.float64(values[p])
        user = owners[p]
        for q in range(indptr[user], indptr[user + 1]):
            i = indices[q]
            if place[i] == -1:
                place[i] = -2
                near[found] = i
                found += 1
            if clock is None:
                total[i] += value * data[q]
            else:
                total[i] += value * data[q] * at_distance(clock[3], clock[4], clock[0][p], clock[1][q])
    place[item] = -1
    total[item] = 0.0
    return found


@kernel
def kth_largest(values: Any, size: int, k: int) -> float:
    """The k-th largest of the first `size` values, which are reordered (quickselect)."""
    low, high, target = 0, size - 1, k - 1
    while low < high:
        a, b, c = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if target <= j:
            high = j
        elif target >= i:
            low = i
        else:
            break
    return float(values[target])


@kernel
def _sort(items: Any, start: int, stop: int) -> None:
    """Sort a short range of items, in place."""
    for at in range(start + 1, stop):
        item = items[at]
        back = at
        while back > start and items[back - 1] > item:
            items[back] = items[back - 1]
            back -= 1
        items[back] = item


@kernel
def choose(near: Any, found: int, total: Any, roots: Any, hubs: Any, scores: Any, chosen: Any) -> tuple[int, int]:
    """Write the candidates into `chosen`, hubs first, each part in ascending order; return their number and the hubs'.

    `roots` are 1/√(d_i + ℓ_i), `scores` is scratch. As many candidates as `chosen` has room for.
    """
    most = len(chosen)
    limit = 0.0
    if found > most:
        for a in range(found):
            scores[a] = abs(total[near[a]]) * roots[near[a]]
        limit = kth_largest(scores, found, most) if most > 0 else np.inf
    above, equal = 0, 0
    for a in range(found):
        score = abs(total[near[a]]) * roots[near[a]]
        if score > limit:
            above += 1
        elif score == limit and score > 0:
            scores[equal] = -near[a]
            equal += 1
    room = min(equal, most - above)
    last = -kth_largest(scores, equal, room) if room > 0 else -1.0  # of equal scores the lower indices are taken
    first, back = 0, most
    for a in range(found):
        i = near[a]
        score = abs(total[i]) * roots[i]
        if score > limit or (score == limit and score > 0 and i <= last):
            if hubs[i] >= 0:
                chosen[first] = i
                first += 1
            else:
                back -= 1
                chosen[back] = i
    size = first + most - back
    for a in range(most - back):
        chosen[first + a] = chosen[back + a]
    _sort(chosen, 0, first)
    _sort(chosen, first, size)
    return size, first


@kernel
def _add_lists(
    chosen: Any,
    size: int,
    first: int,
    start: int,
    by_item: Any,
    clock: Any,
    slots: Any,
    listed: Any,
    weights: Any,
    positions: Any,
    out: Any,
) -> None:
    """Add the pairs of an item at `first` or later with one at `start` or later, over lists of each user's candidates.

    `start` is 0, or `first`. `slots` has for each user the start of the list and one more than its next free entry; all
    0 before and after.
    """
    pointers, owners, values = by_item
    for p in range(first, size):
        for q in range(pointers[chosen[p]], pointers[chosen[p] + 1]):
            slots[owners[q], 0] += 1
    for p in range(start, first):
        for q in range(pointers[chosen[p]], pointers[chosen[p] + 1]):
            if slots[owners[q], 0] > 0:
                slots[owners[q], 0] += 1
    free = 0
    for p in range(start, size):
        row = out[p]
        for q in range(pointers[chosen[p]], pointers[chosen[p] + 1]):
            user = owners[q]
            if slots[user, 1] == 0:
                number = slots[user, 0]
                if number < 2:
                    continue  # the only candidate of this user
                slots[user, 0], slots[user, 1] = free, free + 1
                free += number
            end = slots[user, 1] - 1
            value = values[q]
            if p >= first:
                if clock is None:
                    for e in range(slots[user, 0], end):
                        row[listed[e]] += value * weights[e]
                else:
                    here = clock[0][q]
                    for e in range(slots[user, 0], end):
                        row[listed[e]] += value * weights[e] * at_distance(clock[3], clock[4], here, positions[e])
            listed[end] = p
            weights[end] = value
            if clock is not None:
                positions[end] = clock[0][q]
            slots[user, 1] += 1
    for p in range(start, size):
        for q in range(pointers[chosen[p]], pointers[chosen[p] + 1]):
            slots[owners[q], 0] = 0
            slots[owners[q], 1] = 0


@kernel
def _add_hubs(
    chosen: Any, size: int, first: int, by_item: Any, clock: Any, hubs: Any, hubs_by_user: Any, at_hub: Any, out: Any
) -> None:
    """Add the pairs of an item at `first` or later with a hub, over the hubs of its users.

    The hubs of each user are in CSR form, by their places among all hubs. `at_hub` is −1 before and after.
    """
    pointers, owners, values = by_item
    hub_pointers, hub_places, hub_values = hubs_by_user
    for p in range(first):
        at_hub[hubs[chosen[p]]] = p
    for p in range(first, size):
        row = out[p]
        for q in range(pointers[chosen[p]], pointers[chosen[p] + 1]):
            value = values[q]
            for r in range(hub_pointers[owners[q]], hub_pointers[owners[q] + 1]):
                at = at_hub[hub_places[r]]
                if at >= 0:
                    if clock is None:
                        row[at] += value * hub_values[r]
                    else:
                        row[at] += value * hub_values[r] * at_distance(clock[3], clock[4], clock[0][q], clock[2][r])
    for p in range(first):
        at_hub[hubs[chosen[p]]] = -1


@kernel
def _add_rows(chosen: Any, size: int, first: int, by_item: Any, by_user: Any, clock: Any, place: Any, out: Any) -> None:
    """Add the pairs with an item at `first` or later, over the whole rows of its users; `place` is −1 before, after."""
    pointers, owners, values = by_item
    indptr, indices, data = by_user
    for p in range(size):
        place[chosen[p]] = p
    for p in range(first, size):
        row = out[p]
        for q in range(pointers[chosen[p]], pointers[chosen[p] + 1]):
            value = values[q]
            for r in range(indptr[owners[q]], indptr[owners[q] + 1]):
                at = place[indices[r]]
                if at >= 0 and at < p:
                    if clock is None:
                        row[at] += value * data[r]
                    else:
                        row[at] += value * data[r] * at_distance(clock[3], clock[4], clock[0][q], clock[1][r])
    for p in range(size):
        place[chosen[p]] = -1


@fused
def _solve(matrix: Any, size: int, vector: Any) -> bool:
    """Solve in place with the lower triangle of a matrix; False where it is not positive definite."""
    padded = -(-size // 4) * 4
    for p in range(size, padded):
        matrix[p, :p] = 0
        matrix[p, p] = 1
        vector[p] = 0
    if not factor(matrix, padded):
        return False
    substitute(matrix, padded, vector)
    return True


@kernel
def _candidates(
    item: int, by_item: Any, by_user: Any, clock: Any, roots: Any, hubs: Any, scratch: Any
) -> tuple[int, int, int]:
    """Write row `item` of S, its items, and the candidates; return the numbers of items, candidates and hubs."""
    total, place, near, scores, chosen = scratch
    found = gram_row(item, by_item, by_user, clock, total, place, near)
    for a in range(found):
        place[near[a]] = -1
    size, first = choose(near, found, total, roots, hubs, scores, chosen)
    return found, size, first


@kernel
def choose_columns(
    by_item: Any, by_user: Any, clock: Any, roots: Any, hubs: Any, items: Any, out_items: Any, sizes: Any, scratch: Any
) -> None:
    """Write the candidates of some items; for the arguments see `solve_columns`."""
    total, _, near, _, chosen = scratch
    for column in range(len(items)):
        found, size, _ = _candidates(items[column], by_item, by_user, clock, roots, hubs, scratch)
        for a in range(found):
            total[near[a]] = 0.0
        out_items[column, :size] = chosen[:size]
        sizes[column] = size


@kernel
def solve_columns(
    by_item: Any,
    by_user: Any,
    clock: Any,
    roots: Any,
    hubs: Any,
    diagonal: Any,
    penalties: Any,
    reach: Any,
    hub_gram: Any,
    hubs_by_user: Any,
    listing: float,
    items: Any,
    out: Any,
    scratch: Any,
    systems: Any,
) -> int:
    """Solve the columns of some items; return −1, or the first item whose system is not positive definite.

    Parameters
    ----------
    by_item : the data by item: pointers, users, values
    by_user : the data by user: pointers, items, values
    clock : positions by item, by user and of the hubs by user, and the table of the time kernel; or None
    roots : 1/√(d_i + ℓ_i)
    hubs : the place of each item among the hubs, or −1
    reach : for each item the events in the rows of its users, and the events of hubs
    hub_gram, hubs_by_user : S of the hubs, and the data of the hubs by user, with their places among the hubs
    listing : cost of an event in a list, relative to that of an event in a row
    out : candidates, weights, number of candidates, c, and explained square of each item
    scratch : S_j, places, items and scores for the choice of candidates, and the candidates
    systems : places and entries of the users' lists, places of hubs, matrix and right side; the entries of a list are
        places, values, and positions (None without a clock)

    Before and after, S_j and the places in the users' lists are 0, and the other places −1.
    """
    pointers = by_item[0]
    out_items, out_values, sizes, c, explained = out
    total, place, near, _, chosen = scratch
    slots, listed, weights, positions, at_hub, matrix, vector = systems
    for column in range(len(items)):
        j = items[column]
        found, size, first = _candidates(j, by_item, by_user, clock, roots, hubs, scratch)
        events, of_hubs, scanned, scanned_hubs = 0, 0, 0.0, 0.0
        for p in range(size):
            i = chosen[p]
            vector[p] = total[i]
            row = matrix[p]
            if p < first:
                of_hubs += pointers[i + 1] - pointers[i]
                source = hub_gram[hubs[i]]
                for t in range(p):
                    row[t] = source[hubs[chosen[t]]]
            else:
                row[:p] = 0
                events += pointers[i + 1] - pointers[i]
                scanned += reach[0][i]
                scanned_hubs += reach[1][i]
        with_hubs, without = listing * (events + of_hubs), listing * events + scanned_hubs
        if events + of_hubs <= len(listed) and with_hubs <= min(without, scanned):
            _add_lists(chosen, size, first, 0, by_item, clock, slots, listed, weights, positions, matrix)
        elif events <= len(listed) and without <= scanned:
            _add_hubs(chosen, size, first, by_item, clock, hubs, hubs_by_user, at_hub, matrix)
            _add_lists(chosen, size, first, first, by_item, clock, slots, listed, weights, positions, matrix)
        elif first < size:
            _add_rows(chosen, size, first, by_item, by_user, clock, place, matrix)
        for p in range(size):
            matrix[p, p] = diagonal[chosen[p]] + penalties[chosen[p]]
        positive = _solve(matrix, size, vector)
        gain = 0.0
        for p in range(size):
            gain += total[chosen[p]] * vector[p]
        for a in range(found):
            total[near[a]] = 0.0
        remaining = diagonal[j] + penalties[j] - gain
        if not (positive and remaining > 0):
            return int(j)
        explained[column] = gain
        c[column] = 1 / remaining
        sizes[column] = size
        _merge(chosen, vector, first, size, out_items[column], out_values[column])
    return -1


@kernel
def _merge(chosen: Any, vector: Any, first: int, size: int, out_items: Any, out_values: Any) -> None:
    """Write the candidates and their weights in ascending order; each of the two parts ascends."""
    a, b = 0, first
    for p in range(size):
        if b == size or (a < first and chosen[a] < chosen[b]):
            out_items[p], out_values[p] = chosen[a], vector[a]
            a += 1
        else:
            out_items[p], out_values[p] = chosen[b], vector[b]
            b += 1


@kernel
def scatter_columns(
    rows: Any,
    weights: Any,
    sizes: Any,
    theta: Any,
    delta: Any,
    start: int,
    stop: int,
    free: Any,
    columns: Any,
    values: Any,
) -> None:
    """Append the columns start:stop, times θ and with δ on the diagonal, to the rows of a CSR matrix.

    `free` has the next free entry of each row.
    """
    at = 0
    for j in range(start, stop):
        if delta[j] != 0:
            columns[free[j]], values[free[j]] = j, delta[j]
            free[j] += 1
        for p in range(at, at + sizes[j]):
            row = rows[p]
            columns[free[row]], values[free[row]] = j, weights[p] * theta[j]
            free[row] += 1
        at += sizes[j]
