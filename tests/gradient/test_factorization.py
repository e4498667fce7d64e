"""Factorization: its objective and gradient by plain NumPy, its negatives, and the contract."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.errors import ParameterError
from monogram.testing import check_recommender

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from monogram.gradient.encoders import FactorEncoder  # noqa: E402
from monogram.gradient.negatives import UnseenItems  # noqa: E402
from monogram.gradient.pairs import LossSettings, PairTraining  # noqa: E402
from monogram.gradient.trainer import Context  # noqa: E402
from monogram.weights import TrainedFoldIn  # noqa: E402


@pytest.fixture
def log(world):
    return mg.Interactions.from_csr(world)


def test_the_contract():
    check_recommender(mg.Factorization, rank=3, epochs=3, batch=64)


def test_the_objective_and_its_gradient(log):
    context = Context(dtype="float64")
    encoder = FactorEncoder(log.matrix, context, 3)
    settings = LossSettings(name="bpr", negatives=2, batch=10, l2=0.3)
    training = PairTraining(log.matrix, context, encoder, settings)
    users, items, others = next(iter(training.batches()))
    p, q = training.array("users"), training.array("items")

    def objective(p, q):
        total = 0.0
        for u, i, row in zip(users.numpy(), items.numpy(), others.numpy(), strict=True):
            total += np.mean([-np.log(1 / (1 + np.exp(-(p[u] @ q[i] - p[u] @ q[j])))) for j in row])
            total += 0.3 / 2 * (p[u] @ p[u] + q[i] @ q[i] + q[row[0]] @ q[row[0]])
        return total / 10

    loss = training.loss((users, items, others))
    assert loss.item() == pytest.approx(objective(p, q), rel=1e-9)
    loss.backward()
    step, gradient = 1e-6, training.parameters["items"].grad.numpy()
    for row, column in [(int(items[0]), 0), (int(others[3, 1]), 2)]:
        moved = [q.copy(), q.copy()]
        moved[0][row, column] += step
        moved[1][row, column] -= step
        slope = (objective(p, moved[0]) - objective(p, moved[1])) / (2 * step)
        assert gradient[row, column] == pytest.approx(slope, abs=1e-8)


def test_every_event_is_in_one_batch_and_no_negative_is_seen(log):
    context = Context()
    encoder = FactorEncoder(log.matrix, context, 3)
    training = PairTraining(log.matrix, context, encoder, LossSettings(name="bpr", negatives=3, batch=50, l2=0.0))
    users, items, others = (torch.cat(parts).numpy() for parts in zip(*training.batches(), strict=True))
    pairs = sp.csr_array((np.ones(len(users)), (users, items)), shape=log.matrix.shape)
    assert (abs(pairs - (log.matrix != 0)) > 0).nnz == 0
    assert not log.matrix.toarray()[users[:, None], others].any()
    assert set(others.flatten()) == set(range(25)) - {
        item for item in range(25) if log.matrix[users][:, [item]].toarray().all()
    }


def test_negatives_are_uniform_among_the_unseen():
    matrix = sp.csr_array(np.array([[1, 0, 1, 0, 0], [1, 1, 1, 1, 1]], np.float32))
    torch.manual_seed(0)
    drawn = UnseenItems(matrix).draw(torch.zeros(200, dtype=torch.int64), 30)
    counts = np.bincount(drawn.flatten(), minlength=5)
    assert counts[[0, 2]].sum() == 0
    np.testing.assert_allclose(counts[[1, 3, 4]] / 6000, 1 / 3, atol=0.03)
    assert UnseenItems(matrix).draw(torch.ones(4, dtype=torch.int64), 2).shape == (4, 2), "who has seen all gets any"
    anyone = UnseenItems(sp.csr_array((2, 5))).draw(torch.zeros(2, dtype=torch.int64), 500)
    assert set(anyone.flatten().tolist()) == set(range(5))


def test_training_lowers_the_loss_and_ranks_better_than_popularity():
    log = mg.sample()
    split = mg.splits.holdout(log)
    model = mg.Factorization(rank=8, epochs=10, batch=5000, learning_rate=0.1).fit(split.train, threads=1)
    losses = model.report_.objectives
    assert losses[-1] < 0.6 * losses[0] < 0.5
    result = mg.evaluate({"factorization": model}, split, "ndcg@10")
    assert result.value("factorization", "ndcg@10") > 1.5 * result.value("popularity", "ndcg@10")


def test_known_users_keep_their_vector_and_others_are_folded_in(log):
    model = mg.Factorization(rank=4, epochs=5, batch=64, learning_rate=0.05).fit(log)
    weights = model.weights_
    scores = model.score([log.history(user) for user in (0, 1)])
    np.testing.assert_allclose(scores, (weights.users @ weights.items.T)[:2], rtol=1e-4, atol=1e-6)
    fresh = model.score([[*list(log.history(0))[:-1]]])
    assert np.abs(fresh - scores[0]).max() > 1e-3


def test_an_explanation_says_that_its_numbers_are_differences(log):
    model = mg.Factorization(rank=4, epochs=5, batch=64, learning_rate=0.05).fit(log)
    explained = model.explain(user=1, item=3)
    assert not explained.additive
    assert "not shares: how much the score falls without the one item" in str(explained)
    assert explained.score == pytest.approx(model.score([log.history(1)], [3])[0, 0], rel=1e-6)
    assert mg.EASE(l2=1).fit(log).explain(user=1, item=3).additive


@pytest.mark.parametrize("wrong", [{"loss": "luck"}, {"rank": 0}, {"l2": -1}, {"negatives": 0}, {"seconds": 0}])
def test_wrong_parameters(wrong):
    with pytest.raises(ParameterError):
        mg.Factorization(**wrong)


def test_the_ridge_is_chosen_once_whatever_the_number_of_measurements(log, monkeypatch):
    choices = []
    complete = TrainedFoldIn.complete
    monkeypatch.setattr(
        TrainedFoldIn, "complete", lambda self, threads: (choices.append(self.chosen), complete(self, threads))
    )
    model = mg.Factorization(rank=3, epochs=4, batch=64, patience=4).fit(log)
    assert len(model.report_.metrics) == 4
    assert choices == [False]
    assert model.weights_.chosen
