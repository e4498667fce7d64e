"""Trained vectors: who is known has their own, everyone else one that follows from the item vectors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from monogram.engine.topk.best import Eligible
from monogram.errors import ModelFileError
from monogram.weights import TrainedFoldIn, TrainedSage, TrainedSum, from_tensors
from monogram.weights.known_rows import KnownRows
from monogram.weights.trained import TrainedVectors, differences, mean_cosine

RANK = 4


@pytest.fixture
def log():
    rng = np.random.default_rng(3)
    dense = (rng.random((30, 12)) < 0.3).astype(np.float32)
    dense[4], dense[7] = 0, dense[9]
    return sp.csr_array(dense)


def made(log, kind):
    rng = np.random.default_rng(1)
    users, items, sources = (rng.standard_normal((n, RANK)).astype(np.float32) for n in (*log.shape, log.shape[1]))
    if kind is TrainedFoldIn:
        return TrainedFoldIn.of(users, items, log), users, items
    return TrainedSum.of(users, items, sources, 0.5, log), users, items


KINDS = pytest.mark.parametrize("kind", [TrainedFoldIn, TrainedSum])


def test_rows_are_found_by_their_content(log):
    found = KnownRows(log).find(log)
    expected = np.arange(30)
    expected[4], expected[9] = -1, 7  # an empty row is nobody's; the first of equal rows
    np.testing.assert_array_equal(found, expected)
    twice = sp.csr_array(log * 2)
    assert (KnownRows(log).find(twice) == -1).all(), "other weights are another history"
    assert (KnownRows(sp.csr_array((0, 12), dtype=np.float32)).find(log) == -1).all()


def test_an_equal_hash_is_not_enough(log, monkeypatch):
    monkeypatch.setattr("monogram.weights.known_rows.row_hashes", lambda matrix: np.zeros(matrix.shape[0], np.uint64))
    found = KnownRows(log).find(log)
    assert found[0] == 0
    assert (found[1:] == -1).all()


@KINDS
def test_a_known_user_has_the_trained_vector(log, kind):
    weights, users, items = made(log, kind)
    scores = weights.score(log, np.arange(12), 1)
    users[[7, 9]] = users[[7, 9]].mean(0)
    known = np.diff(log.indptr) > 0
    np.testing.assert_allclose(scores[known], (users @ items.T)[known], atol=1e-5)
    np.testing.assert_allclose(scores[4], 0, atol=1e-12)


@KINDS
def test_lists_are_ranked_by_the_scores(log, kind):
    weights, _, _ = made(log, kind)
    best = weights.best(log, Eligible.all_but(log), 3, 1)
    scores = np.where(log.toarray() > 0, -np.inf, weights.score(log, np.arange(12), 1))
    np.testing.assert_allclose(best.scores[0], np.sort(scores[0])[::-1][:3], atol=1e-9)


def test_a_stranger_is_folded_in_by_ridge_regression(log):
    weights, _, items = made(log, TrainedFoldIn)
    weights.complete(1)
    stranger = sp.csr_array(np.ones((1, 12), np.float32) * (np.arange(12) < 5))
    gain = weights.alpha * stranger.toarray()[0]
    q = items.astype(float)
    system = q.T @ q + weights.l2 * np.eye(RANK) + (q.T * gain) @ q
    vector = np.linalg.solve(system, q.T @ (stranger.toarray()[0] + gain))
    np.testing.assert_allclose(weights.score(stranger, np.arange(12), 1)[0], q @ vector, rtol=1e-4, atol=1e-6)


def test_the_ridge_is_the_one_that_agrees_best_with_the_trained_vectors(log):
    rng = np.random.default_rng(0)
    items = rng.standard_normal((12, RANK))
    users = np.linalg.solve(items.T @ items + 0.001 * np.eye(RANK), (log.toarray() @ items).T).T
    weights = TrainedFoldIn.of(users, items, log)
    weights.complete(1)
    folded = super(TrainedFoldIn, weights).rows(log, 1)
    assert mean_cosine(folded[np.diff(log.indptr) > 0], weights.users[np.diff(log.indptr) > 0]) > 0.9999
    assert weights.alpha == 0.0


@pytest.mark.parametrize("use", ["rows", "shares", "tensors"])
def test_the_ridge_is_chosen_at_first_use(log, use):
    expected, _, _ = made(log, TrainedFoldIn)
    expected.complete(1)
    weights, _, _ = made(log, TrainedFoldIn)
    weights.score(log, np.arange(12), 1)
    assert not weights.chosen, "users of the log need no ridge"
    stranger = sp.csr_array(np.ones((1, 12), np.float32))
    {"rows": lambda: weights.rows(stranger, 1), "shares": lambda: weights.shares(stranger, 3)}.get(
        use, weights.tensors
    )()
    assert weights.chosen
    np.testing.assert_array_equal(weights.tensors()["settings"], expected.tensors()["settings"])


def test_a_stranger_is_a_weighted_sum(log):
    weights, _, items = made(log, TrainedSum)
    history = np.zeros(12, np.float32)
    history[[2, 5, 8]] = (1, 2, 1)
    vector = history @ weights.sources / 2.0
    np.testing.assert_allclose(
        weights.score(sp.csr_array(history[None]), np.arange(12), 1)[0], items @ vector, rtol=1e-5
    )


@KINDS
def test_an_explanation_leaves_one_event_out(log, kind):
    weights, _, _ = made(log, kind)
    history = np.zeros(12, np.float32)
    history[[0, 3, 4, 6]] = 1
    shares = weights.shares(sp.csr_array(history[None]), 9)
    for place, item in enumerate([0, 3, 4, 6]):
        other = history.copy()
        other[item] = 0
        both = sp.csr_array(np.stack([history, other]))
        score, without = weights.score(both, np.array([9]), 1)[:, 0]
        assert shares[place] == pytest.approx(score - without, abs=1e-9)
    assert differences(weights, sp.csr_array((1, 12), dtype=np.float32), 9).shape == (0,)


@KINDS
@pytest.mark.parametrize("block", [1, 25, 50])
def test_blocks_of_an_explanation_do_not_change_it(log, kind, block, monkeypatch):
    weights, _, _ = made(log, kind)
    history = sp.csr_array(np.arange(1, 13, dtype=np.float32)[None])
    expected = differences(weights, history, 9)
    np.testing.assert_allclose(weights.shares(history, 9), expected, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr("monogram.weights.trained.BLOCK", block)
    np.testing.assert_allclose(differences(weights, history, 9), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "bytes_"), [(TrainedFoldIn, 100e6), (TrainedSum, 10e6)])
def test_an_explanation_of_a_long_history_takes_bounded_memory(kind, bytes_):
    log = sp.csr_array(np.ones((1, 4000), np.float32) * (np.arange(4000) < 5))
    weights, _, _ = made(log, kind)
    history = sp.csr_array(np.ones((1, 4000), np.float32))
    weights.shares(history[:, :], 3)
    tracemalloc.start()
    weights.shares(history, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < bytes_, "16 million entries take more than 192 MB"


def test_a_history_of_one_item_explains_its_whole_score(log):
    weights, _, _ = made(log, TrainedSum)
    history = sp.csr_array(np.eye(12, dtype=np.float32)[[2]] * 3)
    np.testing.assert_allclose(weights.shares(history, 9), weights.score(history, np.array([9]), 1)[0])


@KINDS
def test_a_file_holds_them(log, kind):
    weights, _, _ = made(log, kind)
    loaded = from_tensors(weights.kind, weights.tensors(), log)
    np.testing.assert_array_equal(loaded.columns(np.arange(12)), weights.columns(np.arange(12)))
    np.testing.assert_array_equal(loaded.score(log, np.arange(12), 1), weights.score(log, np.arange(12), 1))
    with pytest.raises(ModelFileError, match="'users'"):
        from_tensors(weights.kind, weights.tensors() | {"users": weights.users[:3]}, log)


def test_a_power_that_cannot_be(log):
    weights, _, _ = made(log, TrainedSum)
    with pytest.raises(ModelFileError, match="power of 7"):
        from_tensors("trained_sum", weights.tensors() | {"power": np.array([7.0])}, log)


@pytest.mark.parametrize(("kind", "name"), [("trained_sum", "items"), ("trained_sage", "shift")])
@pytest.mark.parametrize("shape", [(), (12,), (2, 2, 2)])
def test_an_array_that_is_no_matrix(log, kind, name, shape):
    weights, _, _ = made(log, TrainedSum)
    with pytest.raises(ModelFileError, match=f"must hold a matrix '{name}'"):
        from_tensors(kind, weights.tensors() | {name: np.zeros(shape)}, log)


def test_sums_and_layers_share_their_ranking():
    for name in ("best", "score", "columns"):
        assert getattr(TrainedSum, name) is getattr(TrainedSage, name) is getattr(TrainedVectors, name)
