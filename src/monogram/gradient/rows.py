"""Batches of rows of a sparse matrix: the histories of some users, as autoencoders read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from monogram.engine.runtime.arrays import Csr
from monogram.gradient.trainer import Context


@dataclass(frozen=True)
class Rows:
    """Some rows of a sparse matrix, entry by entry.

    Parameters
    ----------
    users : the row of the matrix that each row is
    offsets : the first entry of each row
    owners : the row, counted within the batch, that each entry belongs to
    items, values : column and value of each entry
    """

    users: torch.Tensor
    offsets: torch.Tensor
    owners: torch.Tensor
    items: torch.Tensor
    values: torch.Tensor

    def __len__(self) -> int:
        return len(self.users)

    def times(self, matrix: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The rows, with these values in place of their own, times a matrix (items × width)."""
        sums: torch.Tensor = functional.embedding_bag(
            self.items, matrix, self.offsets, mode="sum", per_sample_weights=values
        )
        return sums

    def by_row(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of one value for each entry, row by row."""
        return torch.zeros(len(self), dtype=values.dtype, device=values.device).index_add(0, self.owners, values)

    def normalised(self) -> torch.Tensor:
        """The values divided by the Euclidean norm of their row."""
        return self.values / self.by_row(self.values.square()).sqrt()[self.owners]


class RowBatches:
    """Divides the rows of a matrix that have entries into batches, in a random order.

    Parameters
    ----------
    matrix : CSR, users × items
    size : rows in a batch
    """

    def __init__(self, matrix: Csr, context: Context, size: int) -> None:
        self.matrix, self.context, self.size = matrix, context, size
        self.filled = np.flatnonzero(np.diff(matrix.indptr))

    @property
    def rows(self) -> int:
        """Number of rows with entries."""
        return len(self.filled)

    @property
    def number(self) -> int:
        """Number of batches of an epoch."""
        return -(-self.rows // self.size)

    def __iter__(self) -> Iterator[Rows]:
        for places in torch.randperm(self.rows).split(self.size):
            yield self.take(self.filled[places.numpy()])

    def take(self, users: npt.NDArray[np.int64]) -> Rows:
        """The rows of these users, on the device."""
        part, tensor = self.matrix[users], self.context.tensor
        owners = np.repeat(np.arange(len(users)), np.diff(part.indptr))
        return Rows(
            users=tensor(users.astype(np.int64)),
            offsets=tensor(part.indptr[:-1].astype(np.int64)),
            owners=tensor(owners),
            items=tensor(part.indices.astype(np.int64)),
            values=tensor(part.data),
        )


def kept(rows: Rows, dropout: float) -> torch.Tensor:
    """1 for each entry that stays, 0 for each hidden one; drawn on the CPU, so that devices agree."""
    drawn = torch.rand(len(rows.items), dtype=torch.float64) >= dropout
    return drawn.to(rows.values.device, rows.values.dtype)
