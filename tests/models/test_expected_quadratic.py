"""`ExpectedQuadratic` on moments: its instances, its constraints, its files and its refusals."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import monogram as mg
from monogram import store
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.errors import MemoryBudgetError, ModelFileError, MonogramWarning, NumericalError, ParameterError
from monogram.testing import check_recommender
from monogram.weights import Dense, SolvedProduct


@pytest.fixture
def log(world):
    return mg.Interactions.from_csr(world, items=[f"i{n}" for n in range(25)])


def gram_of(log):
    x = log.matrix.toarray().astype(np.float64)
    return x.T @ x


def weights_of(model, moments, **options):
    return model.fit(moments, dtype="float64", **options).item_weights()


def zero_diagonal_regression(system):
    inverse = np.linalg.inv(system)
    slopes = -inverse / np.diag(inverse)
    np.fill_diagonal(slopes, 0)
    return slopes


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_ease_is_an_instance(log, kind):
    gram = gram_of(log)
    model = mg.ExpectedQuadratic(l2=3, zero_diagonal=True)
    actual = weights_of(model, mg.Moments(log, kind(gram), kind(gram)))
    np.testing.assert_allclose(actual, mg.EASE(l2=3).fit(log, dtype="float64").item_weights(), atol=1e-8)
    assert type(model.weights_) is (Dense if kind is np.asarray else SolvedProduct)
    assert model.report_.residual < 1e-10


@pytest.mark.parametrize("zero_diagonal", [True, False])
def test_a_log_alone_is_its_own_input_and_target(log, zero_diagonal):
    actual = weights_of(mg.ExpectedQuadratic(l2=3, zero_diagonal=zero_diagonal), log)
    same = mg.EASE(l2=3) if zero_diagonal else mg.DLAE(l2=3, dropout=0)
    np.testing.assert_allclose(actual, same.fit(log, dtype="float64").item_weights(), atol=1e-8)


@given(dropout=st.floats(0, 0.9), l2=st.floats(0.1, 100))
@settings(max_examples=10)
def test_edlae_is_the_expected_dropout_up_to_a_factor(dropout, l2):
    dense = np.random.default_rng(2).random((40, 11)) < 0.3
    log = mg.Interactions.from_csr(sp.csr_array(dense.astype(np.float32)))
    gram, q = gram_of(log), 1 - dropout
    moments = mg.Moments(log, q**2 * gram + q * dropout * np.diag(np.diag(gram)), q * gram)
    actual = weights_of(mg.ExpectedQuadratic(l2=q**2 * l2, zero_diagonal=True), moments)
    expected = mg.EDLAE(l2=l2, dropout=dropout).fit(log, dtype="float64").item_weights() / q
    np.testing.assert_allclose(actual, expected, atol=1e-8)


def test_edlae_by_the_penalties_of_each_item(log):
    gram = sp.csr_array(gram_of(log))
    moments = mg.Moments(log, gram, gram, penalties=0.25 / 0.75 * gram.diagonal())
    actual = weights_of(mg.ExpectedQuadratic(l2=5, zero_diagonal=True), moments)
    expected = mg.EDLAE(l2=5, dropout=0.25).fit(log, dtype="float64").item_weights()
    np.testing.assert_allclose(actual, expected, atol=1e-8)


def test_the_time_kernel_is_an_instance():
    rng = np.random.default_rng(3)
    matrix = sp.csr_array((rng.random((30, 12)) < 0.4).astype(np.float32))
    log = mg.Interactions.from_csr(matrix, order=rng.permutation(matrix.nnz))
    kernel, gram = TimeKernel(log.positions, 0.7, 0.1), np.zeros((12, 12))
    for user in range(30):
        part = slice(matrix.indptr[user], matrix.indptr[user + 1])
        for i, a in zip(matrix.indices[part], log.positions[part], strict=True):
            for j, b in zip(matrix.indices[part], log.positions[part], strict=True):
                gram[i, j] += kernel(abs(int(a) - int(b)))
    actual = weights_of(mg.ExpectedQuadratic(l2=2, zero_diagonal=True), mg.Moments(log, gram, gram))
    np.testing.assert_allclose(actual, zero_diagonal_regression(gram + 2 * np.eye(12)), atol=1e-8)


def rows(seed, count=50, items=25):
    rng = np.random.default_rng(seed)
    inputs, targets = (sp.random_array((count, items), density=0.15, rng=rng, format="csr") for _ in range(2))
    return inputs, targets, rng.random(count)


@given(seed=st.integers(0, 1000), size=st.integers(1, 50), weighted=st.booleans())
@settings(max_examples=15)
def test_blocks_equal_whole_moments(seed, size, weighted):
    inputs, targets, weights = rows(seed)
    log = mg.Interactions.from_csr(sp.csr_array(np.ones((2, 25), np.float32)))
    parts = [slice(start, start + size) for start in range(0, 50, size)]
    blocks = ((inputs[part], targets[part], *([weights[part]] if weighted else [])) for part in parts)
    actual = weights_of(mg.ExpectedQuadratic(l2=1), mg.Moments.from_blocks(log, blocks))
    x, t = inputs.toarray(), targets.toarray()
    w = weights if weighted else np.ones(50)
    expected = np.linalg.solve((x.T * w) @ x + np.eye(25), (x.T * w) @ t)
    np.testing.assert_allclose(actual, expected, atol=1e-10)


def moments_of(log, kind=sp.csr_array, **more):
    inputs, targets, _ = rows(5)
    return mg.Moments(log, (inputs.T @ inputs).toarray(), kind((inputs.T @ targets).toarray()), **more)


@pytest.mark.parametrize("fixed", ["free", "zero", "some"])
def test_a_sparse_cross_moment_equals_a_dense_one(log, fixed):
    diagonal = np.where(np.arange(25) % 3, 0.5, np.nan) if fixed == "some" else None
    model = mg.ExpectedQuadratic(l2=1, zero_diagonal=fixed == "zero")
    sparse, dense = (weights_of(model, moments_of(log, kind, diagonal=diagonal)) for kind in (sp.csr_array, np.asarray))
    np.testing.assert_allclose(sparse, dense, atol=1e-12)
    if fixed != "free":
        expected = 0.0 if fixed == "zero" else 0.5
        chosen = np.arange(25) % 3 > 0 if fixed == "some" else np.full(25, True)
        np.testing.assert_allclose(np.diag(sparse)[chosen], expected, atol=1e-12)


@pytest.mark.parametrize("kind", [sp.csr_array, np.asarray])
def test_permuting_the_items_permutes_the_answer(log, kind):
    order = np.random.default_rng(8).permutation(25)
    moments = moments_of(log, kind)
    other = mg.Interactions.from_csr(log.matrix[:, order], items=[log.items[j] for j in order])
    cross = moments.cross.toarray() if kind is sp.csr_array else moments.cross
    turned = mg.Moments(other, moments.second[np.ix_(order, order)], kind(cross[np.ix_(order, order)]))
    model = mg.ExpectedQuadratic(l2=1, zero_diagonal=True)
    first = weights_of(model, moments)
    np.testing.assert_allclose(weights_of(model, turned), first[np.ix_(order, order)], atol=1e-12)


@pytest.mark.parametrize("kind", [sp.csr_array, np.asarray])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loaded_model_is_bit_equal(log, tmp_path, kind, dtype):
    model = mg.ExpectedQuadratic(l2=1, zero_diagonal=True).fit(moments_of(log, kind), dtype=dtype)
    model.save(tmp_path / "a.mono")
    loaded = mg.load(tmp_path / "a.mono")
    assert loaded.report_ == model.report_
    assert loaded.recommend(k=25).to_arrow().equals(model.recommend(k=25).to_arrow())
    assert loaded.similar(["i3"], k=5).rows() == model.similar(["i3"], k=5).rows()
    np.testing.assert_array_equal(loaded.item_weights(), model.item_weights())
    explained = loaded.explain(["i3", "i7"], "i4")
    assert sum(row["share"] for row in explained.rows()) == pytest.approx(explained.score, abs=1e-12)


def test_a_hostile_file_is_an_error(log, tmp_path):
    path = tmp_path / "a.mono"
    mg.ExpectedQuadratic(l2=1).fit(moments_of(log)).save(path)
    stored = store.load(path)
    for name, change in (
        ("columns", lambda one: np.where(np.arange(len(one)) == 3, 25, one).astype(one.dtype)),
        ("pointers", lambda one: one[::-1].copy()),
        ("square", lambda one: one[:-1].copy()),
        ("square", lambda one: np.where(np.eye(25) > 0, np.nan, one).astype(one.dtype)),
    ):
        tensors = {key: np.array(one) for key, one in stored.tensors.items()}
        tensors[f"weights.{name}"] = change(tensors[f"weights.{name}"])
        store.save(path, {key: value for key, value in stored.header.items() if key != "tensors"}, tensors)
        with pytest.raises(ModelFileError):
            mg.load(path)


def test_the_contract():
    check_recommender(mg.ExpectedQuadratic, l2=1.0, zero_diagonal=True)


def test_a_pruned_model_keeps_the_largest_weights(log):
    model = mg.ExpectedQuadratic(l2=1).fit(moments_of(log))
    pruned = model.prune(25)
    np.testing.assert_allclose(pruned.item_weights(), model.item_weights(), atol=1e-6)


@pytest.mark.parametrize("kind", [sp.csr_array, np.asarray])
def test_a_fit_over_the_budget_is_refused(log, kind):
    moments = moments_of(log, kind)
    with pytest.raises(MemoryBudgetError, match=r"needs .* \(primal, float32\) for 60 users × 25 items"):
        mg.ExpectedQuadratic(l2=1).fit(moments, memory=1000)
    with pytest.raises(MemoryBudgetError):
        mg.ExpectedQuadratic(l2=1).fit(log, memory=1000)
    assert mg.ExpectedQuadratic(l2=1).plan((10**5, 10**5, 10**6), memory="8 GB").fits is False


@pytest.mark.parametrize("kind", [sp.csr_array, np.asarray])
def test_the_fit_stays_within_its_plan(kind):
    rng = np.random.default_rng(0)
    inputs, targets = (sp.random_array((4000, 1500), density=0.003, rng=rng, format="csr") for _ in range(2))
    log = mg.Interactions.from_csr(inputs)
    cross = inputs.T @ targets
    moments = mg.Moments(log, inputs.T @ inputs, cross if kind is sp.csr_array else cross.toarray())
    model = mg.ExpectedQuadratic(l2=1, zero_diagonal=True)
    model.fit(moments)
    gc.collect()
    report = model.fit(moments).report_
    assert model.plan(moments).chosen.bytes == report.planned_bytes
    assert report.peak_bytes is None or report.peak_bytes <= report.planned_bytes


def test_items_without_input_have_no_weights(log):
    moments = mg.Moments(log, sp.csr_array((25, 25)), sp.csr_array((25, 25)))
    np.testing.assert_array_equal(weights_of(mg.ExpectedQuadratic(l2=0), moments), 0)


def test_a_second_moment_that_is_not_positive_is_an_error(log):
    indefinite = np.ones((25, 25)) * 5 - 4 * np.eye(25)
    indefinite[0, 1] = indefinite[1, 0] = 40
    with pytest.raises(NumericalError, match="raise l2"):
        mg.ExpectedQuadratic(l2=1).fit(mg.Moments(log, indefinite, np.eye(25)))


def test_a_fit_that_is_not_exact_warns(log):
    x = np.random.default_rng(0).standard_normal((300, 2)) @ np.random.default_rng(1).standard_normal((2, 25))
    second = 1e3 * x.T @ x
    with pytest.warns(MonogramWarning, match="this fit is not exact"):
        mg.ExpectedQuadratic(l2=3).fit(mg.Moments(log, second, second))


def not_symmetric(moments):
    moments["second"][3, 4] += 1


def negative(moments):
    moments["second"][3, 3] = -1


def swap(name, value):
    return lambda moments: moments.__setitem__(name, value)


BAD = {
    "another shape": (swap("second", np.eye(24)), r"second has shape \(24, 24\); expected \(25, 25\)"),
    "a cross of another shape": (swap("cross", sp.eye_array(24)), r"cross has shape \(24, 24\)"),
    "no symmetry": (not_symmetric, "second is not symmetric: two entries differ by 1;"),
    "negative squares": (negative, "second has a negative number on its diagonal"),
    "NaN": (swap("cross", np.full((25, 25), np.nan)), "cross holds NaN or infinity"),
    "texts": (swap("cross", np.full((25, 25), "a")), "cross has dtype <U1; expected numbers"),
    "ragged rows": (swap("cross", [[1, 2], [3]]), "cross is no array of numbers"),
    "too few penalties": (swap("penalties", np.ones(3)), r"penalties has shape \(3,\); expected \(25,\)"),
    "a negative penalty": (swap("penalties", -np.ones(25)), "penalties must be finite numbers of at least 0"),
    "an infinite diagonal": (swap("diagonal", np.full(25, np.inf)), "diagonal holds an infinite number"),
}


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=BAD)
def test_bad_moments_are_refused(log, change, words):
    moments = {"second": gram_of(log), "cross": gram_of(log)}
    change(moments)
    with pytest.raises(ParameterError, match=words):
        mg.Moments(log, **moments)


BAD_BLOCKS = {
    "none": ([], "there are no blocks"),
    "one part": ([(np.eye(25),)], r"block 0 is tuple; expected \(input, target\)"),
    "other rows": ([(np.eye(25), np.eye(25)), (np.eye(25), np.ones((3, 25)))], r"block 1 has an input of shape"),
    "other columns": ([(np.eye(24), np.eye(24))], "and 25 columns"),
    "weights of other rows": ([(np.eye(25), np.eye(25), [1, 2])], "one for each of its 25 rows"),
    "a negative weight": ([(np.eye(25), np.eye(25), -1)], "block 0 has a weight that is not a finite number"),
}


@pytest.mark.parametrize(("blocks", "words"), BAD_BLOCKS.values(), ids=BAD_BLOCKS)
def test_bad_blocks_are_refused(log, blocks, words):
    with pytest.raises(ParameterError, match=words):
        mg.Moments.from_blocks(log, blocks)


def test_two_constraints_on_the_diagonal_are_refused(log):
    with pytest.raises(ParameterError, match="zero_diagonal = True, but the moments have a diagonal"):
        mg.ExpectedQuadratic(zero_diagonal=True).fit(moments_of(log, diagonal=np.zeros(25)))


def test_the_moments_are_not_changed(log):
    moments = moments_of(log, np.asarray)
    before = moments.second.copy(), moments.cross.copy()
    mg.ExpectedQuadratic(l2=1).fit(moments)
    np.testing.assert_array_equal(before[0], moments.second)
    np.testing.assert_array_equal(before[1], moments.cross)
    assert repr(moments) == "Moments(25 items, second dense, cross dense)"
