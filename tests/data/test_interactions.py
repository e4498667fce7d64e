"""A matrix and its ids: canonical, read-only, and the caller's arrays untouched."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.data.spans import Span
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError, ParameterError, UnknownIdError

DENSE = np.array([[1, 0, 2], [0, 3, 0]], dtype=np.float32)


def shuffled() -> sp.csr_array:
    """The same matrix, unsorted, with a duplicate and an explicit zero."""
    return sp.csr_array(([1.5, 1.0, 0.0, 0.5, 3.0], [2, 0, 1, 2, 1], [0, 4, 5]), shape=(2, 3))


@pytest.mark.parametrize(
    "X",
    [
        DENSE,
        DENSE.astype(int),
        DENSE.tolist(),
        sp.csr_matrix(DENSE),
        sp.csc_array(DENSE),
        sp.coo_array(DENSE),
        sp.lil_matrix(DENSE),
        sp.csr_array(DENSE.astype(np.float64)),
        shuffled(),
    ],
)
def test_any_matrix(X):
    log = Interactions.from_csr(X, ["u", "v"], ["a", "b", "c"])
    assert isinstance(log.matrix, sp.csr_array)
    assert log.matrix.dtype == np.float32
    assert log.matrix.indices.dtype == log.matrix.indptr.dtype == np.int32
    np.testing.assert_array_equal(log.matrix.toarray(), DENSE)
    assert log.matrix.indices.tolist() == [0, 2, 1]
    assert log.matrix.has_canonical_format
    assert (log.n_users, log.n_items, log.n_events, len(log)) == (2, 3, 3, 3)
    assert log.history("u") == {"a": 1.0, "c": 2.0}
    assert log.nbytes == 3 * 8 + 3 * 4 + log.users.nbytes + log.items.nbytes


def test_canonical_input_is_not_copied_nor_changed():
    X = sp.csr_array(DENSE)
    log = Interactions.from_csr(X)
    assert np.shares_memory(log.matrix.data, X.data)
    assert np.shares_memory(log.matrix.indices, X.indices)
    assert X.data.flags.writeable
    for array in (log.matrix.data, log.matrix.indices, log.matrix.indptr):
        assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        log.matrix.data[0] = 5


def test_other_input_is_not_changed():
    X = shuffled()
    Interactions.from_csr(X)
    assert X.indices.tolist() == [2, 0, 1, 2, 1]
    assert X.data.tolist() == [1.5, 1.0, 0.0, 0.5, 3.0]


def test_binary_makes_every_weight_one():
    log = Interactions.from_csr(DENSE, merge="binary")
    assert log.matrix.data.tolist() == [1, 1, 1]
    assert log.merge == "binary"
    with pytest.raises(ParameterError, match="merge"):
        Interactions.from_csr(DENSE, merge="mean")


def test_ids_default_to_numbers():
    log = Interactions.from_csr(DENSE)
    assert list(log.users) == [0, 1]
    assert log.history(1) == {1: 3.0}
    with pytest.raises(UnknownIdError, match="9"):
        log.history(9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0, -np.inf, 1e300])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.coo_array])
def test_bad_weights_name_user_and_item(bad, form):
    X = DENSE.astype(np.float64)
    X[1, 1] = bad
    with pytest.raises(DataError, match="user 'v' and item 'b'"):
        Interactions.from_csr(form(X), ["u", "v"], ["a", "b", "c"])


def test_sum_that_overflows():
    X = sp.csr_array((np.array([3e38, 3e38], np.float32), [0, 0], [0, 2]), shape=(1, 1))
    with pytest.raises(DataError, match="user 0 and item 0 is inf"):
        Interactions.from_csr(X)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.zeros((2, 3)), "no events"),
        (np.zeros((0, 3)), "0 rows"),
        (np.zeros((3, 0)), "0 columns"),
        (np.ones(3), "1 dimension"),
        (np.ones((2, 2, 2)), "3 dimension"),
        (np.array([["a"]]), "real numbers"),
        (np.array([[1j]]), "real numbers"),
        (sp.coo_array(np.ones(3)), "1 dimension"),
    ],
)
def test_no_matrix(X, words):
    with pytest.raises(DataError, match=words):
        Interactions.from_csr(X)


def test_broken_structure():
    X = sp.csr_array(DENSE)
    X.indices = np.array([0, 9, 1], dtype=np.int32)
    with pytest.raises(DataError, match="not consistent"):
        Interactions.from_csr(X)


def test_wrong_number_of_ids():
    with pytest.raises(DataError, match="3 users ids were given for a matrix of 2 rows"):
        Interactions.from_csr(DENSE, users=["a", "b", "c"])
    with pytest.raises(DataError, match="occurs 2 times"):
        Interactions.from_csr(DENSE, users=["a", "a"])


def test_times():
    X = sp.csr_array(DENSE)
    log = Interactions.from_csr(X, times=[3, 1, 2])
    assert log.times.dtype == np.int64
    assert log.times.tolist() == [3, 1, 2]
    assert not log.times.flags.writeable
    assert Interactions.from_csr(X, times=np.array([0.5, 1, 2])).times.dtype == np.float64
    stamps = np.array(["1970-01-01T00:00:01"] * 3, dtype="datetime64[s]")
    assert Interactions.from_csr(X, times=stamps).times.tolist() == [1_000_000] * 3
    for bad in ([1, 2], [np.nan, 1, 2], ["a", "b", "c"], np.array(["NaT"] * 3, dtype="datetime64[s]")):
        with pytest.raises(DataError, match="times"):
            Interactions.from_csr(X, times=bad)
    for other in (shuffled(), sp.coo_array(DENSE), DENSE):
        with pytest.raises(DataError, match="canonical"):
            Interactions.from_csr(other, times=[1, 2, 3])


def test_enough_events_is_repeated_until_it_holds():
    # d goes (1 event), then item z has 1 and goes, then c has 1 and goes; an empty user goes in any case
    X = sp.csr_array(np.array([[1, 2, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]], np.float32))
    log = Interactions.from_csr(X, ["a", "b", "c", "d", "e"], ["x", "y", "z"], times=np.arange(7))
    left = log.at_least(users=2, items=2)
    assert (list(left.users), list(left.items)) == (["a", "b"], ["x", "y"])
    assert left.history("a") == {"x": 1.0, "y": 2.0}
    assert left.times.tolist() == [0, 1, 2, 3]
    assert left.merge == log.merge
    assert "3 users and 1 items removed" in left.notes[-1]
    assert log.at_least(users=2).n_items == 3
    assert log.at_least().n_users == 4
    with pytest.raises(DataError, match="lower the limits"):
        log.at_least(users=4)
    for bad in (-1, 2.5, True, "5"):
        with pytest.raises(ParameterError, match="whole number"):
            log.at_least(items=bad)


def test_frozen_and_readable():
    log = Interactions(sp.csr_array(DENSE), Vocabulary.range(2), Vocabulary.range(3), notes=["one note"], skipped=4)
    assert log.notes == ("one note",)
    assert "2 users × 3 items, 3 events" in repr(log)
    assert "one note" in repr(log)
    with pytest.raises(AttributeError):
        log.merge = "binary"


def test_times_that_are_too_far_apart_are_refused():
    matrix = sp.csr_array(np.ones((1, 3), np.float32))
    with pytest.raises(DataError, match="does one of them stand for a missing time"):
        Interactions.from_csr(matrix, times=[-(2**63), 5, 2**62])
    far = Interactions.from_csr(matrix, times=[-1e308, 0.0, 1e308])
    with pytest.raises(DataError, match="give a longer unit"):
        far.on_time_axis(Span(1.0, ""))
