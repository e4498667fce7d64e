"""Trained vectors of users and items, where other histories run through dense layers (PinSage)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.weights.common import Tensors, checked, columns_of
from monogram.weights.known_rows import KnownRows
from monogram.weights.trained import TrainedVectors, differences, with_known


class TrainedSage(TrainedVectors):
    """Trained vectors P of the users and Q of the items; the vector of another history is computed by layers.

    From p = 0, layer l takes the mean n of the sources z^(l) over the history, and p ← σ(W_l·[p, n] + w_l): σ is relu,
    then the division by the norm; the last layer is linear. `explain` leaves out one event at a time.

    Parameters
    ----------
    users, items : P, m × rank, and Q, n × rank
    sources : z, layers × n × rank
    merge, shift : W, layers × rank × 2·rank, and w, layers × rank
    training : the training data, whose row u is the history of user u
    """

    kind = "trained_sage"

    def __init__(self, users: Float, items: Float, sources: Float, merge: Float, shift: Float, training: Csr) -> None:
        self.users, self.items, self.sources, self.merge, self.shift = users, items, sources, merge, shift
        self.known = KnownRows(training)

    @classmethod
    def of(cls, users: Float, items: Float, sources: Float, merge: Float, shift: Float, training: Csr) -> TrainedSage:
        """Weights of trained vectors, with one vector for users with equal rows."""
        return cls(KnownRows(training).average(users), items, sources, merge, shift, training)

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> TrainedSage:
        """Build from stored arrays."""
        (m, n), rank = training.shape, columns_of(tensors, "shift")
        layers = len(tensors["shift"])
        shapes = {
            "users": (m, rank),
            "items": (n, rank),
            "sources": (layers, n, rank),
            "merge": (layers, rank, 2 * rank),
            "shift": (layers, rank),
        }
        users, items, sources, merge, shift = (checked(tensors, name, shape) for name, shape in shapes.items())
        return cls(users, items, sources, merge, shift, training)

    @property
    def nbytes(self) -> int:
        return int(sum(tensor.nbytes for tensor in self.tensors().values()))

    def shares(self, history: Csr, item: int) -> Float64:
        no_rows = sp.csr_array(self.known.matrix.shape, dtype=np.float32)
        plain = TrainedSage(self.users, self.items, self.sources, self.merge, self.shift, no_rows)
        return differences(plain, history, item)

    def tensors(self) -> Tensors:
        named = {"users": self.users, "items": self.items, "sources": self.sources}
        return named | {"merge": self.merge, "shift": self.shift}

    def rows(self, histories: Csr) -> Float64:
        sizes = histories @ np.ones(histories.shape[1])
        weighted = histories.astype(np.float64).multiply(1 / np.where(sizes > 0, sizes, 1.0)[:, None]).tocsr()
        vectors = np.zeros((histories.shape[0], self.items.shape[1]))
        last = len(self.sources) - 1
        for layer, sources in enumerate(self.sources):
            near = np.asarray(weighted @ sources.astype(np.float64))
            vectors = np.hstack([vectors, near]) @ self.merge[layer].astype(np.float64).T + self.shift[layer]
            vectors = vectors if layer == last else _unit(np.maximum(vectors, 0))
        return with_known(vectors, histories, self.known, self.users)


def _unit(rows: Float64) -> Float64:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
