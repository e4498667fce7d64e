"""Matrix-free fits of full-rank models against primal ones: scores, lists, columns, files and reports."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import monogram as mg
from monogram.engine.inverse import probing
from monogram.errors import MemoryBudgetError, ModelFileError, MonogramWarning, ParameterError
from monogram.testing import check_recommender
from monogram.weights import MatrixFree, from_tensors
from monogram.weights import matrix_free as kinds

MODELS = {
    "ease": (mg.EASE, {"l2": 4.0}),
    "edlae": (mg.EDLAE, {"l2": 4.0, "dropout": 0.4}),
    "dlae": (mg.DLAE, {"l2": 4.0, "dropout": 0.4}),
    "deql": (mg.DEQL, {"l2": 4.0, "dropout": 0.4, "b": 0.7}),
    "deql-zero": (mg.DEQL, {"l2": 4.0, "dropout": 0.4, "b": 0.7, "zero_diagonal": True}),
    "deql, b above a": (mg.DEQL, {"l2": 4.0, "dropout": 0.2, "b": 2.0}),
}


@pytest.fixture(params=MODELS)
def make(request):
    kind, parameters = MODELS[request.param]
    return lambda: kind(**parameters)


@pytest.fixture
def estimated(monkeypatch):
    """Most of the diagonal is estimated, and badly."""
    monkeypatch.setattr(probing, "EXACT", 5)
    monkeypatch.setattr(probing, "PROBES", 12)


def log(seed, users=150, items=60, weighted=False):
    rng = np.random.default_rng(seed)
    tastes = rng.random((4, items)) ** 3
    dense = rng.random((users, items)) < 0.6 * tastes[rng.integers(0, 4, users)]
    dense[:, 7] = dense[3] = False
    return sp.csr_array((dense * (rng.integers(1, 5, dense.shape) if weighted else 1)).astype(np.float32))


def both(model, matrix, dtype="float64"):
    primal = type(model)(**model.params()).fit(matrix, dtype="float64", solver="primal")
    return model.fit(matrix, dtype=dtype, solver="matrix_free"), primal


HISTORIES = [{3: 1.0, 9: 2.0}, {}, {7: 1.0}, {3: 1.0, 9: 2.0}, {0: 0.5, 1: 1.0, 2: 3.0, 59: 1.0}]


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 2e-6), ("float64", 1e-9)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("estimated")
def test_scores_are_those_of_the_primal(make, dtype, atol, weighted):
    actual, primal = both(make(), log(0, weighted=weighted), dtype)
    expected = primal.score(HISTORIES)
    np.testing.assert_allclose(actual.score(HISTORIES), expected, atol=atol)
    np.testing.assert_allclose(actual.item_weights(), primal.item_weights(), atol=atol)
    assert not actual.score([[]]).any()
    assert actual.report_.solver == "matrix_free"
    assert actual.report_.residual < 1e-6
    assert isinstance(actual.weights_, MatrixFree)


@given(seed=st.integers(0, 1000), name=st.sampled_from(list(MODELS)), k=st.sampled_from([1, 5, 20, 70]))
@settings(max_examples=25)
def test_refined_lists_are_the_exact_lists(seed, name, k):
    kind, parameters = MODELS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "EXACT", 5)
        patch.setattr(probing, "PROBES", 12)
        patch.setattr(kinds, "SPARE", 2)
        patch.setattr(kinds, "SURE", 12.0)  # of so few probes the standard errors themselves are guesses
        actual, primal = both(kind(**parameters), log(seed))
        for seen in (True, False):
            ours, theirs = (one.recommend(k=k, exclude_seen=seen).rows() for one in (actual, primal))
            assert [row["user"] for row in ours] == [row["user"] for row in theirs]
            np.testing.assert_allclose([row["score"] for row in ours], [row["score"] for row in theirs], atol=1e-9)
            scores = [row["score"] for row in theirs]
            for at, (one, two) in enumerate(zip(ours, theirs, strict=True)):
                near = min(abs(scores[at] - scores[other]) for other in (at - 1, (at + 1) % len(scores)))
                assert one["item"] == two["item"] or near < 1e-9 or (at + 1) % k == 0, "other than a tie"


def test_without_refinement_lists_would_differ(estimated):
    """The estimate is bad enough that the law above says something."""
    del estimated
    actual, primal = both(mg.EASE(l2=4), log(0))
    weights = actual.weights_
    rough = np.argsort(-(actual.log_.matrix @ (-np.linalg.inv(gram(4.0)) / weights.diagonal.values)), axis=1)
    exact = np.argsort(-(actual.log_.matrix @ (-np.linalg.inv(gram(4.0)) / np.diag(np.linalg.inv(gram(4.0))))), axis=1)
    assert (rough[:, :10] != exact[:, :10]).any()
    assert actual.report_.deviation > 0.01
    assert primal.report_.deviation is None


def gram(l2):
    dense = log(0).toarray().astype(np.float64)
    return dense.T @ dense + l2 * np.eye(dense.shape[1])


@pytest.mark.usefixtures("estimated")
def test_lists_do_not_depend_on_earlier_requests(make):
    first, second = (make().fit(log(1), solver="matrix_free") for _ in range(2))
    second.score([[2]])
    second.recommend(k=30)
    assert first.recommend([0, 1, 2], k=4).rows() == second.recommend([0, 1, 2], k=4).rows()
    assert first.recommend([2], k=4).rows() == [row for row in second.recommend(k=4).rows() if row["user"] == 2]


@pytest.mark.usefixtures("estimated")
def test_saved_and_loaded_is_bit_equal(make, tmp_path):
    model = make().fit(log(2), solver="matrix_free")
    model.save(tmp_path / "a.mono")
    again = mg.load(tmp_path / "a.mono")
    assert again.report_ == model.report_
    assert again.recommend(k=9).rows() == model.recommend(k=9).rows()
    np.testing.assert_array_equal(again.score(HISTORIES), model.score(HISTORIES))
    np.testing.assert_array_equal(again.item_weights(), model.item_weights())


@pytest.mark.parametrize("bad", [False, True], ids=["exact", "estimated"])
@pytest.mark.parametrize("name", ["ease", "edlae", "dlae", "deql"])
def test_the_contract(name, bad, monkeypatch):
    if bad:
        monkeypatch.setattr(probing, "EXACT", 3)
        monkeypatch.setattr(probing, "PROBES", 8)
    kind, parameters = MODELS[name]

    class ByColumns(kind):
        def fit(self, log, *, solver="matrix_free", **options):
            return super().fit(log, solver=solver, **options)

    check_recommender(ByColumns, **parameters)


def test_unknown_items_and_duplicated_histories():
    model = mg.EASE(l2=4).fit(log(0), solver="matrix_free")
    result = model.recommend(histories=[[3, 9, "lost"], [3, 9], []], k=5)
    assert result.unknown_items == ("lost",)
    assert result.empty == (2,)
    rows = result.rows()
    assert [row["item"] for row in rows[:5]] == [row["item"] for row in rows[5:10]]
    assert [row["item"] for row in rows[10:]] == [0, 1, 2, 3, 4]


def test_dlae_needs_no_diagonal():
    model = mg.DLAE(l2=4).fit(log(0), solver="matrix_free")
    assert model.weights_.diagonal is None
    assert model.report_.deviation is None
    assert "diagonal" not in model.report_.seconds


def test_the_residuals_of_histories(estimated):
    del estimated
    model = mg.EASE(l2=4).fit(log(0), solver="matrix_free")
    actual = model.recommend(k=3).residuals
    assert actual.shape == (150,)
    assert (actual <= 1.01e-7).all()
    assert actual[3] == 0, "nothing in it"
    assert "standard error" in str(model.report_)


def test_many_items_are_scored_with_the_estimate(estimated, monkeypatch):
    del estimated
    model, primal = both(mg.EASE(l2=4), log(0))
    expected = primal.score(HISTORIES)
    monkeypatch.setattr(kinds, "SCORED", 10)
    rough = model.score(HISTORIES)
    assert 1e-4 < np.abs(rough - expected).max() < 0.5
    np.testing.assert_allclose(model.score(HISTORIES, [1, 2, 3]), expected[:, 1:4], atol=1e-9)


def test_a_list_that_stays_uncertain_is_warned_of(estimated, monkeypatch):
    del estimated
    monkeypatch.setattr(kinds, "SPARE", 0)
    monkeypatch.setattr(kinds, "WIDEST", 0)
    model = mg.EASE(l2=4).fit(log(0), solver="matrix_free")
    with pytest.warns(MonogramWarning, match="may miss an item"):
        model.recommend(k=5)


def test_a_pruned_model_keeps_its_lists():
    model = mg.EASE(l2=4).fit(log(0), solver="matrix_free")
    assert model.prune(60).pruning_.overlap > 0.99


def test_the_matrix_free_solver_needs_a_penalty():
    with pytest.raises(ParameterError, match=r"matrix_free.*l2 or dropout above 0"):
        mg.EASE(l2=0).fit(log(0), solver="matrix_free")
    assert mg.DLAE(l2=0, dropout=0.3).fit(log(0), solver="matrix_free").report_.residual < 1e-6


def part(whole, rows):
    rows = np.asarray(rows)
    return mg.Interactions(whole.matrix[rows], whole.users.part(rows), whole.items, merge=whole.merge)


def assert_same_bits(actual, expected):
    """Assert that two models are bit-equal in weights, lists and scores."""
    for name, one in expected.weights_.tensors().items():
        np.testing.assert_array_equal(actual.weights_.tensors()[name], one)
    assert list(actual.log_.users) == list(expected.log_.users)
    assert actual.recommend(k=9).rows() == expected.recommend(k=9).rows()
    np.testing.assert_array_equal(actual.score(HISTORIES), expected.score(HISTORIES))


@pytest.mark.parametrize("penalties", ["followed", "frozen"])
@pytest.mark.usefixtures("estimated")
def test_added_and_forgotten_users_equal_a_fit(make, penalties):
    whole = mg.Interactions.from_csr(log(0))
    actual = make().fit(part(whole, range(120)), solver="matrix_free")
    assert actual.add_users(part(whole, range(120, 150)), penalties=penalties) is actual
    assert_same_bits(actual, make().fit(whole, solver="matrix_free"))
    assert actual.report_.note.startswith("refit: the weights of a matrix-free model are its log")
    assert ("followed" in actual.report_.note) == (penalties == "frozen")
    actual.forget_users(range(20))
    assert_same_bits(actual, make().fit(part(whole, range(20, 150)), solver="matrix_free"))


def test_added_items_equal_a_fit():
    whole = mg.Interactions.from_csr(log(0))
    actual = mg.EDLAE(l2=4).fit(whole, solver="matrix_free").add_items([60, 61])
    assert actual.report_.solver == "matrix_free"
    assert not actual.score([[3, 9]], [60, 61]).any()
    assert actual.add_users([(150, 60), (150, 3)]).score([[3]], [60]) > 0


def test_the_file_contains_nothing_of_forgotten_users(tmp_path):
    names = ["Zebulon Quux-99", *(f"user-{n}" for n in range(149))]
    whole = mg.Interactions.from_csr(log(0), users=names)
    model = mg.EASE(l2=4).fit(whole, solver="matrix_free").forget_users(names[0])
    model.save(tmp_path / "a.mono")
    assert b"Quux" not in (tmp_path / "a.mono").read_bytes()
    with pytest.raises(MemoryBudgetError):
        model.forget_users(names[1], memory="1 MB")
    assert names[1] in model.log_.users


@pytest.mark.usefixtures("estimated")
def test_another_head_reuses_the_diagonal_and_another_penalty_refits(monkeypatch):
    model = mg.DEQL(l2=4, dropout=0.4, b=0.7).fit(log(0), solver="matrix_free")
    again = model.changed(l2=9)
    assert_same_bits(again, mg.DEQL(l2=9, dropout=0.4, b=0.7).fit(log(0), solver="matrix_free"))
    both_ways = mg.EDLAE(l2=4, dropout=0.4).fit(mg.DLAE(l2=4, dropout=0.4).fit(log(0), solver="matrix_free"))
    assert both_ways.report_.solver != "reused", "it had no c to give"
    assert mg.EASE(l2=4).fit(model, keep_gram=True).report_.solver == "primal"
    expected = [
        mg.DEQL(l2=4, dropout=0.4, b=2).fit(log(0), solver="matrix_free"),
        mg.EDLAE(l2=4, dropout=0.4).fit(log(0), solver="matrix_free"),
        mg.DLAE(l2=4, dropout=0.4).fit(log(0), solver="matrix_free"),
    ]
    monkeypatch.setattr(probing, "diagonal", None)  # nothing is estimated again
    actual = [model.changed(b=2), mg.EDLAE(l2=4, dropout=0.4).fit(model), mg.DLAE(l2=4, dropout=0.4).fit(model)]
    for one, other in zip(actual, expected, strict=True):
        assert_same_bits(one, other)
        assert one.report_.solver == "reused"
        assert one.report_.residual == model.report_.residual
        assert one.report_.deviation == other.report_.deviation


def test_a_matrix_free_fit_keeps_no_gram():
    for ask in (mg.EASE().fit, mg.EASE().plan):
        with pytest.raises(ParameterError, match=r"keep_gram.*matrix_free.*computes no Gram"):
            ask(log(0), solver="matrix_free", keep_gram=True)


OTHERS = [mg.LowRankEDLAE(), mg.LowRankDLAE(), mg.SLIM(), mg.RG2(), mg.LRR(), mg.WRMF(), mg.ItemKNN(), mg.Popularity()]


@pytest.mark.parametrize("model", OTHERS, ids=lambda model: model.name)
def test_other_models_refuse_the_matrix_free_solver(model):
    for ask in (model.fit, model.plan):
        with pytest.raises(ParameterError, match="matrix_free"):
            ask(log(0), solver="matrix_free")


def test_a_spectrum_refuses_the_matrix_free_solver():
    with pytest.raises(ParameterError, match="matrix_free"):
        mg.Spectrum(log(0), rank=2, solver="matrix_free")


def test_it_is_chosen_when_nothing_else_fits():
    matrix = sp.eye_array(30_000, dtype=np.float32).tocsr()
    model = mg.DLAE(l2=1).fit(matrix, memory="60 MB")
    assert model.report_.solver == "matrix_free"
    assert model.report_.peak_bytes is None or model.report_.peak_bytes < 6e7
    with pytest.raises(MemoryBudgetError, match="use the matrix_free solver"):
        mg.DLAE(l2=1).fit(matrix, memory="60 MB", solver="primal")
    with pytest.raises(MemoryBudgetError, match="matrix_free"):
        mg.DLAE(l2=1).fit(matrix, memory="1 MB")


@pytest.mark.parametrize("model", [mg.RG2(rank=4), mg.LRR(rank=4), mg.WLAE(rank=4)], ids=lambda one: one.name)
def test_low_rank_models_fit_where_a_square_array_cannot(model):
    """200,000 items: a square array would take 160 GB in float32."""
    rng = np.random.default_rng(0)
    items = (200_000 * rng.random(60_000) ** 3).astype(int)
    matrix = sp.csr_array((np.ones(60_000, np.float32), (rng.integers(0, 3000, 60_000), items)), shape=(3000, 200_000))
    matrix.data[:] = 1
    report = model.fit(matrix, memory="400 MB").report_
    assert report.rank is None or report.rank <= 4
    assert report.planned_bytes <= 400e6
    assert report.peak_bytes is None or report.peak_bytes <= 400e6


def forged(change):
    model = mg.EASE(l2=4).fit(log(0), solver="matrix_free")
    tensors = {name: np.array(one) for name, one in model.weights_.tensors().items()}
    change(tensors)
    return "free", tensors, model.log_.matrix


BAD = {
    "no penalties": lambda tensors: tensors.pop("penalties"),
    "no tolerance": lambda tensors: tensors.pop("tolerance"),
    "a diagonal without errors": lambda tensors: tensors.pop("errors"),
    "errors without a diagonal": lambda tensors: tensors.pop("diagonal"),
    "another catalogue": lambda tensors: tensors.__setitem__("diagonal", np.ones(3)),
    "a diagonal of 0": lambda tensors: tensors["diagonal"].__setitem__(2, 0.0),
    "an error below 0": lambda tensors: tensors["errors"].__setitem__(2, -1.0),
    "a tolerance of 0": lambda tensors: tensors["tolerance"].__setitem__(0, 0.0),
    "two tolerances": lambda tensors: tensors.__setitem__("tolerance", np.full(2, 1e-7)),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_bad_tensors_are_refused(change):
    with pytest.raises(ModelFileError):
        from_tensors(*forged(change))


def test_the_report_of_an_older_file_is_read():
    report = mg.EASE(l2=4).fit(log(0), solver="matrix_free").report_
    older = {name: value for name, value in dataclasses.asdict(report).items() if name != "deviation"}
    assert type(report)(**older).deviation is None
