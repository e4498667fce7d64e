"""Models by name: those of the package, registered classes, and entry points of installed packages."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar

import pytest

import monogram as mg
from monogram.errors import ModelFileError, ParameterError
from monogram.models import registry
from monogram.models.full_rank import FullRank
from monogram.models.heads import Formula, ZeroDiagonal
from monogram.models.parameters import param
from monogram.models.search_axes import Search
from monogram.tuning import spaces, tpe


@dataclass(kw_only=True, eq=False)
class Mine(FullRank):
    """A closed form from outside the package: EASE by another name."""

    name: ClassVar[str] = "mine"
    l2: float = param(100.0, "penalty on the squared weights", low=0, high=1e30)

    def formula(self) -> Formula:
        return Formula(mg.GramRecipe(), mg.Penalties(self.l2), ZeroDiagonal())


@pytest.fixture(autouse=True)
def own_registry():
    """What a test registers is gone afterwards."""
    with registry.MODELS.restored():
        yield


def test_every_class_is_where_the_registry_says():
    for name, kind in registry.MODELS.items():
        assert kind.name == name
        assert getattr(mg, kind.__name__) is kind


def test_a_registered_model_is_fitted_tuned_saved_and_loaded(tmp_path):
    assert mg.register(Mine) is Mine
    assert mg.register(Mine) is Mine, "once more is no error"
    log = mg.sample()
    model = Mine(l2=50).fit(log)
    assert model.recommend(k=3).rows() == mg.EASE(l2=50).fit(log).recommend(k=3).rows()
    model.save(tmp_path / "mine.mono")
    assert mg.load(tmp_path / "mine.mono").params() == model.params()
    actual = mg.tune(log, "mine", space={"mine": {"l2": [20, 200]}}, metric="ndcg@10", budget=2)
    assert actual.model.name == "mine"
    with pytest.raises(ParameterError, match="mine declares no search axes"):
        mg.tune(log, "mine", metric="ndcg@10", budget=2)


@dataclass(kw_only=True, eq=False)
class Searched(FullRank):
    """A closed form from outside the package that declares its search axes."""

    name: ClassVar[str] = "searched"
    strength: float = param(100.0, "penalty", low=0, search=Search((0.5, 1.0, 2.0), unit="popularity"))
    shape: float = param(1.0, "without an axis", low=0)

    def formula(self) -> Formula:
        return Formula(mg.GramRecipe(), mg.Penalties(self.strength * self.shape), ZeroDiagonal())


def test_a_registered_model_with_axes_is_tuned_without_a_space():
    mg.register(Searched)
    actual = mg.tune(mg.sample(), "searched", metric="ndcg@10", budget="12 settings")
    rows = [row["parameters"] for row in actual.rows() if row["model"] == "searched"]
    assert len({row["strength"] for row in rows}) == len(rows) > 3, "the coarse grid, then finer"
    assert {row["shape"] for row in rows} == {1.0}
    assert actual.model.name == "searched"
    assert actual.plan.counts()["alone"] == 0, "it shares inverses as the models of this package do"


@dataclass(kw_only=True, eq=False)
class Iterated(mg.WRMF):
    """A model from outside whose fit runs in epochs."""

    name: ClassVar[str] = "iterated"


def test_a_registered_model_in_epochs_is_searched_with_optuna():
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    mg.register(Iterated)
    assert tpe.needs_optuna("iterated", {"l2": spaces.Axis((1e-3, 1e-2))})
    assert not tpe.needs_optuna(mg.register(Mine).name, {"l2": spaces.Axis((1.0, 2.0))})
    space = {"iterated": {"epochs": 4, "rank": 4}}
    actual = mg.tune(mg.sample(), "iterated", space=space, metric="ndcg@10", budget="6 settings")
    assert actual.model.name == "iterated"


@pytest.mark.parametrize(
    ("ability", "expected"),
    [
        ("updatable", "EASE, DLAE, EDLAE, RDLAE, DEQL, Tempered"),
        ("keeps_gram", "EASE, DLAE, EDLAE, RDLAE, DEQL, Tempered"),
        (
            "on_cluster",
            "EASE, DLAE, EDLAE, RDLAE, DEQL, Tempered, RegularizedPCA, DropoutMF, NuclearPower, WLAE, VLAE, LRR, RG2",
        ),
        ("unknown", ""),
    ],
)
def test_classes_by_ability(ability, expected):
    assert registry.names_of(ability) == expected
    mg.register(Mine)
    assert registry.names_of(ability) == (f"{expected}, Mine" if expected else "")


def test_a_file_of_an_unregistered_model_is_not_loaded(tmp_path):
    Mine(l2=50).fit(mg.sample()).save(tmp_path / "mine.mono")
    with pytest.raises(ModelFileError, match="model 'mine', which is not registered"):
        mg.load(tmp_path / "mine.mono")


def test_an_entry_point_is_found(monkeypatch):
    entry = metadata.EntryPoint("brought", "monogram.models.full_rank:EASE", registry.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == registry.GROUP else [])
    registry.MODELS.discover()
    assert registry.model_class("brought") is mg.EASE


def test_classes_that_cannot_be_registered():
    with pytest.raises(ParameterError, match="expected a dataclass"):
        mg.register(dict)
    with pytest.raises(ParameterError, match="expected a dataclass"):
        mg.register(mg.EASE())
    taken = dataclass(kw_only=True, eq=False)(type("Other", (Mine,), {"name": "ease"}))
    with pytest.raises(ParameterError, match="'ease' of Other is taken by"):
        mg.register(taken)
    nameless = dataclass(kw_only=True, eq=False)(type("Nameless", (Mine,), {"name": "two words"}))
    with pytest.raises(ParameterError, match="'two words'"):
        mg.register(nameless)
