"""Low-rank students: optimality, equality with the full-rank models at full rank, and the contract."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

import monogram as mg
from monogram.errors import MemoryBudgetError, ParameterError
from monogram.testing import check_recommender, two_tastes

SOLVERS = ["closed_form", "svd", "alternating", "admm", "zero_diagonal"]
L2, DROPOUT = 2.5, 0.4
RATES = {"l2": L2, "dropout": DROPOUT}


@pytest.fixture
def small():
    """40 users × 9 items."""
    rng = np.random.default_rng(0)
    return sp.csr_array((rng.random((40, 9)) < rng.uniform(0.15, 0.6, 9)).astype(np.float32))


def parts(matrix):
    gram = (matrix.T @ matrix).toarray().astype(np.float64)
    return gram, gram + np.diag(L2 + DROPOUT / (1 - DROPOUT) * np.diag(gram))


def dlae_cost(gram, full, u, v):
    """‖X − XUVᵀ‖² + ‖Λ^½UVᵀ‖² and its gradient."""
    slope = 2 * (full @ u @ v.T - gram)
    value = np.trace(gram) - 2 * (gram * (u @ v.T)).sum() + ((u.T @ full @ u) * (v.T @ v)).sum()
    return value, np.concatenate([(slope @ v).ravel(), (slope.T @ u).ravel()])


def factors(model):
    return model.weights_.left.astype(np.float64), model.weights_.right.astype(np.float64)


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_the_dlae_is_optimal_among_all_of_its_rank(small, rank):
    gram, full = parts(small)
    u, v = factors(mg.LowRankDLAE(rank=rank, **RATES).fit(small, dtype="float64"))
    best, gradient = dlae_cost(gram, full, u, v)
    np.testing.assert_allclose(gradient, 0, atol=1e-8 * best)
    rng = np.random.default_rng(0)
    for _ in range(40):
        for size in (1e-3, 1e-1):
            near = u + size * rng.standard_normal(u.shape), v + size * rng.standard_normal(v.shape)
            assert dlae_cost(gram, full, *near)[0] > best
    for _ in range(5):
        actual = scipy.optimize.minimize(
            lambda flat: dlae_cost(gram, full, *flat.reshape(2, 9, rank)),
            rng.standard_normal(18 * rank),
            jac=True,
            method="L-BFGS-B",
        )
        assert actual.fun >= best * (1 - 1e-9)


@pytest.mark.parametrize("teaching", ["primal", "dual"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_at_full_rank_it_is_the_full_rank_model(world, teaching, dtype):
    pairs = [
        (mg.LowRankDLAE(rank=25, **RATES), mg.DLAE(**RATES)),
        (mg.LowRankEDLAE(rank=25, **RATES), mg.EDLAE(**RATES)),
        (mg.LowRankEDLAE(rank=99, solver="svd", **RATES), mg.EDLAE(**RATES)),
    ]
    for student, teacher in pairs:
        actual = student.fit(world, dtype=dtype, solver=teaching).item_weights()
        expected = teacher.fit(world, dtype=dtype, solver=teaching).item_weights()
        np.testing.assert_allclose(actual, expected, atol=1e-6 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("model", [mg.LowRankDLAE, *SOLVERS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_either_teacher_gives_the_same_student(world, model, dtype):
    student = mg.LowRankEDLAE(rank=4, solver=model, **RATES) if isinstance(model, str) else model(rank=4, **RATES)
    primal = student.fit(world, dtype=dtype, solver="primal").item_weights()
    assert student.report_.solver == "primal"
    dual = student.fit(world, dtype=dtype, solver="dual").item_weights()
    np.testing.assert_allclose(dual, primal, atol=1e-6 if dtype == "float64" else 2e-3)


def test_the_rank_is_the_parameter(world):
    for rank in (1, 5, 20):
        model = mg.LowRankEDLAE(rank=rank, **RATES).fit(world, dtype="float64")
        assert model.weights_.left.shape == model.weights_.right.shape == (25, rank)
        assert np.linalg.matrix_rank(model.item_weights()) == rank


@pytest.mark.parametrize("model", [mg.LowRankDLAE(rank=4), *(mg.LowRankEDLAE(rank=4, solver=s) for s in SOLVERS)])
def test_an_item_without_events_has_no_weights(world, model):
    actual = model.fit(world).item_weights()
    np.testing.assert_array_equal(actual[13], 0)
    np.testing.assert_array_equal(actual[:, 13], 0)


def test_the_residual_covers_teacher_and_eigenpairs(world):
    report = mg.LowRankEDLAE(rank=4, **RATES).fit(world).report_
    assert 0 < report.residual < 1e-4


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_keeps_the_contract(solver):
    check_recommender(mg.LowRankEDLAE, rank=4, solver=solver, epochs=3)


def test_the_dlae_keeps_the_contract():
    check_recommender(mg.LowRankDLAE, rank=4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_low_rank_separates_two_groups(solver):
    log, history, answer = two_tastes()
    rank = 4 if solver == "zero_diagonal" else 2  # u_i·v_i = 0 leaves each item a direction less
    model = mg.LowRankEDLAE(rank=rank, l2=1, solver=solver).fit(log)
    assert model.recommend(histories=[history], k=1).rows()[0]["item"] == answer


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mg.LowRankDLAE(rank=0), "rank = 0"),
        (lambda: mg.LowRankDLAE(rank=2.5), "rank = 2.5"),
        (lambda: mg.LowRankEDLAE(solver="guess"), "solver = 'guess'; expected one of closed_form"),
        (lambda: mg.LowRankEDLAE(epochs=0), "epochs = 0"),
        (lambda: mg.LowRankEDLAE(dropout=1), "dropout = 1"),
    ],
)
def test_parameters_outside_their_range_are_named(make, text):
    with pytest.raises(ParameterError, match=text):
        make()


def test_the_plan_counts_teacher_basis_and_factors():
    shape = (29_858, 40_981, 810_128)
    teacher = mg.EDLAE().plan(shape, memory="8 GB").chosen
    planned = mg.LowRankEDLAE(rank=256).plan(shape, memory="8 GB").chosen
    assert planned.solver == teacher.solver == "dual"
    assert planned.bytes > teacher.bytes + 4 * 4 * 40_981 * 256
    assert planned.seconds > teacher.seconds
    with pytest.raises(MemoryBudgetError):
        mg.LowRankEDLAE(rank=20_000).plan(shape, memory="8 GB").require()


def test_sampled_dropout_approaches_the_closed_form(small):
    """P4, section 3: ridge regression of the data on copies with entries hidden at random, l2 alone, tends to DLAE."""
    dense, keep = small.toarray().astype(np.float64), 1 - DROPOUT
    exact = mg.DLAE(**RATES).fit(small, dtype="float64").item_weights()
    rng, errors = np.random.default_rng(0), []
    for copies in (10, 100, 1000, 10_000):
        inputs, targets = np.zeros((9, 9)), np.zeros((9, 9))
        for _ in range(copies):
            hidden = dense * (rng.random(dense.shape) < keep) / keep
            inputs += hidden.T @ hidden / copies
            targets += hidden.T @ dense / copies
        sampled = np.linalg.solve(inputs + L2 * np.eye(9), targets)
        errors.append(np.abs(sampled - exact).max())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.01 < errors[0]


@pytest.mark.parametrize("width", [1, 2, 3])
def test_no_deep_autoencoder_fits_below_the_svd_of_its_last_width(small, width):
    """P2: what leaves a layer of k units has rank k, so the SVD of rank k is the floor of the training error."""
    dense = small.toarray().astype(np.float64)
    floor = (np.linalg.svd(dense, compute_uv=False)[width:] ** 2).sum()
    shapes = [(9, 8), (8,), (8, width), (width,), (width, 9)]
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])

    def cost(flat):
        w1, b1, w2, b2, w3 = (flat[a:b].reshape(shape) for a, b, shape in zip(ends[:-1], ends[1:], shapes, strict=True))
        first = np.tanh(dense @ w1 + b1)
        second = np.tanh(first @ w2 + b2)
        error = second @ w3 - dense
        into2 = 2 * error @ w3.T * (1 - second**2)
        into1 = into2 @ w2.T * (1 - first**2)
        slopes = [dense.T @ into1, into1.sum(0), first.T @ into2, into2.sum(0), 2 * second.T @ error]
        return (error**2).sum(), np.concatenate([slope.ravel() for slope in slopes])

    for seed in range(3):
        start = np.random.default_rng(seed).standard_normal(ends[-1]) / 2
        trained = scipy.optimize.minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
        assert trained.fun < cost(start)[0]
        assert trained.fun >= floor * (1 - 1e-12)


@pytest.mark.parametrize("solver", ["closed_form", "svd", "alternating", "admm", "zero_diagonal"])
def test_a_teacher_of_rank_zero(solver):
    """Every user has one item: no items occur together, and the student has rank 0."""
    model = mg.LowRankEDLAE(rank=3, solver=solver).fit(sp.eye_array(7, dtype=np.float32).tocsr())
    np.testing.assert_array_equal(model.item_weights(), 0.0)
