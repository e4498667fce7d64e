"""The Gram matrix with a time kernel against a double loop over the events of each user."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.gram.accumulate import GramColumns, gram, squares
from monogram.engine.gram.kernel_table import at_distance, kernel_table
from monogram.engine.gram.time_kernel import TimeKernel

KINDS = st.sampled_from(["events", "times", "ties"])


def random_log(seed: int, kind: str, users: int = 25, items: int = 12) -> tuple[sp.csr_array, np.ndarray]:
    """Random data, and the place of each entry: ranks in the history, times, or times with many ties."""
    rng = np.random.default_rng(seed)
    dense = rng.random((users, items)) * (rng.random((users, items)) < 0.4)
    matrix = sp.csr_array(dense.astype(np.float32))
    if kind == "events":
        ranks = [rng.permutation(count) for count in np.diff(matrix.indptr)]
        return matrix, np.concatenate(ranks).astype(np.int32)
    times = rng.random(matrix.nnz) * 10.0 ** rng.integers(-3, 5)
    return matrix, np.round(times) if kind == "ties" else times


def double_loop(matrix: sp.csr_array, kernel: TimeKernel) -> np.ndarray:
    """S, one pair of events after the other."""
    out = np.zeros((matrix.shape[1], matrix.shape[1]))
    for row in range(matrix.shape[0]):
        for p in range(matrix.indptr[row], matrix.indptr[row + 1]):
            for q in range(matrix.indptr[row], matrix.indptr[row + 1]):
                distance = abs(float(kernel.positions[p]) - float(kernel.positions[q]))
                value = kernel.floor + (1 - kernel.floor) * (1 + distance) ** -kernel.decay
                out[matrix.indices[p], matrix.indices[q]] += value * float(matrix.data[p]) * float(matrix.data[q])
    return out


def timed_gram(matrix: sp.csr_array, kernel: TimeKernel | None, threads: int = 1, dtype: str = "float64") -> np.ndarray:
    out = np.zeros((matrix.shape[1], matrix.shape[1]), dtype, order="F")
    gram(matrix, out, kernel=kernel, threads=threads)
    return np.tril(out) + np.tril(out, -1).T


@given(st.integers(0, 1000), KINDS, st.sampled_from([0.1, 0.5, 1.0, 3.0, 40.0]), st.sampled_from([0.0, 0.3]))
def test_equals_a_double_loop(seed, kind, decay, floor):
    matrix, positions = random_log(seed, kind)
    kernel = TimeKernel(positions, decay, floor)
    result = timed_gram(matrix, kernel)
    tolerance = 1e-12 if kind == "events" else 1e-9
    np.testing.assert_allclose(result, double_loop(matrix, kernel), atol=tolerance)
    np.testing.assert_allclose(np.diag(result), squares(matrix), atol=1e-12)


@given(
    st.integers(0, 1000),
    st.sampled_from(["times", "ties"]),
    st.floats(1e-3, 2.0),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([1, 3, 25]),
    st.sampled_from(["float32", "float64"]),
)
def test_in_float32_every_entry_is_accurate_to_float32(seed, kind, decay, floor, users, data):
    """The relative error of every sum, few and distant pairs included, beside a double loop in float64."""
    matrix, positions = random_log(seed, kind, users)
    matrix = matrix.astype(data)
    kernel = TimeKernel(positions, decay, floor)
    result, expected = timed_gram(matrix, kernel, dtype="float32"), double_loop(matrix, kernel)
    np.testing.assert_allclose(result, expected, rtol=4e-7, atol=0)
    np.testing.assert_allclose(np.diag(result), squares(matrix), rtol=1.2e-7)


@pytest.mark.parametrize("decay", [0.01, 0.5, 1.0, 2.0, 2.01, 30.0])
def test_in_float32_every_distance_is_accurate(decay):
    """A user with events at distances of all sizes, whose first event is that of the first item."""
    distances = np.concatenate([[0.0], np.geomspace(1e-9, 1e12, 2000)])
    matrix = sp.csr_array(np.ones((1, len(distances)), np.float32))
    out = np.zeros((len(distances), 1), np.float32, order="F")
    GramColumns(matrix, kernel=TimeKernel(distances + 3.0, decay, 0.0)).write(out)
    exact = TimeKernel(distances, decay)((distances + 3.0) - 3.0)
    large = exact > 1e-30
    np.testing.assert_allclose(out[large, 0], exact[large], rtol=3e-7 if decay <= 2 else 1e-4)
    assert np.abs(out[~large, 0]).max(initial=0) <= 1e-29
    assert out[0, 0] == 1.0


def test_user_weights_multiply_the_rows():
    matrix, positions = random_log(1, "events")
    weights = np.random.default_rng(2).random(matrix.shape[0])
    kernel, out = TimeKernel(positions, 1.0), np.zeros((12, 12), order="F")
    gram(matrix, out, weights=weights, kernel=kernel)
    scaled = sp.csr_array(matrix.astype(np.float64).multiply(np.sqrt(weights)[:, None]))
    np.testing.assert_allclose(np.tril(out), np.tril(double_loop(scaled, kernel)), atol=1e-12)


@given(st.integers(0, 1000), KINDS)
def test_a_reversed_log_has_the_same_gram(seed, kind):
    matrix, positions = random_log(seed, kind)
    lengths = np.repeat(np.diff(matrix.indptr), np.diff(matrix.indptr))
    reverse = (lengths - 1 - positions).astype(np.int32) if kind == "events" else -positions
    forward, backward = (timed_gram(matrix, TimeKernel(at, 0.7)) for at in (positions, reverse))
    np.testing.assert_allclose(forward, backward, atol=0 if kind == "events" else 1e-9)


@given(st.integers(0, 1000), st.sampled_from([0.1, 0.5, 2.0]))
def test_the_result_is_positive_semi_definite(seed, decay):
    for kind in ("events", "times"):
        matrix, positions = random_log(seed, kind)
        values = np.linalg.eigvalsh(timed_gram(matrix, TimeKernel(positions, decay, 0.2)))
        assert values.min() >= -1e-9 * values.max()


@pytest.mark.parametrize("kind", ["events", "times"])
def test_a_vanishing_decay_tends_to_the_plain_gram(kind):
    matrix, positions = random_log(3, kind)
    plain = timed_gram(matrix, None)
    gaps = [np.abs(timed_gram(matrix, TimeKernel(positions, decay)) - plain).max() for decay in (1e-2, 1e-4, 1e-8)]
    assert gaps[0] > 50 * gaps[1] > 0
    assert gaps[2] < 1e-6 * plain.max()


@pytest.mark.parametrize("kind", ["events", "times"])
def test_the_number_of_threads_does_not_change_one_bit(kind):
    matrix, positions = random_log(4, kind, 300, 100)
    results = [timed_gram(matrix, TimeKernel(positions, 0.5), threads, "float32") for threads in (1, 2, 5)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@given(st.floats(1e-3, 100), st.floats(0, 0.9), st.floats(1e-6, 1e9), st.integers(0, 1000))
def test_the_table_between_times_is_accurate(decay, floor, longest, seed):
    times = np.concatenate([[0.0, longest], np.random.default_rng(seed).random(50) * longest])
    kernel = TimeKernel(times, decay, floor)
    table = kernel_table(kernel)
    values = np.array([at_distance(table.table, table.shift, 0.0, time) for time in times])
    np.testing.assert_allclose(values, kernel(times), atol=1e-9)
    assert values[0] == 1.0
    assert values.max() == 1.0
