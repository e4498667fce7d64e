"""One request in NumPy against the kernels: the same bits, for every kind of rules, history and precision."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.topk import few
from monogram.engine.topk.best import Eligible
from monogram.engine.topk.by_products import best_by_products
from monogram.engine.topk.by_rows import best_by_rows
from monogram.engine.topk.by_sparse_rows import best_by_sparse_rows
from monogram.engine.topk.dual import heads_by_gathering
from monogram.engine.topk.scores import sum_rows


def lists(draw, users, n):
    """A sorted list of items for each user, as pointers and indices."""
    rows = [sorted(draw(st.sets(st.integers(0, n - 1)))) for _ in range(users)]
    pointers = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
    return pointers, np.array([item for row in rows for item in row], np.int64)


@st.composite
def cases(draw):
    """Histories of 0 to n items, weights with rounding errors or with many ties, and rules of every kind."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    users, n = draw(st.integers(0, 9)), draw(st.integers(1, 40))
    histories = rng.uniform(0.1, 3, (users, n)) * (rng.random((users, n)) < draw(st.sampled_from([0.1, 0.5, 1.0])))
    weights = rng.standard_normal((n, n)) * rng.choice([1e-6, 1.0, 1e6], (n, n))
    if draw(st.booleans()):
        weights, histories = rng.integers(-1, 2, (n, n)), (histories > 0).astype(float)
    none = np.zeros(0, np.int64)
    only = lists(draw, users, n) if draw(st.booleans()) else (none, none)
    mask = rng.random(n) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    eligible = Eligible(mask, *lists(draw, users, n), *only)
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return rng, sp.csr_array(histories.astype(np.float32)), weights.astype(dtype), eligible, draw(st.integers(1, n))


def same(one, other):
    for name in ("items", "scores", "counts"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes(), name


@given(case=cases(), based=st.booleans())
def test_rows(case, based):
    rng, histories, weights, eligible, k = case
    base = rng.standard_normal(histories.shape[1]) if based else None
    with few.one_request():
        best = few.best_by_rows(weights, histories, eligible, k, base=base)
    same(best, best_by_rows(weights, histories, eligible, k, base=base))


@given(case=cases())
def test_a_base_without_rows(case):
    rng, histories, _, eligible, k = case
    base = rng.integers(-3, 3, histories.shape[1]).astype(np.float64)
    no_rows = np.empty((0, len(base)))
    with few.one_request():
        best = few.best_by_rows(no_rows, histories, eligible, k, base=base)
    same(best, best_by_rows(no_rows, histories, eligible, k, base=base))


@given(case=cases())
def test_sparse_rows(case):
    rng, histories, weights, eligible, k = case
    matrix = sp.csr_array(weights * (rng.random(weights.shape) < 0.3).astype(weights.dtype))
    with few.one_request():
        best = few.best_by_sparse_rows(matrix, histories, eligible, k)
    same(best, best_by_sparse_rows(matrix, histories, eligible, k))


@given(case=cases(), rank=st.integers(0, 7), threads=st.sampled_from([1, 2]))
def test_products(case, rank, threads):
    rng, histories, weights, eligible, k = case
    left, base = rng.standard_normal((histories.shape[0], rank)), rng.standard_normal(histories.shape[1])
    right = np.ascontiguousarray(rng.standard_normal((histories.shape[1], rank)).astype(weights.dtype))
    with few.one_request():
        best = few.best_by_products(left, right, base, eligible, k, threads=threads)
    same(best, best_by_products(left, right, base, eligible, k, threads=threads))


@given(case=cases(), heads=st.integers(1, 3), threads=st.sampled_from([1, 2]))
def test_gathering(case, heads, threads):
    rng, histories, weights, eligible, k = case
    (users, n), dtype = histories.shape, weights.dtype
    training = sp.csr_array((rng.uniform(0.5, 2, (13, n)) * (rng.random((13, n)) < 0.3)).astype(np.float32))
    coefficients, own = rng.standard_normal((users, 13)).astype(dtype), rng.standard_normal(histories.nnz)
    scales = rng.uniform(-1, 1, (heads, n))
    request = training.T.tocsr(), scales, own, coefficients, histories, eligible, k
    with few.one_request():
        lists = few.heads_by_gathering(*request, threads=threads)
    expected = heads_by_gathering(*request, threads=threads)
    assert len(lists) == len(expected) == heads
    for one, other in zip(lists, expected, strict=True):
        same(one, other)


@given(case=cases(), wanted=st.integers(0, 10))
def test_sums_of_rows(case, wanted):
    rng, histories, weights, _, _ = case
    columns = rng.integers(0, histories.shape[1], wanted)
    with few.one_request():
        sums = few.sum_rows(weights, histories, columns)
    assert sums.tobytes() == sum_rows(weights, histories, columns).tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_values_that_are_not_finite_rank_as_in_the_kernel(value):
    weights = np.ones((3, 3))
    weights[0, 1] = value
    histories = sp.csr_array(np.array([[1.0, 0.0, 0.0]], np.float32))
    with few.one_request():
        best = few.best_by_rows(weights, histories, Eligible.all_but(histories), 3)
    same(best, best_by_rows(weights, histories, Eligible.all_but(histories), 3))


def uses_numba(request: str) -> bool:
    """Whether a process that runs these lines has imported numba."""
    script = (
        "import sys, numpy as np, scipy.sparse as sp\n"
        "from monogram.engine.topk import few\n"
        "from monogram.engine.topk.best import Eligible\n"
        "rows = sp.csr_array(np.ones((2, 3), np.float32))\n"
        "arguments = np.ones((3, 3)), rows, Eligible.all_but(rows), 1\n"
        f"{request}\nprint('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


@pytest.mark.integration
def test_only_one_small_request_avoids_the_compiler():
    small = "with few.one_request(): few.best_by_rows(*arguments)"
    assert not uses_numba(small)
    assert uses_numba(f"few.LIMIT = 17\n{small}")
    assert uses_numba("few.best_by_rows(*arguments)")
    assert uses_numba("with few.one_request(): pass\nfew.best_by_rows(*arguments)")
