"""Changes of an inverse against inverses from scratch, as arrays."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.inverse import woodbury
from monogram.engine.inverse.certificate import certificate
from monogram.engine.inverse.primal import primal_inverse
from monogram.errors import NumericalError


def rows(rng, users, items):
    return sp.csr_array((rng.random((users, items)) < 0.3) * rng.integers(1, 4, (users, items)), dtype=np.float32)


@given(
    seed=st.integers(0, 10_000),
    stay=st.integers(0, 12),
    gone=st.integers(0, 5),
    come=st.integers(0, 5),
    moved=st.booleans(),
)
def test_both_forms_follow_any_change(seed, stay, gone, come, moved):
    rng, n = np.random.default_rng(seed), 9
    kept, old, new = (rows(rng, users, n) for users in (stay + 1, gone, come))
    before, after = rng.uniform(0.5, 3, n), rng.uniform(0.5, 3, n)
    after = np.where(rng.random(n) < 0.5, before, after) if moved else before
    first = np.vstack([kept.toarray(), old.toarray()]).astype(float)
    last = np.vstack([kept.toarray(), new.toarray()]).astype(float)
    c = np.linalg.inv(first.T @ first + np.diag(before))
    expected = np.linalg.inv(last.T @ last + np.diag(after))

    scale, other = rng.uniform(0.5, 2, n), rng.uniform(0.5, 2, n)
    array = np.ascontiguousarray(c * scale)
    np.fill_diagonal(array, 7.0)  # the weights have a diagonal of their own
    held = woodbury.InverseInWeights(array, scale, np.diag(c).copy())
    found = woodbury.correction(held, woodbury.gram_change(old, new, after - before), np.zeros(n))
    np.testing.assert_allclose(found.diagonal, np.diag(expected), rtol=1e-9)
    step = woodbury.WeightsUpdate(held, found, other)
    np.testing.assert_allclose(step.columns(np.arange(n)), expected, atol=1e-10)
    step.into(array, np.full(n, 5.0), 2)
    np.fill_diagonal(array, np.diag(expected) * other)
    np.testing.assert_allclose(array, expected * other, atol=1e-10)

    whole = sp.csr_array(first.astype(np.float32))
    k = np.linalg.inv(np.eye(len(first)) + first / before @ first.T)
    index = np.arange(stay + 1, stay + 1 + gone)
    dual = woodbury.dual(np.asfortranarray(k), whole, before, removed=index, appended=new, new_penalties=after)
    np.testing.assert_allclose(dual, np.linalg.inv(np.eye(len(last)) + last / after @ last.T), atol=1e-9)


def test_the_gram_follows():
    rng = np.random.default_rng(0)
    first, more = rows(rng, 20, 6), rows(rng, 4, 6)
    gram = np.asfortranarray(np.tril((first.T @ first).toarray()))
    woodbury.add_to_gram(gram, first[:3], more)
    left = sp.vstack([first[3:], more]).toarray()
    np.testing.assert_allclose(gram, np.tril(left.T @ left))
    wide = woodbury.grown(gram, 8)
    assert wide.flags.f_contiguous
    np.testing.assert_array_equal(wide[:6, :6], gram)
    assert not wide[6:].any()


def test_what_cannot_be_taken_away_is_an_error():
    """Rows that were never there: S + Λ would not stay positive."""
    c = np.eye(3)
    held = woodbury.InverseInWeights(c.copy(), np.ones(3), np.ones(3))
    gone = sp.csr_array(np.array([[3.0, 0, 0]], np.float32))
    nothing = sp.csr_array((0, 3), dtype=np.float32)
    with pytest.raises(NumericalError, match="diagonal"):
        woodbury.correction(held, woodbury.gram_change(gone, nothing, np.zeros(3)), np.zeros(3))
    gone.data[:] = 1
    with pytest.raises(NumericalError, match="precision"):
        woodbury.correction(held, woodbury.gram_change(gone, nothing, np.zeros(3)), np.zeros(3))


def test_a_certificate_reads_what_weights_hold():
    rng = np.random.default_rng(0)
    matrix = rows(rng, 30, 8)
    solved = primal_inverse(matrix, np.ones(8), dtype=np.float64)
    c, scale = solved.diagonal, rng.uniform(0.5, 2, 8)
    held = woodbury.InverseInWeights(solved.into_weights(scale, np.zeros(8), 1), scale, c)
    assert certificate(matrix, np.ones(8), held)[0] < 1e-14
