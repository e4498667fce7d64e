"""The size of a log, the argument of every cost function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monogram.engine.runtime.arrays import Csr
from monogram.errors import ParameterError

SKEW = 5  # pairs of events in an ordinary log, relative to a log whose users (or items) all have as many events


@dataclass(frozen=True)
class Size:
    """Shape and number of entries of a users × items matrix, and the pairs of entries that each Gram matrix adds up.

    Attributes
    ----------
    users, items, events : shape, and entries that are not zero
    pairs_by_user : Σ n_u² over the users, n_u the events of a user: the additions in XᵀX
    pairs_by_item : the same over the items: the additions in XXᵀ
    """

    users: int
    items: int
    events: int
    pairs_by_user: float
    pairs_by_item: float


def measure(matrix: Csr) -> Size:
    """The size of a CSR matrix."""
    counts = np.bincount(matrix.indices, minlength=1).astype(np.float64)
    lengths = np.diff(matrix.indptr).astype(np.float64)
    users, items = matrix.shape
    return Size(users, items, int(matrix.nnz), float((lengths**2).sum()), float((counts**2).sum()))


def guess(users: int, items: int, events: int) -> Size:
    """The size of a matrix of which only the shape is known, with the skew of an ordinary log."""
    if min(users, items, events) < 1 or events > users * items:
        raise ParameterError(
            f"{users} users × {items} items with {events} events; expected whole numbers of at least 1, "
            "and no more events than users × items"
        )
    return Size(users, items, events, SKEW * events**2 / users, SKEW * events**2 / items)
