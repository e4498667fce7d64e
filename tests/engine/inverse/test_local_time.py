"""Local regressions with a time kernel, against a Gram matrix from a double loop over the events of each user."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.inverse import local
from monogram.engine.inverse.local import LocalRegression
from tests.engine.inverse.test_local import penalties_of, world

WAYS = ((0.0, 1 << 20), (1.0, 1 << 20), (1e9, 1 << 20), (0.0, 0))  # lists, lists and hubs, rows; no room for lists


def kernel_of(matrix, seed=0, *, events=True, decay=0.7, floor=0.1):
    """Positions in a random order, or random times with a few equal ones."""
    rng = np.random.default_rng(seed)
    if events:
        rows = [rng.permutation(length) for length in np.diff(matrix.indptr)]
        return TimeKernel(np.concatenate(rows).astype(np.int32), decay, floor)
    return TimeKernel(np.round(rng.exponential(40.0, matrix.nnz), 1), decay, floor)


def slow_gram(matrix, kernel):
    """S from its definition."""
    n = matrix.shape[1]
    gram = np.zeros((n, n))
    for row in range(matrix.shape[0]):
        span = range(matrix.indptr[row], matrix.indptr[row + 1])
        for p in span:
            for q in span:
                distance = abs(float(kernel.positions[p]) - float(kernel.positions[q]))
                k = kernel.floor + (1 - kernel.floor) * (1 + distance) ** -kernel.decay
                gram[matrix.indices[p], matrix.indices[q]] += k * float(matrix.data[p]) * float(matrix.data[q])
    return gram


def definition(gram, penalties, neighbours):
    """B, c, and the candidates, from S."""
    n = len(gram)
    b, c, near = np.zeros((n, n)), np.empty(n), []
    roots = 1 / np.sqrt(np.diag(gram) + penalties)
    for j in range(n):
        shared = [i for i in range(n) if i != j and gram[i, j] != 0]
        chosen = sorted(sorted(shared, key=lambda i: (-(gram[j, i] * roots[i]), i))[:neighbours])
        w = np.linalg.solve(gram[np.ix_(chosen, chosen)] + np.diag(penalties[chosen]), gram[chosen, j])
        b[chosen, j], near = w, [*near, chosen]
        c[j] = 1 / (gram[j, j] + penalties[j] - gram[j, chosen] @ w)
    return b, c, near


def whole(columns):
    n = len(columns.c)
    return columns.into_rows(np.ones(n), np.zeros(n)).toarray()


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    neighbours=st.integers(1, 25),
    events=st.booleans(),
    weighted=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
    hubs=st.sampled_from([0, 5, 15, 4096]),
    way=st.sampled_from(WAYS),
)
def test_columns_are_those_of_the_definition(seed, neighbours, events, weighted, dtype, hubs, way):
    """With few and many hubs, and all ways to sum pairs; equal scores are compared where both choose the same."""
    matrix = world(seed, users=30, items=20, weighted=weighted)
    kernel, penalties = kernel_of(matrix, seed, events=events), penalties_of(matrix)
    b, c, near = definition(slow_gram(matrix, kernel), penalties, neighbours)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "HUBS", hubs)
        patch.setattr(local, "LISTING", way[0])
        patch.setattr(local, "LISTED", way[1])
        found = LocalRegression(matrix, penalties, dtype=dtype, kernel=kernel).columns(np.arange(20), neighbours)
    tolerance = 4e-6 if dtype == "float32" else 1e-9
    same = [j for j in range(20) if found.column(j)[0].tolist() == near[j]]
    assert len(same) >= 15, "scores that are equal but for rounding are rare"
    np.testing.assert_allclose(whole(found)[:, same], b[:, same], atol=tolerance)
    np.testing.assert_allclose(found.c[same], c[same], rtol=10 * tolerance)


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize("hubs", [10, 380])
def test_all_ways_to_sum_pairs_give_the_same(hubs, events):
    """A few long histories, and few or many hubs; without room for lists, the rows of the users are read."""
    rng = np.random.default_rng(0)
    dense = rng.random((40, 400)) < np.where(np.arange(40) < 3, 0.9, 0.03)[:, None]
    matrix = world(0)
    matrix = type(matrix)((dense * rng.integers(1, 4, dense.shape)).astype(np.float32))
    kernel, penalties = kernel_of(matrix, events=events), penalties_of(matrix)
    found = []
    for listing, listed in ((0.0, 1 << 20), (1.0, 1 << 20), (4.0, 1 << 20), (1.0, 20), (0.0, 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "HUBS", hubs)
            patch.setattr(local, "LISTING", listing)
            patch.setattr(local, "LISTED", listed)
            regression = LocalRegression(matrix, penalties, dtype="float64", kernel=kernel)
            found.append(whole(regression.columns(np.arange(400), 12)))
    gram = slow_gram(matrix, kernel)
    for j in range(0, 400, 40):
        chosen = np.flatnonzero(found[0][:, j])
        w = np.linalg.solve(gram[np.ix_(chosen, chosen)] + np.diag(penalties[chosen]), gram[chosen, j])
        np.testing.assert_allclose(found[0][chosen, j], w, atol=1e-9)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-9)


@given(seed=st.integers(0, 1000), events=st.booleans())
def test_with_all_candidates_it_is_the_full_inverse(seed, events):
    matrix = world(seed, users=80, items=12, share=0.6)
    kernel, penalties = kernel_of(matrix, seed, events=events), penalties_of(matrix)
    gram = slow_gram(matrix, kernel)
    if (gram == 0).any():
        return  # a pair without a common user is no candidate
    inverse = np.linalg.inv(gram + np.diag(penalties))
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0.5)
    found = LocalRegression(matrix, penalties, dtype="float64", kernel=kernel).columns(np.arange(12), 11)
    np.testing.assert_allclose(found.c, np.diag(inverse), rtol=1e-8)
    np.testing.assert_allclose(found.into_rows(np.ones(12), np.full(12, 0.5)).toarray(), expected, atol=1e-8)


@pytest.mark.parametrize("events", [True, False])
def test_threads_and_the_choice_of_items_change_no_bit(events):
    matrix = world(3, users=200, items=150)
    settings_ = {"kernel": kernel_of(matrix, events=events)}
    one, three = (LocalRegression(matrix, penalties_of(matrix), threads=t, **settings_) for t in (1, 3))
    first, other = one.columns(np.arange(150), 20), three.columns(np.arange(150), 20)
    some = three.columns(np.array([149, 7, 70]), 20)
    for place, j in enumerate((149, 7, 70)):
        assert all((a == b).all() for a, b in zip(some.column(place), first.column(j), strict=True))
    sizes, near = three.candidates(np.array([149, 7]), 20)
    assert sorted(near[: sizes[0]].tolist()) == first.column(149)[0].tolist()
    assert (first.c == other.c).all()
    assert (whole(first) == whole(other)).all()


def test_the_kernel_changes_weights_and_candidates():
    """The tests above can fail: without the kernel other candidates are chosen, with other weights."""
    matrix = world(4)
    regressions = [LocalRegression(matrix, penalties_of(matrix), kernel=each) for each in (None, kernel_of(matrix))]
    plain, timed = (whole(regression.columns(np.arange(30), 6)) for regression in regressions)
    assert ((plain != 0) != (timed != 0)).any()
    assert np.abs(plain - timed).max() > 0.01
    assert (regressions[0].d == regressions[1].d).all()


@pytest.mark.parametrize("events", [True, False])
def test_certificate_sees_a_wrong_weight(events):
    matrix = world(5)
    regression = LocalRegression(matrix, penalties_of(matrix), kernel=kernel_of(matrix, events=events))
    columns, probes = regression.columns(np.arange(30), 10), np.arange(30)
    residual, error = regression.certificate(columns, probes, probes)
    assert residual < 1e-6
    assert error < 1e-5
    plain = LocalRegression(matrix, penalties_of(matrix))
    assert plain.certificate(columns, probes, probes)[0] > 1e-3, "of another S"
    columns.parts[0][1][3] += 0.01
    residual, error = regression.certificate(columns, probes, probes)
    assert residual > 1e-4
    assert error > 1e-4


def test_gaps_are_what_twice_the_candidates_gain():
    matrix = world(6)
    kernel, penalties = kernel_of(matrix), penalties_of(matrix)
    regression = LocalRegression(matrix, penalties, dtype="float64", kernel=kernel)
    gram = slow_gram(matrix, kernel)
    once, twice = (gram.diagonal() + penalties - 1 / definition(gram, penalties, c)[1] for c in (4, 8))
    expected = (twice - once) / (gram.diagonal() - once)
    np.testing.assert_allclose(regression.gaps(np.arange(30), 4), expected, atol=1e-8)
    np.testing.assert_allclose(regression.gaps(np.arange(30), 29), 0, atol=1e-10)
