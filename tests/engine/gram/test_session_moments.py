"""The closed forms over all cuts against explicit rows of pasts and futures; blocks against whole moments."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.engine.gram.moment_sums import MomentSums
from monogram.engine.gram.session_moments import session_moments
from monogram.errors import MemoryBudgetError


def sessions(seed, users=12, items=9, density=0.35):
    rng = np.random.default_rng(seed)
    matrix = sp.csr_array(((rng.random((users, items)) < density) * rng.integers(1, 4, (users, items))).astype("f4"))
    lengths = np.diff(matrix.indptr)
    positions = np.concatenate([rng.permutation(length) for length in lengths] or [[]]).astype(np.int32)
    return matrix, positions, rng.uniform(0.2, 2, users)


def explicit(matrix, positions, decay, weights):
    """Rows X, A and T, times √w."""
    n, whole, past, future = matrix.shape[1], [], [], []
    for user in range(matrix.shape[0]):
        part = slice(matrix.indptr[user], matrix.indptr[user + 1])
        items, values, places = matrix.indices[part], matrix.data[part].astype(float), positions[part]
        root = np.sqrt(weights[user])
        whole.append(np.bincount(items, values, n) * root)
        for cut in range(1, len(items)):
            before = places < cut
            distance = np.where(before, cut - 1 - places, places - cut)
            counted = values * np.exp(-decay * distance) * root
            past.append(np.bincount(items[before], counted[before], n))
            future.append(np.bincount(items[~before], counted[~before], n))
    return [np.array(rows).reshape(-1, n) for rows in (whole, past, future)]


def as_array(cross):
    return cross if isinstance(cross, np.ndarray) else cross.toarray().T


@given(
    seed=st.integers(0, 10_000),
    alpha=st.sampled_from([0.0, 0.3, 1.0]),
    decay=st.sampled_from([0.0, 0.4, 3.0]),
    density=st.sampled_from([0.03, 0.1, 0.4]),
    threads=st.sampled_from([1, 3]),
)
def test_the_sums_over_cuts_are_those_of_explicit_rows(seed, alpha, decay, density, threads):
    matrix, positions, weights = sessions(seed, items=23, density=density)
    second = np.full((23, 23), np.nan, order="F")
    cross = session_moments(matrix, positions, second, alpha=alpha, decay=decay, weights=weights, threads=threads)
    whole, past, future = explicit(matrix, positions, decay, weights)
    expected = alpha * whole.T @ whole + (1 - alpha) * past.T @ past
    np.testing.assert_allclose(np.tril(second), np.tril(expected), atol=1e-10)
    expected = alpha * whole.T @ whole + (1 - alpha) * past.T @ future
    np.testing.assert_allclose(as_array(cross), expected, atol=1e-10)
    if sp.issparse(cross):
        assert cross.has_canonical_format


def test_a_sparse_and_a_dense_cross_moment_occur():
    kinds = set()
    for density in (0.02, 0.6):
        matrix, positions, _ = sessions(1, users=20, items=30, density=density)
        kinds.add(type(session_moments(matrix, positions, np.empty((30, 30), order="F"), alpha=0.5)))
    assert kinds == {np.ndarray, sp.csr_array}


@given(seed=st.integers(0, 10_000), size=st.integers(1, 14), dense_targets=st.booleans())
def test_blocks_add_up_to_the_whole_moments(seed, size, dense_targets):
    rng = np.random.default_rng(seed)
    inputs, targets = (sp.random_array((14, 8), density=0.3, rng=rng, format="csr") for _ in range(2))
    weights = rng.random(14)
    sums = MomentSums(8)
    for start in range(0, 14, size):
        part = slice(start, start + size)
        target = targets[part]
        sums.add(inputs[part], target.toarray() if dense_targets and start % 2 else target, weights[part])
    x, t = inputs.toarray(), targets.toarray()
    second, cross = (moment.toarray() if sp.issparse(moment) else moment for moment in sums.sums())
    np.testing.assert_allclose(second, (x.T * weights) @ x, atol=1e-12)
    np.testing.assert_allclose(cross, (x.T * weights) @ t, atol=1e-12)


def test_sums_over_the_budget_are_refused():
    sums = MomentSums(50, budget=10_000)
    with pytest.raises(MemoryBudgetError, match=r"the moments of 50 items need .* but may use 10 kB"):
        sums.add(sp.csr_array(np.ones((3, 50))), sp.csr_array(np.ones((3, 50))), np.ones(3))


@pytest.mark.parametrize("kind", ["sparse", "dense targets", "few entries", "mixed"])
def test_the_peak_of_the_sums_is_within_their_budget(kind):
    """Also of the sums that are refused, and of those that become dense between two batches."""
    rng, n, size = np.random.default_rng(4), 800, 120
    density = 0.01 if kind == "few entries" else 0.2
    inputs, targets = (sp.random_array((12 * size, n), density=density, rng=rng, format="csr") for _ in range(2))
    dense = {"dense targets": range(12), "mixed": range(0, 12, 5)}.get(kind, ())
    parts = [slice(start, start + size) for start in range(0, 12 * size, size)]
    blocks = [
        (inputs[part], targets[part].toarray() if number in dense else targets[part])
        for number, part in enumerate(parts)
    ]
    log = mg.Interactions.from_csr(sp.csr_array(np.ones((2, n), np.float32)))
    mg.Moments.from_blocks(log, blocks)  # compiles the kernels
    expected, accepted = [(inputs.T @ other).toarray() for other in (inputs, targets)], []
    for budget in (1, 3, 4, 8, 12, 14, 20, 30, 100):
        moments, peak = traced(lambda budget=budget: mg.Moments.from_blocks(log, blocks, memory=f"{budget} MB"))
        assert peak <= budget * 10**6
        accepted.append(moments is not None)
        if moments is not None:
            for actual, whole in zip((moments.second, moments.cross), expected, strict=True):
                np.testing.assert_allclose(actual.toarray() if sp.issparse(actual) else actual, whole, atol=1e-10)
    assert not accepted[0]
    assert accepted == sorted(accepted)
    assert accepted[2 if kind == "few entries" else 6], "a budget that is large enough is refused"


def traced(make):
    """The result, or None where it is over the budget, and the peak of the memory."""
    tracemalloc.start()
    try:
        return make(), tracemalloc.get_traced_memory()[1]
    except MemoryBudgetError:
        return None, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
