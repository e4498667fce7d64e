"""Every full-rank closed form against its own objective, solved another way."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.engine.inverse import primal
from monogram.errors import MonogramWarning, NumericalError, ParameterError

AUTOENCODERS = [
    mg.EASE(l2=2.5),
    mg.EDLAE(l2=2.5, dropout=0.4),
    mg.DLAE(l2=2.5, dropout=0.4),
    mg.DEQL(l2=2.5, dropout=0.4, b=0.7),
    mg.DEQL(l2=2.5, dropout=0.4, b=0.7, zero_diagonal=True),
]
IDS = ["ease", "edlae", "dlae", "deql", "deql-zero"]


def weights(model, matrix, **options) -> np.ndarray:
    return model.fit(matrix, dtype="float64", **options).item_weights()


def direct_deql(matrix, *, l2, dropout, a, b) -> np.ndarray:
    """P0's Lemma 1: for each column i solve (G⁽ⁱ⁾ ∘ S + γ·l2·I) w = u⁽ⁱ⁾ ∘ S_i."""
    dense = matrix.toarray().astype(np.float64)
    gram, n, p, q = dense.T @ dense, dense.shape[1], dropout, 1 - dropout
    gamma = q**2 * p * a**2 + q**3 * b**2
    out = np.zeros((n, n))
    for i in range(n):
        g = np.full((n, n), q**2 * p * a**2 + q**3 * b**2)
        np.fill_diagonal(g, q * p * a**2 + q**2 * b**2)
        g[i, :] = g[:, i] = q**2 * b**2
        g[i, i] = q * b**2
        u = np.full(n, q * p * a**2 + q**2 * b**2)
        u[i] = q * b**2
        out[:, i] = np.linalg.lstsq(g * gram + gamma * l2 * np.eye(n), u * gram[:, i], rcond=None)[0]
    return out


@pytest.fixture
def full(world):
    """The small world without its empty row and column, and of full column rank."""
    dense = np.delete(np.delete(world.toarray(), 13, axis=1), 5, axis=0)
    assert np.linalg.matrix_rank(dense) == dense.shape[1]
    return sp.csr_array(dense)


@pytest.mark.parametrize("l2", [0.0, 3.0])
@pytest.mark.parametrize(
    ("a", "b"),
    [(1.0, 0.3), (1.0, 1.0), (1.0, 2.5), (0.0, 1.0), (0.7, 1.9), (1.0, 1e-3)],
    ids=["b<a", "b=a", "b>a", "a=0", "scaled", "b small"],
)
@pytest.mark.parametrize("dropout", [0.2, 0.7])
@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_deql_solves_the_papers_system(full, l2, a, b, dropout, solver):
    expected = direct_deql(full, l2=l2, dropout=dropout, a=a, b=b)
    actual = weights(mg.DEQL(l2=l2, dropout=dropout, a=a, b=b), full, solver=solver)
    np.testing.assert_allclose(actual, expected, atol=1e-8)


def test_deql_without_dropout_is_dlae(full):
    np.testing.assert_allclose(
        weights(mg.DEQL(l2=3, dropout=0, b=1.7), full), weights(mg.DLAE(l2=3, dropout=0), full), atol=1e-10
    )


@pytest.mark.parametrize("l2", [0.0, 3.0])
def test_deql_at_b_towards_zero_and_at_zero(full, l2):
    """Off the diagonal b → 0 is EDLAE/q (Theorem 2); b = 0 leaves the diagonal free, and it is 0."""
    edlae = weights(mg.EDLAE(l2=l2, dropout=0.4), full) / 0.6
    at_zero = weights(mg.DEQL(l2=l2, dropout=0.4, b=0), full)
    np.testing.assert_allclose(at_zero, edlae, atol=1e-12)
    near = weights(mg.DEQL(l2=l2, dropout=0.4, b=1e-6), full)
    off = ~np.eye(len(edlae), dtype=bool)
    np.testing.assert_allclose(near[off], edlae[off], atol=1e-8)


@given(dropout=st.floats(0.05, 0.9), scale=st.floats(0.1, 3), l2=st.floats(0, 50), seed=st.integers(0, 20))
def test_deql_with_equal_weights_is_dlae_over_q(dropout, scale, l2, seed):
    matrix = sp.csr_array((np.random.default_rng(seed).random((30, 8)) < 0.4).astype(np.float32))
    deql = weights(mg.DEQL(l2=l2, dropout=dropout, a=scale, b=scale), matrix)
    dlae = weights(mg.DLAE(l2=l2, dropout=dropout), matrix)
    np.testing.assert_allclose(deql, dlae / (1 - dropout), atol=1e-8)


def test_deql_minimises_the_expected_loss_it_states(full):
    """Not the paper's algebra but its definition: E‖A ⊙ (R − (Δ ⊙ R)W)‖² + γ·l2·‖W‖² by enumeration over one item."""
    dense = full.toarray().astype(np.float64)[:, :4]
    small = sp.csr_array(dense.astype(np.float32))
    l2, p, a, b = 1.5, 0.3, 1.0, 0.6
    q = 1 - p
    gamma = q**2 * p * a**2 + q**3 * b**2
    actual = weights(mg.DEQL(l2=l2, dropout=p, a=a, b=b), small)

    def loss(w):
        total = gamma * l2 * (w**2).sum()
        for row in dense:
            for mask in np.ndindex(2, 2, 2, 2):
                kept = np.array(mask)
                chance = np.prod(np.where(kept, q, p))
                emphasis = np.where(kept, b, a)
                total += chance * ((emphasis * (row - (kept * row) @ w)) ** 2).sum()
        return total

    best, rng = loss(actual), np.random.default_rng(0)
    for _ in range(40):
        step = rng.standard_normal(actual.shape)
        for size in (1e-2, 1e-4):
            assert loss(actual + size * step) > best
    step = rng.standard_normal(actual.shape)
    slope = (loss(actual + 1e-5 * step) - loss(actual - 1e-5 * step)) / 2e-5
    assert abs(slope) < 1e-6 * best


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize(("model", "dropout"), [(mg.EASE(l2=2.5), 0.0), (mg.EDLAE(l2=2.5, dropout=0.4), 0.4)])
def test_zero_diagonal_models_have_zero_gradient_off_the_constraint(world, model, dropout, solver):
    """Objective ‖X − XB‖² + ‖Λ^½B‖² with diag B = 0."""
    dense = world.toarray().astype(np.float64)
    actual = weights(model, world, solver=solver)
    gram = dense.T @ dense
    penalty = 2.5 + dropout / (1 - dropout) * np.diag(gram)
    gradient = gram @ actual - gram + penalty[:, None] * actual
    np.fill_diagonal(gradient, 0)
    np.testing.assert_allclose(gradient, 0, atol=1e-9)
    np.testing.assert_allclose(np.diag(actual), 0, atol=1e-12)


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_dlae_has_zero_gradient_everywhere(world, solver):
    dense = world.toarray().astype(np.float64)
    actual = weights(mg.DLAE(l2=2.5, dropout=0.4), world, solver=solver)
    gram = dense.T @ dense
    penalty = 2.5 + 0.4 / 0.6 * np.diag(gram)
    np.testing.assert_allclose(gram @ actual - gram + penalty[:, None] * actual, 0, atol=1e-9)


@pytest.mark.parametrize("model", AUTOENCODERS, ids=IDS)
def test_dual_equals_primal(world, model):
    primal = weights(model, world, solver="primal")
    np.testing.assert_allclose(weights(model, world, solver="dual"), primal, atol=1e-12)


@pytest.mark.parametrize("model", AUTOENCODERS, ids=IDS)
def test_float32_agrees_with_float64(world, model):
    expected = weights(model, world)
    for solver in ("primal", "dual"):
        np.testing.assert_allclose(model.fit(world, solver=solver).item_weights(), expected, atol=5e-6)
        assert model.report_.residual < 1e-5


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("model", AUTOENCODERS, ids=IDS)
def test_permuting_items_permutes_the_answer(world, model, solver):
    order = np.random.default_rng(1).permutation(world.shape[1])
    plain = weights(model, world, solver=solver)
    permuted = weights(model, sp.csr_array(world[:, order]), solver=solver)
    np.testing.assert_allclose(permuted, plain[np.ix_(order, order)], atol=1e-12)


@pytest.mark.parametrize("model", AUTOENCODERS, ids=IDS)
def test_permuting_users_changes_nothing(world, model):
    order = np.random.default_rng(2).permutation(world.shape[0])
    np.testing.assert_allclose(weights(model, sp.csr_array(world[order])), weights(model, world), atol=1e-12)


@pytest.mark.parametrize("model", AUTOENCODERS, ids=IDS)
def test_doubling_every_user_is_weight_two(world, model):
    """A user of weight 2 has √2 in X, so that S counts them twice."""
    doubled = weights(model, sp.vstack([world, world]).tocsr())
    heavier = weights(model, sp.csr_array(world * np.float32(np.sqrt(2))))
    np.testing.assert_allclose(doubled, heavier, atol=1e-6)


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize(("a", "b"), [(1.0, 0.4), (1.0, 1.0), (0.0, 1.0)])
def test_weighted_logs_solve_the_same_system(full, solver, a, b):
    scaled = sp.csr_array(full.multiply(np.random.default_rng(3).uniform(0.5, 2, full.shape)), dtype=np.float32)
    expected = direct_deql(scaled, l2=2, dropout=0.3, a=a, b=b)
    np.testing.assert_allclose(
        weights(mg.DEQL(l2=2, dropout=0.3, a=a, b=b), scaled, solver=solver), expected, atol=1e-8
    )


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("l2", [1, 100])
def test_scores_explanations_and_lists_agree_on_hard_data(solver, l2):
    """Weights over three decades: where float32 is coarse, what is told must still be one truth."""
    rng = np.random.default_rng(0)
    matrix = sp.random_array((300, 500), density=0.04, rng=rng, dtype=np.float32, format="csr")
    matrix.data[:] = np.ceil(matrix.data**3 * 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MonogramWarning)
        model = mg.EASE(l2=l2).fit(matrix, solver=solver)
    histories = [model.history(user) for user in range(20)] + [{3: 1.0, 7: 2.0, 400: 30.0}] * 2
    together = model.recommend(histories=histories, k=3).rows()
    for row in together:
        history = histories[row["user"]]
        score = model.score([history], [row["item"]])[0, 0]
        assert model.explain(history, row["item"]).score == pytest.approx(score, abs=1e-6 * max(1, abs(score)))
        assert row["score"] == pytest.approx(score, abs=1e-4 * max(1, abs(score)))
    many = model.recommend(histories=histories + [{k: 1.0} for k in range(60)], k=3).rows()[: len(together)]
    assert [row["item"] for row in many] == [row["item"] for row in together]


@pytest.mark.parametrize("model", [mg.EDLAE(l2=0, dropout=0.5), mg.DLAE(l2=0, dropout=0.5), mg.DEQL(l2=0, dropout=0.5)])
@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_an_item_without_events_has_no_weights_even_without_l2(world, model, solver):
    actual = weights(model, world, solver=solver)
    assert np.isfinite(actual).all()
    np.testing.assert_array_equal(actual[13], 0)
    np.testing.assert_array_equal(actual[:, 13], 0)


def test_a_singular_matrix_is_refused_with_advice(world):
    with pytest.raises(NumericalError, match="raise l2"):
        mg.EASE(l2=0).fit(sp.csr_array(np.ones((3, 5), np.float32)), dtype="float64", solver="primal")
    with pytest.raises(ParameterError, match="solver='dual' needs l2 or dropout"):
        mg.EASE(l2=0).fit(world, solver="dual")


@pytest.mark.parametrize(("dtype", "advice"), [("float32", "use dtype='float64'"), ("float64", "raise l2")])
def test_a_bad_residual_is_a_warning_that_says_what_to_do(world, monkeypatch, dtype, advice):
    """An inverse that is off by a percent: the certificate sees it, the user is told."""

    def spoiled(out, penalties, stage, honest=primal.invert_gram):
        honest(out, penalties, stage)
        out *= 1 + 0.05 * np.random.default_rng(0).standard_normal(out.shape).astype(out.dtype)

    monkeypatch.setattr(primal, "invert_gram", spoiled)
    with pytest.warns(MonogramWarning, match=advice):
        mg.EASE(l2=2).fit(world, dtype=dtype, solver="primal")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mg.EASE(l2=-1), "l2 = -1"),
        (lambda: mg.EASE(l2=float("nan")), "l2 = nan"),
        (lambda: mg.EASE(l2=float("inf")), "l2 = inf"),
        (lambda: mg.EASE(l2="100"), "l2 = '100'"),
        (lambda: mg.EASE(l2=None), "l2 = None"),
        (lambda: mg.DLAE(dropout=1.0), "dropout = 1.0"),
        (lambda: mg.EDLAE(dropout=-0.1), "dropout = -0.1"),
        (lambda: mg.DEQL(b=-1), "b = -1"),
        (lambda: mg.DEQL(a=0, b=0), "no error to minimise"),
        (lambda: mg.DEQL(dropout=0, b=0), "no error to minimise"),
        (lambda: mg.DEQL(zero_diagonal="yes"), "zero_diagonal = 'yes'"),
        (lambda: mg.DEQL(b=1e160), "b = 1e"),
        (lambda: mg.EASE(l2=1e39), "l2 = 1e"),
    ],
)
def test_parameters_outside_their_range_are_named(make, text):
    with pytest.raises(ParameterError, match=text):
        make()


def test_parameters_are_keyword_only_and_known():
    with pytest.raises(TypeError):
        mg.EASE(100)
    with pytest.raises(TypeError, match="lambda_"):
        mg.EASE(lambda_=100)


def test_real_data_agrees_with_numpy(public_data):
    """The 3,000 most popular items of Gowalla, against numpy in float64."""
    log = mg.read(public_data / "gowalla.npz", quiet=True)
    counts = np.bincount(log.matrix.indices, minlength=log.n_items)
    part = sp.csr_array(log.matrix[:, np.sort(np.argsort(-counts, kind="stable")[:3000])])
    model = mg.EASE(l2=100).fit(part)
    gram = (part.T @ part).toarray().astype(np.float64) + 100 * np.eye(3000)
    exact = np.linalg.inv(gram)
    expected = -exact / np.diag(exact)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(model.item_weights(), expected, atol=2e-5)
    assert model.report_.residual < 1e-5
