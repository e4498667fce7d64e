"""Every model keeps the contract, by either solver; and the contract finds out those that do not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import monogram as mg
from monogram.errors import ParameterError
from monogram.models.base import Recommender
from monogram.models.full_rank import FullRank
from monogram.models.registry import MODELS
from monogram.models.spectral import Spectral
from monogram.models.two_step import TwoStep
from monogram.testing import check_recommender, contract, two_tastes
from monogram.weights import Dense, Fixed

# Penalties for the contract's small worlds, where the defaults would leave nothing.
SMALL = {
    "regularized_pca": {"rank": 6, "l2": 0.5},
    "wlae": {"rank": 6, "weights": 0.5},
    "vlae": {"rank": 6, "weights": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)},
    "lrr": {"rank": 6, "l2": 1.0},
    "rg2": {"rank": 6, "l2": 0.1},
    "ease": {"l2": 1.0},
    "dlae": {"l2": 1.0},
    "edlae": {"l2": 1.0},
    "deql": {"l2": 1.0},
    "tempered": {"l2": 1.0, "item_power": -0.1, "b": 0.3},
    "two_step": {"l2": 1.0, "item_power": -0.1},
    "slim": {"l1": 1.0, "l2": 1.0},
    "item_knn": {"shrink": 1.0},
    "slist": {"l2": 1.0},
    "expected_quadratic": {"l2": 1.0},
    "factorization": {"rank": 4, "batch": 64, "epochs": 20, "learning_rate": 0.05},
    "light_gcn": {"rank": 4, "batch": 64, "epochs": 20, "learning_rate": 0.05},
    "sgl": {"rank": 4, "batch": 64, "epochs": 20, "learning_rate": 0.05, "layers": 1, "contrast": 0.01},
    "dgcf": {"rank": 4, "batch": 64, "epochs": 20, "learning_rate": 0.05, "intents": 2},
    "pin_sage": {"rank": 4, "batch": 64, "epochs": 20, "learning_rate": 0.05},
    "simplex": {"rank": 4, "batch": 64, "epochs": 20, "learning_rate": 0.05, "negatives": 10},
    "cdae": {"rank": 3, "batch": 16, "epochs": 20, "learning_rate": 0.1},
    "elsa": {"rank": 3, "batch": 16, "epochs": 15},
    "linear_autoencoder": {"rank": 3, "batch": 16, "epochs": 15, "l2": 1.0, "learning_rate": 0.03},
    "mult_dae": {"rank": 3, "batch": 16, "epochs": 15, "learning_rate": 0.03},
    "mult_vae": {"rank": 3, "hidden": 5, "batch": 16, "epochs": 15, "learning_rate": 0.05},
}
BY_SIDE = [name for name, kind in MODELS.items() if issubclass(kind, (FullRank, Spectral, TwoStep))]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_keeps_the_contract(name):
    assert MODELS[name].name == name
    check_recommender(MODELS[name], **SMALL.get(name, {}))


@pytest.mark.parametrize(
    "options",
    [{"solver": "als"}, {"solver": "newton_cg"}, {"solver": "als", "penalty": "plain", "l2": 1e-3}],
    ids=["als", "newton", "plain"],
)
def test_rg2_by_every_solver(options):
    check_recommender(MODELS["rg2"], **{"rank": 6, "l2": 0.1, "epochs": 2000, **options})


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("name", BY_SIDE)
def test_by_either_solver(name, solver):
    """With two threads: a process of the tests may have a single core, which is then the default."""

    class Pinned(MODELS[name]):  # type: ignore[misc]
        def fit(self, log, *, solver=solver, threads=2, **options):
            return super().fit(log, solver=solver, threads=threads, **options)

    check_recommender(Pinned, **SMALL.get(name, {}))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "popularity"])
def test_who_has_a_taste_gets_what_is_missing(name):
    log, history, answer = two_tastes()
    log = dataclasses.replace(log, order=np.arange(log.n_events, dtype=np.int32))
    model = MODELS[name](**SMALL.get(name, {}))
    assert model.fit(log).recommend(histories=[history], k=1).rows()[0]["item"] == answer


@dataclass(kw_only=True, eq=False)
class Outsider(Recommender):
    """A model of somebody else's: items by how often they go together."""

    name: ClassVar[str] = "outsider"

    def _fit(self, inputs, options, report):
        log = inputs.log
        together = (log.matrix.T @ log.matrix).toarray().astype(np.float64)
        np.fill_diagonal(together, 0)
        return Dense(together)


def test_an_outsiders_model_can_be_checked():
    check_recommender(Outsider)


@dataclass(kw_only=True, eq=False)
class Tuned(Recommender):
    """A model of somebody else's with parameters that are plain fields."""

    name: ClassVar[str] = "tuned"
    neighbours: int = 5
    shrink: float = 10.0
    mode: str = "cosine"

    def _fit(self, inputs, options, report):
        log = inputs.log
        together = (log.matrix.T @ log.matrix).toarray().astype(np.float64)
        sizes = np.sqrt(np.diag(together)) if self.mode == "cosine" else np.ones(log.n_items)
        together /= np.outer(sizes, sizes) + self.shrink
        np.fill_diagonal(together, 0)
        together[together < np.sort(together, axis=1)[:, -self.neighbours :][:, :1]] = 0
        return Dense(together)


@pytest.mark.parametrize("parameters", [{}, {"neighbours": 3, "shrink": 2, "mode": "plain"}])
def test_an_outsiders_model_may_have_parameters(parameters):
    check_recommender(Tuned, **parameters)


class Leaky(Fixed):
    """Gives seen items too."""

    def best(self, histories, eligible, k, threads):
        eligible.mask[:] = True
        object.__setattr__(eligible, "out_pointers", np.zeros_like(eligible.out_pointers))
        return super().best(histories, eligible, k, threads)


class Fickle(Fixed):
    """Scores depend on the day."""

    def score(self, histories, items, threads):
        return super().score(histories, items, threads) + 1


@pytest.mark.parametrize(("kind", "law"), [(Leaky, "has min"), (Fickle, "ranks by the values of `score`")])
def test_a_broken_model_is_found_out(kind, law):
    @dataclass(kw_only=True, eq=False)
    class Broken(Recommender):
        name: ClassVar[str] = "broken"

        def _fit(self, inputs, options, report):
            return kind(np.arange(inputs.log.n_items, dtype=float))

    with pytest.raises(AssertionError, match=law):
        check_recommender(Broken)


class ByUser(Fixed):
    """Scores of the known users, each found by the length of the history."""

    kind = "by_user"
    additive = False

    def shares(self, history, item):
        return np.zeros(history.nnz)


@dataclass(kw_only=True, eq=False)
class Transductive(Recommender):
    """A model that declares neither ability."""

    name: ClassVar[str] = "transductive"
    inductive: ClassVar[bool] = False
    additive_shares: ClassVar[bool] = False

    def _fit(self, inputs, options, report):
        return ByUser(np.bincount(inputs.log.matrix.indices, minlength=inputs.log.n_items).astype(float))


def test_laws_are_left_out_by_ability_not_by_name():
    every = {law.__name__ for law in contract.LAWS}
    kept = {law.__name__ for law in contract.laws_of(Transductive)}
    assert every - kept == {
        "law_ties", "law_same_history", "law_unknown", "law_explain", "law_differences", "law_similar"
    }  # fmt: skip
    assert {law.__name__ for law in contract.laws_of(mg.EASE)} == every
    for law in contract.laws_of(Transductive):
        if law.__name__ != "law_files":  # of weights that no file can hold
            law(Transductive)


def test_a_model_that_is_not_inductive_is_not_measured_on_strangers():
    log = mg.sample()
    with pytest.raises(ParameterError, match="Transductive knows only the users of its log"):
        mg.evaluate(Transductive(), mg.splits.strong(log), "ndcg@10")
    assert mg.evaluate(Transductive(), mg.splits.holdout(log), "ndcg@10").rows()


@pytest.mark.parametrize(
    ("declared", "message"),
    [({"additive": False}, "additive_shares is declared"), ({"inductive": False}, "must raise ParameterError")],
)
def test_a_false_declaration_is_found_out(declared, message):
    @dataclass(kw_only=True, eq=False)
    class Modest(Outsider):
        def require_inductive(self, what):
            pass

        def _fit(self, inputs, options, report):
            weights = super()._fit(inputs, options, report)
            weights.additive = getattr(self, "additive", True)
            return weights

    for name, value in declared.items():
        setattr(Modest, name, value)
    with pytest.raises(AssertionError, match=message):
        check_recommender(Modest)


def test_differences_that_are_not_the_fall_of_the_score_are_found_out():
    class Wrong(Dense):
        additive = False

        def shares(self, history, item):
            return super().shares(history, item) * 2

    @dataclass(kw_only=True, eq=False)
    class Misleading(Outsider):
        additive_shares: ClassVar[bool] = False

        def _fit(self, inputs, options, report):
            return Wrong(super()._fit(inputs, options, report).matrix)

    with pytest.raises(AssertionError, match="falls without each one item"):
        check_recommender(Misleading)


def test_parameters_are_passed_on():
    check_recommender(mg.DEQL, l2=5, dropout=0.6, b=2, zero_diagonal=True)
