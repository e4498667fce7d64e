"""The layers of an autoencoder as weights, against a plain forward pass; and files that do not hold a network."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from monogram.engine.topk.best import Eligible
from monogram.errors import ModelFileError
from monogram.weights import Autoencoder, from_tensors
from monogram.weights.autoencoder import Layer

N, USERS = 12, 20
RNG = np.random.default_rng(4)
DENSE = ((RNG.random((USERS, N)) < 0.3) * RNG.integers(1, 4, (USERS, N))).astype(np.float32)
DENSE[3] = 0
HISTORIES = sp.csr_array(DENSE)
WIDTHS, ACTIVATIONS = (5, 3, 4), ("tanh", "none", "sigmoid")


def made(*, unit=True, users=False):
    rng = np.random.default_rng(1)
    shapes = zip((N, *WIDTHS[:-1]), WIDTHS, ACTIVATIONS, strict=True)
    layers = [
        Layer(*(rng.standard_normal(s).astype(np.float32) for s in ((a, b), (b,))), name) for a, b, name in shapes
    ]
    items, offset = (rng.standard_normal(shape).astype(np.float32) for shape in ((N, WIDTHS[-1]), (N,)))
    own = rng.standard_normal((USERS, WIDTHS[0])).astype(np.float32) if users else None
    return Autoencoder(layers, items, offset, unit=unit, users=own, training=HISTORIES)


def forward(weights, dense, own=0.0):
    hidden = dense.astype(float)
    if weights.unit:
        norms = np.linalg.norm(hidden, axis=1, keepdims=True)
        hidden = hidden / np.where(norms > 0, norms, 1)
    for number, layer in enumerate(weights.layers):
        hidden = hidden @ layer.matrix + layer.bias + (own if number == 0 else 0)
        hidden = {"tanh": np.tanh, "none": lambda x: x, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}[layer.activation](
            hidden
        )
    return hidden @ weights.items.T + weights.offset


@pytest.mark.parametrize("unit", [True, False])
def test_scores_are_those_of_a_forward_pass(unit):
    weights = made(unit=unit)
    items = np.array([7, 0, 7, 3])
    np.testing.assert_allclose(weights.score(HISTORIES, items, 1), forward(weights, DENSE)[:, items], atol=1e-6)
    np.testing.assert_allclose(weights.columns(items), forward(weights, np.eye(N))[:, items], atol=1e-6)


def test_lists_are_ranked_by_the_scores():
    weights = made()
    best = weights.best(HISTORIES, Eligible.all_but(HISTORIES), 4, 1)
    scores = np.where(DENSE > 0, -np.inf, weights.score(HISTORIES, np.arange(N), 1))
    np.testing.assert_allclose(best.scores, -np.sort(-scores, axis=1)[:, :4], atol=1e-12)


def test_large_products_do_not_overflow():
    layer = Layer(np.full((N, 1), 1e4, np.float32), np.zeros(1, np.float32), "sigmoid")
    weights = Autoencoder([layer], np.ones((N, 1), np.float32), np.zeros(N, np.float32), unit=False)
    np.testing.assert_allclose(weights.score(HISTORIES, np.array([0]), 1)[[0, 3], 0], [1.0, 0.5])
    layer = Layer(-layer.matrix, layer.bias, "sigmoid")
    weights = Autoencoder([layer], np.ones((N, 1), np.float32), np.zeros(N, np.float32), unit=False)
    np.testing.assert_allclose(weights.score(HISTORIES, np.array([0]), 1)[[0, 3], 0], [0.0, 0.5])


def test_a_known_user_has_its_vector():
    weights = made(users=True)
    filled = DENSE.any(axis=1)
    expected = forward(weights, DENSE, weights.users)
    np.testing.assert_allclose(weights.score(HISTORIES, np.arange(N), 1)[filled], expected[filled], atol=1e-6)
    other = DENSE[:1] * 2
    np.testing.assert_allclose(weights.score(sp.csr_array(other), np.arange(N), 1), forward(weights, other), atol=1e-6)


def test_an_explanation_leaves_one_event_out():
    weights = made(users=True)
    shares = weights.shares(HISTORIES[[0]], 9)
    whole = forward(weights, DENSE[:1])[0, 9]
    for share, item in zip(shares, np.flatnonzero(DENSE[0]), strict=True):
        without = DENSE[:1].copy()
        without[0, item] = 0
        assert share == pytest.approx(whole - forward(weights, without)[0, 9], abs=1e-6)


@pytest.mark.parametrize("users", [True, False])
def test_a_file_holds_the_network(users):
    weights = made(users=users, unit=users)
    loaded = from_tensors("autoencoder", weights.tensors(), HISTORIES)
    everything = np.arange(N)
    np.testing.assert_array_equal(loaded.score(HISTORIES, everything, 1), weights.score(HISTORIES, everything, 1))
    assert loaded.nbytes == weights.nbytes == 4 * (N * (5 + 4) + 15 + 12 + users * USERS * 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layer.0", np.zeros((N - 1, 5), np.float32)),
        ("layer.1", np.zeros((5, 4), np.float32)),
        ("bias.2", np.zeros((4, 1), np.float32)),
        ("items", np.zeros((N, 3), np.float32)),
        ("base", np.zeros(N - 1)),
        ("users", np.zeros((USERS, 4), np.float32)),
        ("unit", np.zeros(2)),
        ("activations", np.array([0, 1, 3])),
        ("activations", np.array([0, -1, 2])),
        ("activations", np.zeros(0, np.int64)),
        ("activations", np.zeros(3)),
        ("items", np.zeros((N, 4), np.int32)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, value):
    with pytest.raises(ModelFileError, match=r"the file('s activations| must hold)"):
        from_tensors("autoencoder", made(users=True).tensors() | {name: value}, HISTORIES)
