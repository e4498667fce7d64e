"""What every table needs beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from monogram.data.interactions import Interactions
from monogram.models.base import Recommender, Work
from monogram.weights import Fixed, Weights


@dataclass(kw_only=True, eq=False)
class Popularity(Recommender):
    """The same list for everyone: items by their total weight in the log (for a binary log, the number of users)."""

    name: ClassVar[str] = "popularity"

    def _fit(self, log: Interactions, work: Work) -> Weights:
        matrix = log.matrix
        return Fixed(np.bincount(matrix.indices, matrix.data, matrix.shape[1]).astype(np.float64))
