"""Models with a time kernel against dense solutions from a Gram matrix that a double loop over the events makes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

import monogram as mg
from monogram.engine.gram.accumulate import gram
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.errors import DataError, MonogramWarning, ParameterError
from monogram.models.context import FitInputs, FitOptions
from monogram.models.spectral import Spectral

DECAYS = [
    {"decay": 0.7, "floor": 0.1},
    {"decay": 1.2, "decay_unit": "2 events"},
    {"decay": 0.5, "decay_unit": "1d"},
    {"decay": 0.8, "decay_unit": "40"},
]
DAY = 86_400.0


def world(seed=0, users=60, items=14, merge="binary", share=0.35):
    """A log with times in seconds, some of them equal; an item nobody used and a user without events."""
    rng = np.random.default_rng(seed)
    dense = (rng.random((users, items)) < share).astype(np.float32)
    if merge == "sum":
        dense *= rng.uniform(0.5, 2, dense.shape).astype(np.float32)
    dense[:, 4] = 0
    dense[3] = 0
    matrix = sp.csr_array(dense)
    times = 1.5e9 + np.round(rng.exponential(5 * DAY, matrix.nnz) / 7000) * 7000
    names = {"users": [f"u{n:03}" for n in range(users)], "items": [f"i{n:02}" for n in range(items)]}
    return mg.Interactions.from_csr(matrix, **names, times=times, time_unit="s", merge=merge)


def ids(vocabulary):
    return list(vocabulary.ids(np.arange(len(vocabulary))))


def places(log, unit):
    """The place of each event on the time axis, from the times and the unit as text."""
    number, _, rest = unit.partition(" ")
    if not rest:
        return log.latest / (float(unit[:-1]) * DAY if unit.endswith("d") else float(unit))
    out = np.empty(log.n_events)
    for start, stop in zip(log.matrix.indptr[:-1], log.matrix.indptr[1:], strict=True):
        out[start + np.argsort(log.latest[start:stop], kind="stable")] = np.arange(stop - start)
    return out / float(number)


def slow_gram(log, decay=0.0, floor=0.0, decay_unit="1 event", power=0.0):
    """S_ij = Σ_u w_u·k·x_ui·x_uj, one pair of events after the other."""
    out, matrix, at = np.zeros((log.n_items, log.n_items)), log.matrix, places(log, decay_unit)
    sums = matrix.sum(axis=1, dtype=np.float64)
    unit = sums.sum() / (sums[sums > 0] ** (1 - power)).sum()
    for user in range(log.n_users):
        events = range(matrix.indptr[user], matrix.indptr[user + 1])
        weight = unit * sums[user] ** -power if power and sums[user] else 1.0
        for p in events:
            for q in events:
                k = floor + (1 - floor) * (1 + abs(at[p] - at[q])) ** -decay
                out[matrix.indices[p], matrix.indices[q]] += weight * k * float(matrix.data[p]) * float(matrix.data[q])
    return out


def without_own(square, target, j):
    """The column of a regression on all other items."""
    others = np.arange(len(square)) != j
    column = np.zeros(len(square))
    column[others] = np.linalg.solve(square[np.ix_(others, others)], target[others])
    return column


def regression(gram, penalties):
    """B, one column after the other."""
    square = gram + np.diag(penalties)
    return np.column_stack([without_own(square, gram[:, j], j) for j in range(len(gram))])


def ridge(gram, l2, dropout):
    return l2 + dropout / (1 - dropout) * np.diag(gram)


def bounded(gram, penalties, relax):
    """min ‖X − XW‖² + ‖Λ^½W‖² under diag W ≤ relax, by cases: the bound holds with equality, or not at all."""
    square, columns = gram + np.diag(penalties), []
    for j in range(len(gram)):
        column = np.linalg.solve(square, gram[:, j])
        if column[j] > relax:
            column = without_own(square, gram[:, j] - relax * square[:, j], j)
            column[j] = relax
        columns.append(column)
    return np.column_stack(columns)


def decoupled(gram, l2, p, a, b):
    """The minimum of DEQL's expected loss, from its moments."""
    q, columns = 1 - p, []
    both = p * a**2 + q * b**2
    for j in range(len(gram)):
        square = both * q**2 * gram
        np.fill_diagonal(square, both * q * np.diag(gram))
        square[j] = square[:, j] = q**2 * b**2 * gram[j]
        square[j, j] = q * b**2 * gram[j, j]
        target = both * q * gram[:, j]
        target[j] = q * b**2 * gram[j, j]
        columns.append(np.linalg.solve(square + (q**2 * p * a**2 + q**3 * b**2) * l2 * np.eye(len(gram)), target))
    return np.column_stack(columns)


def popularity(log, power):
    counts = np.bincount(log.matrix.indices, minlength=log.n_items)
    return np.maximum(counts, 0.5) ** power


def two_steps(first, second, factors):
    return ((1 - second) * first + second * first @ first) * factors


CASES = {
    "ease": (mg.EASE, {"l2": 3.0}, lambda s, _: regression(s, np.full(len(s), 3.0))),
    "edlae": (mg.EDLAE, {"l2": 3.0, "dropout": 0.4}, lambda s, _: regression(s, ridge(s, 3.0, 0.4))),
    "dlae": (
        mg.DLAE,
        {"l2": 3.0, "dropout": 0.4},
        lambda s, _: np.linalg.solve(s + np.diag(ridge(s, 3.0, 0.4)), s),
    ),
    "rdlae": (
        mg.RDLAE,
        {"l2": 3.0, "dropout": 0.4, "relax": 0.2},
        lambda s, _: bounded(s, ridge(s, 3.0, 0.4), 0.2),
    ),
    "deql": (
        mg.DEQL,
        {"l2": 3.0, "dropout": 0.4, "a": 1.1, "b": 0.7},
        lambda s, _: decoupled(s, 3.0, 0.4, 1.1, 0.7),
    ),
    "tempered": (
        mg.Tempered,
        {"l2": 3.0, "dropout": 0.4, "user_power": 0.6, "item_power": -0.2},
        lambda s, log: regression(s, ridge(s, 3.0, 0.4)) * popularity(log, -0.2),
    ),
    "two_step": (
        mg.TwoStep,
        {"l2": 3.0, "dropout": 0.4, "user_power": 0.6, "second": 0.7, "item_power": 0.1},
        lambda s, log: two_steps(regression(s, ridge(s, 3.0, 0.4)), 0.7, popularity(log, 0.1)),
    ),
}
USED = np.arange(14) != 4  # weights of an item that nobody used are a matter of convention


def close(actual, expected, tolerance=1e-8):
    np.testing.assert_allclose(actual[np.ix_(USED, USED)], expected[np.ix_(USED, USED)], atol=tolerance)


@pytest.mark.parametrize("times", DECAYS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_full_rank_models_equal_the_dense_solution(case, times):
    model, settings, expected = CASES[case]
    log = world(merge="sum" if case == "ease" else "binary")
    square = slow_gram(log, **times, power=settings.get("user_power", 0.0))
    fitted = model(**settings, **times).fit(log, dtype="float64")
    close(fitted.item_weights(), expected(square, log))
    assert fitted.report_.solver == "primal"
    assert fitted.report_.residual < 1e-12


def moved(log, times, unit):
    names = {"users": ids(log.users), "items": ids(log.items)}
    return mg.Interactions.from_csr(log.matrix, **names, times=times, time_unit=unit)


def test_scaling_times_and_unit_together_changes_nothing():
    log = world(20)
    days = moved(log, log.times / DAY, "d")
    scaled = moved(log, 1000 * (log.times - log.times.min()), "ms")
    expected = mg.EASE(l2=3, decay=0.6, decay_unit="3d").fit(log, dtype="float64").item_weights()
    for data, unit in ((days, "3d"), (scaled, "3d"), (days, "3"), (scaled, str(3000 * DAY))):
        weights = mg.EASE(l2=3, decay=0.6, decay_unit=unit).fit(data, dtype="float64").item_weights()
        np.testing.assert_allclose(weights, expected, atol=1e-8)


@pytest.mark.parametrize("unit", ["1 event", "3d"])
def test_a_reversed_log_has_the_same_weights(unit):
    matrix = world(21).matrix
    times = 1.5e9 + 3600.0 * np.random.default_rng(21).permutation(matrix.nnz)
    forward = mg.Interactions.from_csr(matrix, times=times, time_unit="s")
    backward = mg.Interactions.from_csr(matrix, times=times.min() + times.max() - times, time_unit="s")
    first, second = (
        mg.EASE(l2=3, decay=0.6, decay_unit=unit).fit(log, dtype="float64").item_weights()
        for log in (forward, backward)
    )
    np.testing.assert_allclose(first, second, atol=1e-9)


@pytest.mark.parametrize("times", DECAYS[::2], ids=str)
@pytest.mark.parametrize("solver", ["disk", "local", "matrix_free"])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_solver_has_the_same_weights(times, solver, threads, tmp_path):
    log = world(1)
    model = mg.Tempered(l2=3, dropout=0.4, user_power=0.5, **times)
    expected = model.fit(log, dtype="float64", solver="primal", threads=threads).item_weights()
    options = {"disk": {"scratch": tmp_path}, "local": {"neighbours": 13}}.get(solver, {})
    other = mg.Tempered(**model.params()).fit(log, dtype="float64", solver=solver, threads=threads, **options)
    np.testing.assert_allclose(other.item_weights(), expected, atol=1e-10)


def test_files_of_another_kernel_are_not_resumed(tmp_path):
    log = world(2)
    for decay in (0.0, 0.4, 0.9):
        model = mg.EASE(l2=3, decay=decay)
        weights = model.fit(log, dtype="float64", solver="disk", scratch=tmp_path).item_weights()
        expected = mg.EASE(l2=3, decay=decay).fit(log, dtype="float64", solver="primal").item_weights()
        np.testing.assert_allclose(weights, expected, atol=1e-10)


def leading(square, rank):
    values, vectors = np.linalg.eigh(square)
    return values[::-1][:rank], vectors[:, ::-1][:, :rank]


@pytest.mark.parametrize("times", DECAYS[::2], ids=str)
def test_students_equal_the_dense_solution(times):
    log, rank = world(3), 3
    square = slow_gram(log, **times)
    penalties = ridge(square, 3.0, 0.4)
    penalties[4] = 3.0
    full = np.linalg.solve(square + np.diag(penalties), square)
    _, vectors = leading(full.T @ (square + np.diag(penalties)) @ full, rank)
    student = mg.LowRankDLAE(l2=3, dropout=0.4, rank=rank, **times).fit(log, dtype="float64")
    close(student.item_weights(), full @ vectors @ vectors.T)
    b = regression(square, penalties)
    _, vectors = leading(b.T @ (square + np.diag(penalties)) @ b, rank)
    student = mg.LowRankEDLAE(l2=3, dropout=0.4, rank=rank, **times).fit(log, dtype="float64")
    close(student.item_weights(), b @ vectors @ vectors.T)

    def objective(left, right):
        weights = left @ right.T
        np.fill_diagonal(weights, 0)
        rest = weights - np.eye(len(square))
        return np.trace(rest.T @ square @ rest) + (penalties[:, None] * weights**2).sum()

    solver = mg.LowRankEDLAE(l2=3, dropout=0.4, rank=rank, solver="alternating", **times).fit(log, dtype="float64")
    weights = solver.weights_
    assert solver.report_.objectives[-1] == pytest.approx(objective(weights.left, weights.right), rel=1e-9)
    assert solver.report_.objectives[-1] < student.report_.objectives[-1]


SPECTRAL = {
    "regularized_pca": (mg.RegularizedPCA(rank=4, l2=1.5), lambda sigma: np.maximum(sigma - 1.5, 0)[:4] / sigma[:4]),
    "wlae": (mg.WLAE(rank=4, weights=9.0), lambda sigma: np.maximum(1 - 9.0 / sigma[:4] ** 2, 0)),
    "vlae": (mg.VLAE(rank=4, weights=1.5), lambda sigma: np.maximum(sigma[:4] - 1.5, 0) / sigma[:4]),
    "lrr": (mg.LRR(rank=4, l2=9.0), lambda sigma: sigma[:4] ** 2 / (sigma[:4] ** 2 + 9.0)),
    "nuclear_power": (mg.NuclearPower(l2=5.0, power=1.0), lambda sigma: np.maximum(sigma - 2.5, 0) / sigma),
}


def remade(model, **changed):
    return type(model)(**(model.params() | changed))


@pytest.mark.parametrize("times", DECAYS[::2], ids=str)
@pytest.mark.parametrize("name", SPECTRAL)
def test_spectral_models_equal_the_dense_solution(name, times):
    log = world(4)
    model, expected = SPECTRAL[name]
    values, vectors = leading(slow_gram(log, **times), 13)
    scale = expected(np.sqrt(values))
    own = vectors[:, : len(scale)] * scale @ vectors[:, : len(scale)].T
    fitted = remade(model, **times).fit(log, dtype="float64")
    close(fitted.item_weights(), own)
    recipe = mg.GramRecipe(**times)
    shared = mg.Spectrum(log, 14, recipe=recipe, dtype="float64")
    close(remade(model, **times).fit(shared).item_weights(), own)


def test_dropout_mf_has_the_threshold_of_the_timed_spectrum():
    log, times = world(4), DECAYS[0]
    values, vectors = leading(slow_gram(log, **times), 13)
    sigma = np.sqrt(values)
    levels = 0.05 / (0.95 + 0.05 * np.arange(1, 14)) * np.cumsum(sigma)
    scale = np.maximum(sigma - levels[int((sigma > levels).sum()) - 1], 0) / sigma
    fitted = mg.DropoutMF(keep=0.95, **times).fit(log, dtype="float64")
    close(fitted.item_weights(), vectors * scale @ vectors.T)


def test_there_may_be_more_pairs_than_users():
    """With a time kernel the events of one user span a space of their own."""
    log = world(5, users=6, share=0.6)
    square = slow_gram(log, 0.5)
    spectrum = mg.Spectrum(log, 9, recipe=mg.GramRecipe(decay=0.5), dtype="float64")
    np.testing.assert_allclose(spectrum.values**2, np.linalg.eigvalsh(square)[::-1][:9], atol=1e-8)
    assert not spectrum.complete


def test_lanczos_on_the_pairs_of_events_is_the_dense_spectrum():
    rng = np.random.default_rng(6)
    matrix = sp.csr_array((rng.random((300, 1100)) < 0.02).astype(np.float32))
    log = mg.Interactions.from_csr(matrix, times=rng.random(matrix.nnz) * 100, time_unit="d")
    recipe = mg.GramRecipe(user_power=0.5, decay=0.6, decay_unit="5d")
    lanczos = mg.Spectrum(log, 5, recipe=recipe, dtype="float64", threads=2)
    square = np.zeros((1100, 1100), order="F")
    gram(recipe.data(matrix, recipe.unit(matrix)), square, kernel=recipe.kernel(log))
    expected = np.sqrt(scipy.linalg.eigvalsh(square, subset_by_index=[1095, 1099])[::-1])
    np.testing.assert_allclose(lanczos.values, expected, rtol=1e-8)
    refreshed = lanczos.refresh(log)
    assert refreshed.recipe == recipe
    np.testing.assert_allclose(refreshed.values, expected, rtol=1e-8)


def test_a_spectrum_keeps_its_recipe(tmp_path):
    log = world(7)
    for unit in ("1 event", "7d", "12"):
        recipe = mg.GramRecipe(user_power=0.5, decay=0.6, decay_unit=unit, floor=0.2)
        spectrum = mg.Spectrum(log, 4, recipe=recipe)
        spectrum.save(tmp_path / "a.spectrum")
        loaded = mg.Spectrum.load(tmp_path / "a.spectrum")
        assert loaded.recipe == recipe
        assert loaded.user_power == 0.5
        assert "decay=0.6" in repr(loaded)
        np.testing.assert_array_equal(loaded.vectors, spectrum.vectors)


def test_a_spectrum_of_another_kernel_is_refused():
    log = world(7)
    timed = mg.Spectrum(log, 4, recipe=mg.GramRecipe(decay=0.6))
    with pytest.raises(ParameterError, match=r"RegularizedPCA has decay = 0, but the Spectrum given has decay = 0\.6"):
        mg.RegularizedPCA(rank=4).fit(timed)
    with pytest.raises(ParameterError, match=r"has decay = 0\.5, .*given has decay = 0\.6"):
        mg.RegularizedPCA(rank=4, decay=0.5).fit(timed)
    with pytest.raises(ParameterError, match="with target='rg2', which has no time kernel"):
        mg.Spectrum(log, 4, target="rg2", recipe=mg.GramRecipe(1.0, decay=0.6))
    with pytest.raises(ParameterError, match="user_power = 0 and a recipe were given"):
        mg.Spectrum(log, 4, user_power=0, recipe=mg.GramRecipe(decay=0.6))
    with pytest.raises(ParameterError, match=r"expected a GramRecipe, such as GramRecipe\(decay=0\.5\)"):
        mg.Spectrum(log, 4, recipe=0.5)


def test_rg2_has_no_decay():
    assert "decay" not in mg.RG2().params()
    assert {model.name for model in Spectral.__subclasses__() if "decay" in model().params()} == {
        "regularized_pca", "dropout_mf", "nuclear_power", "wlae", "vlae", "lrr",
    }  # fmt: skip


EVERY = [mg.EASE, mg.EDLAE, mg.DLAE, mg.RDLAE, mg.DEQL, mg.Tempered, mg.TwoStep, mg.LowRankDLAE, mg.LowRankEDLAE]
EVERY += [mg.RegularizedPCA, mg.WLAE, mg.VLAE, mg.LRR]


@pytest.mark.parametrize("model", EVERY)
def test_without_decay_the_order_changes_no_bit(model):
    log = world(8)
    blind = mg.Interactions.from_csr(log.matrix, users=ids(log.users), items=ids(log.items))
    first, second = (model().fit(data).item_weights() for data in (log, blind))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("model", EVERY)
def test_a_log_without_order_is_refused_before_anything_is_computed(model):
    blind = mg.Interactions.from_csr(world(8).matrix)
    stages = []
    with pytest.raises(
        DataError, match=r"decay = 0\.5 needs the order of events, but this log has neither times nor an order"
    ):
        model(decay=0.5).fit(blind, progress=lambda stage, _: stages.append(stage))
    assert stages == []
    ordered = mg.Interactions.from_csr(blind.matrix, order=np.arange(blind.n_events))
    assert model(decay=0.5).plan(ordered).fits
    with pytest.raises(DataError, match="7d is a span of time, but this log has no times"):
        model(decay=0.5, decay_unit="7d").fit(ordered)


def test_inverse_and_spectrum_refuse_a_log_without_order():
    blind = mg.Interactions.from_csr(world(8).matrix)
    with pytest.raises(DataError, match="has neither times nor an order"):
        mg.Inverse(blind, mg.GramRecipe(decay=0.5), mg.Penalties(3))
    with pytest.raises(DataError, match="has neither times nor an order"):
        mg.Spectrum(blind, 3, recipe=mg.GramRecipe(decay=0.5))


@pytest.mark.parametrize("model", [mg.EASE, mg.TwoStep, mg.LowRankDLAE, mg.LRR])
def test_the_dual_is_refused_by_name_and_left_out_of_auto(model):
    log = world(9, users=5)  # fewer users than items: without decay the dual would be chosen
    with pytest.raises(ParameterError, match=r"the dual has one row for each user, but with decay every event is a "):
        model(decay=0.5).fit(log, solver="dual")
    fitted = model(decay=0.5).fit(log)
    assert fitted.report_.solver.startswith("primal")
    plan = model(decay=0.5).plan((10, 400, 2000))
    assert plan.chosen.solver == "primal"
    assert "dual" not in [cost.solver for cost in plan.costs]
    assert "no dual: with decay it would have one row for each event" in str(plan)


def test_expand_is_that_of_a_primal_fit():
    log = world(9)
    expected = mg.EASE(decay=0.5).fit(log).item_weights()
    model = mg.EASE(decay=0.5).fit(log, expand=True)
    np.testing.assert_array_equal(model.item_weights(), expected)
    assert model.expand() is model
    assert "dual" not in str(mg.EASE(decay=0.5).plan(log, expand=True)).replace(NO_DUAL, "")


NO_DUAL = "no dual: with decay it would have one row for each event"


@pytest.mark.parametrize("model", [mg.EASE(decay=0.5), mg.LRR(decay=0.5)])
def test_a_cluster_is_refused(model):
    with pytest.raises(ParameterError, match=r"decay = 0\.5 with a cluster, .*fit without cluster"):
        model.fit(world(9), cluster="tcp://127.0.0.1:1")
    with pytest.raises(ParameterError, match=r"decay = 0\.5 with a cluster"):
        model.plan((100, 100, 1000), cluster="tcp://127.0.0.1:1")


def test_models_share_an_inverse_of_equal_kernels():
    log, times = world(10), DECAYS[2]
    inverse = mg.Inverse(log, mg.GramRecipe(**times), mg.Penalties(3, 0.4), dtype="float64")
    for model in (mg.EDLAE, mg.DLAE, mg.LowRankDLAE):
        settings = {"l2": 3, "dropout": 0.4} | times
        shared, alone = model(**settings).fit(inverse), model(**settings).fit(log, dtype="float64")
        np.testing.assert_allclose(shared.item_weights(), alone.item_weights(), atol=1e-10)
    with pytest.raises(ParameterError, match="only models with equal recipe and penalties share it"):
        mg.EDLAE(l2=3, dropout=0.4, decay=0.5).fit(inverse)


def test_a_kept_gram_is_that_of_the_kernel():
    log, times = world(11), DECAYS[2]
    model = mg.EDLAE(l2=3, dropout=0.4, **times).fit(log, dtype="float64", keep_gram=True)
    gram = model.weights_.update_state.gram
    np.testing.assert_allclose(np.tril(gram), np.tril(slow_gram(log, **times)), atol=1e-8)
    changed, alone = model.changed(l2=7.0), mg.EDLAE(l2=7, dropout=0.4, **times).fit(log, dtype="float64")
    np.testing.assert_allclose(changed.item_weights(), alone.item_weights(), atol=1e-10)
    head = mg.DLAE(l2=3, dropout=0.4, **times)
    np.testing.assert_allclose(
        head.fit(model, dtype="float64").item_weights(),
        remade(head).fit(log, dtype="float64").item_weights(),
        atol=1e-10,
    )
    with pytest.raises(ParameterError, match=r"decay = 0\.9, but the model given in place of a log has 0\.5"):
        model.changed(decay=0.9)


def rows(log, users):
    """Some users of a log, with the times of their events."""
    places_of = sp.csr_array((np.arange(log.n_events), log.matrix.indices, log.matrix.indptr), shape=log.matrix.shape)
    part = places_of[users]
    matrix = log.matrix[users]
    names = {"users": [ids(log.users)[user] for user in users], "items": ids(log.items)}
    return mg.Interactions.from_csr(matrix, **names, times=log.times[part.data], time_unit="s", merge=log.merge)


def updated(model, log, kind):
    """A model after a change, and a fit on the changed log."""
    if kind == "forget":
        model.fit(log, dtype="float64", solver="primal", keep_gram=True)
        model.forget_users([ids(log.users)[1], ids(log.users)[5]])
    elif kind == "new users":
        model.fit(rows(log, list(range(log.n_users - 2))), dtype="float64", solver="primal", keep_gram=True)
        model.add_users(rows(log, [log.n_users - 2, log.n_users - 1]))
    else:
        model.fit(log, dtype="float64", solver="primal", keep_gram=True)
        more = mg.Interactions.from_csr(
            sp.csr_array(np.eye(1, log.n_items, 6, dtype=np.float32)),
            users=[ids(log.users)[2]], items=ids(log.items), times=log.times[:1] + 3 * DAY, time_unit="s",
        )  # fmt: skip
        model.add_users(more)
    refit = FitInputs(model.log_, unit=model.report_.unit)
    return model, remade(model).fit_from(refit, FitOptions(dtype="float64", solver="primal"))


@pytest.mark.parametrize("kind", ["forget", "new users", "new events"])
@pytest.mark.parametrize("times", DECAYS[::2], ids=str)
def test_updates_equal_a_refit(kind, times):
    rng = np.random.default_rng(12)
    dense = (rng.random((80, 90)) < 0.06).astype(np.float32)
    matrix = sp.csr_array(dense)
    at = 1.5e9 + np.round(rng.exponential(5 * DAY, matrix.nnz) / 7000) * 7000
    names = {"users": [f"u{n:03}" for n in range(80)], "items": [f"i{n:02}" for n in range(90)]}
    log = mg.Interactions.from_csr(matrix, **names, times=at, time_unit="s")
    for model in (mg.EASE(l2=3, **times), mg.Tempered(l2=3, dropout=0.2, user_power=0.5, **times)):
        after, expected = updated(model, log, kind)
        if model.name == "ease":
            assert "refit" not in after.report_.note
            assert after.report_.changes == 1
        np.testing.assert_allclose(after.item_weights(), expected.item_weights(), atol=1e-8)
        gram = after.weights_.update_state.gram
        square = slow_gram(after.log_, **times, power=model.params().get("user_power", 0.0))
        np.testing.assert_allclose(np.tril(gram), np.tril(square * scale_of(after)), atol=1e-8)


def scale_of(after):
    """The factor of the user weights of the first fit, relative to that of the present log."""
    unit = after.report_.unit
    return 1.0 if unit is None else unit / after.formula().recipe.unit(after.log_.matrix)


def test_new_events_without_times_are_refused():
    log = world(13)
    more = mg.Interactions.from_csr(
        sp.csr_array(np.eye(1, 14, 6, dtype=np.float32)), users=["new"], items=ids(log.items)
    )
    model = mg.EASE(l2=3, decay=0.5, decay_unit="7d").fit(log)
    before = model.item_weights()
    with pytest.raises(DataError, match=r"decay = 0\.5 in units of 7d, but the new events have no times: read them"):
        model.add_users(more)
    np.testing.assert_array_equal(model.item_weights(), before)
    with pytest.raises(DataError, match="the new events have no order"):
        mg.EASE(l2=3, decay=0.5).fit(log).add_users(more)


@pytest.mark.parametrize("model", [mg.EASE(l2=3, recency=0.5), mg.EASE(l2=3, half_life="5 events")])
def test_recency_alone_leaves_updates_as_they_are(model):
    log = world(14)
    plain = mg.EASE(l2=3).fit(log, dtype="float64", solver="primal").forget_users(["u001"])
    model.fit(log, dtype="float64", solver="primal").forget_users(["u001"])
    np.testing.assert_array_equal(model.item_weights(), plain.item_weights())


def test_an_update_that_costs_more_than_a_refit_expands_no_rows(monkeypatch):
    """With a time kernel the rank of a change is its number of events, which is known before the rows are made."""
    model = mg.EASE(l2=5, decay=0.5).fit(world(), solver="primal", dtype="float64")
    monkeypatch.setattr(TimeKernel, "expanded", lambda *_: pytest.fail("rows were expanded"))
    more = world(seed=1, users=90)
    model.add_users(mg.Interactions.from_csr(more.matrix, [f"x{n}" for n in range(90)], more.items, more.times))
    assert "a change of rank" in model.report_.note


def test_the_advice_after_an_inexact_local_fit_names_no_solver_that_refuses():
    matrix = sp.csr_array(np.repeat(np.random.default_rng(0).random((2000, 3)) < 0.5, 3, axis=1).astype(np.float32))
    log = mg.Interactions.from_csr(matrix, times=np.zeros(matrix.nnz))
    with pytest.warns(MonogramWarning, match="not exact") as caught:
        mg.EASE(l2=1e-3, decay=0.5, decay_unit="1").fit(log, solver="local")
    assert all("solver='dual'" not in str(warning.message) for warning in caught)


def test_the_plan_of_a_student_counts_the_time_kernel():
    size = (40_000, 120, 1_000_000)
    plain, timed = (mg.LowRankDLAE(rank=8, decay=decay).plan(size).chosen for decay in (0, 0.5))
    assert timed.bytes >= plain.bytes + 24 * size[2]
    assert timed.flops > plain.flops
