"""`repeat`: the weight of a history's own items, in every kind of weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.errors import ModelFileError, ParameterError
from monogram.models import live
from monogram.models.full_rank import FullRank
from monogram.models.registry import MODELS
from monogram.weights import TwoStepSparse

SETTINGS = {"l2": 5.0, "dropout": 0.4, "user_power": 0.5, "b": 0.4, "relax": 0.3, "second": 0.7, "item_power": 0.2}
SOLVERS = ["primal", "dual", "local", "matrix_free"]
REPEAT = 1.75


def world():
    """A log with weights."""
    rng = np.random.default_rng(4)
    dense = (rng.random((50, 20)) < 0.25) * rng.integers(1, 4, (50, 20))
    return mg.Interactions.from_csr(sp.csr_array(dense.astype(np.float32)))


def models():
    for kind in [kind for kind in MODELS.values() if issubclass(kind, FullRank)] + [mg.TwoStep]:
        names = [name for name in SETTINGS if name in kind().params()]
        yield kind, {name: SETTINGS[name] for name in names}
    yield mg.TwoStep, {"l2": 5.0, "low_pass": 0.4, "rank": 5}


def cases():
    for kind, settings in models():
        for solver in SOLVERS:
            if solver in kind.solvers:
                yield pytest.param(kind, settings, solver, id=f"{kind.name}-{solver}-{len(settings)}")


def test_every_full_rank_model_is_tried():
    assert {kind.name for kind, _ in models()} >= {"ease", "edlae", "dlae", "deql", "tempered", "rdlae", "two_step"}


@pytest.mark.parametrize(("kind", "settings", "solver"), list(cases()))
def test_the_score_of_an_own_item_rises_by_repeat_times_its_weight(kind, settings, solver):
    log = world()
    plain = kind(**settings).fit(log, solver=solver, dtype="float64")
    model = kind(**settings, repeat=REPEAT).fit(log, solver=solver, dtype="float64")
    histories = [{3: 1.0, 7: 2.5, 11: 1.0}, {0: 3.0}]
    rise = model.score(histories) - plain.score(histories)
    expected = np.zeros((2, 20))
    expected[[0, 0, 0, 1], [3, 7, 11, 0]] = REPEAT * np.array([1, 2.5, 1, 3])
    np.testing.assert_allclose(rise, expected, atol=1e-9)
    np.testing.assert_allclose(model.item_weights() - plain.item_weights(), REPEAT * np.eye(20), atol=1e-9)
    for item in (7, 4):
        explained = model.explain(histories[0], item)
        assert explained.score == pytest.approx(model.score(histories, [item])[0, 0], abs=1e-9)
        before = dict(plain.explain(histories[0], item).shares)
        assert {own: share - before[own] for own, share in explained.shares} == pytest.approx(
            {own: REPEAT * weight * (own == item) for own, weight in histories[0].items()}, abs=1e-9
        )
    masked = [each.recommend(histories=histories, k=5) for each in (plain, model)]
    first, second = ([(row["user"], row["item"]) for row in each.rows()] for each in masked)
    assert first == second
    lists = model.recommend(histories=histories, k=20, exclude_seen=False)
    scores = model.score(histories)
    for number in range(2):
        rows = [row for row in lists.rows() if row["user"] == number]
        np.testing.assert_allclose([row["score"] for row in rows], np.sort(scores[number])[::-1], atol=1e-9)


@pytest.mark.parametrize(("kind", "settings", "solver"), list(cases()))
def test_files_keep_it(kind, settings, solver, tmp_path):
    model = kind(**settings, repeat=REPEAT).fit(world(), solver=solver)
    model.save(tmp_path / "m.mono")
    loaded = mg.load(tmp_path / "m.mono")
    assert loaded.repeat == REPEAT
    histories = [[3, 7, 11]]
    assert (loaded.score(histories) == model.score(histories)).all()
    if solver == "dual":
        model.save(tmp_path / "w.mono", expand=True)
        np.testing.assert_allclose(
            mg.load(tmp_path / "w.mono").score(histories), model.score(histories), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", [mg.EASE, mg.EDLAE, mg.DLAE, mg.RDLAE, mg.Tempered])
def test_it_changes_without_a_fit(kind, solver):
    """By `changed`, for one request, and on the inverse of another model."""
    log = world()
    plain = kind(l2=5).fit(log, solver=solver, dtype="float64")
    wanted = kind(l2=5, repeat=REPEAT).fit(log, solver=solver, dtype="float64")
    changed = plain.changed(repeat=REPEAT)
    assert changed.report_.solver == "reused"
    assert changed.repeat == REPEAT
    histories = [[3, 7, 11], [0]]
    np.testing.assert_allclose(changed.score(histories), wanted.score(histories), atol=1e-7)
    assert "repeat" in live.parameters(plain)
    rows = log.matrix[:6]
    held = live.weights(plain, {"repeat": REPEAT}).score(rows, np.arange(20), 1)
    np.testing.assert_allclose(held, wanted.weights_.score(rows, np.arange(20), 1), atol=1e-7)
    back = wanted.changed(repeat=0.0)
    np.testing.assert_allclose(back.score(histories), plain.score(histories), atol=1e-7)


def test_another_b_keeps_it():
    model = mg.EDLAE(l2=5, dropout=0.4, repeat=REPEAT).fit(world(), dtype="float64")
    wanted = mg.DEQL(l2=5, dropout=0.4, b=0.7, repeat=REPEAT).fit(world(), dtype="float64")
    rows = world().matrix[:6]
    held = live.weights(model, {"b": 0.7}).score(rows, np.arange(20), 1)
    np.testing.assert_allclose(held, wanted.weights_.score(rows, np.arange(20), 1), atol=1e-9)


@pytest.mark.parametrize("solver", ["primal", "dual", "local"])
def test_updates_keep_it(solver):
    """On a log of separate parts, so that a local model is updated too."""
    matrix = sp.block_diag([world().matrix] * 4, format="csr")
    model = mg.EDLAE(l2=5, dropout=0.4, repeat=REPEAT).fit(sp.csr_array(matrix), solver=solver, dtype="float64")
    model.forget_users([3, 9])
    assert model.report_.changes == 1
    refit = mg.EDLAE(l2=5, dropout=0.4, repeat=REPEAT).fit(model.log_, solver=solver, dtype="float64")
    np.testing.assert_allclose(model.item_weights(), refit.item_weights(), atol=1e-8)
    np.testing.assert_allclose(model.item_weights().diagonal(), REPEAT, atol=1e-8)


def test_zero_is_no_parameter_at_all():
    log = world()
    for kind, settings in models():
        weights = [kind(**settings, **more).fit(log).item_weights() for more in ({}, {"repeat": 0})]
        assert (weights[0] == weights[1]).all()
        assert "repeat" not in repr(kind(**settings))
        assert "repeat=2.0" in repr(kind(**settings, repeat=2))


def test_wrong_values_are_refused():
    for value in (-1, float("nan"), 1e7):
        with pytest.raises(ParameterError, match="weight of a history's own items"):
            mg.EASE(repeat=value)
    model = mg.TwoStep(l2=5, repeat=REPEAT).fit(world(), solver="local")
    tensors = model.weights_.tensors() | {"repeat": np.array([-1.0])}
    with pytest.raises(ModelFileError, match="repeat of -1"):
        TwoStepSparse.from_tensors(tensors, model.log_.matrix)
