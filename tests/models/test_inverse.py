"""The public inverse: one factorisation, shared by every model with an equal recipe and penalties."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.engine.inverse import primal
from monogram.errors import MemoryBudgetError, ParameterError

PENALTIES = mg.Penalties(l2=4, dropout=0.4)
SHARING = [
    mg.EDLAE(l2=4, dropout=0.4),
    mg.DLAE(l2=4, dropout=0.4),
    mg.DEQL(l2=4, dropout=0.4, b=0.7),
    mg.Tempered(l2=4, dropout=0.4, user_power=0, item_power=0.2),
    mg.LowRankDLAE(l2=4, dropout=0.4, rank=3),
    mg.LowRankEDLAE(l2=4, dropout=0.4, rank=3),
]


@pytest.fixture(scope="module")
def log():
    dense = np.random.default_rng(3).random((40, 12)) < 0.3
    return mg.Interactions.from_csr(sp.csr_array(dense.astype(np.float32)))


def unfitted(model):
    return type(model)(**model.params())


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("model", SHARING, ids=repr)
def test_a_model_of_an_inverse_is_the_model_of_the_log(log, model, solver):
    inverse = mg.Inverse(log, mg.GramRecipe(), PENALTIES, dtype="float64", solver=solver)
    actual, expected = unfitted(model).fit(inverse), unfitted(model).fit(log, dtype="float64", solver=solver)
    assert actual.report_.solver == "reused"
    np.testing.assert_allclose(actual.item_weights(), expected.item_weights(), atol=1e-10)


def test_an_inverse_with_user_weights(log):
    inverse = mg.Inverse(log, mg.GramRecipe(user_power=0.5), PENALTIES, dtype="float64")
    model = mg.Tempered(l2=4, dropout=0.4, user_power=0.5, b=0.3)
    actual, expected = unfitted(model).fit(inverse), unfitted(model).fit(log, dtype="float64")
    np.testing.assert_allclose(actual.item_weights(), expected.item_weights(), atol=1e-12)
    assert actual.report_.unit == expected.report_.unit


def test_models_share_one_factorisation_and_do_not_change_the_inverse(log, monkeypatch):
    made, real = [], primal.primal_inverse
    monkeypatch.setattr(primal, "primal_inverse", lambda *a, **b: made.append(a[0].shape) or real(*a, **b))
    inverse = mg.Inverse(log, mg.GramRecipe(), PENALTIES, solver="primal")
    first = unfitted(SHARING[0]).fit(inverse).item_weights()
    whole = [shape for shape in made if shape == log.matrix.shape]
    for model in SHARING:
        unfitted(model).fit(inverse)
    assert len(whole) == len([shape for shape in made if shape == log.matrix.shape]) == 1
    np.testing.assert_array_equal(unfitted(SHARING[0]).fit(inverse).item_weights(), first)


def test_a_model_of_an_inverse_can_be_updated(log):
    inverse = mg.Inverse(log, mg.GramRecipe(), PENALTIES, dtype="float64", solver="primal")
    one, other = mg.EDLAE(l2=4, dropout=0.4).fit(inverse), mg.EDLAE(l2=4, dropout=0.4).fit(inverse)
    before = other.item_weights()
    one.forget_users([3, 4])
    np.testing.assert_array_equal(other.item_weights(), before)
    fresh = mg.EDLAE(l2=4, dropout=0.4).fit(one.log_, dtype="float64", solver="primal")
    np.testing.assert_allclose(one.item_weights(), fresh.item_weights(), atol=1e-9)


@pytest.mark.parametrize(
    "model", [mg.EASE(l2=4), mg.EDLAE(l2=5, dropout=0.4), mg.Tempered(l2=4, dropout=0.4, user_power=0.5)]
)
def test_another_recipe_or_penalty_is_refused(log, model):
    inverse = mg.Inverse(log, mg.GramRecipe(), PENALTIES)
    with pytest.raises(ParameterError, match="only models with equal recipe and penalties share it"):
        model.fit(inverse)


def test_invalid_arguments_and_small_budgets_are_refused(log):
    with pytest.raises(ParameterError, match="expected a GramRecipe and Penalties"):
        mg.Inverse(log, 100, PENALTIES)
    with pytest.raises(ParameterError, match="solver"):
        mg.Inverse(log, mg.GramRecipe(), PENALTIES, solver="disk")
    with pytest.raises(MemoryBudgetError):
        mg.Inverse(log, mg.GramRecipe(), PENALTIES, memory=1000)
    inverse = mg.Inverse(log, mg.GramRecipe(), PENALTIES, solver="primal")
    with pytest.raises(MemoryBudgetError, match="beside the inverse"):
        mg.EDLAE(l2=4, dropout=0.4).fit(inverse, memory=10)
    with pytest.raises(ParameterError, match="has no Gram"):
        mg.EDLAE(l2=4, dropout=0.4).fit(inverse, keep_gram=True)
    with pytest.raises(ParameterError, match="fit on the log"):
        mg.TwoStep(l2=4, dropout=0.4, user_power=0).fit(inverse)
