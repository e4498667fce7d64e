"""The k best items of one request in NumPy, bit-identical to the kernels.

Loading Numba takes longer than answering one request. Inside `one_request`, which a process that answers one request
and exits opens, the functions of this module answer a small request in NumPy. Everywhere else, and for a large
request, they call the kernels of the same name. The sums are made in the order of the kernels, so both give the same
bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.topk import by_products, by_rows, by_sparse_rows, dual, scores
from monogram.engine.topk.best import Best, Eligible, empty, share_of_users

LIMIT = 50_000_000  # products, which take NumPy about 0.1 s; Numba takes 0.3 s to load
_active: ContextVar[bool] = ContextVar("one_request", default=False)


@contextmanager
def one_request() -> Iterator[None]:
    """Inside, a small request is answered without loading Numba."""
    token = _active.set(True)
    try:
        yield
    finally:
        _active.reset(token)


def _small(rows: int, columns: int) -> bool:
    """Whether NumPy answers a request that adds so many rows of so many columns."""
    return _active.get() and rows * columns <= LIMIT


def best_by_rows(
    weights: Float,
    histories: Csr,
    eligible: Eligible,
    k: int,
    *,
    base: Float64 | None = None,
    threads: int = 1,
) -> Best:
    """As `by_rows.best_by_rows`."""
    users, n = histories.shape
    if not _small(users + histories.nnz, n):
        return by_rows.best_by_rows(weights, histories, eligible, k, base=base, threads=threads)
    best = _no_lists(users, k)
    for user in range(users):
        total = np.zeros(n) if base is None else base.astype(np.float64)
        if len(weights):
            _add_rows(weights, *_history(histories, user), total)
        _select(total, eligible, user, best)
    return best


def best_by_sparse_rows(matrix: Csr, histories: Csr, eligible: Eligible, k: int, *, threads: int = 1) -> Best:
    """As `by_sparse_rows.best_by_sparse_rows`."""
    users, n = histories.shape
    if not _small(users + histories.nnz, n):
        return by_sparse_rows.best_by_sparse_rows(matrix, histories, eligible, k, threads=threads)
    best = _no_lists(users, k)
    for user in range(users):
        total = np.zeros(n)
        for row, factor in zip(*_history(histories, user), strict=True):
            part = slice(matrix.indptr[row], matrix.indptr[row + 1])
            total[matrix.indices[part]] += factor * matrix.data[part]  # a column is at most once in a row
        _select(total, eligible, user, best)
    return best


def best_by_products(
    left: Float64, right: Float, base: Float64, eligible: Eligible, k: int, *, threads: int = 1
) -> Best:
    """As `by_products.best_by_products`."""
    users = len(left)
    if not _small(users * (1 + left.shape[1]), len(right)):
        return by_products.best_by_products(left, right, base, eligible, k, threads=threads)
    best, candidates = _no_lists(users, k), _no_lists(users, k + by_products.SPARE)
    rough, start_from = left.astype(right.dtype), base.astype(right.dtype)
    size = max(1, min(by_products.MULTIPLIED, share_of_users(users, threads)))
    with parallel.blas_threads(1):
        for start in range(0, users, size):
            products = rough[start : start + size] @ right.T
            products += start_from
            for user, total in enumerate(products, start):
                _select(total, eligible, user, candidates)
    for user in range(users):
        items = np.sort(candidates.items[user, : candidates.counts[user]])
        exact = np.zeros(len(items))
        for t in range(left.shape[1]):
            exact += left[user, t] * right[items, t]
        exact += base[items]
        _store(items, exact, user, best)
    return best


def heads_by_gathering(
    by_item: Csr,
    scales: Float64,
    own: Float64,
    coefficients: Float64,
    histories: Csr,
    eligible: Eligible,
    k: int,
    *,
    threads: int = 1,
) -> list[Best]:
    """As `dual.heads_by_gathering`."""
    users, n = histories.shape
    if not _small(users, len(scales) * n + by_item.nnz):
        return dual.heads_by_gathering(by_item, scales, own, coefficients, histories, eligible, k, threads=threads)
    best = [_no_lists(users, k) for _ in scales]
    values, items = by_item.data.astype(np.float64), np.repeat(np.arange(n), np.diff(by_item.indptr))
    for user in range(users):
        sums = np.bincount(items, values * coefficients[user, by_item.indices], n)  # adds in the order of the entries
        added, part = np.zeros(n), slice(histories.indptr[user], histories.indptr[user + 1])
        added[histories.indices[part]] = own[part]
        for scale, lists in zip(scales, best, strict=True):
            _select(sums * scale + added + 0.0, eligible, user, lists)  # 0, not −0
    return best


def sum_rows(matrix: Float, histories: Csr, columns: Indices, *, threads: int = 1) -> Float64:
    """As `scores.sum_rows`."""
    users = histories.shape[0]
    if not _small(users + histories.nnz, len(columns)):
        return scores.sum_rows(matrix, histories, columns, threads=threads)
    out = np.zeros((users, len(columns)))
    for user in range(users):
        for row, factor in zip(*_history(histories, user), strict=True):
            out[user] += factor * matrix[row, columns]
    return out


def _history(histories: Csr, user: int) -> tuple[Indices, Float64]:
    """The items of one history, and their weights in float64."""
    part = slice(histories.indptr[user], histories.indptr[user + 1])
    return histories.indices[part], histories.data[part].astype(np.float64)


def _add_rows(weights: Float, rows: Indices, factors: Float64, total: Float64) -> None:
    """Add rows times factors to the total, in the order of the kernel of `by_rows`: four rows at a time."""
    whole = len(rows) - len(rows) % 4
    for p in range(0, whole, 4):
        a, b, c, d = (factors[q] * weights[rows[q]] for q in range(p, p + 4))
        total += (a + b) + (c + d)
    for p in range(whole, len(rows)):
        total += factors[p] * weights[rows[p]]


def _no_lists(users: int, k: int) -> Best:
    return Best(*(array[0] for array in empty(users, k, 1)))


def _select(total: Float, eligible: Eligible, user: int, best: Best) -> None:
    """Write the best eligible items of a user into the row of the user."""
    allowed = eligible.mask.copy()
    allowed[eligible.out[eligible.out_pointers[user] : eligible.out_pointers[user + 1]]] = False
    if len(eligible.only_pointers):
        only = np.zeros_like(allowed)
        only[eligible.only[eligible.only_pointers[user] : eligible.only_pointers[user + 1]]] = True
        allowed &= only
    items = np.flatnonzero(allowed & (total > -np.inf))
    _store(items, total[items], user, best)


def _store(items: Indices, values: Float, user: int, best: Best) -> None:
    """Write the best of some items, sorted by index, into the row of a user; ties go to the lower index."""
    k = best.items.shape[1]
    if len(items) > k > 0:
        good = values >= np.partition(values, -k)[-k]  # the k best, and all ties with the last of them
        items, values = items[good], values[good]
    order = np.argsort(-values, kind="stable")[:k]
    best.counts[user] = len(order)
    best.items[user, : len(order)], best.scores[user, : len(order)] = items[order], values[order]
