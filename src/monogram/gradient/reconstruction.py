"""Losses of autoencoders, each a function of all scores of a batch of rows and of the rows: the mean over the rows."""

from __future__ import annotations

import torch
from torch.nn import functional

from monogram.gradient.rows import Rows


def of_entries(scores: torch.Tensor, rows: Rows) -> torch.Tensor:
    """The score of each entry of the rows."""
    return scores[rows.owners, rows.items]


def multinomial(scores: torch.Tensor, rows: Rows) -> torch.Tensor:
    """The multinomial likelihood (Liang et al. 2018): −Σ_i x_i·log softmax(s)_i."""
    sizes = rows.by_row(rows.values)
    return ((sizes * scores.logsumexp(1)).sum() - (rows.values * of_entries(scores, rows)).sum()) / len(rows)


def squared(scores: torch.Tensor, rows: Rows) -> torch.Tensor:
    """The squared error Σ_i (x_i − s_i)² over all items."""
    entries = of_entries(scores, rows)
    return (scores.square().sum() + ((rows.values - entries).square() - entries.square()).sum()) / len(rows)


def logistic(scores: torch.Tensor, rows: Rows, others: torch.Tensor | None = None) -> torch.Tensor:
    """The cross-entropy of "used" and "not used": −Σ log σ(s_i) over the entries, −Σ log σ(−s_j) over unused items.

    `others` has a row of items for each entry, the sample of the unused; without it, all unused items count.
    """
    entries = of_entries(scores, rows)
    if others is None:
        unused = functional.softplus(scores).sum() - functional.softplus(entries).sum()
    else:
        unused = functional.softplus(scores[rows.owners[:, None], others]).sum()
    return (functional.softplus(-entries).sum() + unused) / len(rows)
