"""Tempered, user weights and a power of popularity, against its objective and the models it contains."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import monogram as mg
from monogram import store
from monogram.engine.gram import user_weights as weighting
from monogram.errors import ModelFileError, ParameterError
from monogram.models import change, live
from monogram.models.context import FitInputs, FitOptions

SOLVERS = ["primal", "dual"]
EXACT = [*SOLVERS, "disk", "matrix_free"]


def world(seed=0, users=40, items=12, merge="binary"):
    """Histories of very different lengths, an item nobody used, a user without events."""
    rng = np.random.default_rng(seed)
    dense = (rng.random((users, items)) < rng.uniform(0.05, 0.8, users)[:, None]).astype(np.float32)
    if merge == "sum":
        dense *= rng.uniform(0.25, 4, dense.shape).astype(np.float32)
    dense[:, 4] = 0
    dense[3] = 0
    names = {"users": [f"u{n:03}" for n in range(users)], "items": [f"i{n:02}" for n in range(items)]}
    return mg.Interactions.from_csr(sp.csr_array(dense), **names, merge=merge)


def weights(model, log, **options):
    return model.fit(log, dtype="float64", **options).item_weights()


def user_weights(dense, power):
    """As the docstring has them, one user at a time."""
    sizes = [float(row.sum()) for row in dense]
    total = sum(size for size in sizes if size)
    scale = total / sum(size ** (1 - power) for size in sizes if size)
    return np.array([scale * size**-power if size else 1.0 for size in sizes])


@pytest.mark.parametrize("merge", ["binary", "sum"])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.7])
@pytest.mark.parametrize("solver", SOLVERS)
def test_it_minimises_its_weighted_objective(power, solver, merge):
    """Column by column, generic least squares on [W^½X; Λ^½] without the item itself."""
    log = world(merge=merge)
    dense = log.matrix.toarray().astype(np.float64)
    w = user_weights(dense, power)
    assert (w * dense.sum(axis=1)).sum() == pytest.approx(dense.sum())
    rows = np.sqrt(w)[:, None] * dense
    roots = np.sqrt(2.5 + 0.4 / 0.6 * (rows**2).sum(axis=0))
    actual = weights(mg.Tempered(l2=2.5, dropout=0.4, user_power=power), log, solver=solver)
    for item in range(log.n_items):
        others = np.arange(log.n_items) != item
        left = np.vstack([rows[:, others], np.diag(roots[others])])
        right = np.concatenate([rows[:, item], np.zeros(others.sum())])
        np.testing.assert_allclose(actual[others, item], np.linalg.lstsq(left, right)[0], atol=1e-9)
        assert actual[item, item] == pytest.approx(0, abs=1e-12)


def test_with_b_it_minimises_the_expected_weighted_loss():
    """By enumeration over what is hidden: E Σ_u w_u‖A ⊙ (x − (Δ ⊙ x)W)‖² + γ·l2·‖W‖²."""
    dense = (np.random.default_rng(1).random((25, 4)) < 0.5).astype(np.float64)
    l2, p, b, w = 1.5, 0.3, 0.6, user_weights(dense, 0.5)
    q = 1 - p
    gamma = q**2 * p + q**3 * b**2
    small = sp.csr_array(dense.astype(np.float32))
    actual = weights(mg.Tempered(l2=l2, dropout=p, b=b, user_power=0.5), small)

    def loss(matrix):
        total = gamma * l2 * (matrix**2).sum()
        for weight, row in zip(w, dense, strict=True):
            for mask in np.ndindex(2, 2, 2, 2):
                kept = np.array(mask)
                error = np.where(kept, b, 1.0) * (row - (kept * row) @ matrix)
                total += weight * np.prod(np.where(kept, q, p)) * (error**2).sum()
        return total

    best, rng = loss(actual), np.random.default_rng(0)
    for _ in range(20):
        step = rng.standard_normal(actual.shape)
        assert loss(actual + 1e-3 * step) > best
        slope = (loss(actual + 1e-5 * step) - loss(actual - 1e-5 * step)) / 2e-5
        assert abs(slope) < 1e-6 * best


@pytest.mark.parametrize("solver", EXACT)
def test_without_powers_it_is_edlae_or_deql(solver, tmp_path):
    log, how = world(), {"solver": solver, "scratch": tmp_path if solver == "disk" else None}
    shared = {"l2": 3, "dropout": 0.4}
    for b, other in ((0.0, mg.EDLAE(**shared)), (0.7, mg.DEQL(**shared, b=0.7))):
        actual = weights(mg.Tempered(**shared, b=b, user_power=0, item_power=0), log, **how)
        np.testing.assert_allclose(actual, weights(other, log, solver="primal"), atol=1e-10)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    power=st.floats(0, 2),
    item_power=st.floats(-1, 1),
    b=st.sampled_from([0.0, 0.4, 2.0]),
    dropout=st.floats(0, 0.9),
    merge=st.sampled_from(["binary", "sum"]),
)
def test_dual_equals_primal(seed, power, item_power, b, dropout, merge):
    model = mg.Tempered(l2=2, dropout=dropout, user_power=power, item_power=item_power, b=b)
    log = world(seed, merge=merge)
    primal = weights(model, log, solver="primal")
    np.testing.assert_allclose(weights(model, log, solver="dual"), primal, atol=1e-10 * max(1, np.abs(primal).max()))


@pytest.mark.parametrize("solver", ["disk", "matrix_free"])
def test_disk_and_matrix_free_equal_primal(solver, tmp_path):
    model = mg.Tempered(l2=2, dropout=0.4, item_power=-0.3, b=0.5)
    expected = weights(model, world(), solver="primal")
    actual = weights(model, world(), solver=solver, scratch=tmp_path if solver == "disk" else None)
    assert model.report_.solver == solver
    np.testing.assert_allclose(actual, expected, atol=1e-9)


@pytest.mark.parametrize("solver", EXACT)
def test_a_training_user_is_scored_by_the_plain_history(solver, tmp_path):
    """The dual has a shortcut for histories it knows: lists and scores are those of the history, not of X̃."""
    log = world()
    how = {"solver": solver, "dtype": "float64", "scratch": tmp_path if solver == "disk" else None}
    model = mg.Tempered(l2=2, user_power=0.8, item_power=0.2).fit(log, **how)
    expected = log.matrix.toarray() @ model.item_weights()
    place = {item: at for at, item in enumerate(log.items)}
    for row in model.recommend(k=4).rows():
        user = log.users.index([row["user"]])[0]
        assert row["score"] == pytest.approx(expected[user, place[row["item"]]], abs=1e-8)
    histories = [model.history(user) for user in log.users]
    np.testing.assert_allclose(model.score(histories), expected, atol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_float32_agrees_with_float64(solver):
    model = mg.Tempered(l2=2, user_power=0.7, item_power=0.3, b=0.5)
    expected = weights(model, world())
    actual = model.fit(world(), solver=solver).item_weights()
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert model.report_.residual < 1e-5


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_user_without_events_changes_nothing(solver):
    log = world()
    empty = sp.csr_array((20, log.n_items), dtype=np.float32)
    longer = sp.csr_array(sp.vstack([log.matrix, empty], format="csr"))
    for power in (0.5, 1.0, 1.5):
        model = mg.Tempered(l2=2, user_power=power)
        np.testing.assert_allclose(
            weights(model, longer, solver=solver), weights(model, log.matrix, solver=solver), atol=1e-12
        )


def test_weights_in_another_unit_weigh_users_alike():
    """Seconds or hours: a user's weight does not depend on what the rows are counted in."""
    log = world(merge="sum")
    for power in (0.3, 1.0):
        one = weighting.user_weights(log.matrix, power, weighting.unit(log.matrix, power))
        other = 3600 * log.matrix.astype(np.float64)
        np.testing.assert_allclose(weighting.user_weights(other, power, weighting.unit(other, power)), one)


def test_the_item_power_multiplies_columns_by_the_number_of_users():
    for merge in ("binary", "sum"):
        log = world(merge=merge)
        counts = np.maximum((log.matrix.toarray() > 0).sum(axis=0), 0.5)
        for b in (0.0, 0.8):
            plain = weights(mg.Tempered(l2=2, b=b), log)
            actual = weights(mg.Tempered(l2=2, b=b, item_power=-0.6), log)
            np.testing.assert_allclose(actual, plain * counts**-0.6, atol=1e-12)


@pytest.mark.parametrize("solver", [*SOLVERS, "matrix_free"])
def test_another_head_costs_no_factorisation(solver):
    log = world()
    model = mg.Tempered(l2=2, user_power=0.6).fit(log, dtype="float64", solver=solver)
    for other in ({"item_power": 0.4}, {"b": 1.2}, {"item_power": -0.5, "b": 0.3}):
        changed = model.changed(**other)
        assert changed.report_.solver == "reused"
        assert changed.report_.unit == model.report_.unit
        expected = weights(mg.Tempered(l2=2, user_power=0.6, **other), log)
        np.testing.assert_allclose(changed.item_weights(), expected, atol=1e-9)
        held = live.weights(model, other)
        np.testing.assert_allclose(held.columns(np.arange(log.n_items)), expected, atol=1e-9)
    assert live.parameters(model) == {"item_power": 0.0, "b": 0.0, "repeat": 0.0}
    with pytest.raises(ParameterError, match="'user_power' of this Tempered cannot be changed without"):
        live.weights(model, {"user_power": 0.2})


def test_other_weights_of_users_need_the_log():
    log = world()
    model = mg.Tempered(l2=2, dropout=0, user_power=0.6).fit(log, keep_gram=True)
    with pytest.raises(ParameterError, match=r"user_power = 0\.2, but the model .* has 0\.6.*fit on the log"):
        model.changed(user_power=0.2)
    with pytest.raises(ParameterError, match="user_power = 0, but"):
        mg.EASE(l2=2).fit(model)
    plain = mg.Tempered(l2=2, dropout=0, user_power=0).fit(log, dtype="float64")
    np.testing.assert_array_equal(mg.EASE(l2=2).fit(plain, dtype="float64").item_weights(), weights(mg.EASE(l2=2), log))
    free = mg.Tempered(l2=2, user_power=0.6).fit(log, dtype="float64", solver="matrix_free")
    np.testing.assert_allclose(
        free.changed(user_power=0.2).item_weights(), weights(mg.Tempered(l2=2, user_power=0.2), log), atol=1e-9
    )


def test_the_kept_gram_gives_another_l2():
    log = world()
    model = mg.Tempered(l2=2, user_power=0.6).fit(log, dtype="float64", keep_gram=True)
    actual = model.changed(l2=9, dropout=0.1).item_weights()
    np.testing.assert_allclose(actual, weights(mg.Tempered(l2=9, dropout=0.1, user_power=0.6), log), atol=1e-10)


@pytest.mark.parametrize("solver", [*SOLVERS, "matrix_free"])
def test_explanations_add_up_to_scores(solver):
    model = mg.Tempered(l2=2, item_power=0.3, b=0.5).fit(world(), solver=solver, dtype="float64")
    for user in ("u000", "u007", "u021"):
        history = model.history(user)
        for item in ("i00", "i09"):
            caught = model.explain(history, item)
            score = model.score([history], [item])[0, 0]
            assert sum(share for _, share in caught.shares) == pytest.approx(score, abs=1e-8)
            assert caught.score == pytest.approx(score, abs=1e-8)


@pytest.mark.parametrize("solver", [*SOLVERS, "matrix_free"])
def test_saved_and_loaded_is_bit_equal(solver, tmp_path):
    model = mg.Tempered(l2=2, user_power=0.7, item_power=0.3, b=0.5).fit(world(), solver=solver, dtype="float64")
    model.save(tmp_path / "model.mono")
    actual = mg.load(tmp_path / "model.mono")
    assert actual.params() == model.params()
    assert actual.report_.unit == model.report_.unit is not None
    np.testing.assert_array_equal(actual.item_weights(), model.item_weights())
    assert actual.recommend(k=5).rows() == model.recommend(k=5).rows()


@pytest.fixture
def no_refit(monkeypatch):
    """On data this small a refit is always cheaper: the way of a change is taken all the same."""
    monkeypatch.setattr(change, "require_cheaper", lambda *_: None)


def part(log, rows):
    rows = np.asarray(rows)
    return mg.Interactions(log.matrix[rows], log.users.part(rows), log.items, merge=log.merge)


def ordered(model):
    order = np.argsort(list(model.log_.items))
    return model.item_weights()[np.ix_(order, order)]


def refitted(model, log, **how):
    """A fit with the factor of the weights that a model has recorded."""
    fresh = type(model)(**model.params())
    return fresh.fit_from(FitInputs(log, unit=model.report_.unit), FitOptions.parse(**how))


@pytest.mark.usefixtures("no_refit")
@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    power=st.sampled_from([0.0, 0.5, 1.0, 1.6]),
    b=st.sampled_from([0.0, 0.7]),
    solver=st.sampled_from(SOLVERS),
    gram=st.booleans(),
    merge=st.sampled_from(["binary", "sum"]),
)
def test_updates_equal_a_fit_with_the_recorded_factor(seed, power, b, solver, gram, merge):
    """Users come, go and do more; nobody else's weight moves."""
    log, more, rng = world(seed, merge=merge), world(seed + 1, users=10, merge=merge), np.random.default_rng(seed)
    how = {"dtype": "float64", "solver": "primal" if gram else solver, "keep_gram": gram}
    model = mg.Tempered(l2=3, dropout=0.4, user_power=power, item_power=0.3, b=b).fit(part(log, range(25)), **how)
    unit = model.report_.unit
    model.add_users(part(log, range(25, 40)))
    gone = rng.choice(np.arange(10, 40), 4, replace=False)
    model.forget_users([log.users[int(row)] for row in gone])
    model.add_users(more)  # the first ten have more now: another row, and another weight
    assert not model.report_.note
    assert model.report_.unit == unit
    expected = refitted(model, model.log_, **how)
    assert expected.report_.unit == unit
    np.testing.assert_allclose(ordered(model), ordered(expected), atol=1e-9)
    if gram:
        np.testing.assert_allclose(
            np.tril(model.weights_.update_state.gram), np.tril(expected.weights_.update_state.gram), atol=1e-9
        )


@pytest.mark.usefixtures("no_refit")
@pytest.mark.parametrize("solver", [*SOLVERS, "matrix_free"])
def test_a_loaded_model_is_updated_with_the_factor_of_its_fit(solver, tmp_path):
    log = world()
    how = {"dtype": "float64", "solver": solver}
    model = mg.Tempered(l2=3, dropout=0.4, user_power=0.7, item_power=0.3).fit(part(log, range(25)), **how)
    model.save(tmp_path / "model.mono")
    actual = mg.load(tmp_path / "model.mono").add_users(part(log, range(25, 40)))
    expected = refitted(model, log, **how)
    np.testing.assert_allclose(actual.item_weights(), expected.item_weights(), atol=1e-9)
    anew = mg.Tempered(**model.params()).fit(log, **how)
    assert actual.report_.unit == model.report_.unit != anew.report_.unit
    assert not np.allclose(actual.item_weights(), anew.item_weights(), atol=1e-9)


@pytest.mark.parametrize("solver", [*SOLVERS, "matrix_free"])
def test_a_file_without_the_factor_cannot_be_updated(solver, tmp_path):
    path = tmp_path / "model.mono"
    mg.Tempered(l2=3).fit(world(), solver=solver).save(path)
    stored = store.load(path)
    header, tensors = dict(stored.header), {name: np.array(one) for name, one in stored.tensors.items()}
    store.save(path, header | {"report": header["report"] | {"unit": None}}, tensors)
    with pytest.raises(ParameterError, match=r"has no report_\.unit, the factor of its user weights"):
        mg.load(path).forget_users(["u001"])


def test_a_forged_weight_of_a_user_is_an_error(tmp_path):
    path = tmp_path / "model.mono"
    mg.Tempered(l2=3).fit(world(), solver="matrix_free").save(path)
    stored = store.load(path)
    tensors = {name: np.array(one) for name, one in stored.tensors.items()}
    for value in (0.0, -1.0, np.nan):
        tensors["weights.weights"][3] = value
        store.save(path, dict(stored.header), tensors)
        with pytest.raises(ModelFileError, match=r"not above 0|not finite"):
            mg.load(path)


def test_a_refit_in_place_of_an_update_keeps_the_factor():
    log = world()
    model = mg.Tempered(l2=3, user_power=0.7).fit(part(log, range(25)), dtype="float64")
    unit = model.report_.unit
    model.add_users(part(log, range(25, 40)))
    assert model.report_.note.startswith("refit")
    assert model.report_.unit == unit
    np.testing.assert_allclose(model.item_weights(), refitted(model, log, dtype="float64").item_weights(), atol=1e-12)


def test_the_plan_counts_the_weighted_copy():
    size = (1000, 500, 20_000)
    plain, weighted = (
        {row["solver"]: row["bytes"] for row in mg.Tempered(user_power=power).plan(size, memory="1 GB").rows()}
        for power in (0, 0.5)
    )
    for solver, taken in weighted.items():
        if solver != "disk":  # there the tiles take what is left
            assert taken - plain[solver] == 16 * 20_000
    assert weighted["disk"] <= 10**9


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_fit_stays_within_its_plan(solver):
    rng = np.random.default_rng(0)
    matrix = sp.random_array((1500, 1500), density=0.2, rng=rng, dtype=np.float32, format="csr")
    mg.Tempered(l2=2).fit(matrix, solver=solver)  # what is compiled is
    report = mg.Tempered(l2=2).fit(matrix, solver=solver).report_
    assert report.peak_bytes is None or report.peak_bytes <= report.planned_bytes


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"user_power": -0.1}, "user_power = -0.1"),
        ({"user_power": 2.5}, "user_power = 2.5"),
        ({"item_power": 3}, "item_power = 3"),
        ({"b": -1}, "b = -1"),
        ({"dropout": 1}, "dropout = 1"),
    ],
)
def test_parameters_outside_their_range_are_named(parameters, text):
    with pytest.raises(ParameterError, match=text):
        mg.Tempered(**parameters)
