"""The search space of every model on the sample log, as recorded: a change of the code must not change a value."""

from __future__ import annotations

import numpy as np
import pytest

import monogram as mg
from monogram.models.registry import MODELS
from monogram.tuning import spaces

# By model: each axis as (name, values, scale, free), in the order in which they are searched.
SPACES = {
    "ease": [
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
    ],
    "dlae": [
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
    ],
    "edlae": [
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
    ],
    "rdlae": [
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
        ("relax", (0.0, 0.05, 0.1, 0.2, 0.3, 0.5), "plain", True),
    ],
    "deql": [
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
        (
            "b",
            (
                0.1,
                0.112,
                0.125,
                0.14,
                0.157,
                0.176,
                0.197,
                0.221,
                0.248,
                0.277,
                0.311,
                0.348,
                0.39,
                0.436,
                0.489,
                0.547,
                0.613,
                0.687,
                0.769,
                0.861,
                0.965,
                1.08,
                1.21,
                1.36,
                1.52,
                1.7,
                1.9,
                2.13,
                2.39,
                2.67,
                3.0,
                3.36,
            ),
            "factor",
            True,
        ),
    ],
    "tempered": [
        ("user_power", (0.0, 0.5, 1.0), "plain", False),
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
        (
            "item_power",
            (-0.4, -0.35, -0.3, -0.25, -0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4),
            "plain",
            True,
        ),
    ],
    "two_step": [
        ("user_power", (0.0, 0.5, 1.0), "plain", False),
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
        ("item_power", (-0.2, -0.1, 0.0, 0.1, 0.2), "plain", True),
        ("second", (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "plain", True),
        ("low_pass", (0.0, 0.1, 0.2, 0.4, 0.8), "plain", True),
        ("rank", (200,), "whole", False),
    ],
    "regularized_pca": [
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.25, 0.742, 2.2, 6.54, 19.4), "factor", False),
    ],
    "dropout_mf": [
        ("keep", (0.9, 0.99, 0.999, 0.9999), "rest", False),
    ],
    "nuclear_power": [
        ("l2", (9.53e-05, 0.000297, 0.00103, 0.00535, 7.23), "factor", False),
    ],
    "wlae": [
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("weights", (0.0625, 0.551, 4.85, 42.7, 377.0), "factor", False),
    ],
    "vlae": [
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("weights", (0.25, 0.742, 2.2, 6.54, 19.4), "factor", False),
    ],
    "lrr": [
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0625, 0.551, 4.85, 42.7, 377.0), "factor", False),
    ],
    "rg2": [
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0354, 0.105, 0.311, 0.925, 2.74), "factor", False),
    ],
    "wrmf": [
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0001, 0.001, 0.01, 0.1), "factor", False),
        ("alpha", (1.0, 10.0, 100.0), "factor", False),
    ],
    "sgl": [
        ("learning_rate", (0.0005, 0.005, 0.05), "factor", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0001, 0.001, 0.01, 0.1), "factor", False),
        ("contrast", (0.01, 0.1, 1.0), "factor", False),
    ],
    "dgcf": [
        ("learning_rate", (0.0005, 0.005, 0.05), "factor", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0001, 0.001, 0.01, 0.1), "factor", False),
    ],
    "pin_sage": [
        ("learning_rate", (0.0005, 0.005, 0.05), "factor", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0001, 0.001, 0.01, 0.1), "factor", False),
    ],
    "simplex": [
        ("learning_rate", (0.0005, 0.005, 0.05), "factor", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0001, 0.001, 0.01, 0.1), "factor", False),
    ],
    "light_gcn": [
        ("learning_rate", (0.0005, 0.005, 0.05), "factor", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0001, 0.001, 0.01, 0.1), "factor", False),
    ],
    "factorization": [
        ("learning_rate", (0.0005, 0.005, 0.05), "factor", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0001, 0.001, 0.01, 0.1), "factor", False),
    ],
    "cdae": [
        ("learning_rate", (0.0003, 0.001, 0.003), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (0.0001, 0.001, 0.01, 0.1), "factor", False),
    ],
    "elsa": [
        ("learning_rate", (0.01, 0.03, 0.1), "factor", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
    ],
    "linear_autoencoder": [
        ("learning_rate", (0.0005, 0.005, 0.05), "factor", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
    ],
    "mult_dae": [
        ("learning_rate", (0.0003, 0.001, 0.003), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("l2", (2e-6, 2e-5, 2e-4, 2e-3), "factor", False),
    ],
    "mult_vae": [
        ("learning_rate", (0.0003, 0.001, 0.003), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
        ("beta", (0.05, 0.2, 0.8), "factor", False),
    ],
    "slim": [
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("l1", (0.485, 4.85, 48.5), "factor", False),
    ],
    "item_knn": [
        ("k", (20, 60, 180), "whole", False),
        ("shrink", (1.0, 10.0, 100.0), "factor", False),
    ],
    "low_rank_dlae": [
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
    ],
    "low_rank_edlae": [
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("dropout", (0.25, 0.5, 0.75), "odds", False),
        ("rank", (16, 32, 64, 128, 256), "whole", False),
    ],
    "slist": [
        ("alpha", (0.2, 0.4, 0.6, 0.8), "plain", False),
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
        ("position_decay", (0.0, 0.5, 1.0), "plain", False),
    ],
    "expected_quadratic": [
        ("l2", (12.1, 48.5, 194.0, 776.0, 3100.0), "factor", False),
    ],
    "popularity": [],
}


def sigma(target, rank):
    """Singular values made up, those of another target others."""
    return np.linspace(20, 1, rank) if target == "plain" else np.linspace(2, 0.1, rank)


@pytest.mark.parametrize("name", MODELS)
def test_the_space_is_the_recorded_one(name):
    axes = spaces.space(name, mg.sample(), sigma, {}, shift=True)
    assert [(one, axis.values, axis.scale, axis.free) for one, axis in axes.items()] == SPACES[name]
