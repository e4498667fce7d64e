"""Leading pairs against a dense eigendecomposition, by every method and side."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.gram.operators import Operator, multiply
from monogram.engine.lowrank import spectrum
from monogram.errors import NumericalError


def sparse(users, items, share=0.05, seed=0):
    rng = np.random.default_rng(seed)
    return sp.random_array((users, items), density=share, rng=rng, dtype=np.float64, format="csr")


def shifted(matrix, seed=1):
    rng = np.random.default_rng(seed)
    return rng.random(matrix.shape[0]), rng.random(matrix.shape[1])


@pytest.fixture
def lanczos(monkeypatch):
    monkeypatch.setattr(spectrum, "SMALL", 10)


@given(
    users=st.integers(1, 30),
    items=st.integers(1, 30),
    seed=st.integers(0, 1000),
    shift=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
def test_the_operator_is_sparse_minus_rank_one(users, items, seed, shift, threads):
    matrix = sparse(users, items, 0.3, seed)
    pair = shifted(matrix) if shift else None
    whole = matrix.toarray() - (np.outer(*pair) if pair else 0)
    data = Operator(matrix, pair, threads=threads)
    right, left = np.random.default_rng(seed).random((items, 3)), np.random.default_rng(seed).random((users, 3))
    np.testing.assert_allclose(data.times(right), whole @ right, atol=1e-12)
    np.testing.assert_allclose(data.transpose_times(left), whole.T @ left, atol=1e-12)
    np.testing.assert_allclose(np.tril(data.dense("items")), np.tril(whole.T @ whole), atol=1e-12)
    np.testing.assert_allclose(np.tril(data.dense("users")), np.tril(whole @ whole.T), atol=1e-12)


def test_products_do_not_depend_on_threads():
    matrix, block = sparse(5000, 300), np.random.default_rng(0).random((300, 7)).astype(np.float32)
    np.testing.assert_array_equal(multiply(matrix, block, 1), multiply(matrix, block, 2))


def check(found, matrix, rank, tolerance):
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    np.testing.assert_allclose(found.values, values, rtol=tolerance, atol=tolerance * values[0])
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(rank), atol=10 * tolerance)
    overlap = np.linalg.norm(vectors.T @ found.vectors)  # same space: √rank
    assert overlap**2 == pytest.approx(rank, abs=100 * tolerance)
    assert found.residual <= tolerance


@pytest.mark.parametrize("side", ["items", "users"])
@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(400, 300), (300, 400)], ids=str)
@pytest.mark.parametrize("rank", [1, 5, 40])
def test_lanczos_finds_the_leading_pairs(lanczos, shape, side, shift, dtype, rank):
    matrix = sparse(*shape)
    pair = shifted(matrix) if shift else None
    found = spectrum.of_data(Operator(matrix, pair), rank, side=side, dtype=dtype)
    assert found.method == "lanczos"
    assert not found.complete
    check(found, matrix.toarray() - (np.outer(*pair) if pair else 0), rank, {"float64": 1e-8, "float32": 1e-4}[dtype])


@pytest.mark.parametrize("side", ["items", "users", "auto"])
def test_dense_pairs(side):
    matrix = sparse(80, 60, 0.2)
    found = spectrum.of_data(Operator(matrix), 60, side=side, dtype="float64")
    assert found.method == "dense"
    assert found.complete
    check(found, matrix.toarray(), 60, 1e-8)


def test_equal_values_and_an_invariant_space(lanczos):
    """Forty disjoint stars of equal size: one value, forty times; the Krylov space is exhausted at once."""
    matrix = sp.kron(sp.eye_array(60), np.ones((3, 5))).tocsr()
    found = spectrum.of_data(Operator(matrix), 40, side="items", dtype="float64")
    np.testing.assert_allclose(found.values, 15.0, rtol=1e-10)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(40), atol=1e-8)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("side", ["items", "users"])
def test_zeros_are_left_out(lanczos, dtype, side):
    rng = np.random.default_rng(3)
    matrix = sp.csr_array(rng.random((200, 12)) @ rng.random((12, 150)))
    found = spectrum.of_data(Operator(matrix), 30, side=side, dtype=dtype, tolerance=1e-2)
    assert len(found.values) == 12
    assert found.complete


def test_nothing_at_all():
    found = spectrum.of_data(Operator(sp.csr_array((4, 3))), 2)
    assert len(found.values) == 0
    assert found.residual == 0
    assert found.complete


def test_any_symmetric_operator(lanczos):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((200, 200)))[0]
    whole = (basis * np.linspace(1, 9, 200) ** 2) @ basis.T
    found = spectrum.leading(lambda block: whole @ block, 200, 6, dtype="float64")
    np.testing.assert_allclose(found.values, np.linspace(1, 9, 200)[:-7:-1] ** 2, rtol=1e-8)


def test_not_converged_is_an_error(lanczos, monkeypatch):
    monkeypatch.setattr(spectrum, "RESTARTS", 1)
    with pytest.raises(NumericalError, match=r"of 40 eigenpairs have not converged"):
        spectrum.of_data(Operator(sparse(400, 300)), 40, dtype="float64")


def test_a_tolerance_beyond_rounding_is_an_error_too():
    with pytest.raises(NumericalError, match="expected at most"):
        spectrum.of_data(Operator(sparse(40, 30, 0.3)), 5, dtype="float64", tolerance=1e-30)
