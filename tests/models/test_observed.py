"""The observer between the epochs of a fit receives the weights of shorter fits and does not change the fit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.errors import NotFittedError
from monogram.models.context import FitInputs, FitOptions

EPOCHS = 5
MODELS = {
    "wrmf": (mg.WRMF, {"rank": 6}),
    "wrmf cg": (mg.WRMF, {"rank": 6, "solver": "cg"}),
    "rg2 als": (mg.RG2, {"rank": 6, "l2": 0.05, "solver": "als", "tolerance": 0}),
    "rg2 plain": (mg.RG2, {"rank": 6, "l2": 1e-5, "solver": "als", "penalty": "plain", "tolerance": 0}),
    "rg2 newton": (mg.RG2, {"rank": 6, "l2": 0.05, "solver": "newton_cg", "tolerance": 0}),
    "alternating": (mg.LowRankEDLAE, {"rank": 6, "l2": 2, "dropout": 0.3, "solver": "alternating"}),
    "admm": (mg.LowRankEDLAE, {"rank": 6, "l2": 2, "dropout": 0.3, "solver": "admm"}),
    "zero_diagonal": (mg.LowRankEDLAE, {"rank": 6, "l2": 2, "dropout": 0.3, "solver": "zero_diagonal"}),
}
pytestmark = pytest.mark.filterwarnings("ignore:RG2 has not converged")
every = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(8)
    taste = rng.standard_normal((80, 3)) @ rng.standard_normal((3, 30)) + rng.standard_normal((80, 30))
    return mg.Interactions.from_csr(sp.csr_array((taste > 0.8).astype(np.float32)))


def fitted(name, log, epochs=EPOCHS, between=None):
    kind, given = MODELS[name]
    return observed(kind(**given, epochs=epochs), log, between)


def observed(model, log, between=None):
    return model.fit_from(FitInputs(log, between=between), FitOptions(dtype="float64"))


def arrays(weights):
    return {name: array for name, array in vars(weights).items() if isinstance(array, np.ndarray)}


def assert_same(one, other):
    actual, expected = arrays(one), arrays(other)
    assert actual.keys() == expected.keys()
    for name, array in actual.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@every
def test_weights_between_epochs_equal_those_of_a_shorter_fit(name, log):
    seen = {}
    fitted(name, log, between=lambda done, make: seen.update({done: make()}))
    assert list(seen) == list(range(1, EPOCHS)), "after each epoch but the last"
    for done, weights in seen.items():
        assert_same(weights, fitted(name, log, done).weights_)


@every
def test_an_observer_changes_nothing(name, log):
    alone = fitted(name, log)
    for between in (lambda done, make: make(), lambda done, make: None):
        watched = fitted(name, log, between=between)
        assert_same(watched.weights_, alone.weights_)
        assert watched.report_.objectives == alone.report_.objectives


@every
def test_an_exception_of_the_observer_leaves_the_model_unfitted(name, log):
    kind, given = MODELS[name]
    model = kind(**given, epochs=EPOCHS).fit(log)

    def enough(done, make):
        if done == 2:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError):
        observed(model, log, enough)
    with pytest.raises(NotFittedError):
        model.recommend()
    assert_same(model.fit(log, dtype="float64", threads=1).weights_, fitted(name, log).weights_)


def test_the_observer_is_not_called_after_convergence(log):
    seen = []
    model = mg.RG2(rank=6, l2=0.05, solver="als", tolerance=1e-3, epochs=1000)
    observed(model, log, lambda done, make: seen.append(done))
    assert seen == list(range(1, len(model.report_.objectives)))


def test_a_closed_form_has_no_pause(log):
    for model in (mg.EASE(), mg.RG2(rank=4), mg.LowRankEDLAE(rank=4), mg.SLIM(), mg.Popularity()):
        observed(model, log, lambda done, make: pytest.fail("there are no epochs of the whole model"))
