"""Losses of ranking, each a function of scores, and the mean over the positive pairs of a batch.

Losses on samples take `positive`, one score for each positive pair (u, i), and `negative`, a row of scores of other
items for each pair. Losses on all items take `scores`, one row for each user with the scores of all items, and the
positive pairs as places (row, item) in it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """Bayesian personalised ranking (Rendle et al. 2009): −log σ(s⁺ − s⁻), mean over the negatives."""
    return functional.softplus(negative - positive[:, None]).mean()


def bce(positive: Tensor, negative: Tensor) -> Tensor:
    """Binary cross-entropy: −log σ(s⁺) − Σ log(1 − σ(s⁻))."""
    return (functional.softplus(-positive) + functional.softplus(negative).sum(1)).mean()


def sampled_softmax(
    positive: Tensor, negative: Tensor, log_positive: Tensor | None = None, log_negative: Tensor | None = None
) -> Tensor:
    """Sampled softmax: −log of e^s⁺/q⁺ / (e^s⁺/q⁺ + Σ e^s⁻/q⁻), with the probabilities q of the proposal.

    Parameters
    ----------
    log_positive, log_negative : log q of the positive and of the sampled items; None: all equal
    """
    positive = positive if log_positive is None else positive - log_positive
    negative = negative if log_negative is None else negative - log_negative
    return (torch.logaddexp(positive, torch.logsumexp(negative, 1)) - positive).mean()


def cosine_contrastive(positive: Tensor, negative: Tensor, margin: float, weight: float) -> Tensor:
    """Cosine contrastive loss (SimpleX, Mao et al. 2021): 1 − s⁺ + weight·mean(s⁻ − margin)₊, for cosines s."""
    return (1 - positive + weight * functional.relu(negative - margin).mean(1)).mean()


def uib(positive: Tensor, negative: Tensor, boundary: Tensor, margin: float) -> Tensor:
    """User interest boundary (Zhuo et al. 2022): (margin + b − s⁺)₊ + Σ(margin + s⁻ − b)₊, b of the user learned."""
    above = functional.relu(margin + boundary - positive)
    return (above + functional.relu(margin + negative - boundary[:, None]).sum(1)).mean()


def sml(
    positive: Tensor, negative: Tensor, between: Tensor, margins: tuple[Tensor, Tensor], weight: float, reward: float
) -> Tensor:
    """Symmetric metric learning with adaptive margins (Li et al. 2020), for cosines: d = 2 − 2s on the unit sphere.

    (d(u,i) − d(u,j) + m_u)₊ + weight·(d(u,i) − d(i,j) + n_i)₊, mean over the negatives, − reward·(m_u + n_i).

    Parameters
    ----------
    between : cosines between the positive item and the negatives, as `negative`
    margins : the learned margins m of the user and n of the positive item of each pair
    """
    users, items = margins
    near = functional.relu(2 * (negative - positive[:, None]) + users[:, None])
    apart = functional.relu(2 * (between - positive[:, None]) + items[:, None])
    return (near + weight * apart).mean() - reward * (users + items).mean()


def softmax(scores: Tensor, rows: Tensor, items: Tensor) -> Tensor:
    """Softmax over all items: −s⁺ + log Σ_j e^s_j."""
    return (torch.logsumexp(scores, 1)[rows] - scores[rows, items]).mean()


def sparsemax(scores: Tensor, rows: Tensor, items: Tensor) -> Tensor:
    """Sparsemax (Martins and Astudillo 2016): −s⁺ + ½·Σ_{j ∈ S}(s_j² − τ²) + ½, S the support of the projection.

    The projection of a user's scores on the simplex is (s − τ)₊, and its support S has the largest scores.
    """
    support = _support(scores.detach())  # where a score enters S its term is 0, so that the loss is smooth
    inside = torch.where(support, scores, torch.zeros_like(scores))
    counts = support.sum(1)
    level = (inside.sum(1) - 1) / counts
    squares = (inside.square().sum(1) - counts * level.square()) / 2
    return (squares[rows] + 0.5 - scores[rows, items]).mean()


def _support(scores: Tensor) -> Tensor:
    """The scores that are above the τ with Σ(s − τ)₊ = 1 (Michelot 1986): τ grows until no more score falls below."""
    scores = scores - scores.amax(1, keepdim=True)
    support = scores > -1  # the largest score alone would give τ = −1
    while True:
        inside = torch.where(support, scores, torch.zeros_like(scores))
        level = (inside.sum(1, keepdim=True) - 1) / support.sum(1, keepdim=True)
        smaller = support & (scores > level)
        if torch.equal(smaller, support):
            return support
        support = smaller
