"""Every loss is its formula, in plain NumPy, and its gradient is the slope of the formula."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from monogram.gradient import losses  # noqa: E402
from monogram.gradient.ranking import LOSSES  # noqa: E402

PAIRS, NUMBER, ITEMS = 5, 4, 7


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


def project(scores):
    """The projection on the simplex by a general search for τ with Σ(s − τ)₊ = 1."""
    level = scipy.optimize.brentq(lambda tau: relu(scores - tau).sum() - 1, scores.min() - 1, scores.max(), xtol=1e-14)
    return relu(scores - level)


def sparsemax_of(scores, item):
    """The Fenchel–Young loss of −½‖·‖² on the simplex: p·s − ½‖p‖² + ½ − s_i, for the projection p."""
    p = project(scores)
    return p @ scores - p @ p / 2 + 0.5 - scores[item]


ROWS, PLACES = np.array([0, 0, 1, 2, 2]), np.array([1, 3, 0, 2, 6])

# By name: the loss, its arguments (numbers of the shape), and the formula of one number.
CASES = {
    "bpr": (losses.bpr, [(PAIRS,), (PAIRS, NUMBER)],
            lambda p, n: -np.mean([np.log(sigmoid(p[b] - s)) for b in range(PAIRS) for s in n[b]])),
    "bce": (losses.bce, [(PAIRS,), (PAIRS, NUMBER)],
            lambda p, n: np.mean([-np.log(sigmoid(p[b])) - sum(np.log(1 - sigmoid(s)) for s in n[b])
                                  for b in range(PAIRS)])),
    "sampled_softmax": (
        losses.sampled_softmax, [(PAIRS,), (PAIRS, NUMBER), (PAIRS,), (PAIRS, NUMBER)],
        lambda p, n, a, b: np.mean([
            -np.log(np.exp(p[k]) / np.exp(a[k]) / (np.exp(p[k]) / np.exp(a[k]) + (np.exp(n[k]) / np.exp(b[k])).sum()))
            for k in range(PAIRS)])),
    "cosine_contrastive": (
        lambda p, n: losses.cosine_contrastive(p, n, 0.3, 2.5), [(PAIRS,), (PAIRS, NUMBER)],
        lambda p, n: np.mean([1 - p[b] + 2.5 / NUMBER * relu(n[b] - 0.3).sum() for b in range(PAIRS)])),
    "uib": (
        lambda p, n, b: losses.uib(p, n, b, 0.7), [(PAIRS,), (PAIRS, NUMBER), (PAIRS,)],
        lambda p, n, b: np.mean([relu(0.7 + b[k] - p[k]) + relu(0.7 + n[k] - b[k]).sum() for k in range(PAIRS)])),
    "sml": (
        lambda p, n, x, u, i: losses.sml(p, n, x, (u, i), 0.6, 0.2),
        [(PAIRS,), (PAIRS, NUMBER), (PAIRS, NUMBER), (PAIRS,), (PAIRS,)],
        lambda p, n, x, u, i: np.mean([
            relu((2 - 2 * p[k]) - (2 - 2 * n[k]) + u[k]).mean()
            + 0.6 * relu((2 - 2 * p[k]) - (2 - 2 * x[k]) + i[k]).mean() - 0.2 * (u[k] + i[k])
            for k in range(PAIRS)])),
    "softmax": (
        lambda s: losses.softmax(s, torch.from_numpy(ROWS), torch.from_numpy(PLACES)), [(3, ITEMS)],
        lambda s: -np.mean([np.log(np.exp(s[r, i]) / np.exp(s[r]).sum())
                            for r, i in zip(ROWS, PLACES, strict=True)])),
    "sparsemax": (
        lambda s: losses.sparsemax(s, torch.from_numpy(ROWS), torch.from_numpy(PLACES)), [(3, ITEMS)],
        lambda s: np.mean([sparsemax_of(s[r], i) for r, i in zip(ROWS, PLACES, strict=True)])),
}  # fmt: skip


def arguments(name, seed=0):
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.normal(size=shape)).requires_grad_(True) for shape in CASES[name][1]]


def test_every_loss_has_a_case_here():
    assert set(CASES) == set(LOSSES) - {"rg2"}


@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_its_formula(name):
    loss, _, formula = CASES[name]
    for seed in range(3):
        given = arguments(name, seed)
        expected = formula(*(values.detach().numpy() for values in given))
        assert loss(*given).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_the_slope(name):
    loss, _, formula = CASES[name]
    given = arguments(name)
    assert torch.autograd.gradcheck(loss, given)
    loss(*given).backward()
    plain = [values.detach().numpy().copy() for values in given]
    rng = np.random.default_rng(1)
    direction = [rng.normal(size=values.shape) for values in plain]
    up, down = (formula(*(v + sign * 1e-6 * d for v, d in zip(plain, direction, strict=True))) for sign in (1, -1))
    slope = sum(float((values.grad.numpy() * d).sum()) for values, d in zip(given, direction, strict=True))
    assert slope == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-7)


def test_the_gradient_of_sparsemax_is_the_projection():
    scores = torch.tensor([[0.2, 1.5, 1.1, -3.0]], dtype=torch.float64, requires_grad=True)
    losses.sparsemax(scores, torch.tensor([0]), torch.tensor([2])).backward()
    expected = project(scores.detach().numpy()[0]) - np.eye(4)[2]
    np.testing.assert_allclose(scores.grad[0], expected, atol=1e-12)
    assert scores.grad[0, 3] == 0, "an item outside the support has no gradient"
    ties = torch.zeros((1, 4), dtype=torch.float64, requires_grad=True)
    losses.sparsemax(ties, torch.tensor([0]), torch.tensor([1])).backward()
    np.testing.assert_allclose(ties.grad[0], np.full(4, 0.25) - np.eye(4)[1], atol=1e-12)


def test_large_scores_do_not_overflow():
    large = torch.tensor([1e4, -1e4], requires_grad=True)
    other = torch.tensor([[-1e4, 1e4], [1e4, 1e4]])
    for loss in (losses.bpr, losses.bce, losses.sampled_softmax):
        value = loss(large, other)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(large.grad).all()


def test_the_sampled_softmax_tends_to_the_softmax():
    """With the correction the gradient tends to that of the softmax, whatever the proposal."""
    generator = np.random.default_rng(0)
    scores = torch.from_numpy(generator.normal(size=(1, 6)))
    full = scores.clone().requires_grad_(True)
    losses.softmax(full, torch.tensor([0]), torch.tensor([2])).backward()
    for weights in (np.ones(6), np.arange(1.0, 7.0)):
        q = torch.from_numpy(weights / weights.sum())
        drawn = torch.from_numpy(generator.choice(6, 200_000, p=q.numpy()))
        some = scores.clone().requires_grad_(True)
        losses.sampled_softmax(some[:, 2], some[:, drawn], q[[2]].log(), q[drawn][None].log()).backward()
        np.testing.assert_allclose(some.grad, full.grad, atol=0.01)
        if weights[0] != weights[1]:
            plain = scores.clone().requires_grad_(True)
            losses.sampled_softmax(plain[:, 2], plain[:, drawn]).backward()
            assert (plain.grad - full.grad).abs().max() > 0.05, "without the correction it does not"
