"""Kernels of local regression: choose the candidates of an item, gather their S, and solve; see `engine.inverse.local`.

S of pairs with hubs is read from `engine.inverse.local_hubs`. S of other pairs is summed over lists of the candidates
that each user has.

With a time kernel each product of two entries of a user counts k at the distance of their positions. `clock` has the
positions by item and by user, and the table of k. Without a kernel it is None, and the kernels are compiled without
those branches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.gram.kernel_table import at_distance
from monogram.engine.linalg.small_cholesky import factor, substitute
from monogram.engine.runtime.jit import fused, kernel
from monogram.engine.runtime.numbering import clear_table, number_of, table_bits


@kernel
def gram_row(item: int, by_item: Any, by_user: Any, clock: Any, table: Any, near: Any, total: Any) -> tuple[int, int]:
    """Write row `item` of S: the other items with an entry into `near`, and the entries into `total`.

    Returns the number of entries and the bits of the table, which afterwards numbers these items.
    """
    pointers, owners, values = by_item
    indptr, indices, data = by_user
    reach = 0
    for p in range(pointers[item], pointers[item + 1]):
        reach += indptr[owners[p] + 1] - indptr[owners[p]]
    bits = table_bits(len(pointers) - 1, reach)
    found = 0
    for p in range(pointers[item], pointers[item + 1]):
        value = np.float64(values[p])
        user = owners[p]
        for q in range(indptr[user], indptr[user + 1]):
            i = indices[q]
            if i == item:
                continue
            a = number_of(i, table, bits, found)
            if a == found:
                near[a], total[a] = i, 0.0
                found += 1
            if clock is None:
                total[a] += value * data[q]
            else:
                total[a] += value * data[q] * at_distance(clock[2], clock[3], clock[0][p], clock[1][q])
    return found, bits


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

    `roots` are 1/√(d_i + ℓ_i), `scores` is scratch of two rows. As many candidates as `chosen` has room for.
    """
    most = len(chosen)
    score, order = scores
    limit = 0.0
    for a in range(found):
        score[a] = order[a] = abs(total[a]) * roots[near[a]]
    if found > most:
        limit = kth_largest(order, found, most) if most > 0 else np.inf
    above, equal = 0, 0
    for a in range(found):
        if score[a] > limit:
            above += 1
        elif score[a] == limit and limit > 0:
            order[equal] = -near[a]
            equal += 1
    room = min(equal, most - above)
    last = -kth_largest(order, equal, room) if room > 0 else -1.0  # of equal scores the lower indices are taken
    first, back = 0, most
    for a in range(found):
        i = near[a]
        if score[a] > limit or (score[a] == limit and limit > 0 and i <= last):
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
def _number_users(chosen: Any, size: int, first: int, by_item: Any, users: int, lists: Any) -> None:
    """Number the users of the items at `first` or later: of each event the number, and of each number the events."""
    pointers, owners, _ = by_item
    table, keys, numbers, counts, _, _, _, _, _ = lists
    events = 0
    for p in range(first, size):
        events += pointers[chosen[p] + 1] - pointers[chosen[p]]
    bits, found, event = table_bits(users, events), 0, 0
    for p in range(first, size):
        for q in range(pointers[chosen[p]], pointers[chosen[p] + 1]):
            number = number_of(owners[q], table, bits, found)
            if number == found:
                keys[number], counts[number] = owners[q], 0
                found += 1
            counts[number] += 1
            numbers[event] = number
            event += 1
    clear_table(table, bits, keys, found)


@kernel
def _add_lists(chosen: Any, size: int, first: int, by_item: Any, users: int, clock: Any, lists: Any, out: Any) -> None:
    """Add the pairs of items at `first` or later, over lists of each user's candidates.

    `lists` is scratch: a table and its keys, the number of each event's user, of each user the number of events, start
    and end of the list, and the entries of the lists: places, values, and positions (None without a clock).
    """
    _number_users(chosen, size, first, by_item, users, lists)
    pointers, _, values = by_item
    _, _, numbers, counts, starts, ends, listed, weights, positions = lists
    free, event = 0, 0
    for p in range(first, size):
        row = out[p]
        for q in range(pointers[chosen[p]], pointers[chosen[p] + 1]):
            user = numbers[event]
            event += 1
            if counts[user] == 1:
                continue  # the only candidate of this user
            if counts[user] > 1:
                starts[user] = ends[user] = free
                free += counts[user]
                counts[user] = 0  # its list is begun
            end = ends[user]
            value = values[q]
            if clock is None:
                for e in range(starts[user], end):
                    row[listed[e]] += value * weights[e]
            else:
                here = clock[0][q]
                for e in range(starts[user], end):
                    row[listed[e]] += value * weights[e] * at_distance(clock[2], clock[3], here, positions[e])
                positions[end] = here
            listed[end] = p
            weights[end] = value
            ends[user] = end + 1


@kernel
def _read_hubs(chosen: Any, size: int, first: int, hubs: Any, at_hub: Any, out: Any) -> None:
    """Write the pairs with hubs, which are the candidates before `first`; `at_hub` is −1 before and after."""
    places, square, (pointers, hub_places, values) = hubs
    for p in range(first):
        own = places[chosen[p]]
        at_hub[own] = p
        source = square[own]
        for t in range(p):
            out[p, t] = source[places[chosen[t]]]
    if first:
        for p in range(first, size):
            row = out[p]
            for e in range(pointers[chosen[p]], pointers[chosen[p] + 1]):
                at = at_hub[hub_places[e]]
                if at >= 0:
                    row[at] = values[e]
    for p in range(first):
        at_hub[places[chosen[p]]] = -1


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
def choose_columns(
    by_item: Any, by_user: Any, clock: Any, roots: Any, hubs: Any, items: Any, out_items: Any, sizes: Any, scratch: Any
) -> None:
    """Write the candidates of some items; for the arguments see `solve_columns`."""
    table, near, total, scores, chosen = scratch
    for column in range(len(items)):
        found, bits = gram_row(items[column], by_item, by_user, clock, table, near, total)
        clear_table(table, bits, near, found)
        size, _ = choose(near, found, total, roots, hubs[0], scores, chosen)
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
    clock : positions by item and by user, and the table of the time kernel; or None
    roots : 1/√(d_i + ℓ_i)
    hubs : the arrays of `local_hubs.Hubs`
    out : candidates, weights, number of candidates, c, and explained square of each item
    scratch : a table, items and entries of a row of S, scores for the choice of candidates, and the candidates
    systems : the lists of `_add_lists`, the place of each hub among the candidates, matrix and right side

    Before and after, tables are 0, and places of hubs −1.
    """
    out_items, out_values, sizes, c, explained = out
    table, near, total, scores, chosen = scratch
    lists, at_hub, matrix, vector = systems
    users = len(by_user[0]) - 1
    for column in range(len(items)):
        j = items[column]
        found, bits = gram_row(j, by_item, by_user, clock, table, near, total)
        size, first = choose(near, found, total, roots, hubs[0], scores, chosen)
        right = scores[0]
        for p in range(size):
            right[p] = total[number_of(chosen[p], table, bits, found)]
            vector[p] = right[p]
            matrix[p, :p] = 0
        clear_table(table, bits, near, found)
        _read_hubs(chosen, size, first, hubs, at_hub, matrix)
        _add_lists(chosen, size, first, by_item, users, clock, lists, matrix)
        for p in range(size):
            matrix[p, p] = diagonal[chosen[p]] + penalties[chosen[p]]
        positive = _solve(matrix, size, vector)
        gain = 0.0
        for p in range(size):
            gain += right[p] * vector[p]
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
