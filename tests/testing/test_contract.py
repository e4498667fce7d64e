"""Every model keeps the contract, by either solver; and the contract finds out those that do not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import monogram as mg
from monogram.models.base import Recommender
from monogram.models.full_rank import FullRank
from monogram.models.registry import MODELS
from monogram.models.spectral import Spectral
from monogram.models.two_step import TwoStep
from monogram.testing import check_recommender, two_tastes
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
    class Pinned(MODELS[name]):  # type: ignore[misc]
        def fit(self, log, *, solver=solver, **options):
            return super().fit(log, solver=solver, **options)

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


def test_parameters_are_passed_on():
    check_recommender(mg.DEQL, l2=5, dropout=0.6, b=2, zero_diagonal=True)
