"""An updated model equals the model fitted on the changed log."""

from __future__ import annotations

import uuid
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import monogram as mg
from monogram import store
from monogram.engine.inverse import dual, primal, woodbury
from monogram.engine.inverse.certificate import certificate
from monogram.errors import (
    DataError,
    MemoryBudgetError,
    MonogramWarning,
    NotFittedError,
    NumericalError,
    ParameterError,
    UnknownIdError,
)
from monogram.models import change, updates
from monogram.models.report import ReportBuilder

MODELS = [
    mg.EASE(l2=3),
    mg.EDLAE(l2=3, dropout=0.4),
    mg.DLAE(l2=3, dropout=0.4),
    mg.DEQL(l2=3, dropout=0.4, b=0.7),
    mg.DEQL(l2=3, dropout=0.4, b=1.6, zero_diagonal=True),
    mg.EDLAE(l2=0, dropout=0.5),
]
IDS = ["ease", "edlae", "dlae", "deql", "deql-zero", "no-l2"]
CLOSE = {"float32": 1e-5, "float64": 1e-10}
EVERY = [
    pytest.param(model, solver, dtype, id=f"{name}-{solver}-{dtype}")
    for model, name in zip(MODELS, IDS, strict=True)
    for solver in ("primal", "dual")
    for dtype in ("float32", "float64")
]
N = 90


@pytest.fixture(autouse=True)
def no_refit(monkeypatch):
    """On data this small a refit is always cheaper: the way of a change is taken all the same."""
    monkeypatch.setattr(change, "require_cheaper", lambda *_: None)


def data(seed=0, users=70, items=N, merge="binary"):
    rng = np.random.default_rng(seed)
    dense = (rng.random((users, items)) < rng.uniform(0.05, 0.4, items)).astype(np.float32)
    if merge == "sum":
        dense *= rng.integers(1, 5, dense.shape)
    dense[3] = 0
    dense[:, 7] = 0
    return mg.Interactions.from_csr(
        sp.csr_array(dense), users=[f"user-{n:03}" for n in range(users)], items=[f"i{n:02}" for n in range(items)]
    )


def part(log, rows):
    rows = np.asarray(rows)
    return mg.Interactions(log.matrix[rows], log.users.part(rows), log.items, merge=log.merge)


def fresh(model):
    return type(model)(**model.params())


def weights(model):
    """W by the ids of the items, whatever their order."""
    ids = list(model.log_.items)
    order = np.argsort(ids)
    return model.item_weights()[np.ix_(order, order)]


def same(actual, expected, dtype):
    assert not actual.report_.note, actual.report_.note
    one, other = weights(actual), weights(expected)
    np.testing.assert_allclose(one, other, atol=CLOSE[dtype] * np.abs(other).max(), rtol=0)
    assert sorted(actual.log_.users) == sorted(expected.log_.users)
    for user in expected.log_.users:
        assert actual.history(user) == expected.history(user)


def lists(model, **request):
    actual = {}
    for row in model.recommend(k=5, **request).rows():
        actual.setdefault(row["user"], []).append(row["item"])
    return actual


@pytest.mark.parametrize(("model", "solver", "dtype"), EVERY)
def test_add_users_equals_a_fit_on_both_logs(model, solver, dtype):
    log, how = data(), {"solver": solver, "dtype": dtype}
    actual = fresh(model).fit(part(log, range(50)), **how)
    assert actual.add_users(part(log, range(50, 70))) is actual
    expected = fresh(model).fit(log, **how)
    same(actual, expected, dtype)
    assert actual.report_.changes == 1
    assert actual.report_.residual < 1e-5
    assert actual.report_.residual_at_fit is not None
    if dtype == "float64":
        assert lists(actual) == lists(expected)


@pytest.mark.parametrize(("model", "solver", "dtype"), EVERY)
def test_forget_users_equals_a_fit_without_them(model, solver, dtype):
    log, how = data(), {"solver": solver, "dtype": dtype}
    gone = [0, 3, 20, 69]
    actual = fresh(model).fit(log, **how).forget_users([log.users[row] for row in gone])
    same(actual, fresh(model).fit(part(log, np.setdiff1d(np.arange(70), gone)), **how), dtype)
    with pytest.raises(UnknownIdError, match="user-020"):
        actual.history("user-020")
    assert actual.recommend(["user-020", "user-021"]).unknown_users == ("user-020",)


@pytest.mark.parametrize(("model", "solver", "dtype"), EVERY)
def test_add_then_forget_is_the_identity(model, solver, dtype):
    log, how = data(), {"solver": solver, "dtype": dtype}
    before = fresh(model).fit(part(log, range(50)), **how)
    actual = fresh(model).fit(part(log, range(50)), **how).add_users(part(log, range(50, 70)))
    same(actual.forget_users(list(log.users)[50:]), before, dtype)
    assert actual.report_.changes == 2


@pytest.mark.parametrize(("model", "solver", "dtype"), EVERY)
def test_known_users_are_merged_as_the_log_merges(model, solver, dtype):
    """Rank two: the former row goes, the whole one comes; on weights they are added, on a binary log the union."""
    for merge in ("binary", "sum"):
        log, more = data(merge=merge), data(1, users=12, merge=merge)
        rows = [(user, item, weight) for one in (log, more) for user in one.users
                for item, weight in one.history(user).items()]  # fmt: skip
        both = mg.read(rows, merge=merge)
        actual = fresh(model).fit(log, solver=solver, dtype=dtype).add_users(more)
        expected = fresh(model).fit(part(log, range(70)), solver=solver, dtype=dtype)
        silent = [user for user in log.users if user not in both.users]
        expected.fit(mg.Interactions.from_csr(
            _on(both, log), users=[*both.users, *silent], items=log.items, merge=merge), solver=solver, dtype=dtype
        )  # fmt: skip
        same(actual, expected, dtype)


def _on(log, other):
    """The matrix over the items of another log, with an empty row for each user who is not in it."""
    place = other.items.index(list(log.items))
    matrix = log.matrix.tocoo()
    users = len({*log.users, *other.users})
    return sp.csr_array((matrix.data, (matrix.row, place[matrix.col])), shape=(users, other.n_items))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    cut=st.integers(30, 60),
    model=st.sampled_from(MODELS),
    solver=st.sampled_from(["primal", "dual"]),
    gram=st.booleans(),
    merge=st.sampled_from(["binary", "sum"]),
)
def test_any_order_of_updates_equals_a_fit(seed, cut, model, solver, gram, merge):
    """Two halves are the whole; users who go and come back were always there."""
    log, rng = data(seed, merge=merge), np.random.default_rng(seed)
    how = {"dtype": "float64", "solver": "primal" if gram else solver, "keep_gram": gram}
    middle = int(rng.integers(cut + 1, 70))
    actual = fresh(model).fit(part(log, range(cut)), **how).add_users(part(log, range(cut, middle)))
    gone = rng.choice(middle, 5, replace=False)
    actual.forget_users([log.users[int(row)] for row in gone])
    actual.add_users(part(log, range(middle, 70))).add_users(part(log, gone))
    expected = fresh(model).fit(log, **how)
    same(actual, expected, "float64")
    if gram:
        np.testing.assert_allclose(
            np.tril(actual.weights_.update_state.gram), np.tril(expected.weights_.update_state.gram), atol=1e-9
        )


@pytest.mark.parametrize(("model", "solver", "dtype"), EVERY)
def test_new_items_then_users_are_a_fit_on_the_larger_catalogue(model, solver, dtype):
    log, how = data(), {"solver": solver, "dtype": dtype}
    more, late, first = part(log, range(50, 70)), list(log.items)[25:], part(log, range(50))
    small = mg.Interactions.from_csr(first.matrix[:, :25], users=first.users, items=list(log.items)[:25])
    wide = mg.Interactions.from_csr(
        sp.csr_array(np.where(np.arange(N) < 25, first.matrix.toarray(), 0)), users=first.users, items=log.items
    )
    actual = fresh(model).fit(small, **how).add_items(late)
    same(actual, fresh(model).fit(wide, **how), dtype)
    assert actual.score([["i00"]], late).tolist() == [[0.0] * len(late)]
    both = mg.Interactions.from_csr(sp.vstack([wide.matrix, more.matrix]).tocsr(), users=log.users, items=log.items)
    expected = fresh(model).fit(both, **how)
    same(actual.add_users(more), expected, dtype)
    actual = fresh(model).fit(small, **how).add_users(more, new_items=True)
    same(actual.add_items([one for one in late if one not in actual.log_.items]), expected, dtype)


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("model", MODELS[1:4], ids=IDS[1:4])
def test_frozen_penalties_are_those_of_the_fit(model, solver):
    log = data()
    before = fresh(model).fit(part(log, range(50)), dtype="float64", solver=solver)
    actual = before.add_users(part(log, range(50, 70)), penalties="frozen")
    dense = log.matrix.toarray().astype(float)
    first = dense[:50]
    penalties = 3 + 0.4 / 0.6 * (first**2).sum(axis=0)
    exact = np.linalg.inv(dense.T @ dense + np.diag(penalties))
    c, d = np.diag(exact), (dense**2).sum(axis=0)
    theta, delta = model.formula().head(c, penalties, d, (dense > 0).sum(axis=0))
    expected = -exact * (theta / c)
    np.fill_diagonal(expected, delta)
    np.testing.assert_allclose(actual.item_weights(), expected, atol=1e-12)
    assert actual.report_.note == "penalties frozen"
    followed = actual.forget_users(["user-000"])  # catches up with all that was frozen
    same(followed, fresh(model).fit(part(log, range(1, 70)), dtype="float64", solver=solver), "float64")


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_file_contains_nothing_of_forgotten_users(tmp_path, solver, dtype):
    """No byte of the id, and no array of another size than that of a model that never saw them."""
    secret = "Zebulon Quux-99"
    log = data(1)
    named = mg.Interactions.from_csr(log.matrix, users=[secret, *list(log.users)[1:]], items=log.items)
    without = mg.Interactions.from_csr(log.matrix[1:], users=list(log.users)[1:], items=log.items)
    model = mg.EDLAE(l2=3, dropout=0.4).fit(named, solver=solver, dtype=dtype, keep_gram=solver == "primal")
    never = mg.EDLAE(l2=3, dropout=0.4).fit(without, solver=solver, dtype=dtype, keep_gram=solver == "primal")
    path = tmp_path / "shop.mono"
    model.save(path)
    assert secret.encode() in path.read_bytes()
    for again in (model, mg.load(path)):  # in memory, and from a file
        again.forget_users(secret).save(path)
        whole = path.read_bytes()
        assert secret.encode() not in whole
        assert b"Quux" not in whole
        never.save(tmp_path / "never.mono")
        one, other = store.load(path).tensors, store.load(tmp_path / "never.mono").tensors
        assert {name: value.shape for name, value in one.items()} == {n: value.shape for n, value in other.items()}
        for name in ("log.items", "log.weights", "log.pointers", "users", "items"):
            np.testing.assert_array_equal(one[name], other[name])
        for name in ("weights.weights", "weights.inverse", "kept.c", "kept.penalties", "kept.gram"):
            if name in one:
                np.testing.assert_allclose(one[name], other[name], atol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("verify", [True, False])
def test_an_update_of_a_loaded_model_does_not_change_its_file(tmp_path, solver, verify):
    log = data()
    model = mg.DEQL(l2=3, b=0.7).fit(part(log, range(50)), solver=solver, keep_gram=solver == "primal")
    model.save(tmp_path / "a.mono")
    before = (tmp_path / "a.mono").read_bytes()
    actual = mg.load(tmp_path / "a.mono", verify=verify).add_users(part(log, range(50, 70)))
    actual.save(tmp_path / "b.mono")
    assert (tmp_path / "a.mono").read_bytes() == before
    same(mg.load(tmp_path / "b.mono"), mg.DEQL(l2=3, b=0.7).fit(log, solver=solver), "float32")
    assert mg.load(tmp_path / "b.mono").report_ == actual.report_


@pytest.mark.parametrize("kind", ["string", "integer", "uuid"])
def test_ids_of_every_type_are_added_and_forgotten(kind):
    make = {"string": lambda n: f"é {n}", "integer": lambda n: 10 * n, "uuid": lambda n: uuid.UUID(int=n)}[kind]
    log = data()
    ids = [make(n) for n in range(71)]
    model = mg.EASE(l2=3).fit(mg.Interactions.from_csr(log.matrix, users=ids[:70], items=log.items))
    model.add_users(mg.Interactions.from_csr(log.matrix[:1], users=ids[70:], items=log.items))
    assert model.history(ids[70]) == model.history(ids[0])
    model.forget_users([ids[70]]).forget_users(str(ids[5]))
    assert ids[70] not in model.log_.users
    assert ids[5] not in model.log_.users
    assert type(model.log_.users[0]) is type(ids[0])


def state(model):
    arrays = model.weights_.tensors()
    return (
        {name: np.array(array) for name, array in arrays.items()},
        model.log_,
        model.report_,
        (model.weights_.update_state.c.copy(), model.weights_.update_state.penalties.copy()),
    )


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_an_error_leaves_the_model_as_it_was(solver, monkeypatch):
    log = data()
    model = mg.EDLAE(l2=3, dropout=0.4).fit(part(log, range(50)), solver=solver)
    before = state(model)
    more = part(log, range(50, 70))
    strange = mg.read([("new", "tea"), ("new", "i01")])

    def rounding(*_):
        raise NumericalError("too coarse")

    def check(kind, text, call):
        with pytest.raises(kind, match=text):
            call()
        after = state(model)
        assert after[1] is before[1]
        assert after[2] is before[2]
        for name in before[0]:
            np.testing.assert_array_equal(after[0][name], before[0][name])
        for one, other in zip(after[3], before[3], strict=True):
            np.testing.assert_array_equal(one, other)

    check(UnknownIdError, "'tea'.*add them with new_items=True", lambda: model.add_users(strange))
    check(UnknownIdError, "'nobody'", lambda: model.forget_users(["user-001", "nobody"]))
    check(ParameterError, "'i01'", lambda: model.add_items(["new", "i01"]))
    check(DataError, "none of the log's", lambda: model.forget_users(list(model.log_.users)))
    check(DataError, "occurs 2 times", lambda: model.add_items(["new", "new"]))
    check(DataError, "string", lambda: model.add_items([uuid.UUID(int=1)]))
    check(MemoryBudgetError, "was not changed", lambda: model.add_users(more, memory="10 kB"))
    check(ParameterError, "penalties = 'free'", lambda: model.add_users(more, penalties="free"))
    check(ParameterError, "on_drift = 1", lambda: model.forget_users("user-001", on_drift=1))
    check(ParameterError, "threads = 0", lambda: model.add_users(more, threads=0))
    monkeypatch.setattr(change, "DRIFT", {"float32": 0.0})
    monkeypatch.setattr(change, "WORSE", 0.0)
    check(NumericalError, "residual would be", lambda: model.add_users(more, on_drift="error"))
    monkeypatch.setattr(woodbury, "_solve", rounding)
    for policy in ("error", "warn"):
        check(NumericalError, "too coarse", lambda policy=policy: model.add_users(more, on_drift=policy))
    monkeypatch.setattr(mg.EDLAE, "_fit", rounding)
    check(NumericalError, "too coarse", lambda: model.add_users(more))
    assert model.add_items([]).forget_users([]) is model


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_drift_causes_a_refit_or_a_warning(solver, monkeypatch):
    log = data()
    model = mg.EASE(l2=3).fit(part(log, range(50)), solver=solver)
    monkeypatch.setattr(change, "DRIFT", {"float32": 0.0})
    monkeypatch.setattr(change, "WORSE", 0.0)
    with pytest.warns(MonogramWarning, match="residual would be"):
        model.add_users(part(log, range(50, 60)), on_drift="warn")
    assert model.report_.changes == 1
    model.add_users(part(log, range(60, 70)))
    assert model.report_.changes == 0
    assert model.report_.note.startswith("refit: after 2 changes the residual would be")
    assert model.report_.note in str(model.report_)
    np.testing.assert_allclose(model.item_weights(), mg.EASE(l2=3).fit(log, solver=solver).item_weights(), atol=1e-6)


def test_the_residual_before_an_update_is_applied_is_that_after():
    """It is measured on columns made as the pass will make them: then the certificate of the result is the same."""
    log = data()
    for dtype in ("float32", "float64"):
        model = mg.EDLAE(l2=3, dropout=0.4).fit(part(log, range(50)), solver="primal", dtype=dtype)
        for row in range(50, 70):
            model.add_users(part(log, [row]))
        kept = model.weights_.update_state
        held = woodbury.InverseInWeights(model.weights_.matrix, kept.scale, kept.c)
        actual = certificate(model.log_.matrix, kept.penalties, held)[0]
        every = certificate(model.log_.matrix, kept.penalties, held, also=np.arange(N))[0]
        assert actual / 1.5 <= model.report_.residual <= 1.5 * every
        assert model.report_.changes == 20


def test_an_update_costlier_than_a_refit_is_a_refit(monkeypatch):
    monkeypatch.undo()
    log = data()
    model = mg.EDLAE(l2=3, dropout=0.4).fit(part(log, range(50)), solver="primal")
    model.add_users(part(log, range(50, 70)))
    assert "would cost more than a refit" in model.report_.note
    expected = mg.EDLAE(l2=3, dropout=0.4).fit(log, solver="primal")
    np.testing.assert_array_equal(model.item_weights(), expected.item_weights())
    large = data(users=60, items=400)
    ease = mg.EASE(l2=3).fit(part(large, range(55)), solver="primal")
    assert not ease.add_users(part(large, range(55, 60))).report_.note


def test_an_interrupt_while_the_weights_are_rewritten_leaves_no_model(monkeypatch):
    log = data()
    model = mg.EASE(l2=3).fit(part(log, range(50)), solver="primal")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(woodbury, "_rescale", stop)
    with pytest.raises(KeyboardInterrupt):
        model.add_users(part(log, range(50, 70)))
    with pytest.raises(NotFittedError):
        model.recommend()


def test_models_without_an_inverse_refuse_updates(world):
    more = sp.csr_array(np.ones((1, 25), np.float32))
    pruned = mg.EASE(l2=2).fit(world).prune(3)
    student = mg.LowRankDLAE(rank=4).fit(world)
    with pytest.raises(ParameterError, match="was pruned"):
        pruned.add_users(more)
    with pytest.raises(ParameterError, match="cannot be changed without a refit"):
        updates.forget_users(student, [0], change.UpdateOptions())
    with pytest.raises(ParameterError, match="θ = 0"):
        mg.DLAE(l2=0, dropout=0).fit(world, dtype="float64", solver="primal").forget_users([0])
    with pytest.raises(NotFittedError):
        mg.EASE().add_users(world)
    with pytest.raises(ParameterError, match=r"keeps no Gram; .*EASE"):
        mg.LowRankDLAE(rank=4).fit(world, keep_gram=True)
    with pytest.raises(ParameterError, match=r"keeps no Gram; .*EASE"):
        mg.LRR(rank=4).plan(world, keep_gram=True)
    with pytest.raises(ParameterError, match="computes no Gram of the items"):
        mg.EASE().fit(world, keep_gram=True, solver="dual")


def test_frozen_needs_a_penalty_to_freeze():
    model = mg.EDLAE(l2=0, dropout=0.5).fit(data())
    with pytest.raises(ParameterError, match="followed"):
        model.add_users(mg.read([("new", "i07")]), penalties="frozen")
    model.add_users(mg.read([("new", "i07")]))


def test_new_events_of_every_known_user():
    for solver in ("primal", "dual"):
        log = data()
        model = mg.EASE(l2=3).fit(log, solver=solver, dtype="float64")
        first = mg.read([(user, "i07") for user in log.users])
        dense = log.matrix.toarray()
        dense[:, 7] = 1
        model.add_users(first)
        expected = mg.EASE(l2=3).fit(mg.Interactions.from_csr(dense, users=log.users, items=log.items), dtype="float64")
        same(model, expected, "float64")


def refuse(monkeypatch, name):
    """Let a step of the inverse be taken for the tiny data that compiles the kernels, and for nothing else."""
    honest = getattr(primal, name)

    def guarded(first, *arguments, **options):
        assert first.shape[1] == 2, f"{name} was called"
        return honest(first, *arguments, **options)

    for module in (primal, dual):
        monkeypatch.setattr(module, name, guarded)


@pytest.mark.parametrize("model", MODELS, ids=IDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_changed_is_a_fit_with_other_parameters(model, dtype, monkeypatch):
    log = data()
    kept = fresh(model).fit(part(log, range(60)), dtype=dtype, keep_gram=True).add_users(part(log, range(60, 70)))
    before = kept.item_weights()
    refuse(monkeypatch, "gram")  # the log is not multiplied again
    other = {"l2": 9.0} | ({"dropout": 0.2} if "dropout" in model.params() else {})
    actual = kept.changed(**other)
    monkeypatch.undo()
    expected = type(model)(**(model.params() | other)).fit(log, dtype=dtype, solver="primal")
    same(actual, expected, dtype)
    np.testing.assert_array_equal(kept.item_weights(), before)
    monkeypatch.setattr(change, "require_cheaper", lambda *_: None)
    actual.forget_users("user-069")  # the Gram was shared: whoever changes takes a copy
    same(kept.changed(l2=5.0), type(model)(**(model.params() | {"l2": 5.0})).fit(log, dtype=dtype), dtype)


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_another_head_is_no_factorisation(solver, monkeypatch):
    log = data()
    model = mg.DEQL(l2=3, dropout=0.4, b=0.7).fit(log, solver=solver, dtype="float64")
    expected = mg.DEQL(l2=3, dropout=0.4, b=2).fit(log, solver=solver, dtype="float64")
    other = mg.DLAE(l2=3, dropout=0.4).fit(log, solver=solver, dtype="float64")
    refuse(monkeypatch, "invert_gram")
    actual = model.changed(b=2)
    same(actual, expected, "float64")
    assert actual.report_.solver == "reused"
    same(mg.DLAE(l2=3, dropout=0.4).fit(model, dtype="float64"), other, "float64")
    monkeypatch.undo()
    monkeypatch.setattr(change, "require_cheaper", lambda *_: None)
    same(actual.forget_users("user-000"), mg.DEQL(l2=3, dropout=0.4, b=2).fit(part(log, range(1, 70)), dtype="float64"),
         "float64")  # fmt: skip
    same(model, mg.DEQL(l2=3, dropout=0.4, b=0.7).fit(log, dtype="float64"), "float64")
    with pytest.raises(ParameterError, match="keep_gram=True"):
        model.changed(l2=4)
    with pytest.raises(ParameterError, match="no parameter 'rank'"):
        model.changed(rank=4)
    with pytest.raises(ParameterError, match="kept no Gram"):
        mg.DLAE(l2=3, dropout=0.4).fit(model, keep_gram=True)
    with pytest.raises(MemoryBudgetError):
        mg.EASE(l2=3).fit(log, solver="primal").changed(memory=100)


def test_the_plan_counts_the_gram():
    model, size = mg.EASE(), (1000, 5000, 10_000)
    plain = model.plan(size, solver="primal").chosen.bytes
    kept = model.plan(size, keep_gram=True).chosen
    assert kept.bytes - plain == 4 * 5000**2
    assert kept.solver == "primal"


def test_many_small_changes_stay_exact():
    """Twenty come and go one by one; float32 stays within its bound of a fit."""
    log = data()
    for solver in ("primal", "dual"):
        model = mg.EDLAE(l2=3, dropout=0.4).fit(part(log, range(50)), solver=solver)
        for row in range(50, 70):
            model.add_users(part(log, [row])).forget_users([log.users[row - 50]])
        same(model, mg.EDLAE(l2=3, dropout=0.4).fit(part(log, range(20, 70)), solver=solver), "float32")
        assert model.report_.changes == 40


def test_an_older_file_is_read_and_names_what_an_update_lacks(tmp_path):
    model = mg.EASE(l2=3).fit(data())
    model.weights_.update_state = None
    model.save(tmp_path / "old.mono")
    loaded = mg.load(tmp_path / "old.mono")
    assert loaded.recommend(["user-001"]).rows() == model.recommend(["user-001"]).rows()
    with pytest.raises(ParameterError, match="fit it again"):
        loaded.forget_users("user-001")


def test_an_accurate_update_gives_no_warning():
    log = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mg.EASE(l2=3).fit(part(log, range(50))).add_users(part(log, range(50, 70))).forget_users("user-001")


def own_items(seed, users=300, items=120):
    """Pairs of a small shop, and a user with one item of her own beside four that others use."""
    rng = np.random.default_rng(seed)
    rows = [(f"u{user}", f"i{item}") for user in range(users) for item in rng.choice(items, 6, replace=False)]
    return rows, [("eve", item) for item in ("mine", "i3", "i77", "i101", "i61")]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("model", MODELS[:4], ids=IDS[:4])
def test_an_item_of_a_forgotten_user_alone_has_no_weights(tmp_path, model, solver, dtype):
    """Rounding errors would leave weights that show the other items of the forgotten user."""
    rows, eve = own_items(1)
    changed = fresh(model).fit(rows + eve, solver=solver, dtype=dtype).forget_users(["eve"])
    changed.save(tmp_path / "a.mono")
    for one in (changed, mg.load(tmp_path / "a.mono")):
        place = one.log_.items.index(["mine"])[0]
        weights = one.item_weights()
        weights[place, place] = 0
        assert not weights[place].any()
        assert not weights[:, place].any()


def without_eve(l2, weight):
    """A model that forgot a user with all items, with a small penalty; and its relative error before."""
    rng = np.random.default_rng(0)
    rows = [(f"u{u}", f"i{i}", 1.0) for u in range(900) for i in rng.choice(300, rng.integers(1, 4), replace=False)]
    log = mg.read(rows + [("eve", f"i{i}", weight) for i in range(300)], merge="sum")
    model = mg.EASE(l2=l2).fit(log, solver="primal")
    return relative_error(model), model.forget_users(["eve"])


def relative_error(model):
    """The largest error of the weights against a fit in float64, relative to the largest weight."""
    exact = fresh(model).fit(model.log_, solver="primal", dtype="float64").item_weights()
    return np.abs(model.item_weights() - exact).max() / np.abs(exact).max()


@pytest.mark.parametrize("l2", [1e-3, 1e-2, 1.0])
def test_an_update_that_loses_accuracy_is_a_refit(l2):
    """Without a refit the relative error of the weights would be about 1e-3."""
    _, changed = without_eve(l2, 10.0)
    assert changed.report_.note.startswith("refit: after 1 changes the residual would be")
    assert relative_error(changed) <= 1e-5


@pytest.mark.parametrize(("l2", "worse"), [(1e-3, 4), (1e-2, 0), (1.0, 0)])
def test_an_update_stays_within_the_drift_or_the_accuracy_of_the_fit(l2, worse):
    """With the smallest l2 the fit itself is that far off, and by how much depends on the machine."""
    before, changed = without_eve(l2, 1.0)
    assert relative_error(changed) <= max(1e-5, worse * before)


@pytest.mark.parametrize(("dtype", "weight"), [("float32", 30.0), ("float64", 100.0)])
def test_adding_and_forgetting_heavy_users_restores_the_model(dtype, weight):
    rng = np.random.default_rng(2)
    base = sp.random_array((400, 150), density=0.05, rng=rng, dtype=np.float32, format="csr")
    log = mg.Interactions.from_csr(base, merge="sum")
    model = mg.EDLAE(l2=2, dropout=0.3).fit(log, solver="primal", dtype=dtype)
    for step in range(6):
        names = [f"heavy {step} {n}" for n in range(5)]
        heavy = [(name, int(i), weight) for name in names for i in rng.choice(150, 6, replace=False)]
        more = mg.Interactions.from_csr(
            sp.csr_array(
                ([w for *_, w in heavy], (np.repeat(np.arange(5), 6), [i for _, i, _ in heavy])),
                shape=(5, 150),
                dtype=np.float32,
            ),
            users=[1000 + 10 * step + n for n in range(5)],
            merge="sum",
        )
        model.add_users(more)
        model.forget_users([1000 + 10 * step + n for n in range(5)])
    expected = mg.EDLAE(l2=2, dropout=0.3).fit(log, solver="primal", dtype="float64").item_weights()
    assert np.abs(model.item_weights() - expected).max() <= CLOSE[dtype] * np.abs(expected).max()


def test_an_interrupt_after_the_weights_were_rewritten_leaves_no_model(monkeypatch):
    log, tick = data(), ReportBuilder.tick
    model = mg.EASE(l2=3).fit(part(log, range(50)), solver="primal")

    def stop(self, stage, amount=0.0):
        if stage == "weights":
            raise KeyboardInterrupt
        tick(self, stage, amount)

    monkeypatch.setattr(ReportBuilder, "tick", stop)
    with pytest.raises(KeyboardInterrupt):
        model.add_users(part(log, range(50, 70)))
    with pytest.raises(NotFittedError):
        model.recommend()


def test_another_head_after_frozen_penalties():
    log = data()
    model = mg.DEQL(l2=5, dropout=0.3, b=0.5).fit(log, solver="primal", dtype="float64")
    model.forget_users(list(log.users)[:1], penalties="frozen")
    back = model.changed(b=1.0).changed(b=0.5)
    np.testing.assert_allclose(back.item_weights(), model.item_weights(), atol=1e-10)


def test_a_model_is_not_fitted_on_itself():
    model = mg.EASE(l2=3).fit(data())
    with pytest.raises(ParameterError, match="on itself"):
        model.fit(model)
    assert len(model.recommend(k=1)), "and it is as it was"
