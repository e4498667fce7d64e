"""Every filter against the optimum that L-BFGS reaches on the model's own objective."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.errors import MemoryBudgetError, ModelFileError, MonogramWarning, ParameterError

RANK = 3


@pytest.fixture(scope="module")
def small():
    """40 users × 9 items."""
    rng = np.random.default_rng(4)
    dense = (rng.random((40, 9)) < rng.uniform(0.2, 0.7, 9)).astype(np.float64)
    dense[dense.sum(axis=1) == 0, 2] = 1
    return dense


def weights(model, matrix, **options):
    return model.fit(sp.csr_array(matrix.astype(np.float32)), dtype="float64", **options).item_weights()


def nuclear(matrix):
    return np.linalg.svd(matrix, compute_uv=False).sum()


def lowest(objective, *shapes, starts=4):
    """The lowest value of several L-BFGS runs over arrays of the shapes; the objective gives value and gradients."""
    sizes = [int(np.prod(shape)) for shape in shapes]

    def flat(vector):
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        value, slopes = objective(*[part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])
        return value, np.concatenate([one.ravel() for one in slopes])

    best = np.inf
    for seed in range(starts):
        start = np.random.default_rng(seed).standard_normal(sum(sizes)) * 0.5
        options = {"maxiter": 3000, "maxfun": 10**6, "ftol": 1e-14, "gtol": 1e-8}
        best = min(best, scipy.optimize.minimize(flat, start, jac=True, method="L-BFGS-B", options=options).fun)
    return best


def agree(value, best):
    assert value <= best * (1 + 1e-6), "L-BFGS found something lower"
    assert best <= value * (1 + 1e-4), "this is not the objective's value"


def test_regularized_pca(small):
    fitted = small @ weights(mg.RegularizedPCA(rank=RANK, l2=1.5), small)
    value = ((small - fitted) ** 2).sum() + 2 * 1.5 * nuclear(fitted)  # balanced factors: ‖P‖² + ‖Q‖² = 2‖PQ‖_*

    def objective(p, q):
        rest = p @ q - small
        value = (rest**2).sum() + 1.5 * ((p**2).sum() + (q**2).sum())
        return value, (2 * rest @ q.T + 3 * p, 2 * p.T @ rest + 3 * q)

    agree(value, lowest(objective, (40, RANK), (RANK, 9), starts=2))


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 3.0])
def test_nuclear_power(small, power):
    """Lemma 2 with the factor ½s, which the paper's threshold lacks."""
    l2 = {1.0: 4.0, 1.5: 0.6, 2.0: 0.1, 3.0: 0.002}[power]
    fitted = small @ weights(mg.NuclearPower(l2=l2, power=power), small)
    value = ((small - fitted) ** 2).sum() + l2 * nuclear(fitted) ** power

    def objective(p, q):  # ‖Y‖_* = min ½(‖P‖² + ‖Q‖²) over Y = PQ
        rest, norm = p @ q - small, 0.5 * ((p**2).sum() + (q**2).sum())
        slope = l2 * power * norm ** (power - 1)
        return (rest**2).sum() + l2 * norm**power, (2 * rest @ q.T + slope * p, 2 * p.T @ rest + slope * q)

    agree(value, lowest(objective, (40, 9), (9, 9), starts=1))


@given(keep=st.floats(0.3, 0.999), seed=st.integers(0, 100))
def test_dropout_is_the_squared_nuclear_norm(keep, seed):
    dense = (np.random.default_rng(seed).random((12, 7)) < 0.5).astype(np.float64)
    dense[0] = 1
    np.testing.assert_allclose(
        weights(mg.DropoutMF(keep=keep), dense),
        weights(mg.NuclearPower(l2=(1 - keep) / keep, power=2), dense),
        atol=1e-9,
    )


@pytest.mark.parametrize(("keep", "rank"), [(0.5, 3), (0.9, 8), (0.97, 11), (0.999, 13)])
def test_dropouts_rank_follows_from_a_planted_spectrum(keep, rank):
    """P1's tables give p and the induced rank; here squares of ones plant the singular values, their sides."""
    sigma = np.array([20, 17, 14, 12, 10, 9, 7, 6, 5, 4, 3, 2, 1])
    matrix = sp.block_diag([np.ones((side, side), np.float32) for side in sigma]).tocsr()
    model = mg.DropoutMF(keep=keep).fit(matrix)
    kept = [r for r in range(1, 14) if sigma[r - 1] > (1 - keep) / (keep + (1 - keep) * r) * sigma[:r].sum()]
    assert model.report_.rank == max(kept) == rank
    level = (1 - keep) / (keep + (1 - keep) * rank) * sigma[:rank].sum()
    assert model.item_weights()[0, 1] == pytest.approx((1 - level / 20) / 20, rel=1e-5)


def test_wlae(small):
    penalties = (0.5, 3.0, 8.0)
    fitted = weights(mg.WLAE(rank=RANK, weights=penalties), small)
    filters = np.linalg.eigvalsh(fitted)[::-1][:RANK]
    value = ((small - small @ fitted) ** 2).sum() + 2 * (np.array(penalties) * filters).sum()
    root = np.sqrt(penalties)

    def objective(first, second):
        rest = small @ first @ second - small
        value = (rest**2).sum() + ((first * root) ** 2).sum() + ((root[:, None] * second) ** 2).sum()
        common, squares = small.T @ rest, np.array(penalties)
        return value, (
            2 * common @ second.T + 2 * first * squares,
            2 * first.T @ common + 2 * squares[:, None] * second,
        )

    agree(value, lowest(objective, (9, RANK), (RANK, 9)))


@pytest.mark.parametrize("options", [{"weights": (0.4, 1.1, 2.0)}, {"scale": 3.0}, {}], ids=["weights", "scale", "one"])
def test_vlae(small, options):
    fitted = weights(mg.VLAE(rank=RANK, **options), small)
    sigma = np.linalg.svd(small, compute_uv=False)[:RANK]
    lam = np.array(options.get("weights", (1.0,) * 3)) if "scale" not in options else options["scale"] / sigma
    filters = np.linalg.eigvalsh(fitted)[::-1][:RANK]
    value = ((small - small @ fitted) ** 2).sum() + 2 * (lam * sigma * filters).sum()

    def objective(a, b):
        rest, hidden, squares = small @ a @ b - small, small @ a, lam[:, None] ** 2
        value = (rest**2).sum() + (squares * b**2).sum() + (hidden**2).sum()
        return value, (2 * small.T @ (rest @ b.T + hidden), 2 * hidden.T @ rest + 2 * squares * b)

    agree(value, lowest(objective, (9, RANK), (RANK, 9)))


@pytest.mark.parametrize("l2", [2.5, (0.5, 9.0, 2.0)], ids=["scalar", "by direction"])
def test_lrr(small, l2):
    fitted = weights(mg.LRR(rank=RANK, l2=l2), small)
    vectors = np.linalg.svd(small)[2].T
    penalties = np.zeros(9) + 2.5 if isinstance(l2, float) else np.array([*l2, 20.0, 20, 20, 20, 20, 20])

    def value(first, second):
        product = first @ second
        rest, turned = small @ product - small, vectors.T @ product
        slope = 2 * small.T @ rest + 2 * vectors @ (penalties[:, None] * turned)
        total = (rest**2).sum() + (penalties[:, None] * turned**2).sum()
        return total, (slope @ second.T, first.T @ slope)

    mine = value(fitted, np.eye(9))[0]
    assert np.linalg.matrix_rank(fitted) == RANK
    agree(mine, lowest(value, (9, RANK), (RANK, 9)))


@given(order=st.permutations([0.2, 0.9, 1.4, 2.2]))
def test_the_order_of_weights_does_not_matter(order):
    """P1, proposition 2."""
    dense = (np.random.default_rng(1).random((30, 8)) < 0.5).astype(np.float64)
    for kind in (mg.VLAE, mg.WLAE):
        np.testing.assert_allclose(
            weights(kind(rank=4, weights=order), dense), weights(kind(rank=4, weights=sorted(order)), dense), atol=1e-12
        )


def test_vlae_is_an_lrr(small):
    """P1, proposition 1."""
    sigma = np.linalg.svd(small, compute_uv=False)[:RANK]
    l2 = mg.vlae_as_lrr(sigma, [0.4, 1.1, 2.0])
    np.testing.assert_allclose(l2, sigma**3 / (sigma - [0.4, 1.1, 2.0]) - sigma**2)
    np.testing.assert_allclose(
        weights(mg.LRR(rank=RANK, l2=l2), small),
        weights(mg.VLAE(rank=RANK, weights=(0.4, 1.1, 2.0)), small),
        atol=1e-12,
    )
    with pytest.raises(ParameterError, match="not below its singular value"):
        mg.vlae_as_lrr([1.0, 0.5], 0.7)


def test_full_rank_lrr_is_ridge_regression(small):
    gram = small.T @ small
    np.testing.assert_allclose(
        weights(mg.LRR(rank=9, l2=4.0), small), np.linalg.solve(gram + 4 * np.eye(9), gram), atol=1e-10
    )
    np.testing.assert_allclose(weights(mg.LRR(rank=500, l2=4.0), small), weights(mg.LRR(rank=9, l2=4.0), small))


MODELS = [
    mg.RegularizedPCA(rank=4, l2=0.5),
    mg.DropoutMF(keep=0.95),
    mg.NuclearPower(l2=0.01),
    mg.WLAE(rank=4, weights=2.0),
    mg.VLAE(rank=4, weights=(0.1, 0.2, 0.3, 0.4)),
    mg.LRR(rank=4, l2=3.0),
    mg.RG2(rank=4, l2=0.1),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_both_solvers_and_a_spectrum_give_the_same_weights(world, model, tmp_path):
    first = weights(model, world.toarray(), solver="primal")
    assert model.report_.solver == "primal, dense"
    np.testing.assert_allclose(weights(model, world.toarray(), solver="dual"), first, atol=1e-9)
    kept = mg.Spectrum(world, rank=30, target=model.target, dtype="float64")
    np.testing.assert_allclose(model.fit(kept).item_weights(), first, atol=1e-9)
    assert model.report_.solver == "reused"
    kept.save(tmp_path / "a spectrum.mono")
    loaded = mg.Spectrum.load(tmp_path / "a spectrum.mono")
    np.testing.assert_array_equal(model.fit(loaded).item_weights(), model.fit(kept).item_weights())
    assert loaded.residual == pytest.approx(kept.residual, abs=1e-15)
    assert (loaded.rank, loaded.target, loaded.complete) == (kept.rank, kept.target, kept.complete)
    assert "Spectrum(" in repr(loaded)


def test_ranks_are_prefixes(world):
    kept = mg.Spectrum(world, rank=12, dtype="float64")
    for rank in (1, 5, 12):
        np.testing.assert_allclose(
            mg.LRR(rank=rank, l2=2.0).fit(kept).item_weights(),
            weights(mg.LRR(rank=rank, l2=2.0), world.toarray()),
            atol=1e-9,
        )


def test_a_spectrum_with_too_few_pairs_is_refused(world):
    kept = mg.Spectrum(world, rank=5)
    with pytest.raises(ParameterError, match="rank = 6 for LRR, but the Spectrum has 5"):
        mg.LRR(rank=6).fit(kept)
    with pytest.raises(ParameterError, match="target='rg2'"):
        mg.RG2(rank=3).fit(kept)
    with pytest.raises(ParameterError, match="needs more than the 5 pairs"):
        mg.DropoutMF(keep=0.999).fit(kept)
    for wrong in (0, 2.5, True, "4"):
        with pytest.raises(ParameterError, match="whole number of at least 1"):
            mg.Spectrum(world, rank=wrong)
    with pytest.raises(ParameterError, match="one of plain, rg2"):
        mg.Spectrum(world, target="other")
    with pytest.raises(MemoryBudgetError, match="lower rank"):
        mg.Spectrum(world, rank=5, memory=1000)
    with pytest.raises(MemoryBudgetError, match="lower rank"):
        mg.LRR(rank=5).fit(world, memory=1000)


def test_wrong_numbers_are_refused():
    with pytest.raises(ParameterError, match="2 numbers for rank = 3"):
        mg.WLAE(rank=3, weights=[1, 2])
    with pytest.raises(ParameterError, match="both weights and scale"):
        mg.VLAE(weights=1.0, scale=2.0)
    with pytest.raises(ParameterError, match="a number of at least 0"):
        mg.LRR(rank=2, l2=[1.0, -1.0])
    with pytest.raises(ParameterError, match="a list of numbers"):
        mg.LRR(rank=2, l2=[])


def test_a_file_that_is_no_spectrum(world, tmp_path):
    mg.LRR(rank=3).fit(world).save(tmp_path / "model.mono")
    with pytest.raises(ModelFileError, match="contains no spectrum"):
        mg.Spectrum.load(tmp_path / "model.mono")
    mg.Spectrum(world, rank=3).save(tmp_path / "spectrum.mono")
    with pytest.raises(ModelFileError, match=r"load it with monogram\.Spectrum\.load"):
        mg.load(tmp_path / "spectrum.mono")


def test_every_pair_of_data_that_is_nearly_singular(small):
    """All pairs are wanted, the last a thousand-millionth of the first: none is lost, none is refused."""
    dense = np.hstack([small, small[:, :1] + 1e-4 * np.random.default_rng(0).random((40, 1))])
    gram = dense.astype(np.float32).astype(np.float64)
    gram = gram.T @ gram
    actual = weights(mg.LRR(rank=10, l2=1e-9), dense)
    np.testing.assert_allclose(actual, np.linalg.solve(gram + 1e-9 * np.eye(10), gram), atol=1e-3)
    assert mg.Spectrum(sp.csr_array(dense.astype(np.float32)), rank=10).rank == 10


def test_a_filter_that_is_zero_everywhere_is_warned_of(world):
    model = mg.RegularizedPCA(rank=3, l2=1e6)
    with pytest.warns(MonogramWarning, match="no direction passes"):
        model.fit(world)
    assert model.report_.rank == 0
    assert len(model.recommend([0], k=3)) == 3


def test_rg2_reaches_its_own_optimum(small):
    """The objective of the paper's updates, over P and Q, by L-BFGS; and the fitted values are the training rows'."""
    users, items = small.shape
    rank, l2 = 3, 0.15
    lengths = small.sum(axis=1)
    share = lengths / (2 * items * lengths.sum())
    target = small * items / lengths[:, None] - 1

    def objective(p, q):
        rest, each = p @ q - target, share[:, None]
        value = (each * rest**2).sum() + l2 * items * (each * p**2).sum() + l2 * share.sum() * (q**2).sum()
        first = 2 * each * (rest @ q.T + l2 * items * p)
        return value, (first, 2 * p.T @ (each * rest) + 2 * l2 * share.sum() * q)

    model = mg.RG2(rank=rank, l2=l2).fit(sp.csr_array(small.astype(np.float32)), dtype="float64")
    fitted = model.score([np.flatnonzero(row).tolist() for row in small])
    shrunk = np.sqrt(share)[:, None] * fitted
    value = (share[:, None] * (target - fitted) ** 2).sum() + 2 * l2 / np.sqrt(2) * nuclear(shrunk)
    agree(value, lowest(objective, (users, rank), (rank, items), starts=2))


@pytest.mark.parametrize("solver", ["als", "newton_cg"])
def test_rg2s_other_solvers_end_at_the_closed_form(world, solver):
    exact = mg.RG2(rank=5, l2=0.1).fit(world, dtype="float64")
    actual = mg.RG2(rank=5, l2=0.1, solver=solver, tolerance=1e-14, epochs=5000).fit(world, dtype="float64")
    np.testing.assert_allclose(actual.item_weights(), exact.item_weights(), atol=1e-3)
    assert actual.report_.solver == solver
    record = np.array(actual.report_.objectives)
    assert (np.diff(record) <= 1e-12 * record[0]).all()
    assert actual.report_.peak_bytes is None or actual.report_.peak_bytes < actual.report_.planned_bytes


def test_rg2s_plain_penalty_needs_an_iterative_solver(world):
    with pytest.raises(ParameterError, match="no closed form"):
        mg.RG2(penalty="plain")
    model = mg.RG2(rank=4, l2=1e-4, penalty="plain", solver="als", epochs=500).fit(world)
    assert len(model.recommend(k=3)) > 100
    with pytest.raises(ParameterError, match="uses no Spectrum"):
        model.fit(mg.Spectrum(world, rank=4, target="rg2"))
    with pytest.raises(MemoryBudgetError, match="lower rank"):
        model.fit(world, memory=1000)


def test_rg2_warns_of_too_few_epochs(world):
    with pytest.warns(MonogramWarning, match="not converged in 1 epochs"):
        mg.RG2(rank=4, l2=0.01, solver="als", epochs=1).fit(world)


def test_float32_meets_its_tolerance_where_the_first_value_dwarfs_the_rest(monkeypatch):
    """Popularity makes σ₁² thousands of times σ_k²; float32 products alone would leave more than 1e-4 of the last."""
    from monogram.engine.lowrank import spectrum

    monkeypatch.setattr(spectrum, "SMALL", 10)
    rng = np.random.default_rng(0)
    dense = (rng.random((600, 300)) < 0.02).astype(np.float32)
    dense[:, :3] = 10.0
    for solver in ("primal", "dual"):
        model = mg.LRR(rank=40, l2=1.0).fit(sp.csr_array(dense), solver=solver)
        assert model.report_.solver == f"{solver}, lanczos"
        assert model.report_.residual < 1e-4


def test_no_warning_on_ordinary_data(world):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in MODELS:
            model.fit(world)


def test_float32_keeps_what_a_large_first_value_dwarfs():
    rng = np.random.default_rng(0)
    dense = (rng.random((300, 100)) < 0.1).astype(np.float32)
    dense[:, 0] = 5000
    model = mg.LRR(rank=100, l2=1.0).fit(sp.csr_array(dense))
    assert model.report_.rank == 100
    assert model.weights_.right.dtype == np.float32
    np.testing.assert_allclose(model.item_weights(), weights(mg.LRR(rank=100, l2=1.0), dense), atol=1e-3)


def test_all_pairs_of_data_with_a_null_space():
    """Half the columns twice: 400 pairs are rounding, above or below 0; RG² has one more, T·1 = 0."""
    rng = np.random.default_rng(0)
    dense = (rng.random((500, 300)) < 0.1).astype(np.float32)
    dense[:, 150:] = dense[:, :150]
    for model in (mg.RG2(rank=300, l2=0.0), mg.LRR(rank=300, l2=1.0)):
        model.fit(sp.csr_array(dense), dtype="float64")
        assert model.report_.rank <= 151
        assert np.isfinite(model.weights_.scale).all()
        assert len(model.recommend([0], k=5)) == 5


@pytest.mark.parametrize("weight", [1e15, 1e-15])
def test_weights_whose_squares_leave_float32(monkeypatch, weight):
    from monogram.engine.lowrank import spectrum

    monkeypatch.setattr(spectrum, "SMALL", 10)
    rng = np.random.default_rng(0)
    dense = (rng.random((200, 150)) < 0.1).astype(np.float32)
    plain = mg.Spectrum(sp.csr_array(dense), rank=10)
    scaled = mg.Spectrum(sp.csr_array(dense * np.float32(weight)), rank=10)
    np.testing.assert_allclose(scaled.values, plain.values * weight, rtol=1e-4)


def test_pairs_lost_in_float32_are_warned_of(monkeypatch):
    from monogram.engine.lowrank import spectrum

    monkeypatch.setattr(spectrum, "SMALL", 10)
    rng = np.random.default_rng(0)
    dense = (rng.random((300, 200)) < 0.1).astype(np.float32)
    dense[:, 0] = 1e5
    with pytest.warns(MonogramWarning, match=r"of the 10 pairs asked for.*float64"):
        mg.Spectrum(sp.csr_array(dense), rank=10)


@pytest.mark.parametrize("damage", ["nan", "half", "residual", "complete"])
def test_forged_spectra_are_refused(world, tmp_path, damage):
    held = mg.Spectrum(world, rank=3)
    if damage == "nan":
        held.vectors[0, 0] = np.nan
    elif damage == "half":
        held.vectors = held.vectors.astype(np.float16)
    elif damage == "residual":
        held.residual = -1.0
    else:
        held.complete = "no"
    held.save(tmp_path / "forged.mono")
    with pytest.raises(ModelFileError, match="does not contain a complete spectrum"):
        mg.Spectrum.load(tmp_path / "forged.mono")


def test_a_tolerance_is_above_0(world):
    for wrong in (0, -1.0, float("nan"), "small"):
        with pytest.raises(ParameterError, match="above 0"):
            mg.Spectrum(world, rank=3, tolerance=wrong)


def of_users(dense, power):
    """The weights of users, as docs/mathematics.md has them: the mean weight of an event is 1."""
    sums = dense.sum(axis=1)
    return sums**-power * sums.sum() / (sums ** (1 - power)).sum()


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("power", [0.5, 1.0, 1.5])
def test_a_weighted_spectrum_is_that_of_the_weighted_rows(small, power, solver):
    log = sp.csr_array(small.astype(np.float32))
    actual = mg.Spectrum(log, 9, user_power=power, dtype="float64", solver=solver)
    _, sigma, right = np.linalg.svd(np.sqrt(of_users(small, power))[:, None] * small, full_matrices=False)
    np.testing.assert_allclose(actual.values, sigma[: actual.rank], rtol=1e-10)
    model = mg.RegularizedPCA(rank=RANK, l2=1.5).fit(actual)
    kept = right[:RANK].T * (np.maximum(sigma[:RANK] - 1.5, 0) / sigma[:RANK]) @ right[:RANK]
    np.testing.assert_allclose(model.item_weights(), kept, atol=1e-10)
    assert f"user_power {power:g}" in model.report_.note


def test_the_power_0_is_the_plain_spectrum(small):
    log = sp.csr_array(small.astype(np.float32))
    one, other = mg.Spectrum(log, 4, user_power=np.int64(0)), mg.Spectrum(log, 4)
    np.testing.assert_array_equal(one.values, other.values)
    assert mg.LRR(rank=4).fit(one).report_.note == ""


def test_rg2_is_the_power_1_of_the_users(small):
    """T̃ᵀT̃ is the Gram of the spectrum with user_power=1, to a factor, less the shift by −1."""
    dense = small * np.random.default_rng(0).integers(1, 4, small.shape)  # n_u is the sum of the row
    log = mg.Interactions.from_csr(sp.csr_array(dense.astype(np.float32)))
    weighted = mg.Spectrum(log, 9, user_power=1, dtype="float64")
    assert weighted.complete
    gram = (weighted.vectors * weighted.values**2) @ weighted.vectors.T
    n, total, users, d = dense.shape[1], dense.sum(), len(dense), dense.sum(axis=0)
    target = n / (2 * total) / (total / users) * gram - (d[:, None] + d) / (2 * total) + 1 / (2 * n)
    values, vectors = np.linalg.eigh(target)
    rg2 = mg.Spectrum(log, 9, target="rg2", dtype="float64")
    assert rg2.user_power == 1
    np.testing.assert_allclose(rg2.values, np.sqrt(values[::-1][: rg2.rank]), rtol=1e-7)
    sigma, right = np.sqrt(values[::-1][:RANK]), vectors[:, ::-1][:, :RANK]
    kept = (right * (np.maximum(sigma - 0.1 / np.sqrt(2), 0) / sigma)) @ right.T
    model = mg.RG2(rank=RANK, l2=0.1).fit(log, dtype="float64")
    for user in range(5):
        expected = (dense[user] * n / dense[user].sum() - 1) @ kept
        np.testing.assert_allclose(model.score([model.history(user)])[0], expected, atol=1e-9)


def test_the_power_is_kept_with_the_spectrum(small, tmp_path):
    log = sp.csr_array(small.astype(np.float32))
    held = mg.Spectrum(log, 4, user_power=0.5, dtype="float64")
    held.save(tmp_path / "a.spectrum")
    actual = mg.Spectrum.load(tmp_path / "a.spectrum")
    assert actual.user_power == 0.5
    assert "user_power=0.5" in repr(actual)
    again = actual.refresh(log)
    assert again.user_power == 0.5
    np.testing.assert_allclose(again.values, held.values, rtol=1e-8)
    for target in ("plain", "rg2"):
        mg.Spectrum(log, 4, target=target).save(tmp_path / "b.spectrum")
        assert mg.Spectrum.load(tmp_path / "b.spectrum").user_power == (target == "rg2")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"user_power": -1}, "user_power = -1; expected a number of at least 0 and at most 2"),
        ({"user_power": "1"}, "user_power = '1'"),
        ({"user_power": float("nan")}, "user_power = nan"),
        ({"user_power": 0.5, "target": "rg2"}, "RG² weighs users by the power 1"),
    ],
)
def test_an_invalid_user_power_is_refused(small, given, text):
    with pytest.raises(ParameterError, match=text):
        mg.Spectrum(sp.csr_array(small.astype(np.float32)), 4, **given)
