"""Half-steps against the objective they state, written out over every cell."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from monogram.engine.iterative import wrmf
from monogram.engine.runtime import parallel
from monogram.errors import NumericalError

L2, ALPHA = 0.05, 4.1


def data(users=40, items=9, seed=0, weighted=True):
    rng = np.random.default_rng(seed)
    dense = (rng.random((users, items)) < rng.uniform(0.1, 0.6, items)) * rng.uniform(0.2, 3, (users, items))
    dense[3], dense[4] = 0, 1  # somebody with nothing, somebody with everything
    return sp.csr_array((dense if weighted else dense > 0).astype(np.float32))


def cells(matrix, alpha):
    dense = matrix.toarray().astype(np.float64)
    return (dense > 0).astype(np.float64), 1 + alpha * dense


def plain(matrix, users, items, l2, alpha, nu):
    """The objective, cell by cell, and its two gradients."""
    target, weight = cells(matrix, alpha)
    by_user, by_item = l2 * weight.sum(1) ** nu, l2 * weight.sum(0) ** nu
    error = users @ items.T - target
    value = (weight * error**2).sum() + by_user @ (users**2).sum(1) + by_item @ (items**2).sum(1)
    return (
        value,
        2 * (weight * error) @ items + 2 * by_user[:, None] * users,
        2 * (weight * error).T @ users + 2 * by_item[:, None] * items,
    )


def start(matrix, rank, dtype="float64", seed=1):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((size, rank)).astype(dtype) for size in matrix.shape)


def half(matrix, fixed, out, nu, step=wrmf.solve, alpha=ALPHA, l2=L2, threads=1, **options):
    spectrum = wrmf.rotate_to_axes(fixed, out, threads=threads)
    step(matrix, wrmf.ridges(matrix, l2, alpha, nu), alpha, fixed, spectrum, out, threads, **options)


@pytest.mark.parametrize("nu", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rank", [1, 3, 6, 21])  # 6: short and long rows; 21: short rows only
def test_the_gradient_is_zero_in_the_rows_just_solved(rank, nu):
    matrix = data()
    users, items = start(matrix, rank)
    half(matrix, items, users, nu)
    np.testing.assert_allclose(plain(matrix, users, items, L2, ALPHA, nu)[1], 0, atol=1e-8)
    half(matrix.T.tocsr(), users, items, nu)
    np.testing.assert_allclose(plain(matrix, users, items, L2, ALPHA, nu)[2], 0, atol=1e-8)


def test_a_row_of_many_events_and_a_rank_of_several_tiles():
    matrix = data(users=300, items=31)
    users, items = start(matrix, 18)
    half(matrix, items, users, 1.0)
    half(matrix.T.tocsr(), users, items, 1.0)
    np.testing.assert_allclose(plain(matrix, users, items, L2, ALPHA, 1.0)[2], 0, atol=1e-8)


@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_the_value_is_that_of_the_cells(nu):
    matrix = data()
    users, items = start(matrix, 4)
    expected = plain(matrix, users, items, L2, ALPHA, nu)[0]
    assert wrmf.objective(matrix, users, items, l2=L2, alpha=ALPHA, nu=nu) == pytest.approx(expected, rel=1e-12)
    single = wrmf.objective(matrix, *(one.astype(np.float32) for one in (users, items)), l2=L2, alpha=ALPHA, nu=nu)
    assert single == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("step", [wrmf.solve, wrmf.improve])
@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_the_objective_never_increases(nu, step):
    matrix = data()
    by_item = matrix.T.tocsr()
    users, items = start(matrix, 4)
    values = [wrmf.objective(matrix, users, items, l2=L2, alpha=ALPHA, nu=nu)]
    for _ in range(8):
        for side, fixed, out in ((matrix, items, users), (by_item, users, items)):
            half(side, fixed, out, nu, step)
            values.append(wrmf.objective(matrix, users, items, l2=L2, alpha=ALPHA, nu=nu))
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    assert values[-1] < 0.5 * values[0]


@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_a_general_optimiser_finds_nothing_below_the_end(nu):
    matrix = data()
    by_item, rank = matrix.T.tocsr(), 3
    users, items = start(matrix, rank)
    for _ in range(3000):
        half(matrix, items, users, nu)
        half(by_item, users, items, nu)
    end = plain(matrix, users, items, L2, ALPHA, nu)
    np.testing.assert_allclose(end[1], 0, atol=1e-6)
    np.testing.assert_allclose(end[2], 0, atol=1e-6)
    cut = users.size

    def loss(flat):
        value, by_users, by_items = plain(
            matrix, flat[:cut].reshape(-1, rank), flat[cut:].reshape(-1, rank), L2, ALPHA, nu
        )
        return value, np.concatenate([by_users.ravel(), by_items.ravel()])

    found = minimize(loss, np.concatenate([users.ravel(), items.ravel()]), jac=True, method="L-BFGS-B")
    assert end[0] <= found.fun * (1 + 1e-10)


@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_many_steps_of_conjugate_gradients_are_the_exact_rows(nu):
    matrix = data()
    users, items = start(matrix, 7)
    other, same = users.copy(), items.copy()
    half(matrix, items, users, nu)
    half(matrix, same, other, nu, wrmf.improve, steps=40)
    np.testing.assert_allclose(other, users, atol=1e-9)


def test_without_nu_it_is_the_textbook_loop():
    """Hu et al.: one dense system a user, a plain penalty."""
    matrix = data()
    users, items = start(matrix, 5)
    target, weight = cells(matrix, ALPHA)
    expected = np.stack(
        [
            np.linalg.solve(items.T @ (c[:, None] * items) + L2 * np.eye(5), items.T @ (c * x))
            for x, c in zip(target, weight, strict=True)
        ]
    )
    before = expected @ items.T
    half(matrix, items, users, 0.0)
    np.testing.assert_allclose(users @ items.T, before, atol=1e-10)


def test_the_turn_changes_no_product_and_makes_the_gramian_diagonal():
    matrix = data(users=5000, items=9)
    users, items = start(matrix, 6)
    before = users @ items.T
    spectrum = wrmf.rotate_to_axes(users, items)
    np.testing.assert_allclose(users @ items.T, before, atol=1e-10)
    np.testing.assert_allclose(users.T @ users, np.diag(spectrum), atol=1e-8)
    np.testing.assert_allclose(wrmf.gramian(users), users.T @ users, atol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 1e-7, 1e4])
def test_gains_of_any_size(alpha):
    matrix = data()
    users, items = start(matrix, 21)
    half(matrix, items, users, 1.0, alpha=alpha)
    gradient = plain(matrix, users, items, L2, alpha, 1.0)[1]
    np.testing.assert_allclose(gradient, 0, atol=1e-9 * (1 + alpha))


@pytest.mark.parametrize("step", [wrmf.solve, wrmf.improve])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_bits_whatever_the_threads(step, dtype):
    matrix = data(users=5000, items=60)
    found = []
    for threads in (1, 3):
        users, items = start(matrix, 12, dtype)
        with parallel.blas_threads(1):
            half(matrix, items, users, 1.0, step, threads=threads)
            half(matrix.T.tocsr(), users, items, 1.0, step, threads=threads)
            value = wrmf.objective(matrix, users, items, l2=L2, alpha=ALPHA, nu=1.0, threads=threads)
        found.append((users, items, value))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_float32_is_near_float64():
    matrix = data(users=300, items=31)
    exact, coarse = start(matrix, 18), start(matrix, 18, "float32")
    half(matrix, exact[1], exact[0], 1.0)
    half(matrix, coarse[1], coarse[0], 1.0)
    np.testing.assert_allclose(coarse[0] @ coarse[1].T, exact[0] @ exact[1].T, atol=1e-4)


def test_a_matrix_that_cannot_be_factored_is_an_error():
    matrix = sp.csr_array(np.ones((3, 9), np.float32))
    items, users = np.zeros((9, 4), np.float32), np.zeros((3, 4), np.float32)
    with pytest.raises(NumericalError, match=r"3 rows of the factors .* cannot factor$"):
        wrmf.solve(matrix, np.zeros(3), 1.0, items, np.zeros(4), users)
