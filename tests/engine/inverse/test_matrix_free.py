"""Matrix-free solves against the dense inverse: columns, residuals, and the diagonal with its standard errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from monogram.engine.gram.probes import probe_items
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.inverse import matrix_free, probing


def world(seed, users=90, items=40, share=0.15):
    rng = np.random.default_rng(seed)
    dense = rng.random((users, items)) < share * rng.uniform(0.1, 2, items)
    return sp.csr_array((dense * rng.integers(1, 4, dense.shape)).astype(np.float32))


def pair(seed, dtype="float32", l2=3.0, rate=0.4, decay=0.0, **size):
    """A system, and its matrix in full."""
    matrix = world(seed, **size)
    dense = matrix.toarray().astype(np.float64)
    penalties = l2 + rate * (dense**2).sum(axis=0)
    if not decay:
        return matrix_free.System(matrix, penalties, dtype), dense.T @ dense + np.diag(penalties)
    kernel = TimeKernel(np.random.default_rng(seed).random(matrix.nnz) * 30, decay, 0.1)
    events = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    same = events[:, None] == events
    rows = np.zeros((matrix.nnz, matrix.shape[1]))  # one for each event
    rows[np.arange(matrix.nnz), matrix.indices] = matrix.data
    whole = rows.T @ (same * kernel(np.abs(kernel.positions[:, None] - kernel.positions))) @ rows
    return matrix_free.System(matrix, penalties, dtype, kernel), whole + np.diag(penalties)


@pytest.mark.parametrize("decay", [0.0, 0.6])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-7), ("float64", 1e-12), ("float32", 1e-11)])
def test_it_solves(dtype, tolerance, decay):
    """Float32 blocks do not limit the solution: what is left is measured in float64 and solved for again."""
    system, whole = pair(0, dtype, decay=decay)
    histories = world(1, users=30)
    found = matrix_free.solve(system, histories, tolerance=tolerance)
    expected = np.linalg.solve(whole, histories.toarray().T.astype(np.float64))
    assert found.converged
    assert found.steps > 0
    table = 1e-11 if decay else 0.0  # of the kernel, as in a Gram matrix
    np.testing.assert_allclose(found.columns, expected, atol=20 * tolerance + table)
    np.testing.assert_allclose(system.diagonal, np.diag(whole), rtol=1e-12)


@given(
    seed=st.integers(0, 50),
    tolerance=st.sampled_from([1e-2, 1e-5, 1e-8]),
    dtype=st.sampled_from(["float32", "float64"]),
)
@settings(max_examples=20)
def test_the_residual_told_is_the_true_one(seed, tolerance, dtype):
    system, whole = pair(seed, dtype)
    histories = world(seed + 1, users=12)
    found = matrix_free.solve(system, histories, tolerance=tolerance)
    right = histories.toarray().T.astype(np.float64)
    sizes = np.linalg.norm(right, axis=0)
    true = np.linalg.norm(right - whole @ found.columns, axis=0)
    np.testing.assert_allclose(found.residuals * sizes, true, atol=1e-12)
    assert (found.residuals <= tolerance).all()


def test_what_cannot_be_reached_is_told():
    system, _ = pair(0)
    found = matrix_free.solve(system, world(1, users=5), tolerance=1e-40)
    assert not found.converged
    assert (found.residuals < 1e-14).all()


def test_an_empty_history_is_zero_and_without_residual():
    system, _ = pair(0)
    histories = sp.csr_array(np.vstack([np.zeros((1, 40)), world(2, users=1).toarray()]).astype(np.float32))
    found = matrix_free.solve(system, histories, tolerance=1e-7)
    assert not found.columns[:, 0].any()
    assert found.residuals[0] == 0
    assert matrix_free.solve(system, histories[:1], tolerance=1e-7).steps == 0
    assert matrix_free.solve(system, histories[:0], tolerance=1e-7).columns.shape == (40, 0)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_history_has_the_same_bits_in_any_batch_and_with_any_threads(dtype, timed):
    system, _ = pair(0, dtype, users=3000, items=2500, share=0.01)
    if timed:
        kernel = TimeKernel(np.random.default_rng(0).random(system.by_user.nnz) * 30, 0.6)
        system = matrix_free.System(system.by_user, system.penalties, dtype, kernel)
    histories = world(3, users=20, items=2500, share=0.01)
    together = matrix_free.solve(system, histories, tolerance=1e-7, threads=3)
    for user in range(0, 20, 7):
        alone = matrix_free.solve(system, histories[[user]], tolerance=1e-7)
        np.testing.assert_array_equal(alone.columns[:, 0], together.columns[:, user])
        assert alone.residuals[0] == together.residuals[user]
    twice = matrix_free.solve(system, histories[[4, 9, 4]], tolerance=1e-7, threads=2)
    np.testing.assert_array_equal(twice.columns[:, 0], twice.columns[:, 2])


def test_the_certificate_bounds_the_error_of_the_columns():
    system, whole = pair(5)
    residual, error = matrix_free.certificate(system, tolerance=1e-4)
    inverse = np.linalg.inv(whole)
    chosen = probe_items(system.d)
    columns = matrix_free.solve(system, matrix_free.units(chosen, 40), tolerance=1e-4).columns
    own = chosen, np.arange(len(chosen))
    found, expected = columns / columns[own], inverse[:, chosen] / inverse[chosen, chosen]
    found[own] = expected[own] = 0
    assert 0 < residual < 1e-3
    assert np.abs(found - expected).max() / np.abs(expected).max() <= 1.1 * error
    assert matrix_free.certificate(
        matrix_free.System(sp.csr_array((3, 4), dtype=np.float32), np.ones(4)), tolerance=0.1
    ) == (0, 0)


@pytest.mark.parametrize("seed", range(6))
def test_the_diagonal_lies_within_four_standard_errors(seed):
    system, whole = pair(seed, users=400, items=120)
    exact = np.diag(np.linalg.inv(whole))
    found = probing.diagonal(system, exact=10, number=64, seed=seed)
    solved = found.errors == 0
    assert solved.sum() == 10 + (system.d == 0).sum()
    np.testing.assert_allclose(found.values[solved], exact[solved], rtol=1e-8)
    assert (np.abs(found.values - exact)[~solved] <= 4 * found.errors[~solved]).all()
    assert found.deviation == (found.errors / found.values).max() > 0


def test_the_standard_error_is_the_spread_of_the_estimates():
    system, whole = pair(1, users=400, items=60)
    exact = np.diag(np.linalg.inv(whole))
    runs = [probing.diagonal(system, exact=5, number=32, seed=seed) for seed in range(60)]
    loose = runs[0].errors > 0
    off = np.array([(one.values - exact)[loose] for one in runs])
    told = np.mean([one.errors[loose] for one in runs], axis=0)
    assert 0.8 < np.sqrt((off**2).mean(axis=0) / told**2).mean() < 1.25
    assert np.abs(off.mean(axis=0) / (told / np.sqrt(60))).mean() < 1.5, "no bias"


def test_more_probes_have_a_smaller_error_and_few_items_none():
    system, whole = pair(2, users=400, items=120)
    few, many = (probing.diagonal(system, exact=10, number=number).errors.sum() for number in (16, 100))
    assert many < 0.6 * few
    everything = probing.diagonal(system)
    assert not everything.errors.any(), "no more items than columns that would be solved"
    np.testing.assert_allclose(everything.values, np.diag(np.linalg.inv(whole)), rtol=1e-8)


def test_the_diagonal_does_not_depend_on_the_threads():
    system, _ = pair(2, users=400, items=120)
    one, two = (probing.diagonal(system, exact=10, number=16, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(one.errors, two.errors)
