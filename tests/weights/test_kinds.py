"""Sparse weights and weights of low rank against the plain dense formula."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from monogram.engine.topk.best import Eligible
from monogram.errors import ModelFileError
from monogram.weights import Factors, SolvedProduct, Sparse, from_tensors

N, USERS = 30, 12
RNG = np.random.default_rng(5)
ITEMS = np.array([7, 0, 29, 7, 3])
HISTORIES = sp.csr_array(((RNG.random((USERS, N)) < 0.2) * RNG.integers(1, 4, (USERS, N))).astype(np.float32))
H = HISTORIES.toarray().astype(np.float64)


def sparse(dtype):
    dense = RNG.standard_normal((N, N)) * (RNG.random((N, N)) < 0.15)
    dense[:, 4] = dense[9] = 0
    weights = Sparse(sp.csr_array(dense.astype(dtype)))
    return weights, dense.astype(dtype).astype(np.float64), np.zeros(N), np.ones(USERS)


def solved_product(dtype):
    square = RNG.standard_normal((N, N)).astype(dtype)
    square = np.ascontiguousarray(square + square.T)
    targets = (RNG.standard_normal((N, N)) * (RNG.random((N, N)) < 0.15)).astype(dtype)
    targets[:, 4] = targets[9] = 0
    weights = SolvedProduct(square, sp.csr_array(targets.T))
    return weights, square.astype(np.float64) @ targets.astype(np.float64), np.zeros(N), np.ones(USERS)


def factors(dtype, *, shared=False, length=0.0, base=0.0):
    left = RNG.standard_normal((N, 4)).astype(dtype)
    right = left if shared else RNG.standard_normal((N, 4)).astype(dtype)
    scale, offset = np.array([2.0, 1.0, 0.5, 0.0]), base * RNG.standard_normal(N)
    reach = np.array([length / total if total else 0.0 for total in H.sum(axis=1)]) if length else np.ones(USERS)
    dense = left.astype(np.float64) @ np.diag(scale) @ right.astype(np.float64).T
    return Factors(left, right, scale, offset, length), dense, offset, reach


KINDS = {
    "sparse": sparse,
    "solved_product": solved_product,
    "factors": factors,
    "factors, one array": lambda dtype: factors(dtype, shared=True),
    "factors by share": lambda dtype: factors(dtype, length=7.0, base=1.0),
}


@pytest.fixture(params=[(name, dtype) for name in KINDS for dtype in ("float32", "float64")], ids=str)
def case(request):
    name, dtype = request.param
    return KINDS[name](dtype)


def test_scores(case):
    weights, dense, base, reach = case
    expected = (H @ dense) * reach[:, None] + base
    for threads in (1, 3):
        np.testing.assert_allclose(weights.score(HISTORIES, ITEMS, threads), expected[:, ITEMS], atol=1e-12)
    assert weights.score(HISTORIES[:0], ITEMS, 1).shape == (0, 5)
    assert weights.score(HISTORIES, ITEMS[:0], 1).shape == (USERS, 0)
    np.testing.assert_array_equal(weights.base(ITEMS), base[ITEMS])


@pytest.mark.parametrize("threads", [1, 3])
def test_the_best(case, threads):
    weights, dense, base, reach = case
    scores = (H @ dense) * reach[:, None] + base
    best = weights.best(HISTORIES, Eligible.all_but(HISTORIES), 8, threads)
    told = weights.score(HISTORIES, np.arange(N), 1)
    for user in range(USERS):
        left = np.flatnonzero(H[user] == 0)
        count = min(8, len(left))
        assert best.counts[user] == count
        expected = np.sort(scores[user, left])[::-1][:count]
        np.testing.assert_allclose(best.scores[user, :count], expected, atol=1e-12)
        items = best.items[user, :count]
        assert not H[user, items].any()
        np.testing.assert_allclose(told[user, items], best.scores[user, :count], atol=1e-12)
        order = sorted(items, key=lambda j, user=user: (-told[user, j], j))
        np.testing.assert_allclose(told[user, order], told[user, items], atol=1e-12)
    assert len(weights.best(HISTORIES[:0], Eligible.all_but(HISTORIES[:0]), 8, threads).counts) == 0


@pytest.mark.parametrize("name", ["sparse", "solved_product"])
def test_the_scores_of_lists_are_those_told_to_the_last_bit(name):
    weights, *_ = KINDS[name]("float32")
    best = weights.best(HISTORIES, Eligible.all_but(HISTORIES), 5, 2)
    told = weights.score(HISTORIES, np.arange(N), 2)
    np.testing.assert_array_equal(best.scores, np.take_along_axis(told, best.items, axis=1))


@pytest.mark.parametrize("name", ["sparse", "solved_product"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_history_alone_has_the_bits_of_a_batch(name, threads, monkeypatch):
    monkeypatch.setattr("monogram.weights.solved_product.SCORES", 3 * N)
    weights, *_ = KINDS[name]("float32")
    assert weights.batch_invariant
    together = weights.best(HISTORIES, Eligible.all_but(HISTORIES), 5, threads)
    for user in range(USERS):
        alone = weights.best(HISTORIES[[user]], Eligible.all_but(HISTORIES[[user]]), 5, 1)
        np.testing.assert_array_equal(alone.items[0], together.items[user])
        np.testing.assert_array_equal(alone.scores[0], together.scores[user])


def test_columns_and_shares(case):
    weights, dense, base, reach = case
    length = getattr(weights, "length", 0) or 1.0
    np.testing.assert_allclose(weights.columns(ITEMS), dense[:, ITEMS] * length, atol=1e-12)
    assert weights.columns(ITEMS).dtype == np.float64
    for user in range(USERS):
        history = HISTORIES[[user]]
        shares = weights.shares(history, 3)
        expected = H[user, history.indices] * dense[history.indices, 3] * reach[user]
        np.testing.assert_allclose(shares, expected, atol=1e-12)
        score = weights.score(history, np.array([3]), 1)[0, 0]
        assert shares.sum() + base[3] == pytest.approx(score, abs=1e-12)


def test_the_tensors_come_back(case):
    weights, *_ = case
    again = from_tensors(weights.kind, weights.tensors(), HISTORIES)
    assert type(again) is type(weights)
    assert again.nbytes == weights.nbytes
    assert again.linear == weights.linear
    np.testing.assert_array_equal(again.columns(ITEMS), weights.columns(ITEMS))
    np.testing.assert_array_equal(again.score(HISTORIES, ITEMS, 1), weights.score(HISTORIES, ITEMS, 1))
    assert all(np.array_equal(again.tensors()[name], one) for name, one in weights.tensors().items())


def test_read_only_tensors_will_do():
    weights, *_ = sparse("float32")
    tensors = {name: one.copy() for name, one in weights.tensors().items()}
    for one in tensors.values():
        one.flags.writeable = False
    again = from_tensors("sparse", tensors, HISTORIES)
    best = again.best(HISTORIES, Eligible.all_but(HISTORIES), 5, 2)
    np.testing.assert_array_equal(best.items, weights.best(HISTORIES, Eligible.all_but(HISTORIES), 5, 2).items)


def test_what_is_linear():
    assert sparse("float32")[0].linear
    assert solved_product("float32")[0].linear
    assert factors("float32")[0].linear
    assert not factors("float32", length=3.0)[0].linear
    assert not factors("float32", base=1.0)[0].linear


def forged(name, change):
    weights = KINDS[name]("float32")[0]
    tensors = {key: np.array(one) for key, one in weights.tensors().items()}
    change(tensors)
    return weights.kind, tensors, HISTORIES


def out_of_order(tensors):
    row = np.flatnonzero(np.diff(tensors["pointers"]) >= 2)[0]
    start = tensors["pointers"][row]
    tensors["columns"][start : start + 2] = tensors["columns"][start : start + 2][::-1]


def twice(tensors):
    row = np.flatnonzero(np.diff(tensors["pointers"]) >= 2)[0]
    start = tensors["pointers"][row]
    tensors["columns"][start + 1] = tensors["columns"][start]


def put(name, at, value):
    return lambda tensors: tensors[name].__setitem__(at, value)


def swap(name, make):
    return lambda tensors: tensors.__setitem__(name, make(tensors[name]))


BAD_SPARSE = {
    "no values": lambda tensors: tensors.pop("values"),
    "no columns": lambda tensors: tensors.pop("columns"),
    "no pointers": lambda tensors: tensors.pop("pointers"),
    "a column too far": put("columns", 0, N),
    "a column below 0": put("columns", 0, -1),
    "pointers that fall": put("pointers", 3, 0),
    "pointers past the end": put("pointers", -1, 10**6),
    "pointers that start late": put("pointers", 0, 1),
    "too few pointers": swap("pointers", lambda one: one[:-1]),
    "too few values": swap("values", lambda one: one[:-1]),
    "whole values": swap("values", lambda one: one.astype(np.int32)),
    "values in a square": swap("values", lambda one: one[None]),
    "one value": swap("values", lambda one: np.float32(1)),
    "columns that are no integers": swap("columns", lambda one: one.astype(np.float32)),
    "pointers that are no integers": swap("pointers", lambda one: one.astype(np.float64)),
    "columns out of order": out_of_order,
    "a column twice": twice,
}
BAD_FACTORS = {
    "no scale": lambda tensors: tensors.pop("scale"),
    "no right": lambda tensors: tensors.pop("right"),
    "no base": lambda tensors: tensors.pop("base"),
    "no length": lambda tensors: tensors.pop("length"),
    "another rank": swap("scale", lambda one: one[:-1]),
    "one scale": swap("scale", lambda one: np.float64(1)),
    "another catalogue": swap("left", lambda one: one[:-1]),
    "a whole base": swap("base", lambda one: one.astype(np.int64)),
    "two lengths": swap("length", lambda one: np.ones(2)),
}


@pytest.mark.parametrize("change", BAD_SPARSE.values(), ids=BAD_SPARSE)
def test_bad_sparse_tensors_are_refused(change):
    with pytest.raises(ModelFileError):
        from_tensors(*forged("sparse", change))


BAD_SOLVED_PRODUCT = BAD_SPARSE | {
    "no square": lambda tensors: tensors.pop("square"),
    "a square of another catalogue": swap("square", lambda one: one[:-1, :-1]),
    "a flat square": swap("square", lambda one: one.ravel()),
    "a whole square": swap("square", lambda one: one.astype(np.int64)),
}


@pytest.mark.parametrize("change", BAD_SOLVED_PRODUCT.values(), ids=BAD_SOLVED_PRODUCT)
def test_bad_tensors_of_a_solved_product_are_refused(change):
    with pytest.raises(ModelFileError):
        from_tensors(*forged("solved_product", change))


@pytest.mark.parametrize("change", BAD_FACTORS.values(), ids=BAD_FACTORS)
def test_bad_factors_are_refused(change):
    with pytest.raises(ModelFileError):
        from_tensors(*forged("factors", change))
