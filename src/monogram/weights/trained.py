"""Trained vectors of users and items: the kinds of weights of factorisations and graph models.

A history that is the row of a user in the training data has the trained vector of this user. Every other history has a
vector that follows from the item vectors: by ridge regression on them (`TrainedFoldIn`), or as a weighted sum of them
(`TrainedSum`). Users with equal rows have the mean of their vectors.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from monogram.engine.iterative.wrmf import rotate_to_axes
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.by_products import best_by_products
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights, batches, checked, columns_of
from monogram.weights.fold_in import FoldIn
from monogram.weights.known_rows import KnownRows

BLOCK = 1_000_000  # entries of the histories that are scored at a time, for differences
SAMPLE = 1000  # users on which the ridge of a fold-in is chosen
GAINS = (0.0, 1.0, 10.0, 100.0, 1000.0)
RIDGES = (0.001, 0.01, 0.1, 1.0, 10.0)


def differences(weights: Weights, history: Csr, item: int) -> Float64:
    """How much the score of an item falls when the history (a CSR matrix of one row) lacks each one of its entries.

    The time grows with the square of the history; the memory does not, because the histories are scored in blocks.
    """
    number, index = history.nnz, np.array([item])
    whole = weights.score(history, index, 1)[0, 0]
    falls = np.empty(number)
    for start, stop in batches(number, max(1, BLOCK // max(1, number))):
        falls[start:stop] = whole - weights.score(_without(history, start, stop), index, 1)[:, 0]
    return falls


def _without(history: Csr, start: int, stop: int) -> Csr:
    """The history without its entry `start`, without the next one, and so on up to `stop`, as rows."""
    rows, number = stop - start, history.nnz
    stay = np.arange(number) != np.arange(start, stop)[:, None]
    data, indices = (np.broadcast_to(array, stay.shape)[stay] for array in (history.data, history.indices))
    return sp.csr_array((data, indices, np.arange(rows + 1) * (number - 1)), shape=(rows, history.shape[1]))


class TrainedFoldIn(FoldIn):
    """Trained vectors P of the users and Q of the items; the vector of another history is folded in, as `FoldIn` says.

    A history scores p·Qᵀ. With nu = 0, p = A⁻¹·Σ (1 + g_i)·q_i, A = QᵀQ + l2·I + Σ g_i·q_i·q_iᵀ, g = alpha·h: the
    ridge regression of the indicator of the history on the item vectors. `explain` leaves out one event at a time; for
    a known user too it compares folded-in scores.

    Parameters
    ----------
    users : P, m × rank, in the basis of `items`
    training : the training data, whose row u is the history of user u
    items, spectrum, l2, alpha, nu : as for `FoldIn`
    """

    kind = "trained_fold_in"
    additive = False

    def __init__(
        self, users: Float, training: Csr, items: Float, spectrum: Float64, *, l2: float, alpha: float, nu: float
    ) -> None:
        super().__init__(items, spectrum, l2=l2, alpha=alpha, nu=nu)
        self.users, self.known, self.chosen = users, KnownRows(training), True

    @classmethod
    def of(cls, users: Float, items: Float, training: Csr, threads: int = 1) -> TrainedFoldIn:
        """Weights of trained vectors, with one vector for users with equal rows.

        Gain and ridge are chosen by `complete`, at the latest when a history is folded in.
        """
        users, items = KnownRows(training).average(users).copy(), items.copy()
        spectrum = rotate_to_axes(items, users, threads=threads)
        weights = cls(users, training, items, spectrum, l2=1.0, alpha=1.0, nu=0.0)
        weights.chosen = False
        return weights

    def complete(self, threads: int) -> None:
        """Choose the gain and the ridge with which folded-in vectors of users agree best with the trained ones.

        The agreement is the mean cosine between the folded-in and the trained vector, over up to 1,000 users.
        """
        if self.chosen:
            return
        training = self.known.matrix
        lengths = np.diff(training.indptr)
        sample = np.flatnonzero(lengths)[:: max(1, int((lengths > 0).sum()) // SAMPLE)][:SAMPLE]
        best, choice, scale = -np.inf, (self.l2, self.alpha), max(float(self.spectrum.mean()), 1e-12)
        for alpha in GAINS:
            for ridge in RIDGES:
                trial = FoldIn(self.items, self.spectrum, l2=ridge * scale, alpha=alpha, nu=self.nu)
                agreement = mean_cosine(trial.rows(training[sample], threads), self.users[sample])
                if agreement > best:
                    best, choice = agreement, (trial.l2, trial.alpha)
        (self.l2, self.alpha), self.chosen = choice, True

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> TrainedFoldIn:
        """Build from stored arrays."""
        plain = FoldIn.from_tensors(tensors, training)
        users = checked(tensors, "users", (training.shape[0], plain.items.shape[1]))
        settings = {"l2": plain.l2, "alpha": plain.alpha, "nu": plain.nu}
        return cls(users, training, plain.items, plain.spectrum, **settings)

    @property
    def nbytes(self) -> int:
        return int(self.items.nbytes + self.users.nbytes)

    def shares(self, history: Csr, item: int) -> Float64:
        self.complete(1)
        plain = FoldIn(self.items, self.spectrum, l2=self.l2, alpha=self.alpha, nu=self.nu)
        return differences(plain, history, item)

    def tensors(self) -> Tensors:
        self.complete(1)
        return super().tensors() | {"users": self.users}

    def rows(self, histories: Csr, threads: int) -> Float64:
        rows = self.known.find(histories)
        known, others = rows >= 0, (rows < 0) & (np.diff(histories.indptr) > 0)
        vectors = np.zeros((histories.shape[0], self.items.shape[1]))
        vectors[known] = self.users[rows[known]]
        if others.any():
            self.complete(threads)
            vectors[others] = super().rows(histories[others], threads)
        return vectors


class TrainedVectors(Weights):
    """Base class of weights with a vector of each history, from `rows`: a history scores p·Qᵀ with the items Q."""

    linear = False
    additive = False
    items: Float

    def rows(self, histories: Csr) -> Float64:
        """The vector of each history."""
        raise TypeError(f"{type(self).__name__} must define rows(histories)")

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        base = np.zeros(len(self.items))
        return best_by_products(self.rows(histories), self.items, base, eligible, k, threads=threads)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        return np.asarray(self.rows(histories) @ self.items[items].astype(np.float64).T)

    def columns(self, items: Indices) -> Float64:
        """W[i, j]: the score of j for the history [i] alone."""
        return self.score(sp.eye_array(len(self.items), dtype=np.float32, format="csr"), items, 1)


class TrainedSum(TrainedVectors):
    """Trained vectors P of the users and Q of the items; the vector of another history is a weighted sum of sources z.

    A history h scores p·Qᵀ with p = Σ_i h_i·z_i / |h|^power, |h| = Σ_i h_i: one propagation from the item vectors.
    `explain` leaves out one event at a time; for a known user too it compares scores of such sums.

    Parameters
    ----------
    users, items : P, m × rank, and Q, n × rank
    sources : z, n × rank
    power : of the size of the history, by which the sum is divided
    training : the training data, whose row u is the history of user u
    """

    kind = "trained_sum"

    def __init__(self, users: Float, items: Float, sources: Float, power: float, training: Csr) -> None:
        self.users, self.items, self.sources, self.power = users, items, sources, power
        self.known = KnownRows(training)

    @classmethod
    def of(cls, users: Float, items: Float, sources: Float, power: float, training: Csr) -> TrainedSum:
        """Weights of trained vectors, with one vector for users with equal rows."""
        return cls(KnownRows(training).average(users), items, sources, power, training)

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> TrainedSum:
        """Build from stored arrays."""
        (m, n), rank = training.shape, columns_of(tensors, "items")
        users, items = checked(tensors, "users", (m, rank)), checked(tensors, "items", (n, rank))
        power = float(checked(tensors, "power", (1,))[0])
        if not 0 <= power <= 1:
            raise ModelFileError(f"the file's weights have a power of {power:g}; expected 0 to 1")
        return cls(users, items, checked(tensors, "sources", (n, rank)), power, training)

    @property
    def nbytes(self) -> int:
        return int(self.items.nbytes + self.users.nbytes + self.sources.nbytes)

    def shares(self, history: Csr, item: int) -> Float64:
        """The difference of each entry, from the sum without it: in time linear in the history."""
        data = history.data.astype(np.float64)
        parts = data * (self.sources[history.indices].astype(np.float64) @ self.items[item].astype(np.float64))
        sizes = data.sum() - data if len(data) > 1 else np.zeros(len(data))
        without = np.where(sizes > 0, (parts.sum() - parts) / np.where(sizes > 0, sizes, 1.0) ** self.power, 0.0)
        return np.asarray(parts.sum() / (data.sum() or 1.0) ** self.power - without)

    def tensors(self) -> Tensors:
        power = np.array([self.power])
        return {"users": self.users, "items": self.items, "sources": self.sources, "power": power}

    def rows(self, histories: Csr) -> Float64:
        sizes = histories @ np.ones(histories.shape[1])
        sums = np.asarray(histories.astype(np.float64) @ self.sources.astype(np.float64))
        summed = sums / np.where(sizes > 0, sizes, 1.0)[:, None] ** self.power
        return with_known(summed, histories, self.known, self.users)


def with_known(vectors: Float64, histories: Csr, known: KnownRows, users: Float) -> Float64:
    """The vectors of histories, with the trained vector where a history is the row of a user; written in place."""
    rows = known.find(histories)
    vectors[rows >= 0] = users[rows[rows >= 0]]
    return vectors


def mean_cosine(left: Float, right: Float) -> float:
    """The mean cosine between the rows of two arrays; 0 for a row of zeros."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines = np.divide((left * right).sum(1), lengths, out=np.zeros(len(left)), where=lengths > 0)
    return float(cosines.mean()) if len(cosines) else 0.0
