"""Bootstrap intervals have the coverage they state."""

from __future__ import annotations

import numpy as np

from monogram.evaluation.statistics import bootstrap, interval, paired


def test_the_interval_is_that_of_the_normal_law_for_many_users():
    values = np.random.default_rng(0).random((4000, 2))
    low, high = interval(bootstrap(values))
    error = values.std(0) / np.sqrt(4000)
    np.testing.assert_allclose(low, values.mean(0) - 1.96 * error, atol=0.3 * error.max())
    np.testing.assert_allclose(high, values.mean(0) + 1.96 * error, atol=0.3 * error.max())


def test_it_covers_the_truth_about_95_times_in_100():
    inside = 0
    for seed in range(200):
        values = np.random.default_rng(seed).exponential(size=(150, 1))
        low, high = interval(bootstrap(values, seed=seed, resamples=300))
        inside += bool(low[0] <= 1 <= high[0])
    assert 178 <= inside <= 199


def test_the_same_seed_the_same_interval():
    values = np.random.default_rng(0).random((50, 1))
    np.testing.assert_array_equal(bootstrap(values, seed=3), bootstrap(values, seed=3))
    assert not np.array_equal(bootstrap(values, seed=3), bootstrap(values, seed=4))


def test_columns_share_their_users():
    values = np.random.default_rng(0).random((50, 1))
    means = bootstrap(np.hstack([values, 2 * values]))
    np.testing.assert_allclose(means[:, 1], 2 * means[:, 0])


def test_a_paired_difference_is_surer_than_two_intervals():
    rng = np.random.default_rng(1)
    base = rng.random(500)
    better = base + 0.01 + 0.02 * rng.standard_normal(500)
    found = paired(better, base)
    assert 0 < found.low < found.value < found.high
    assert found.p < 0.01
    same = paired(base, base)
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
    noise = paired(base + rng.standard_normal(500), base)
    assert noise.p > 0.001
