"""The kernels of SLIM: one column by coordinate descent on working sets; see `slim`.

Arrays over the candidates of a column have the working set in front: `items`, `right` (s), `w` and `h`. `rows` has for
each item of the working set its row of S + l2·I, restricted to the candidates in that order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.gram.sparse_rows import add_row, gather_row
from monogram.engine.linalg.small_cholesky import TILE, factor, substitute
from monogram.engine.runtime.jit import fused, kernel
from monogram.engine.topk.selection import offer

GROWTH = 32  # items that join the working set in a round, or as many as it has
LOOSE = 0.1  # a round ends when the violations are so much smaller than at its start
PATIENCE = 12  # passes of coordinate descent before the weights that are not zero are solved for directly
SIDE = 2048  # largest number of weights that are solved for directly


@kernel
def solve_columns(
    source: Any,
    diagonal: Any,
    starts: Any,
    l1: Any,
    l2: Any,
    positive: bool,
    screened: bool,
    tolerance: Any,
    most: int,
    first: int,
    stop: int,
    scratch: Any,
    out: Any,
) -> None:
    """Solve columns `first` to `stop`: indices, values and number of their weights; objective, gap, passes, success."""
    right, w, h, total, place, items, joining, gains, solver, area = scratch
    indices, values, counts, results = out
    zero = right.dtype.type(0)
    for j in range(first, stop):
        c = _candidates(source, j, l1, screened, total, items, right)
        scale = zero
        for t in range(c):
            scale = max(scale, abs(right[t]))
            place[items[t]] = t
        wanted = tolerance * scale
        limit = wanted
        depth = min(c, len(area) // max(c, 1))
        rows = area[: depth * c].reshape((depth, c))
        p = _start(source, starts, j, l2, positive, depth, c, rows, items, right, w, h, place, total)
        passes, worst = 0, zero
        while c > 0:
            limit = max(wanted, _rounding(rows, w, p))
            worst, number = _check(
                rows, p, c, depth, l1, l2, positive, limit, diagonal, items, right, w, h, joining, gains
            )
            if worst <= limit or passes >= most:
                break
            if p == depth < c:  # no row more can be copied: the weights at zero make room
                p = _drop_zeros(rows, p, items, right, w, h, place)
                if p == depth:
                    goal = max(limit / 2, zero)
                    passes += _descend(rows, w, h, right, p, l1, positive, goal, most - passes, solver)
                    break
                continue
            for t in range(number):
                _join(place[joining[t]], p + t, p, rows, items, right, w, h, place)
            for t in range(p, p + number):
                gather_row(source, items[t], items, c, place, rows[t], total)
                rows[t, t] += l2
            p += number
            goal = max(limit / 2, right.dtype.type(LOOSE) * worst)
            passes += _descend(rows, w, h, right, p, l1, positive, goal, most - passes, solver)
        at = j - first
        counts[at] = _write(items, w, p, indices[at], values[at])
        results[j, 2], results[j, 3] = passes, worst <= limit
        results[j, 0], results[j, 1] = _objective(diagonal[j], right, w, h, p, c, l1, l2, positive)
        for t in range(c):
            place[items[t]] = -1


@kernel
def _candidates(source: Any, j: int, l1: Any, screened: bool, total: Any, items: Any, right: Any) -> int:
    """The items that may have a weight in column j, and their entries of S; their number."""
    c = 0
    total[:] = 0
    add_row(source, j, total.dtype.type(1), total)
    for k in range(len(total)):
        if k != j and (total[k] > l1 or not screened):
            items[c], right[c] = k, total[k]
            c += 1
    return c


@kernel
def _start(
    source: Any, starts: Any, j: int, l2: Any, positive: bool, depth: int, c: int, rows: Any, items: Any, right: Any,
    w: Any, h: Any, place: Any, total: Any,
) -> int:  # fmt: skip
    """Begin with the weights of another solution; the size of the working set."""
    pointers, known, weights = starts
    p = 0
    for t in range(pointers[j], pointers[j + 1]):
        at = place[known[t]]
        if at >= p and p < depth and (weights[t] > 0 or not positive):
            _join(at, p, 0, rows, items, right, w, h, place)
            w[p] = weights[t]
            p += 1
    for t in range(p):
        gather_row(source, items[t], items, c, place, rows[t], total)
        rows[t, t] += l2
    return p


@kernel
def _join(at: int, to: int, p: int, rows: Any, items: Any, right: Any, w: Any, h: Any, place: Any) -> None:
    """Move a candidate to the end of the working set, of which p rows are copied."""
    place[items[at]], place[items[to]] = to, at
    items[at], items[to] = items[to], items[at]
    right[at], right[to] = right[to], right[at]
    h[at], h[to] = h[to], h[at]
    for k in range(p):
        rows[k, at], rows[k, to] = rows[k, to], rows[k, at]
    w[to] = 0


@kernel
def _drop_zeros(rows: Any, p: int, items: Any, right: Any, w: Any, h: Any, place: Any) -> int:
    """Remove the weights at zero from the working set; its size then."""
    t = 0
    while t < p:
        if w[t] != 0:
            t += 1
            continue
        p -= 1
        last = w[p]
        _join(t, p, len(rows), rows, items, right, w, h, place)
        for k in range(rows.shape[1]):
            rows[t, k], rows[p, k] = rows[p, k], rows[t, k]
        w[t] = last
    return p


@kernel
def _check(
    rows: Any, p: int, c: int, depth: int, l1: Any, l2: Any, positive: bool, limit: Any, diagonal: Any, items: Any,
    right: Any, w: Any, h: Any, joining: Any, gains: Any,
) -> Any:  # fmt: skip
    """The largest violation on all candidates; and the number of those that join the working set, in `joining`."""
    _gradient(rows, w, right, h, p, c)
    zero = h.dtype.type(0)
    worst, number = zero, 0
    for t in range(p):
        worst = max(worst, _violation(h[t], w[t], l1, positive))
    most = min(depth - p, max(GROWTH, p))
    for t in range(p, c):
        violation = _violation(h[t], zero, l1, positive)
        if violation > limit:
            worst = max(worst, violation)
            gain = np.float64(violation) ** 2 / (np.float64(diagonal[items[t]]) + l2)
            number = offer(joining[:most], gains[:most], number, items[t], gain)
    return worst, number


@kernel
def _rounding(rows: Any, w: Any, p: int) -> Any:
    """The rounding error of the gradient, about: smaller violations cannot be told from it."""
    total = w.dtype.type(0)
    for t in range(p):
        total += abs(w[t]) * rows[t, t]
    return total * w.dtype.type(1.2e-7 if w.itemsize == 4 else 2.3e-16)


@fused
def _gradient(rows: Any, w: Any, right: Any, h: Any, p: int, c: int) -> None:
    """The gradient h = (S + l2·I)w − s on the candidates."""
    for k in range(c):
        h[k] = -right[k]
    for t in range(p):
        weight, row = w[t], rows[t]
        if weight != 0:
            for k in range(c):
                h[k] += weight * row[k]


@kernel
def _violation(h: Any, w: Any, l1: Any, positive: bool) -> Any:
    """By how much the condition of the minimum is violated at a gradient and a weight."""
    if w > 0:
        return abs(h + l1)
    if w < 0:
        return abs(h - l1)
    return max(-h - l1, h * 0) if positive else max(abs(h) - l1, h * 0)


@fused
def _descend(
    rows: Any, w: Any, h: Any, right: Any, p: int, l1: Any, positive: bool, goal: Any, most: int, solver: Any
) -> int:
    """Coordinate descent on the working set until no step changes a condition by more than `goal`; its passes."""
    for number in range(1, most + 1):
        worst = h.dtype.type(0)
        for t in range(p):
            q = rows[t, t]
            z = q * w[t] - h[t]
            new = w[t] * 0
            if z > l1:
                new = (z - l1) / q
            elif z < -l1 and not positive:
                new = (z + l1) / q
            delta = new - w[t]
            if delta != 0:
                worst = max(worst, abs(delta) * q)
                w[t] = new
                row = rows[t]
                for k in range(p):
                    h[k] += delta * row[k]
        if worst <= goal:
            return number
        if number % PATIENCE == 0:
            _solve_support(rows, w, h, right, p, l1, solver)
    return most


@kernel
def _solve_support(rows: Any, w: Any, h: Any, right: Any, p: int, l1: Any, solver: Any) -> None:
    """Move to the minimum over the weights that are not zero, with their signs, by a Cholesky factorisation.

    Weights that would change their sign become zero, where that lowers the objective. Otherwise the step ends where the
    first of them is zero.
    """
    square, vector, new, gradient, support = solver
    f = 0
    for t in range(p):
        if w[t] != 0:
            support[f] = t
            f += 1
    size = -(-f // TILE) * TILE
    if f == 0 or size > len(square):
        return
    for a in range(size):
        square[a, : a + 1] = 0
        square[a, a] = 1
    for a in range(f):
        row = rows[support[a]]
        for b in range(a + 1):
            square[a, b] = row[support[b]]
        weight = w[support[a]]
        vector[a] = right[support[a]] - (l1 if weight > 0 else -l1)
    if not factor(square, size):
        return
    substitute(square, f, vector)
    share, new[:p] = new.dtype.type(1), 0
    for a in range(f):
        weight = w[support[a]]
        if vector[a] * weight > 0:
            new[support[a]] = vector[a]
        else:
            share = min(share, weight / (weight - vector[a]))
    _gradient(rows, new, right, gradient, p, p)
    if _value(new, gradient, right, p, l1) >= _value(w, h, right, p, l1):
        for a in range(f):
            weight = w[support[a]]
            new[support[a]] = weight + share * (vector[a] - weight)
            if new[support[a]] * weight < 0:
                new[support[a]] = 0
        _gradient(rows, new, right, gradient, p, p)
    if _value(new, gradient, right, p, l1) < _value(w, h, right, p, l1):
        w[:p], h[:p] = new[:p], gradient[:p]


@kernel
def _value(w: Any, h: Any, right: Any, p: int, l1: Any) -> float:
    """The objective at weights w with the gradient h, less the constant ½‖x_j‖²."""
    total = 0.0
    for t in range(p):
        total += 0.5 * w[t] * (np.float64(h[t]) - right[t]) + l1 * abs(w[t])
    return total


@kernel
def _write(items: Any, w: Any, p: int, indices: Any, values: Any) -> int:
    """Write the weights that are not zero; their number."""
    number = 0
    for t in range(p):
        if w[t] != 0:
            indices[number], values[number] = items[t], w[t]
            number += 1
    return number


@kernel
def _objective(own: Any, right: Any, w: Any, h: Any, p: int, c: int, l1: Any, l2: Any, positive: bool) -> Any:
    """The objective of a column, and a bound on its distance from the minimum.

    The bound is the smaller of the duality gap, at the residual scaled into the dual constraints, and of ‖v‖²/(2·l2)
    with the violations v (the objective is strongly convex with constant l2).
    """
    product, norm, squared, steepest = 0.0, 0.0, 0.0, 0.0
    along = 0.0
    for t in range(c):
        weight = np.float64(w[t]) if t < p else 0.0
        gradient = np.float64(h[t])
        product += weight * right[t]
        along += weight * gradient
        norm += abs(weight)
        steepest = max(steepest, -gradient if positive else abs(gradient))
        squared += np.float64(_violation(gradient, weight, np.float64(l1), positive)) ** 2
    objective = 0.5 * (own + along - product) + l1 * norm
    residual = own - product + along  # ‖y − Xw‖² + l2·‖w‖², of which s'w and h give all terms
    share = 1.0 if steepest <= l1 else l1 / steepest
    gap = objective - share * (own - product) + 0.5 * share**2 * residual
    if l2 > 0:
        gap = min(gap, squared / (2 * l2))
    return objective, max(gap, 0.0)
