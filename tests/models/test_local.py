"""Full-rank models by local regressions: optimal on their candidates, with every feature of a model, and updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import monogram as mg
from monogram.errors import MemoryBudgetError, ModelFileError, ParameterError
from monogram.models import files, updates
from monogram.models.change import UpdateOptions
from monogram.models.context import FitInputs, FitOptions

HEADS = [
    mg.EASE(l2=5),
    mg.EDLAE(l2=5, dropout=0.4),
    mg.DLAE(l2=5, dropout=0.4),
    mg.RDLAE(l2=5, dropout=0.4, relax=0.2),
    mg.DEQL(l2=5, dropout=0.4, b=0.7),
    mg.Tempered(l2=5, dropout=0.4, user_power=0.5, item_power=-0.2),
    mg.Tempered(l2=5, dropout=0.4, user_power=0.5, b=0.5),
    mg.TwoStep(l2=5, dropout=0.3, second=0.6, item_power=0.1),
    mg.TwoStep(l2=5, dropout=0.3, second=0.6, low_pass=0.3, low_pass_power=0.3, rank=4),
]


def world(seed=0, users=120, items=40, share=0.12):
    rng = np.random.default_rng(seed)
    dense = rng.random((users, items)) < share * rng.uniform(0.2, 2, items)
    matrix = sp.csr_array(dense.astype(np.float32))
    names = [f"u{user}" for user in range(users)], [f"ï {item}" for item in range(items)]
    return mg.Interactions.from_csr(matrix, *names)


def fitted(model, log, **options):
    return type(model)(**model.params()).fit(log, solver="local", **options)


def whole(model):
    """W as an array."""
    return model.weights_.columns(np.arange(model.log_.n_items))


@pytest.mark.parametrize("model", HEADS, ids=repr)
def test_with_every_item_as_candidate_it_is_the_full_rank_model(model):
    log = world(users=300, items=14, share=0.5)
    full = type(model)(**model.params()).fit(log, solver="primal", dtype="float64")
    local = fitted(model, log, dtype="float64", neighbours=13)
    np.testing.assert_allclose(whole(local), whole(full), atol=1e-10)
    assert local.report_.solver == "local"
    assert local.report_.gap == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("free", [False, True])
def test_no_other_weights_on_the_candidates_are_better(free):
    """The gradient of ‖x_j − Xw‖² + ‖Λ^½w‖² is 0 on the candidates of j; without a constraint also on j itself."""
    log = world(3)
    model = fitted(mg.DLAE(l2=5, dropout=0.4) if free else mg.EDLAE(l2=5, dropout=0.4), log, neighbours=8)
    x, w = log.matrix.toarray().astype(np.float64), whole(model)
    penalties = 5 + 0.4 / 0.6 * (x**2).sum(axis=0)
    gradient = x.T @ (x @ w - x) + penalties[:, None] * w
    support = w != 0
    assert support.sum(axis=0).max() == 8 + free
    assert (np.diag(support) == free).all()
    assert np.abs(gradient[support]).max() / (x.T @ x).max() < 1e-5
    assert np.abs(gradient[~support]).max() > 0.1, "there are better weights on other candidates"
    assert model.report_.residual < 1e-5
    assert 0 < model.report_.gap <= model.report_.largest_gap < 1
    assert "with twice as many the objective would fall by" in str(model.report_)


@pytest.mark.parametrize("model", HEADS, ids=repr)
def test_lists_scores_explanations_and_files(model, tmp_path):
    log = world(1)
    local = fitted(model, log, neighbours=9)
    local.save(tmp_path / "m.mono")
    loaded = mg.load(tmp_path / "m.mono")
    assert loaded.report_ == local.report_
    dense, x = whole(local), log.matrix.toarray()
    histories = [["ï 1", "ï 5"], ["ï 39"], []]
    for each in (local, loaded):
        scores = each.score(histories=histories)
        np.testing.assert_allclose(scores[0], dense[1] + dense[5], atol=1e-6)
        lists = each.recommend(users=["u4", "u7"], k=5)
        for user in (4, 7):
            expected = np.where(x[user] > 0, -np.inf, x[user] @ dense)
            rows = [row for row in lists.rows() if row["user"] == f"u{user}"]
            np.testing.assert_allclose([row["score"] for row in rows], np.sort(expected)[::-1][:5], atol=1e-6)
        for item in (0, 7, 22):
            shares = dict(each.explain(history=["ï 1", "ï 5"], item=f"ï {item}").shares)
            assert shares == {f"ï {own}": pytest.approx(dense[own, item], abs=1e-6) for own in (1, 5)}
        assert len(each.similar("ï 3", k=4).rows()) == 4
    assert local.prune(3).weights_.kind == "sparse"


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), which=st.integers(0, 6), gone=st.integers(0, 3), come=st.integers(0, 3))
def test_an_update_is_a_refit(seed, which, gone, come):
    """Users are added, forgotten and extended in a log of separate parts, so that many columns stay as they are."""
    rng, model = np.random.default_rng(seed), HEADS[which]
    blocks = [world(seed + part, users=40, items=12, share=0.3).matrix for part in range(6)]
    matrix = sp.block_diag(blocks, format="csr")
    names = [f"u{user}" for user in range(240)], [f"ï {item}" for item in range(72)]
    log = mg.Interactions.from_csr(sp.csr_array(matrix), *names)
    local = fitted(model, log, dtype="float64", neighbours=5)
    if gone:
        local.forget_users([f"u{user}" for user in rng.choice(40, gone, replace=False)])
    if come:
        new = [(f"u{user}", f"ï {item}") for user in (3, 300, 301)[:come] for item in rng.choice(12, 4, replace=False)]
        new.append(("u300", "ï new"))
        local.add_users(mg.read(new), new_items=True)
    refit = type(model)(**model.params())
    options = FitOptions(dtype="float64", solver="local", neighbours=5)
    refit.fit_from(FitInputs(local.log_, unit=local.report_.unit), options)
    np.testing.assert_allclose(whole(local), whole(refit), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(local.weights_.update_state.c, refit.weights_.update_state.c, rtol=1e-9)
    assert (local.weights_.matrix != 0).nnz < 72 * 7
    assert local.report_.changes == bool(gone) + bool(come)


def test_an_update_keeps_the_unit_of_user_weights_and_frozen_penalties():
    log = world(5, users=200, items=100, share=0.02)
    model = fitted(mg.EDLAE(l2=5, dropout=0.4), log, dtype="float64", neighbours=4)
    before = model.weights_.update_state.penalties
    model.add_users(mg.read([("new", "ï 3"), ("new", "ï 90")]), penalties="frozen")
    assert (model.weights_.update_state.penalties == before).all()
    assert "penalties frozen" in model.report_.note
    assert "columns solved again" in model.report_.note


def test_a_change_of_most_columns_is_refused_with_a_count():
    log = world(2, users=200, share=0.4)
    model = fitted(mg.EASE(l2=5), log, neighbours=10)
    before = whole(model)
    with pytest.raises(
        ParameterError, match=r"affects \d+ of 40 columns of weights, more than half: fit the model again"
    ):
        model.forget_users(["u3"])
    assert model.log_.n_users == 200
    assert (whole(model) == before).all()
    updates.forget_users(model, ["u3"], UpdateOptions(on_large="refit"))
    assert model.log_.n_users == 199
    assert model.report_.neighbours == 10
    assert model.report_.note.startswith("refit: the change affects")


def test_an_update_over_its_memory_changes_nothing():
    model = fitted(mg.EASE(l2=5), world(2), neighbours=10)
    with pytest.raises(MemoryBudgetError, match="was not changed"):
        model.forget_users(["u3"], memory="1 MB")
    assert model.log_.n_users == 120


@pytest.mark.parametrize("model", HEADS[:7], ids=repr)
def test_another_head_needs_no_fit(model):
    log = world(4)
    source = fitted(mg.EDLAE(l2=5, dropout=0.4), log, dtype="float64", neighbours=7)
    if model.formula().shared != source.formula().shared:
        fresh = type(model)(**model.params()).fit(source, solver="local", dtype="float64", neighbours=7)
        assert fresh.report_.solver == "local"
    else:
        fresh = type(model)(**model.params()).fit(source, dtype="float64")
        assert fresh.report_.solver == "reused"
        assert fresh.report_.neighbours == 7
    np.testing.assert_allclose(whole(fresh), whole(fitted(model, log, dtype="float64", neighbours=7)), atol=1e-12)
    again = fresh.changed(l2=9.0)
    assert again.report_.neighbours == 7
    np.testing.assert_allclose(
        whole(again), whole(fitted(type(model)(**(model.params() | {"l2": 9.0})), log, dtype="float64", neighbours=7))
    )


def test_the_planner_takes_it_where_nothing_dense_fits():
    size = (200_000, 500_000, 4_000_000)
    plan = mg.EDLAE().plan(size, memory="8 GB")
    assert plan.chosen.solver == "local"
    assert "local: nothing dense fits" in plan.why
    assert [cost.solver for cost in plan.costs] == ["primal", "dual", "disk", "local", "matrix_free"]
    fewer = mg.EDLAE().plan(size, memory="8 GB", neighbours=50)
    assert fewer.chosen.bytes < plan.chosen.bytes
    assert fewer.chosen.flops < plan.chosen.flops
    assert mg.EDLAE().plan(size, memory="1 GB").chosen.solver == "matrix_free"
    assert mg.TwoStep().plan(size, memory="8 GB").chosen.solver == "local"
    assert mg.EDLAE().plan((2000, 1000, 20_000)).chosen.solver in ("primal", "dual")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "local", "neighbours": 0}, "expected a whole number of at least 1"),
        ({"solver": "local", "neighbours": 2.5}, "expected a whole number of at least 1"),
        ({"solver": "primal", "neighbours": 10}, "it is for solver='local'"),
        ({"solver": "local", "keep_gram": True}, "computes no Gram"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ParameterError, match=message):
        mg.EASE().fit(world(), **options)


def test_other_models_have_no_local_solver():
    with pytest.raises(ParameterError, match="which this model does not have"):
        mg.LRR(rank=3).fit(world(), neighbours=10)
    with pytest.raises(ParameterError, match="needs l2 or dropout"):
        mg.EASE(l2=0).fit(world(), solver="local")


def test_two_steps_are_those_of_the_formula():
    log = world(6)
    model = fitted(mg.TwoStep(l2=5, dropout=0.3, second=0.6, item_power=0.1), log, dtype="float64", neighbours=6)
    b = model.weights_.first.matrix.toarray()
    counts = np.maximum((log.matrix.toarray() > 0).sum(axis=0), 0.5)
    expected = (0.4 * b + 0.6 * b @ b) * counts**0.1
    np.testing.assert_allclose(whole(model), expected, atol=1e-12)
    scores = model.score(histories=[["ï 1", "ï 5"]])
    np.testing.assert_allclose(scores, [expected[1] + expected[5]], atol=1e-12)


def test_a_file_with_a_wrong_index_is_refused(tmp_path):
    model = fitted(mg.TwoStep(l2=5), world(), neighbours=6)
    model.weights_.first.matrix.indices[0] = 4000
    files.save(model, tmp_path / "m.mono")
    with pytest.raises(ModelFileError, match=r"m\.mono"):
        mg.load(tmp_path / "m.mono")


def test_the_report_of_an_update_is_that_of_the_update():
    """Plain numbers, which the server writes as JSON; the gap and the plan are those of the changed log."""
    log = world(5, users=200, items=100, share=0.02)
    model = fitted(mg.EDLAE(l2=5, dropout=0.4), log, neighbours=4)
    before = model.report_
    model.add_users(mg.read([("new", "ï 3"), ("new", "ï 90")]), penalties="frozen")
    report = model.report_
    assert {type(value) for value in (report.residual, report.error, report.gap, report.largest_gap)} == {float}
    assert report.planned_bytes > before.planned_bytes
    assert report.residual_at_fit == before.residual
    assert mg.DEQL(l2=5, dropout=0.4).fit(model).report_.note == "penalties frozen"


def test_a_dense_model_is_no_source_of_a_local_fit():
    dense = mg.EDLAE(l2=5, dropout=0.4).fit(world(), solver="primal", keep_gram=True)
    for options in ({"solver": "local"}, {"neighbours": 5}):
        for l2 in (5, 9):
            with pytest.raises(ParameterError, match=r"a local fit .* needs the log"):
                mg.EDLAE(l2=l2, dropout=0.4).fit(dense, **options)


def test_another_head_over_its_memory_is_refused():
    model = fitted(mg.EDLAE(l2=5, dropout=0.4), world(), neighbours=6)
    with pytest.raises(MemoryBudgetError, match="a second array of weights needs"):
        mg.DLAE(l2=5, dropout=0.4).fit(model, memory="1 KB")


def test_a_file_without_its_number_of_candidates_is_refused(tmp_path):
    model = fitted(mg.EASE(l2=5), world(), neighbours=6)
    model.report_ = replace(model.report_, neighbours=None)
    model.save(tmp_path / "m.mono")
    with pytest.raises(ModelFileError, match="no number of candidates"):
        mg.load(tmp_path / "m.mono")


@pytest.mark.parametrize("neighbours", [300, 1500])
def test_the_plan_covers_the_peak(neighbours):
    """Also with many candidates, for which the systems are large."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(1, 3000), 2)
    columns = np.where(np.arange(len(rows)) % 2, rows, rng.integers(0, 3, len(rows)))
    matrix = sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(3000, 3000))
    model = mg.EASE(l2=5).fit(mg.Interactions.from_csr(matrix), solver="local", neighbours=neighbours, threads=2)
    assert model.report_.peak_bytes is None or model.report_.peak_bytes < model.report_.planned_bytes
