"""Dense weights under another head: the same array, one factor for each item, another diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from monogram.engine.runtime.arrays import Csr, Float64, Indices
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.errors import ParameterError
from monogram.weights.common import Tensors, Weights, batches, joined, part

if TYPE_CHECKING:
    from monogram.weights.dense import Dense

BATCH = 64  # histories scored at once where lists may contain items of the history


class Rescaled(Weights):
    """W = B·diag(θ) + diag(δ) computed from the stored weights of another head; no new n × n array.

    Parameters
    ----------
    dense : the stored weights
    factors : of each item, θ divided by the θ of the stored weights
    delta : δ, the new diagonal
    """

    kind = "rescaled"
    linear = True
    batch_invariant = True

    def __init__(self, dense: Dense, factors: Float64, delta: Float64) -> None:
        self.dense, self.factors, self.delta = dense, factors, delta

    @property
    def nbytes(self) -> int:
        return int(self.factors.nbytes + self.delta.nbytes)

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        if _histories_excluded(histories, eligible):  # the diagonal is never read
            return self.dense.heads(self.factors[None], histories, eligible, k, threads)[0]
        every, ones = np.arange(histories.shape[1]), np.ones((1, histories.shape[1]))
        batches_ = [
            heads_by_scores(
                self.score(histories[start:stop], every, threads), ones, part(eligible, start, stop), k, threads=threads
            )[0]
            for start, stop in batches(histories.shape[0], BATCH)
        ]
        return joined(batches_, k)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        out = self.dense.score(histories, items, threads) * self.factors[items]
        out += self._own_scores(histories)[:, items].toarray()
        return out

    def columns(self, items: Indices) -> Float64:
        columns = self.dense.columns(items) * self.factors[items]
        columns[items, np.arange(len(items))] = self.delta[items]
        return np.asarray(columns)

    def shares(self, history: Csr, item: int) -> Float64:
        shares = self.dense.shares(history, item) * self.factors[item]
        same_item = history.indices == item
        shares[same_item] = self.delta[item] * history.data[same_item]
        return np.asarray(shares)

    def tensors(self) -> Tensors:
        raise ParameterError("rescaled weights cannot be stored; save the model that `changed` returns")

    def _own_scores(self, histories: Csr) -> Csr:
        """What an item of a history adds to its own score, minus what the diagonal of the array adds."""
        at = histories.indices
        stored = self.dense.matrix[at, at] * self.factors[at]
        arrays = ((self.delta[at] - stored) * histories.data, at, histories.indptr)
        return sp.csr_array(arrays, shape=histories.shape)


def _histories_excluded(histories: Csr, eligible: Eligible) -> bool:
    """Whether the excluded items are exactly those of the histories."""
    same = len(eligible.out) == len(histories.indices) and np.array_equal(eligible.out_pointers, histories.indptr)
    return bool(same and np.array_equal(eligible.out, histories.indices))
