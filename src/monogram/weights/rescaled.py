"""Dense weights under another head: the same array, a factor an item, another diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from monogram.engine.runtime.arrays import Float64, Indices
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.errors import ParameterError
from monogram.weights.common import Tensors, Weights, batches, joined, part

if TYPE_CHECKING:
    from monogram.weights.dense import Dense

BATCH = 64  # histories whose scores are written out at once, where a list may hold what was seen


class Rescaled(Weights):
    """W = B·diag(θ) + diag(δ) read from an array that holds B under another head; no new square array.

    Parameters
    ----------
    dense : the weights as they are held
    factors : by item, θ over the θ that is in the array
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

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        if _left_out(histories, eligible):  # then the diagonal is never read
            return self.dense.heads(self.factors[None], histories, eligible, k, threads)[0]
        every, one = np.arange(histories.shape[1]), np.ones((1, histories.shape[1]))
        found = [
            heads_by_scores(
                self.score(histories[start:stop], every, threads), one, part(eligible, start, stop), k, threads=threads
            )[0]
            for start, stop in batches(histories.shape[0], BATCH)
        ]
        return joined(found, k)

    def score(self, histories: Any, items: Indices, threads: int) -> Float64:
        out = self.dense.score(histories, items, threads) * self.factors[items]
        out += self._own(histories)[:, items].toarray()
        return out

    def columns(self, items: Indices) -> Float64:
        found = self.dense.columns(items) * self.factors[items]
        found[items, np.arange(len(items))] = self.delta[items]
        return np.asarray(found)

    def shares(self, history: Any, item: int) -> Float64:
        found = self.dense.shares(history, item) * self.factors[item]
        own = history.indices == item
        found[own] = self.delta[item] * history.data[own]
        return np.asarray(found)

    def base(self, items: Indices) -> Float64:
        return np.zeros(len(items))

    def tensors(self) -> Tensors:
        raise ParameterError("weights under another head are not stored: save what `changed` gives")

    def _own(self, histories: Any) -> Any:
        """What an item of a history adds to its own score, less what the array's diagonal adds."""
        at = histories.indices
        held = self.dense.matrix[at, at] * self.factors[at]
        arrays = ((self.delta[at] - held) * histories.data, at, histories.indptr)
        return sp.csr_array(arrays, shape=histories.shape)


def _left_out(histories: Any, eligible: Eligible) -> bool:
    """Whether what must not be in the lists is what the histories hold."""
    same = len(eligible.out) == len(histories.indices) and np.array_equal(eligible.out_pointers, histories.indptr)
    return bool(same and np.array_equal(eligible.out, histories.indices))
