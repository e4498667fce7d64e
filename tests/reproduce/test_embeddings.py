"""Cosines of embeddings, against loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from monogram.errors import ParameterError
from monogram.reproduce import embeddings
from monogram.weights import Factors

RNG = np.random.default_rng(4)
LEFT, RIGHT = RNG.normal(size=(15, 3)), RNG.normal(size=(15, 3))


def test_balanced_factors_do_not_depend_on_the_division_of_w():
    u, v = embeddings.balanced(Factors(LEFT, RIGHT, np.array([1.0, 2.0, 3.0])))
    np.testing.assert_allclose(u @ v.T, LEFT * [1, 2, 3] @ RIGHT.T, atol=1e-12)
    np.testing.assert_allclose(u.T @ u, v.T @ v, atol=1e-10)
    mix = RNG.normal(size=(3, 3))
    other, _ = embeddings.balanced(Factors(LEFT * [1, 2, 3] @ mix, RIGHT @ np.linalg.inv(mix).T, np.ones(3)))
    np.testing.assert_allclose(other @ other.T, u @ u.T, atol=1e-8)


def test_median_cosines_equal_a_loop(monkeypatch):
    monkeypatch.setattr(embeddings, "BLOCK", 2)
    sets = np.array([[0, 3, 5, 7], [1, 2, 3, 4], [8, 9, 10, 11]])
    expected = [
        np.median([
            LEFT[i] @ LEFT[j] / np.linalg.norm(LEFT[i]) / np.linalg.norm(LEFT[j])
            for i, j in itertools.combinations(items, 2)
        ])
        for items in sets
    ]  # fmt: skip
    np.testing.assert_allclose(embeddings.median_cosines(LEFT, sets), expected)
    zero = LEFT.copy()
    zero[3] = 0
    np.testing.assert_allclose(embeddings.median_cosines(zero, sets), expected[2:])


def test_similar_items_have_the_largest_weights_and_are_not_the_item(monkeypatch):
    monkeypatch.setattr(embeddings, "BLOCK", 4)
    w = LEFT @ RIGHT.T
    sets = embeddings.similar_items(Factors(LEFT, RIGHT, np.ones(3)), 15, 3)
    np.fill_diagonal(w, -np.inf)
    for item in range(15):
        assert set(sets[item]) == set(np.argsort(w[:, item])[-3:])
    with pytest.raises(ParameterError, match="15 items have no sets of 15"):
        embeddings.similar_items(Factors(LEFT, RIGHT, np.ones(3)), 15, 15)


def test_a_histogram_counts_every_value():
    counts = embeddings.histogram(np.array([-1.0, 0.99, 1.0, 1.0 + 1e-12]))
    assert (len(counts), counts[0], counts[-1], sum(counts)) == (embeddings.BINS, 1, 3, 4)
