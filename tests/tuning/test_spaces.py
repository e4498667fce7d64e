"""Search spaces: coarse values from the log, finer values between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import monogram as mg
from monogram.errors import ParameterError
from monogram.models import registry
from monogram.models.parameters import param
from monogram.models.registry import MODELS
from monogram.models.search_axes import Search
from monogram.tuning import spaces
from monogram.tuning.spaces import Axis


def sigma(_, rank):
    return np.linspace(20, 1, rank)


def test_popularity_alone_has_no_parameters():
    common = set(mg.Popularity().params())
    assert [name for name in MODELS if set(MODELS[name]().params()) <= common] == ["popularity"]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "popularity"])
def test_every_model_with_parameters_has_a_space_it_accepts(name, log):
    axes = spaces.space(name, log, sigma, {})
    found = spaces.coarse(name, axes)
    assert len(found) > 1
    assert len(found) == np.prod([len(axis.values) for axis in axes.values()], dtype=int)
    assert len(set(found)) == len(found)
    for axis in axes.values():
        assert list(axis.values) == sorted(axis.values)


def test_penalties_follow_the_popularity(log):
    double = type(log).from_csr(log.matrix * 2)
    once, twice = (spaces.space("ease", one, sigma, {})["l2"].values for one in (log, double))
    np.testing.assert_allclose(np.array(twice) / once, 4, rtol=0.01)
    d = np.bincount(log.matrix.indices)
    assert once[0] < np.median(d) < once[-1]


def test_what_is_given_replaces_an_axis_and_is_not_refined(log):
    axes = spaces.space("deql", log, sigma, {"b": [0.5, 2], "dropout": 0.3, "a": np.array([1.0])})
    assert {one.parameters["dropout"] for one in spaces.coarse("deql", axes)} == {0.3}
    fine = spaces.finer("deql", axes, {"l2": 10.0, "dropout": 0.3, "b": 0.5, "a": 1.0}, 0.5)
    assert {one.parameters["b"] for one in fine} == {0.5, 2.0}
    assert len({one.parameters["l2"] for one in fine}) == 3


def test_what_no_model_has_is_refused(log):
    with pytest.raises(ParameterError, match="ease has no parameter 'dropout'"):
        spaces.space("ease", log, sigma, {"dropout": 0.3})
    with pytest.raises(ParameterError, match="no values"):
        spaces.space("ease", log, sigma, {"l2": []})
    with pytest.raises(ParameterError, match="l2 = -1"):
        spaces.coarse("ease", spaces.space("ease", log, sigma, {"l2": [-1]}))


@pytest.mark.parametrize(
    ("axis", "value", "expected"),
    [
        (Axis((1.0, 4.0, 16.0)), 4.0, [2.0, 4.0, 8.0]),
        (Axis((1.0, 4.0, 16.0)), 16.0, [8.0, 16.0, 32.0]),
        (Axis((16, 32, 64), "whole"), 32, [23, 32, 45]),
        (Axis((0.2, 0.5, 0.8), "odds"), 0.5, [0.333, 0.5, 0.667]),
        (Axis((0.9, 0.99), "rest"), 0.9, [1 - 0.316, 0.9, 1 - 0.0316]),
        (Axis((0.9, 0.99), "given"), 0.9, [0.9, 0.99]),
        (Axis((0.0, 0.5, 1.0), "plain"), 0.5, [0.25, 0.5, 0.75]),
        (Axis((-0.1, 0.0, 0.1), "plain"), 0.0, [-0.05, 0.0, 0.05]),
        (Axis((5.0,)), 5.0, [5.0]),
    ],
)
def test_half_a_step(axis, value, expected):
    assert axis.around(value, 0.5) == pytest.approx(expected)


def test_a_free_axis_keeps_its_values():
    assert Axis((1.0, 4.0), free=True).around(1.0, 0.5) == pytest.approx([0.5, 1.0, 2.0, 4.0])


def test_a_power_of_popularity_only_where_its_shift_is_seen(log):
    given = {"l2": 10, "dropout": 0.3}
    assert list(spaces.space("tempered", log, sigma, given)) == ["user_power", "l2", "dropout"]
    axes = spaces.space("tempered", log, sigma, given, shift=True)
    assert axes["item_power"].free
    assert "item_power" in spaces.space("tempered", log, sigma, given | {"item_power": 0.3})
    below = spaces.finer("tempered", axes, given | {"user_power": 0.0, "item_power": 0.0}, 1.0)
    assert {one.parameters["user_power"] for one in below} == {0.0, 0.5}  # not below 0


def test_what_two_steps_have_for_free(log):
    axes = spaces.space("two_step", log, sigma, {"l2": 10}, shift=True)
    assert [name for name, axis in axes.items() if axis.free] == ["item_power", "second", "low_pass"]
    assert axes["low_pass"].values[0] == 0
    assert axes["rank"].values == (15,)  # a quarter of the items: with all directions nothing changes
    assert "item_power" not in spaces.space("two_step", log, sigma, {"l2": 10})
    near = spaces.finer("two_step", axes, {"l2": 10, "dropout": 0.5, "user_power": 0.5, "item_power": 0.0,
                                           "second": 1.0, "low_pass": 0.0, "rank": 15}, 0.5)  # fmt: skip
    assert {one.parameters["low_pass"] for one in near} == {0.0, 0.1, 0.2, 0.4, 0.8}  # none below 0
    assert max(one.parameters["second"] for one in near) == 1.0


def test_the_middle_comes_first():
    assert spaces._from_the_middle([1, 2, 3, 4, 5])[0] == 3


def test_a_step_back_to_the_grid_is_not_a_new_value():
    axis = spaces.Axis((23.0, 92.0, 368.0, 1470.0, 5890.0))
    assert axis.around(1470.0, 1.0) == [368.0, 1470.0, 5890.0]
    assert axis.around(5890.0, 1.0)[:2] == [1470.0, 5890.0]
    assert axis.around(5890.0, 1.0)[2] > 20_000, "beyond the edge"
    assert len(set(axis.around(368.0, 0.5)) - set(axis.values)) == 2


@pytest.mark.parametrize(("name", "given"), [("edlae", {"l2": -5}), ("edlae", {"l2": [100, -5], "dropout": 0.3}),
                                             ("lrr", {"rank": 0}), ("deql", {"b": float("nan")})])  # fmt: skip
def test_a_value_that_the_model_refuses_is_an_error(name, given, log):
    with pytest.raises(ParameterError, match="cannot be tried with"):
        spaces.space(name, log, sigma, given)


def test_a_value_that_needs_another_is_taken(log):
    axes = spaces.space("rg2", log, sigma, {"penalty": ["weighted", "plain"], "solver": ["closed_form", "als"]})
    assert axes["penalty"].values == ("weighted", "plain")


@dataclass(kw_only=True, eq=False)
class Unsearched(mg.EASE):
    """A model that declares no search axis."""

    name: ClassVar[str] = "unsearched"
    l2: float = param(100.0, "penalty on the squared weights", low=0)


@pytest.fixture
def unsearched():
    with registry.MODELS.restored():
        yield mg.register(Unsearched).name


def test_a_model_without_axes_needs_given_values(log, unsearched):
    with pytest.raises(ParameterError, match=r"unsearched declares no search axes; give space=.*l2\)"):
        spaces.space(unsearched, log, sigma, {})
    assert list(spaces.space(unsearched, log, sigma, {"l2": 3})) == ["l2"]
    assert spaces.space("popularity", log, sigma, {}) == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"scale": "log"}, "scale = 'log'"), ({"unit": "metre"}, "unit = 'metre'"), ({"values": ()}, "needs values"),
     ({"unit": "threshold"}, "needs values"), ({"at": lambda mu, _: mu}, "needs values")],
)  # fmt: skip
def test_a_wrong_declaration_is_refused(wrong, message):
    with pytest.raises(ParameterError, match=message):
        Search(**({"values": (1.0, 2.0)} | wrong))


def test_the_order_of_events_is_searched_only_where_it_counts(log):
    for name in ("ease", "two_step", "lrr", "item_knn", "wrmf"):
        plain, ordered = (spaces.space(name, log, sigma, {}, order=order) for order in (False, True))
        own = ["decay", "recency"] if name in ("ease", "two_step", "lrr") else ["recency"]
        own += ["trend"] if name == "two_step" else []
        assert [parameter for parameter in ordered if parameter not in plain] == own
        assert {parameter: ordered[parameter] for parameter in plain} == plain
        assert all(ordered[parameter].apart for parameter in own)
    assert spaces.space("popularity", log, sigma, {}, order=True) == {}
    assert "recency" not in spaces.space("ease", log, sigma, {"half_life": "30d"}, order=True)
    assert not spaces.space("ease", log, sigma, {"recency": [0, 0.5]}, order=True)["recency"].apart


def test_recency_alone_is_no_search_of_a_model(unsearched, log):
    with pytest.raises(ParameterError, match=r"unsearched declares no search axes; give space=.*l2\)"):
        spaces.space(unsearched, log, sigma, {}, order=True)


@pytest.mark.parametrize("name", ["ease", "deql", "item_knn"])
def test_axes_apart_do_not_multiply_the_grid(name, log):
    plain, ordered = (spaces.space(name, log, sigma, {}, order=order) for order in (False, True))
    before, after = spaces.coarse(name, plain), spaces.coarse(name, ordered)
    middle, decays = before[0].parameters, len(ordered["decay"].values) if "decay" in ordered else 1
    assert after[0] == before[0]
    assert set(before) < set(after)
    assert len(after) == len(set(after)) == len(before) + decays * 5 - 1
    own = {"decay", "recency"}
    for setting in after[: 5 * decays]:
        assert {key for key, value in setting.parameters.items() if value != middle[key]} <= own
    best = before[-1].parameters | {"recency": 0.5}
    around = spaces.finer(name, ordered, best, 0.5)
    changed = [{key for key, value in one.parameters.items() if value != best[key]} for one in around]
    assert all(change <= own or not change & own for change in changed)
    assert {one.parameters["recency"] for one in around} == {0.0, 0.25, 0.375, 0.5, 0.625, 0.75, 1.0}
    assert len(around) == len(set(around))
    factorisations = {
        (one.parameters.get("l2"), one.parameters.get("dropout"), one.parameters.get("decay")) for one in around
    }
    others = {key[:2] for key in factorisations}
    assert len(factorisations) == len(others) + (1 if "decay" in ordered else 0), "one more decay: 0.15"
