"""The weights of another head over the arrays of a model equal those of `changed`."""

from __future__ import annotations

import numpy as np
import pytest

import monogram as mg
from monogram.engine.topk.best import Eligible
from monogram.errors import ParameterError
from monogram.models import live
from monogram.weights.rescaled import Rescaled

OTHERS = [{"b": 0.0}, {"b": 1.5}, {"a": 2.0, "b": 0.3}, {"zero_diagonal": True}]


@pytest.mark.parametrize("solver", ["primal", "dual", "matrix_free"])
@pytest.mark.parametrize("parameters", OTHERS, ids=str)
def test_the_weights_are_those_of_the_changed_model(world, solver, parameters):
    model = mg.DEQL(l2=3, dropout=0.25, b=0.6).fit(world, solver=solver, dtype="float64")
    wanted, held = model.changed(**parameters).weights_, live.weights(model, parameters)
    rows, every = model.log_.matrix[:20], np.arange(25)
    np.testing.assert_allclose(held.score(rows, every, 1), wanted.score(rows, every, 1), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(held.columns(every), wanted.columns(every), rtol=1e-7, atol=1e-8)
    for item in (0, int(rows[[3]].indices[0])):
        np.testing.assert_allclose(held.shares(rows[[3]], item), wanted.shares(rows[[3]], item), rtol=1e-7, atol=1e-8)
    everything = Eligible(np.ones(25, bool), np.zeros(21, np.int64), *[np.zeros(0, np.int64)] * 3)
    for rules in (Eligible.all_but(rows), everything):
        mine, theirs = held.best(rows, rules, 6, 1), wanted.best(rows, rules, 6, 1)
        np.testing.assert_array_equal(mine.counts, theirs.counts)
        np.testing.assert_allclose(mine.scores, theirs.scores, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("kind", "b", "solver"),
    [*((mg.EDLAE, 0.0, solver) for solver in ("primal", "dual", "matrix_free")), (mg.DLAE, 1.0, "primal"),
     (mg.DLAE, 1.0, "dual")],
)  # fmt: skip
def test_the_kin_of_deql_have_its_b(world, kind, b, solver):
    model = kind(l2=3, dropout=0.25).fit(world, solver=solver, dtype="float64")
    assert live.parameters(model) == {"b": b, "repeat": 0.0}
    rows, every = model.log_.matrix[:20], np.arange(25)
    for other in (0.7, b):
        wanted = mg.DEQL(l2=3, dropout=0.25, b=other).fit(world, solver=solver, dtype="float64").weights_
        mine = live.weights(model, {"b": other})
        np.testing.assert_allclose(mine.score(rows, every, 1), wanted.score(rows, every, 1), rtol=1e-6, atol=1e-7)
    own, same = model.weights_.score(rows, every, 1), live.weights(model, {"b": b}).score(rows, every, 1)
    factor = own[np.abs(own) > 1e-3] / same[np.abs(own) > 1e-3]
    np.testing.assert_allclose(factor, factor[0], rtol=1e-6)


def test_no_square_array_is_made(world):
    model = mg.DEQL(l2=3).fit(world)
    held = live.weights(model, {"b": 2.0})
    assert isinstance(held, Rescaled)
    assert held.dense is model.weights_
    assert held.nbytes == 2 * 8 * 25
    assert live.weights(model, {}) is model.weights_
    with pytest.raises(ParameterError, match="cannot be stored"):
        held.tensors()


def test_what_can_be_changed(world):
    own = {"a": 1.0, "b": 0.4, "zero_diagonal": False, "repeat": 0.0}
    assert live.parameters(mg.DEQL(b=0.4).fit(world)) == own
    assert live.parameters(mg.EASE(repeat=2).fit(world)) == {"repeat": 2.0}
    assert live.parameters(mg.EDLAE(dropout=0).fit(world)) == {"repeat": 0.0}
    alone = live.parameters(mg.DLAE().fit(world, solver="matrix_free"))
    assert alone == {"repeat": 0.0}, "it has no diagonal of C"
    assert live.parameters(mg.Popularity().fit(world)) == {}
    assert live.parameters(mg.DEQL().fit(world).prune(5)) == {}
    with pytest.raises(ParameterError, match="did you mean b"):
        live.weights(mg.DEQL().fit(world), {"B": 1})
    with pytest.raises(ParameterError, match="it has none"):
        live.weights(mg.Popularity().fit(world), {"b": 1})


def ordered(world):
    matrix = mg.Interactions.from_csr(world).matrix
    return mg.Interactions.from_csr(matrix, times=np.random.default_rng(1).permutation(matrix.nnz), time_unit="h")


def test_recency_can_be_changed_where_the_order_is_known(world):
    model = mg.DEQL(b=0.4).fit(ordered(world))
    own = {"a": 1.0, "b": 0.4, "zero_diagonal": False, "repeat": 0.0}
    assert live.parameters(model) == own | {"recency": 0.0, "half_life": None}
    assert live.parameters(mg.ItemKNN().fit(ordered(world))) == {"recency": 0.0, "half_life": None}
    assert live.parameters(mg.Popularity().fit(ordered(world))) == {}, "its scores do not depend on the history"
    assert live.recency(model, {"recency": 0.5, "b": 1.0}) == mg.DEQL(recency=0.5).recency_rule()
    assert live.weights(model, {"recency": 0.5}) is model.weights_
    np.testing.assert_array_equal(
        live.weights(model, {"recency": 0.5, "b": 2.0}).columns(np.arange(25)),
        live.weights(model, {"b": 2.0}).columns(np.arange(25)),
    )


def test_a_recency_takes_the_place_of_a_half_life_and_the_other_way_round(world):
    model = mg.EASE(half_life="30d").fit(ordered(world))
    assert live.recency(model, {}) == model.recency_rule()
    assert live.recency(model, {"recency": 0.5}) == mg.EASE(recency=0.5).recency_rule()
    assert not live.recency(model, {"recency": 0}).active
    assert live.recency(model, {"half_life": "2d"}) == mg.EASE(half_life="2d").recency_rule()
    other = mg.EASE(recency=0.3, recency_unit="2d").fit(ordered(world))
    assert live.recency(other, {"half_life": "2d"}) == mg.EASE(recency_unit="2d", half_life="2d").recency_rule()
    assert live.recency(other, {"half_life": None}) == other.recency_rule()
    with pytest.raises(ParameterError, match="both given"):
        live.recency(other, {"half_life": "2d", "recency": 0.4})
    with pytest.raises(ParameterError, match="recency = -1"):
        live.recency(other, {"recency": -1})


def test_recency_of_a_log_without_order_cannot_be_changed(world):
    with pytest.raises(ParameterError, match="its log has no times"):
        live.recency(mg.EASE().fit(world), {"recency": 0.5})
