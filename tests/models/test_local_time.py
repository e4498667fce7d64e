"""Models with a time kernel by local regressions: the full primal model, updates, plans, and no kernel at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import monogram as mg
from monogram.errors import DataError
from monogram.models import updates
from monogram.models.context import FitInputs, FitOptions

UNITS = ["1 event", "3 events", "2d", 4000]
DAY = 86_400


def world(seed=0, users=120, items=40, share=0.12):
    rng = np.random.default_rng(seed)
    dense = rng.random((users, items)) < share * rng.uniform(0.2, 2, items)
    matrix = sp.csr_array(dense.astype(np.float32))
    names = [f"u{user}" for user in range(users)], [f"i{item}" for item in range(items)]
    times = rng.integers(0, 30 * DAY, matrix.nnz)
    return mg.Interactions.from_csr(matrix, *names, times=times, time_unit="s")


def events(pairs, times):
    users, items = zip(*pairs, strict=True)
    table = pa.table({"user": users, "item": items, "time": np.asarray(times)})
    return mg.read(table, user="user", item="item", time="time", time_unit="s")


def models(**time):
    return [
        mg.EASE(l2=5, **time),
        mg.DLAE(l2=5, dropout=0.4, **time),
        mg.RDLAE(l2=5, dropout=0.4, relax=0.2, **time),
        mg.DEQL(l2=5, dropout=0.4, b=0.7, **time),
        mg.Tempered(l2=5, dropout=0.4, item_power=-0.2, **time),
        mg.TwoStep(l2=5, dropout=0.3, second=0.6, item_power=0.1, **time),
    ]


def whole(model):
    """W as an array."""
    return model.weights_.columns(np.arange(model.log_.n_items))


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_with_every_item_as_candidate_it_is_the_full_rank_model(unit):
    log = world(users=300, items=14, share=0.5)
    for model in models(decay=0.7, decay_unit=unit, floor=0.1):
        full = type(model)(**model.params()).fit(log, solver="primal", dtype="float64")
        local = type(model)(**model.params()).fit(log, solver="local", dtype="float64", neighbours=13)
        np.testing.assert_allclose(whole(local), whole(full), atol=1e-8)
        assert local.report_.gap == pytest.approx(0, abs=1e-12)
        plain = type(model)(**(model.params() | {"decay": 0.0})).fit(log, solver="local", dtype="float64")
        assert np.abs(whole(local) - whole(plain)).max() > 1e-3


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_no_other_weights_on_the_candidates_are_better(unit):
    """The gradient is 0 on the candidates, with S from a double loop over the events of each user."""
    log = world(3)
    model = mg.EDLAE(l2=5, dropout=0.4, decay=0.8, decay_unit=unit).fit(log, solver="local", neighbours=8)
    scale = {"1 event": 1, "3 events": 3, "2d": 2 * DAY, 4000: 4000}[unit]
    at = (log.positions if "event" in str(unit) else log.times) / scale
    gram = np.zeros((40, 40))
    pointers, items = log.matrix.indptr, log.matrix.indices
    for user in range(log.n_users):
        part = slice(pointers[user], pointers[user + 1])
        gram[np.ix_(items[part], items[part])] += (1 + np.abs(at[part][:, None] - at[part])) ** -0.8
    w = whole(model)
    gradient = gram @ w - gram + (5 + 0.4 / 0.6 * gram.diagonal())[:, None] * w
    assert (w != 0).sum(axis=0).max() == 8
    assert np.abs(gradient[w != 0]).max() / gram.max() < 1e-5
    assert np.abs(gradient[w == 0]).max() > 0.1, "there are better weights on other candidates"
    assert model.report_.residual < 1e-5
    assert 0 < model.report_.gap <= model.report_.largest_gap < 1


@settings(deadline=None, max_examples=8)
@given(
    seed=st.integers(0, 10_000),
    which=st.integers(0, 4),
    unit=st.sampled_from(UNITS),
    gone=st.integers(0, 3),
    come=st.integers(0, 3),
)
def test_an_update_is_a_refit(seed, which, unit, gone, come):
    """Users are added, forgotten and extended in a log of separate parts, so that many columns stay as they are."""
    rng, model = np.random.default_rng(seed), models(decay=0.7, decay_unit=unit)[which]
    blocks = [world(seed + part, users=40, items=12, share=0.3).matrix for part in range(6)]
    matrix = sp.csr_array(sp.block_diag(blocks, format="csr"))
    names = [f"u{user}" for user in range(240)], [f"i{item}" for item in range(72)]
    times = rng.integers(0, 30 * DAY, matrix.nnz)
    log = mg.Interactions.from_csr(matrix, *names, times=times, time_unit="s")
    local = model.fit(log, solver="local", dtype="float64", neighbours=5)
    if gone:
        local.forget_users([f"u{user}" for user in rng.choice(40, gone, replace=False)])
    if come:
        new = [(f"u{u}", f"i{item}") for u in (3, 300, 301)[:come] for item in rng.choice(12, 4, replace=False)]
        new.append(("u300", "i new"))
        local.add_users(events(new, rng.integers(0, 40 * DAY, len(new))), new_items=True)
    refit = type(model)(**model.params())
    options = FitOptions(dtype="float64", solver="local", neighbours=5)
    refit.fit_from(FitInputs(local.log_, unit=local.report_.unit), options)
    np.testing.assert_allclose(whole(local), whole(refit), rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(local.weights_.update_state.c, refit.weights_.update_state.c, rtol=1e-9)
    assert local.report_.changes == bool(gone) + bool(come)


def test_touched_columns_alone_are_solved_again():
    """In events and binary, columns without a touched candidate have the bits of a refit."""
    log = world(5, users=200, items=100, share=0.02)
    model = mg.EDLAE(l2=5, dropout=0.4, decay=0.5).fit(log, dtype="float64", solver="local", neighbours=4)
    before = model.weights_.matrix.toarray()
    model.add_users(events([("new", "i3"), ("new", "i90")], [5, 6]))
    after = model.weights_.matrix.toarray()
    same = (before == after).all(axis=0)
    assert 50 < same.sum() < 100
    refit = mg.EDLAE(l2=5, dropout=0.4, decay=0.5).fit(model.log_, dtype="float64", solver="local", neighbours=4)
    assert (refit.weights_.matrix.toarray()[:, same] == after[:, same]).all()
    np.testing.assert_allclose(refit.weights_.matrix.toarray(), after, atol=1e-12)


def test_without_decay_the_order_of_events_changes_no_bit():
    log = world(7)
    blind = mg.Interactions.from_csr(log.matrix, log.users, log.items)
    for timed, plain in zip(models(decay=0, decay_unit="2d", floor=0.5), models(), strict=True):
        timed.fit(log, solver="local", neighbours=7)
        plain.fit(blind, solver="local", neighbours=7)
        assert (whole(timed) == whole(plain)).all()


def test_a_log_without_order_is_refused():
    log = world()
    blind = mg.Interactions.from_csr(log.matrix, log.users, log.items)
    ordered = mg.Interactions.from_csr(log.matrix, log.users, log.items, order=np.arange(log.n_events))
    for data, unit in ((blind, "1 event"), (ordered, "2d")):
        with pytest.raises(DataError, match="this log has"):
            mg.EASE(decay=0.5, decay_unit=unit).fit(data, solver="local")


def test_threads_and_times_shifted_or_scaled_together():
    """Threads change no bit; a shift of all times, or their scale with the unit, only rounding."""
    log = world(8)
    one, three = (mg.EASE(decay=0.5, decay_unit=4000).fit(log, solver="local", threads=t) for t in (1, 3))
    assert (whole(one) == whole(three)).all()
    other = mg.Interactions.from_csr(log.matrix, log.users, log.items, times=(log.times * 2.0 + 10_000))
    scaled = mg.EASE(decay=0.5, decay_unit=8000).fit(other, solver="local")
    np.testing.assert_allclose(whole(scaled), whole(one), atol=1e-6)


def test_changed_refits_with_the_kernel():
    log = world(4)
    model = mg.EDLAE(l2=5, dropout=0.4, decay=0.6).fit(log, solver="local", neighbours=7, dtype="float64")
    fresh = mg.EDLAE(l2=9, dropout=0.4, decay=0.6).fit(log, solver="local", neighbours=7, dtype="float64")
    assert (whole(model.changed(l2=9.0)) == whole(fresh)).all()
    relaxed = mg.DLAE(l2=5, dropout=0.4, decay=0.6).fit(model, dtype="float64")
    assert relaxed.report_.solver == "reused"
    fresh = mg.DLAE(l2=5, dropout=0.4, decay=0.6).fit(log, solver="local", neighbours=7, dtype="float64")
    np.testing.assert_allclose(whole(relaxed), whole(fresh), atol=1e-12)


def test_an_update_over_its_memory_changes_nothing():
    model = mg.EASE(l2=5, decay=0.5).fit(world(2), solver="local", neighbours=10)
    before = whole(model)
    with pytest.raises(mg.errors.MemoryBudgetError, match="was not changed"):
        updates.forget_users(model, ["u3"], updates.UpdateOptions(memory="1 MB"))
    assert (whole(model) == before).all()


@pytest.mark.parametrize("unit", ["1 event", "2d"])
def test_the_plan_covers_the_peak(unit):
    rng = np.random.default_rng(0)
    matrix = sp.random_array((4000, 3000), density=0.02, rng=rng, dtype=np.float32, format="csr")
    matrix.data[:] = 1
    log = mg.Interactions.from_csr(matrix, times=rng.integers(0, 30 * DAY, matrix.nnz), time_unit="s")
    model = mg.EASE(l2=5, decay=0.5, decay_unit=unit).fit(log, solver="local", neighbours=40, threads=2)
    assert model.report_.peak_bytes is None or model.report_.peak_bytes < model.report_.planned_bytes
