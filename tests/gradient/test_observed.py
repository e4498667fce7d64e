"""Between the epochs of every gradient-trained model, `tune` sees the weights of a shorter fit, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

import monogram as mg
from monogram.models.context import FitOptions
from monogram.models.registry import MODELS

pytest.importorskip("torch", reason="the extra torch is not installed")

EPOCHS = 4
NAMES = sorted(name for name, kind in MODELS.items() if kind.needs_torch)


def fitted(name, log, epochs=EPOCHS, between=None):
    small = {"rank": 4, "batch": 32, "hidden": 6, "negatives": 3, "epochs": epochs}
    model = MODELS[name](**{key: value for key, value in small.items() if key in MODELS[name]().params()})
    inputs = model.inputs(log)
    inputs.between = between
    return model.fit_from(inputs, FitOptions())


def assert_same(one, other):
    first, second = one.tensors(), other.tensors()
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_observed_in_epochs(world, name):
    log, seen = mg.Interactions.from_csr(world), {}
    assert MODELS[name].epoch_training.runs_with(None)
    watched = fitted(name, log, between=lambda epochs, weights: seen.update({epochs: weights()}))
    assert list(seen) == list(range(1, EPOCHS)), "after each epoch but the last"
    assert_same(seen[2], fitted(name, log, 2).weights_)
    alone = fitted(name, log)
    assert alone.report_.objectives == watched.report_.objectives
    assert_same(alone.weights_, watched.weights_)
