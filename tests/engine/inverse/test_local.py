"""Local regressions against their definition, column by column, and against the full inverse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from monogram.engine.inverse import local_hubs
from monogram.engine.inverse.local import LocalRegression
from monogram.engine.inverse.local_kernels import kth_largest
from monogram.engine.runtime.numbering import DIRECT
from monogram.errors import NumericalError


def world(seed, users=60, items=30, share=0.2, weighted=True):
    rng = np.random.default_rng(seed)
    dense = rng.random((users, items)) < share * rng.uniform(0.1, 2, items)
    values = rng.integers(1, 4, dense.shape) if weighted else 1
    return sp.csr_array((dense * values).astype(np.float32))


def definition(matrix, penalties, neighbours):
    """B, c, the candidates and the value of each column's objective, straight from the definition."""
    x = matrix.toarray().astype(np.float64)
    gram, n = x.T @ x, x.shape[1]
    b, c, near, values = np.zeros((n, n)), np.empty(n), [], np.empty(n)
    roots = 1 / np.sqrt(np.diag(gram) + penalties)
    for j in range(n):
        score = np.abs(gram[j]) * roots
        shared = [i for i in range(n) if i != j and gram[i, j] != 0]
        chosen = sorted(sorted(shared, key=lambda i: (-score[i], i))[:neighbours])
        system = gram[np.ix_(chosen, chosen)] + np.diag(penalties[chosen])
        w = np.linalg.solve(system, gram[chosen, j])
        b[chosen, j], near = w, [*near, chosen]
        c[j] = 1 / (gram[j, j] + penalties[j] - gram[j, chosen] @ w)
        values[j] = ((x[:, j] - x[:, chosen] @ w) ** 2).sum() + (penalties[chosen] * w**2).sum()
    return b, c, near, values


def penalties_of(matrix, l2=3.0, rate=0.4):
    return l2 + rate * (matrix.toarray().astype(np.float64) ** 2).sum(axis=0)


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    neighbours=st.integers(1, 35),
    weighted=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
    hubs=st.sampled_from([0, 5, 25, 4096]),
)
def test_columns_are_those_of_the_definition(seed, neighbours, weighted, dtype, hubs):
    """With many equal scores (a log without weights), no, few and many hubs."""
    matrix = world(seed, weighted=weighted)
    penalties = penalties_of(matrix)
    b, c, near, values = definition(matrix, penalties, neighbours)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_hubs, "HUBS", hubs)
        regression = LocalRegression(matrix, penalties, dtype=dtype)
        found = regression.columns(np.arange(30), neighbours)
    tolerance = 2e-6 if dtype == "float32" else 1e-12
    for j in range(30):
        rows, weights = found.column(j)
        assert rows.tolist() == near[j]
        np.testing.assert_allclose(weights, b[near[j], j], atol=tolerance)
    np.testing.assert_allclose(found.c, c, rtol=10 * tolerance)
    np.testing.assert_allclose(regression.d - found.explained, values, rtol=1e-4, atol=1e-4)
    whole = found.into_rows(np.ones(30), np.zeros(30))
    whole.check_format(full_check=True)
    assert whole.has_canonical_format
    np.testing.assert_allclose(whole.toarray(), b, atol=tolerance)


def test_pairs_with_hubs_and_without_give_the_same():
    """A few long histories, and any number of hubs, also where the memory for their pairs allows fewer."""
    rng = np.random.default_rng(0)
    dense = rng.random((40, 400)) < np.where(np.arange(40) < 3, 0.9, 0.03)[:, None]
    matrix = sp.csr_array(dense.astype(np.float32))
    penalties = penalties_of(matrix)
    b = definition(matrix, penalties, 12)[0]
    with pytest.MonkeyPatch.context() as patch:
        for hubs, entries in ((0, 1 << 24), (10, 1 << 24), (380, 1 << 24), (380, 0), (400, 0)):
            patch.setattr(local_hubs, "HUBS", hubs)
            patch.setattr(local_hubs, "FREE_ENTRIES", entries)
            patch.setattr(local_hubs, "ENTRIES", 1)
            regression = LocalRegression(matrix, penalties, dtype="float64")
            found = regression.columns(np.arange(400), 12).into_rows(np.ones(400), np.zeros(400))
            np.testing.assert_allclose(found.toarray(), b, atol=1e-12)


def test_many_items_and_users_change_no_bit():
    """Few of very many items and users have events: the kernels then number them by hash tables."""
    rng = np.random.default_rng(1)
    matrix = world(7, users=60, items=30).tocoo()
    users, items = (np.sort(rng.choice(DIRECT + 999, size, replace=False)) for size in matrix.shape)
    places = users[matrix.coords[0]], items[matrix.coords[1]]
    large = sp.csr_array((matrix.data, places), shape=(DIRECT + 999, DIRECT + 999))
    small = matrix.tocsr()
    penalties = np.ones(DIRECT + 999)
    penalties[items] = penalties_of(small)
    expected = LocalRegression(small, penalties[items]).columns(np.arange(30), 9)
    found = LocalRegression(large, penalties).columns(items, 9)
    for j in range(30):
        near, weights = expected.column(j)
        assert found.column(j)[0].tolist() == items[near].tolist()
        assert (found.column(j)[1] == weights).all()


@given(seed=st.integers(0, 1000))
def test_with_all_candidates_it_is_the_full_inverse(seed):
    matrix = world(seed, users=80, items=12, share=0.6)
    x = matrix.toarray().astype(np.float64)
    gram = x.T @ x
    if (gram == 0).any():
        return  # a pair without a common user is no candidate
    penalties = penalties_of(matrix)
    inverse = np.linalg.inv(gram + np.diag(penalties))
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0.5)
    found = LocalRegression(matrix, penalties, dtype="float64").columns(np.arange(12), 11)
    np.testing.assert_allclose(found.c, np.diag(inverse), rtol=1e-10)
    np.testing.assert_allclose(found.into_rows(np.ones(12), np.full(12, 0.5)).toarray(), expected, atol=1e-10)


def test_threads_and_the_choice_of_items_change_no_bit():
    matrix = world(3, users=200, items=150)
    regression = [LocalRegression(matrix, penalties_of(matrix), threads=threads) for threads in (1, 3)]
    one, three = (each.columns(np.arange(150), 20) for each in regression)
    some = regression[1].columns(np.array([149, 7, 70]), 20)
    for place, j in enumerate((149, 7, 70)):
        for found in (three.column(j), some.column(place)):
            assert all((a == b).all() for a, b in zip(found, one.column(j), strict=True))
    sizes, near = regression[1].candidates(np.array([149, 7, 70]), 20)
    assert sorted(near[: sizes[0]].tolist()) == one.column(149)[0].tolist()
    assert (one.into_rows(one.c, one.c) != three.into_rows(one.c, one.c)).nnz == 0


def test_certificate_sees_a_wrong_weight():
    matrix = world(5)
    regression = LocalRegression(matrix, penalties_of(matrix))
    columns, probes = regression.columns(np.arange(30), 10), np.arange(30)
    residual, error = regression.certificate(columns, probes, probes)
    assert residual < 1e-6
    assert error < 1e-5
    wrong = replace(columns, c=columns.c * (1 + 1e-3 * (np.arange(30) == 4)))
    assert regression.certificate(wrong, probes, probes)[1] == pytest.approx(1e-3, rel=0.01)
    columns.parts[0][1][3] += 0.01
    residual, error = regression.certificate(columns, probes, probes)
    assert residual > 1e-4
    assert error > 1e-4


def test_gaps_are_what_twice_the_candidates_gain():
    matrix = world(6)
    penalties = penalties_of(matrix)
    regression = LocalRegression(matrix, penalties, dtype="float64")
    once, twice = (definition(matrix, penalties, c)[3] for c in (4, 8))
    np.testing.assert_allclose(regression.gaps(np.arange(30), 4), 1 - twice / once, atol=1e-10)
    np.testing.assert_allclose(regression.gaps(np.arange(30), 29), 0, atol=1e-10)


def test_items_without_events_and_empty_logs():
    matrix = sp.csr_array(([1.0, 1.0], [0, 2], [0, 2, 2]), shape=(2, 4), dtype=np.float32)
    found = LocalRegression(matrix, np.full(4, 2.0)).columns(np.arange(4), 3)
    assert found.sizes.tolist() == [1, 0, 1, 0]
    np.testing.assert_allclose(found.c, [1 / (3 - 1 / 3), 0.5, 1 / (3 - 1 / 3), 0.5])
    single = sp.csr_array((1, 1), dtype=np.float32)
    assert LocalRegression(single, np.ones(1)).columns(np.arange(1), 300).sizes.tolist() == [0]


def test_a_singular_system_is_an_error():
    matrix = sp.csr_array(np.ones((3, 4), np.float32))
    with pytest.raises(NumericalError, match="not positive definite"):
        LocalRegression(matrix, np.zeros(4)).columns(np.arange(4), 3)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.data())
def test_kth_largest(values, data):
    k = data.draw(st.integers(1, len(values)))
    assert kth_largest(np.array(values, float), len(values), k) == sorted(values, reverse=True)[k - 1]
