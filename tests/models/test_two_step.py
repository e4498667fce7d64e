"""TwoStep against its definition: the weights B of Tempered, and B²."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

import monogram as mg
from monogram.engine.topk.best import Eligible
from monogram.errors import MemoryBudgetError, ModelFileError, MonogramWarning, NumericalError, ParameterError
from monogram.models import two_step, updates
from monogram.models.context import FitOptions
from monogram.models.two_step import directions
from monogram.planning.size import Size
from monogram.weights import Dense, TwoStepDual

SOLVERS = ["primal", "dual"]


def world(seed=0, users=60, items=25, merge="binary"):
    """Histories of very different lengths, an item nobody used, a user without events, two users alike."""
    rng = np.random.default_rng(seed)
    dense = (rng.random((users, items)) < rng.uniform(0.05, 0.6, users)[:, None]).astype(np.float32)
    if merge == "sum":
        dense *= rng.uniform(0.25, 4, dense.shape).astype(np.float32)
    dense[:, 4] = 0
    dense[3] = 0
    dense[8] = dense[9]
    return mg.Interactions.from_csr(sp.csr_array(dense), merge=merge)


def expected(log, second, item_power=0.0, low_pass=0.0, low_pass_power=0.0, rank=1, **rest):
    """As the docstring has it."""
    b = mg.Tempered(**rest).fit(log, solver="primal", dtype="float64").item_weights()
    users = np.maximum((log.matrix.toarray() > 0).sum(axis=0), 0.5)
    powers = users**low_pass_power
    common = low_pass * projection(log.matrix.toarray().astype(np.float64), rank) * powers / powers[:, None]
    return ((1 - second) * b + second * b @ b + common) * users**item_power


def projection(dense, rank):
    """On the leading right singular vectors of the largest part of a log, divided by the roots of both sums."""
    _, labels = connected_components(sp.block_array([[None, sp.csr_array(dense)], [sp.csr_array(dense.T), None]]))
    events = np.bincount(labels[: len(dense)], (dense > 0).sum(axis=1))
    dense = dense * (labels[: len(dense)] == events.argmax())[:, None]
    rows, columns = (np.sqrt(np.maximum(dense.sum(axis=axis), 1e-300)) for axis in (1, 0))
    _, values, right = np.linalg.svd(dense / rows[:, None] / columns)
    right = right[: min(rank, int((values > 1e-7).sum()))]
    return right.T @ right


@pytest.mark.filterwarnings("ignore:low_pass changes no list")
@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    solver=st.sampled_from(SOLVERS),
    second=st.floats(0, 1),
    item_power=st.floats(-1, 1),
    user_power=st.floats(0, 2),
    dropout=st.floats(0, 0.9),
    low_pass=st.sampled_from([0.0, 0.4, 3.0]),
    low_pass_power=st.sampled_from([0.0, 0.4, -1.0]),
    rank=st.sampled_from([1, 5, 24, 300]),
    merge=st.sampled_from(["binary", "sum"]),
)
def test_it_is_its_definition(
    seed, solver, second, item_power, user_power, dropout, low_pass, low_pass_power, rank, merge
):
    log = world(seed, merge=merge)
    rest = {"l2": 2, "dropout": dropout, "user_power": user_power, "low_pass": low_pass, "rank": rank}
    rest["low_pass_power"] = low_pass_power
    model = mg.TwoStep(second=second, item_power=item_power, **rest).fit(log, solver=solver, dtype="float64")
    wanted = expected(log, second, item_power, **rest)
    atol = 1e-9 * max(1, np.abs(wanted).max())
    np.testing.assert_allclose(model.item_weights(), wanted, atol=atol)
    histories = log.matrix.toarray().astype(np.float64)
    scores = model.weights_.score(log.matrix, np.arange(log.n_items), 1)
    np.testing.assert_allclose(scores, histories @ wanted, atol=atol * log.n_items * 4)


def islands(number, seed=0, users=60, items=40):
    """A log of one large part, in the middle, and small ones, all alike."""
    large, small = world(seed, users, items).matrix, sp.csr_array([[1, 1, 0], [0, 1, 1]], dtype=np.float32)
    parts = [small] * (number // 2) + [large] + [small] * (number - number // 2)
    return mg.Interactions.from_csr(sp.csr_array(sp.block_diag(parts, "csr")))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("number", "users"), [(3, 60), (30, 60), (400, 60), (400, 1200)])
def test_small_parts_of_a_log_do_not_take_the_place_of_directions(number, users, dtype):
    log, rank = islands(number, users=users), 5
    actual = directions(log, rank, FitOptions(dtype=dtype))
    space = projection(log.matrix.toarray().astype(np.float64), rank)
    np.testing.assert_allclose(actual @ actual.T, space, atol=1e-3 if dtype == "float32" else 1e-7)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), number=st.integers(0, 5), solver=st.sampled_from(SOLVERS))
def test_the_order_of_the_items_does_not_matter(seed, number, solver):
    log, how = islands(number, seed), {"l2": 2, "low_pass": 0.5, "rank": 4}
    order = np.random.default_rng(seed).permutation(log.n_items)
    moved = mg.Interactions.from_csr(log.matrix[:, order])
    one, other = (mg.TwoStep(**how).fit(each, solver=solver, dtype="float64").item_weights() for each in (log, moved))
    np.testing.assert_allclose(other, one[np.ix_(order, order)], atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_the_second_step_it_is_tempered(solver):
    log = world()
    shared = {"l2": 3, "dropout": 0.4, "user_power": 0.7, "item_power": -0.2}
    one = mg.TwoStep(second=0, **shared).fit(log, solver=solver, dtype="float64")
    other = mg.Tempered(**shared).fit(log, solver=solver, dtype="float64")
    np.testing.assert_allclose(one.item_weights(), other.item_weights(), atol=1e-12)


def equal_columns_fit(l2, solver="dual", dtype="float32"):
    """A fit on 90 columns, each repeated ten times: the second step amplifies rounding errors."""
    base = np.random.default_rng(1).random((300, 90)) < 0.2
    log = mg.Interactions.from_csr(sp.csr_array(np.repeat(base, 10, axis=1).astype(np.float32)))
    return mg.TwoStep(l2=l2, dropout=0).fit(log, solver=solver, dtype=dtype)


def test_lists_with_large_rounding_errors_are_warned_of():
    with pytest.warns(MonogramWarning, match="not exact.*use dtype='float64', or try solver='primal'") as caught:
        model = equal_columns_fit(0.5)
    assert len(caught) == 1
    rows, every = model.log_.matrix, np.arange(model.log_.n_items)
    listed = model.weights_.best(rows, Eligible.all_but(rows), 20, 1)
    exact = equal_columns_fit(0.5, dtype="float64").weights_.score(rows, every, 1)
    off = np.abs(listed.scores - np.take_along_axis(exact, listed.items, 1)).max() / listed.scores.max()
    assert 0.01 < off < 4 * model.report_.error


def test_scores_that_are_not_finite_are_refused_after_a_warning_too(monkeypatch):
    monkeypatch.setattr(TwoStepDual, "error", lambda *_: np.nan)
    monkeypatch.setattr(two_step, "exact_enough", lambda _: False)
    with pytest.raises(NumericalError, match="not finite"):
        mg.TwoStep(l2=2).fit(world(), solver="dual")


def test_too_little_memory_is_refused_before_the_directions(monkeypatch):
    monkeypatch.setattr(two_step, "directions", lambda *_: pytest.fail("begun"))
    with pytest.raises(MemoryBudgetError):
        mg.TwoStep(low_pass=1, rank=4).fit(world(), memory=1_000_000)


def test_a_projection_on_all_directions_is_warned_of():
    log = world()
    with pytest.warns(MonogramWarning, match="low_pass changes no list: rank includes all 24 directions"):
        model = mg.TwoStep(l2=2, low_pass=3, rank=24).fit(log)
    lists = [[row["item"] for row in one.recommend(k=5)] for one in (model, mg.TwoStep(l2=2).fit(log))]
    assert lists[0] == lists[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mg.TwoStep(l2=2, low_pass=3, rank=23).fit(log)


@pytest.mark.parametrize(
    ("l2", "solver", "dtype"), [(50, "dual", "float32"), (0.5, "primal", "float32"), (0.5, "dual", "float64")]
)
def test_exact_lists_give_no_warning(l2, solver, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert equal_columns_fit(l2, solver, dtype).report_.error < 1e-3


@pytest.mark.parametrize("low_pass", [0, 0.4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dual_ranks_by_its_scores(dtype, low_pass):
    """Known and new histories, alone and in a crowd: the same lists, those of the scores."""
    log, k = world(3, users=150, items=40), 7
    model = mg.TwoStep(l2=2, dropout=0.3, second=0.8, low_pass=low_pass, rank=9).fit(log, solver="dual", dtype=dtype)
    assert isinstance(model.weights_, TwoStepDual)
    new = sp.random_array((30, log.n_items), density=0.2, rng=0, dtype=np.float32, format="csr")
    new.data[:] = 1
    histories = sp.vstack([log.matrix, new]).tocsr()
    actual = model.weights_.best(histories, Eligible.all_but(histories), k, 2)
    scores = model.weights_.score(histories, np.arange(log.n_items), 2)
    near = 1e-12 if dtype == "float64" else 2e-5
    for row in range(histories.shape[0]):
        seen = histories[[row]].indices
        one = model.weights_.best(histories[[row]], Eligible.all_but(histories[[row]]), k, 1)
        assert one.items[0].tolist() == actual.items[row].tolist()
        np.testing.assert_allclose(one.scores[0], actual.scores[row], rtol=near)
        open_ = np.delete(scores[row], seen)
        count = actual.counts[row]
        assert count == min(k, len(open_))
        assert not np.isin(actual.items[row, :count], seen).any()
        np.testing.assert_allclose(
            actual.scores[row, :count], np.sort(open_)[::-1][:count], atol=near * np.abs(scores).max()
        )


def test_heads_are_factors_of_the_scores():
    log = world(5)
    weights = mg.TwoStep(l2=2, second=0.5, low_pass=1, rank=4).fit(log, solver="dual", dtype="float64").weights_
    thetas = np.random.default_rng(0).uniform(0.5, 2, (3, log.n_items))
    rules = Eligible.all_but(log.matrix)
    for head, theta in zip(weights.heads(thetas, log.matrix, rules, 5, 2), thetas, strict=True):
        alone = TwoStepDual(weights.first, weights.share, weights.factors * theta, weights.low_pass).best(
            log.matrix, rules, 5, 1
        )
        assert head.items.tolist() == alone.items.tolist()


@pytest.mark.parametrize("solver", SOLVERS)
def test_single_precision_is_near(solver):
    log = world(7, users=200, items=80)
    how = {"l2": 5, "second": 0.8, "low_pass": 0.4, "rank": 12}
    one = mg.TwoStep(**how).fit(log, solver=solver)
    other = mg.TwoStep(**how).fit(log, solver=solver, dtype="float64")
    assert one.weights_.kind == {"primal": "dense", "dual": "twice"}[solver]
    wanted = other.item_weights()
    np.testing.assert_allclose(one.item_weights(), wanted, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(("low_pass", "power"), [(0, 0), (0.4, 0), (0.4, 0.3)])
@pytest.mark.parametrize("solver", SOLVERS)
def test_saved_and_loaded_is_the_same_model(solver, low_pass, power, tmp_path):
    log, low = world(), {"low_pass": low_pass, "low_pass_power": power, "rank": 5}
    model = mg.TwoStep(l2=3, second=0.6, item_power=0.1, **low).fit(log, solver=solver)
    model.save(tmp_path / "model")
    again = mg.load(tmp_path / "model")
    assert again.params() == model.params()
    assert type(again.weights_) is type(model.weights_) is {"primal": Dense, "dual": TwoStepDual}[solver]
    np.testing.assert_array_equal(again.item_weights(), model.item_weights())
    one, other = (each.recommend(histories=[["1", "5"], []], k=3) for each in (again, model))
    assert list(one) == list(other)


@pytest.mark.parametrize(("name", "value", "said"), [("share", [1.5], "share"), ("factors", -1.0, "factor")])
def test_a_file_with_invalid_weights_is_refused(name, value, said):
    weights = mg.TwoStep(l2=3).fit(world(), solver="dual").weights_
    tensors = {one: array.copy() for one, array in weights.tensors().items()}
    tensors[name][...] = value
    with pytest.raises(ModelFileError, match=said):
        TwoStepDual.from_tensors(tensors, weights.first.training)


@pytest.mark.parametrize("powers", [np.zeros(25), np.full(25, np.nan), np.ones(24)])
def test_a_file_with_invalid_powers_of_the_projection_is_refused(powers):
    weights = mg.TwoStep(l2=3, low_pass=1, low_pass_power=0.4, rank=2).fit(world(), solver="dual").weights_
    with pytest.raises(ModelFileError, match="power"):
        TwoStepDual.from_tensors(weights.tensors() | {"low_pass_powers": powers}, weights.first.training)


@pytest.mark.parametrize("basis", [np.zeros((3, 2)), np.zeros(25), np.array(1.0), np.zeros((25, 2), np.int32)])
def test_a_file_with_an_invalid_basis_is_refused(basis):
    weights = mg.TwoStep(l2=3, low_pass=1, rank=2).fit(world(), solver="dual").weights_
    with pytest.raises(ModelFileError, match="'basis' of shape"):
        TwoStepDual.from_tensors(weights.tensors() | {"basis": basis}, weights.first.training)


def test_the_plan_counts_the_directions():
    size = Size(50_000, 20_000, 1_000_000, 1e8, 1e8)
    plain, more, most = (
        model.plan_size(size, FitOptions(budget=10**12, solver="primal")).chosen
        for model in (mg.TwoStep(), mg.TwoStep(low_pass=1, rank=64), mg.TwoStep(low_pass=1, rank=512))
    )
    assert plain.bytes + 4 * 64 * 20_000 < more.bytes < most.bytes - 4 * 448 * 20_000
    assert "spectrum" in [stage for stage, *_ in more.stages]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_fit_stays_within_its_plan(solver):
    rng = np.random.default_rng(0)
    log = sp.csr_array((rng.random((1500, 1200)) < 0.02).astype(np.float32))
    report = mg.TwoStep(low_pass=0.4, rank=64).fit(log, solver=solver).report_
    assert report.peak_bytes <= report.planned_bytes
    assert "spectrum" in report.seconds


def test_the_plan_counts_the_product_where_it_is_formed():
    size = Size(5000, 4000, 100_000, 1e7, 1e7)
    costs = {}
    for solver in SOLVERS:
        options = FitOptions(budget=10**12, solver=solver)
        costs[solver] = [model.plan_size(size, options).chosen.bytes for model in (mg.TwoStep(), mg.Tempered())]
    assert costs["primal"][0] - costs["primal"][1] == 4 * 4000**2
    assert costs["dual"][0] == costs["dual"][1]


def test_unsupported_arguments_are_refused():
    log = world()
    with pytest.raises(ParameterError, match="disk"):
        mg.TwoStep().fit(log, solver="disk")
    with pytest.raises(ParameterError, match="second"):
        mg.TwoStep(second=1.1)
    with pytest.raises(ParameterError, match="keep_gram"):
        mg.TwoStep().fit(log, keep_gram=True)


@pytest.mark.parametrize("solver", SOLVERS)
def test_updates_are_refused(solver):
    model = mg.TwoStep(l2=3).fit(world(), solver=solver)
    with pytest.raises(ParameterError, match="TwoStep cannot be changed without a refit; models that can: EASE"):
        updates.check(model)


def test_a_file_whose_first_step_is_not_plain_is_refused():
    weights = mg.TwoStep(l2=3).fit(world(), solver="dual").weights_
    for name, value in (("scale", 0.0), ("own", 0.5)):
        tensors = {one: array.copy() for one, array in weights.tensors().items()}
        tensors[name][2] = value
        with pytest.raises(ModelFileError, match="expected θ = 1 and δ = 0"):
            TwoStepDual.from_tensors(tensors, weights.first.training)
