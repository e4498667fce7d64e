"""Models that share, change or plug in: an inverse that outlives its model, failures half-way, warnings, plugins."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.engine.inverse import woodbury
from monogram.errors import MemoryBudgetError, ParameterError
from monogram.models import inverse as inverse_
from monogram.models import live, registry
from monogram.models.full_rank import FullRank
from monogram.models.heads import Formula, ZeroDiagonal
from monogram.models.parameters import param
from monogram.models.recipe import GramRecipe, Penalties


@pytest.fixture
def log():
    rng = np.random.default_rng(5)
    return mg.Interactions.from_csr(sp.csr_array((rng.random((60, 30)) < 0.2).astype(np.float32)))


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_an_inverse_outlives_updates_of_its_model(log, solver):
    model = mg.EASE(l2=10).fit(log, dtype="float64", solver=solver)
    expected, held = model.item_weights(), model.inverse()
    model.forget_users(list(log.users)[:3])
    np.testing.assert_allclose(mg.EASE(l2=10).fit(held, dtype="float64").item_weights(), expected, atol=1e-12)


def test_a_failed_copy_of_the_gram_leaves_the_model_as_it_was(log, monkeypatch):
    model = mg.EASE(l2=50).fit(log, keep_gram=True, dtype="float64")
    model.changed(l2=80)  # shares the Gram, which is then read-only
    expected = model.item_weights()

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(woodbury, "grown", fail)
    with pytest.raises(MemoryError):
        model.forget_users(list(log.users)[:1])
    np.testing.assert_array_equal(model.item_weights(), expected)


@pytest.mark.parametrize("model", [mg.EASE(l2=5), mg.TwoStep(l2=5), mg.LowRankEDLAE(rank=3, l2=5)])
def test_a_warning_of_a_fit_names_the_line_of_the_user(log, model, monkeypatch):
    monkeypatch.setattr(inverse_, "WORST_RESIDUAL", 0.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(log)
    assert caught
    assert {warning.filename for warning in caught} == {__file__}


def test_a_spectral_model_over_its_budget_advises_a_lower_rank():
    with pytest.raises(MemoryBudgetError, match="use a lower rank"):
        mg.LRR().plan((1_000_000, 200_000, 20_000_000), memory="1 GB").require()


@dataclass(kw_only=True, eq=False)
class Reversed(mg.EASE):
    """EASE with every weight reversed: a fit of its own on an inherited formula."""

    name: ClassVar[str] = "reversed"

    def _fit(self, inputs, options, report):
        weights = super()._fit(inputs, options, report)
        weights.matrix *= -1
        return weights


@pytest.fixture
def own_registry():
    with registry.MODELS.restored():
        yield


@pytest.mark.usefixtures("own_registry")
def test_a_subclass_with_a_fit_of_its_own_is_tuned_by_that_fit():
    log = mg.sample()
    mg.register(Reversed)
    assert Reversed().shared_fit().reading == "fit"
    plain, other = (
        mg.tune(log, [name], space={name: {"l2": [50.0]}}, budget="1 settings") for name in ("ease", "reversed")
    )
    assert other.best["value"] < plain.best["value"] / 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: Penalties(l2=5, dropout=1),
        lambda: Penalties(l2="a"),
        lambda: Penalties(l2=-5),
        lambda: Penalties(l2=float("nan")),
        lambda: GramRecipe("a"),
        lambda: GramRecipe(3.0),
    ],
)
def test_recipe_and_penalties_are_checked(make):
    with pytest.raises(ParameterError, match="expected"):
        make()


@dataclass(kw_only=True, eq=False)
class Floored(FullRank):
    """A model with a whole number in its head and a parameter in its penalties that stands at its bound."""

    name: ClassVar[str] = "floored"
    floor: float = param(1.0, "the penalty", low=1)
    steps: int = param(3, "not used by the penalties", low=1)

    def formula(self):
        return Formula(GramRecipe(), Penalties(self.floor), ZeroDiagonal())


def test_only_parameters_of_the_head_can_be_changed_for_one_request(log):
    assert live.parameters(Floored().fit(log)) == {"steps": 3, "repeat": 0.0}
    assert live.parameters(mg.RDLAE(relax=1).fit(log)) == {"relax": 1.0, "repeat": 0.0}
    assert live.parameters(mg.Tempered().fit(log)).keys() == {"item_power", "b", "repeat"}


@pytest.mark.usefixtures("own_registry")
def test_a_plugin_that_cannot_be_imported_breaks_nothing_else(log):
    registry.MODELS.add_path("broken", "no_such_package.module:Model")
    with pytest.raises(ParameterError, match="LRR keeps no Gram"):
        mg.LRR().fit(log, keep_gram=True)
    with pytest.raises(MemoryBudgetError):
        mg.EASE().fit(log, memory=1)
    with pytest.raises(ParameterError, match="'broken' cannot be imported from no_such_package"):
        registry.model_class("broken")
