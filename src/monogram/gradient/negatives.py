"""Vectorised samples of items: unseen ones for each user, or one sample for a batch from a proposal distribution."""

from __future__ import annotations

import numpy as np
import torch

from monogram.engine.runtime.arrays import Csr


class UnseenItems:
    """Draws items uniformly from those that a user has not seen, exactly and without repeated draws.

    With the seen items s_0 < s_1 < … of a user, the unseen item of rank r is r + #{j: s_j − j ≤ r}. The numbers s_j − j
    ascend, so that one binary search over all events finds the items of all users of a batch. A user who has seen all
    items is given any.

    Parameters
    ----------
    matrix : CSR, users × items, with sorted rows
    """

    def __init__(self, matrix: Csr) -> None:
        self.items = matrix.shape[1]
        lengths, starts = np.diff(matrix.indptr).astype(np.int64), matrix.indptr[:-1].astype(np.int64)
        rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), lengths)
        gaps = matrix.indices - (np.arange(matrix.nnz) - starts[rows])
        self._keys = torch.from_numpy(rows * (self.items + 1) + gaps)  # ascending
        self._starts, self._unseen = torch.from_numpy(starts), torch.from_numpy(self.items - lengths)

    def draw(self, users: torch.Tensor, number: int) -> torch.Tensor:
        """For each user a row of unseen items."""
        free = self._unseen[users][:, None]
        share = torch.rand(len(users), number, dtype=torch.float64)
        rank = (share * free).long()
        below = torch.searchsorted(self._keys, users[:, None] * (self.items + 1) + rank, right=True)
        drawn = rank + below - self._starts[users][:, None]
        return torch.where(free > 0, drawn, (share * self.items).long())


class Proposal:
    """Draws items, with replacement, by a distribution that does not depend on the user.

    Parameters
    ----------
    matrix : CSR, users × items
    kind : "uniform", or "log_popularity": proportional to log(1 + number of users of the item)
    """

    def __init__(self, matrix: Csr, kind: str) -> None:
        counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
        weights = np.ones(len(counts)) if kind == "uniform" else np.log1p(counts)
        self.probabilities = torch.from_numpy(weights / weights.sum())
        self._upper = self.probabilities.cumsum(0)

    def draw(self, number: int) -> torch.Tensor:
        """A sample of items."""
        drawn = torch.rand(number, dtype=torch.float64) * self._upper[-1]
        return torch.searchsorted(self._upper, drawn, right=True).clamp_(max=len(self._upper) - 1)

    def log(self, items: torch.Tensor) -> torch.Tensor:
        """Logarithms of the probabilities of items."""
        return self.probabilities[items].log()
