"""What a fitted model is: something that scores every item for a batch of histories.

Histories come as a CSR batch (histories × items). The kinds:

- `Dense`: W itself, n × n; a score is a sum of rows.
- `Dual`: K⁻¹ of the training users (m × m) and the sparse data; W is never formed.
- `Fixed`: the same score for everyone (popularity).

Low-rank and sparse weights (`Factors`, `Sparse`) come with their models and keep to the same interface.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine import parallel
from monogram.engine.inverse import dual_solve, exact_columns, rooted
from monogram.engine.scores import sum_rows
from monogram.engine.topk import Best, Eligible, best_by_gathering, best_by_rows
from monogram.errors import ModelFileError, MonogramWarning

Float = NDArray[np.float64]
Indices = NDArray[np.int64]
Tensors = dict[str, NDArray[Any]]


class Weights(Protocol):
    """The interface of every kind of weights."""

    kind: str

    @property
    def nbytes(self) -> int:
        """Bytes held beside the training data."""

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        """The k best eligible items of each history."""

    def score(self, histories: Any, items: Indices, threads: int) -> Float:
        """Scores of the items for each history (histories × items)."""

    def columns(self, items: Indices) -> Float:
        """W[:, items]: what each item of a history adds to the scores of the items."""

    def shares(self, history: Any, item: int) -> Float:
        """What each entry of a history (a CSR batch of one) adds to the score of an item."""

    def base(self, items: Indices) -> Float:
        """The part of the scores of the items that no history changes."""

    def tensors(self) -> Tensors:
        """The arrays to store."""


class Dense:
    """W as one C-ordered array: row i is what item i of a history adds to every score."""

    kind = "dense"

    def __init__(self, matrix: NDArray[Any]) -> None:
        self.matrix = matrix

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Any) -> Dense:
        """Build from stored arrays."""
        n = training.shape[1]
        return cls(_checked(tensors, "weights", (n, n)))

    @property
    def nbytes(self) -> int:
        return int(self.matrix.nbytes)

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        return best_by_rows(self.matrix, histories, eligible, k, threads=threads)

    def score(self, histories: Any, items: Indices, threads: int) -> Float:
        return sum_rows(self.matrix, histories, items, threads=threads)

    def columns(self, items: Indices) -> Float:
        return self.matrix[:, items].astype(np.float64)

    def shares(self, history: Any, item: int) -> Float:
        return np.asarray(self.matrix[history.indices, item].astype(np.float64) * history.data)

    def base(self, items: Indices) -> Float:
        return np.zeros(len(items))

    def tensors(self) -> Tensors:
        return {"weights": self.matrix}


class Fixed:
    """One score an item, whatever the history."""

    kind = "fixed"

    def __init__(self, scores: Float) -> None:
        self.scores = scores

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Any) -> Fixed:
        """Build from stored arrays."""
        return cls(_checked(tensors, "scores", (training.shape[1],)))

    @property
    def nbytes(self) -> int:
        return int(self.scores.nbytes)

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        nothing = np.empty((0, len(self.scores)))
        return best_by_rows(nothing, histories, eligible, k, base=self.scores, threads=threads)

    def score(self, histories: Any, items: Indices, threads: int) -> Float:
        return np.tile(self.scores[items], (histories.shape[0], 1))

    def columns(self, items: Indices) -> Float:
        return np.zeros((len(self.scores), len(items)))

    def shares(self, history: Any, item: int) -> Float:
        return np.zeros(history.nnz)

    def base(self, items: Indices) -> Float:
        return np.asarray(self.scores[items])

    def tensors(self) -> Tensors:
        return {"scores": self.scores}


class Dual:
    """W = B·diag(θ) + diag(δ) through K⁻¹ (see `engine.inverse`), without forming it.

    Any history is scored by hC = hΛ⁻¹ − ((hΛ⁻¹)X̃ᵀ)K⁻¹X̃Λ⁻¹, solved to float64. To rank, one that a training user has
    is scored by that user's row of K⁻¹, hC = K⁻¹_u·X̃Λ⁻¹/√w_u: the same to the rounding of K⁻¹, and much quicker. The
    history alone decides, so the same one always gets the same list.

    Parameters
    ----------
    inverse : ndarray, m × m, symmetric
    training : CSR, the training data X
    penalties : ℓ
    scale : −θ/(c·ℓ), the factor of each item's gathered sum
    own : θ + δ, what an item of the history adds to its own score
    roots : √w of the training users
    """

    kind = "dual"
    batch = 256

    def __init__(
        self, inverse: NDArray[Any], training: Any, penalties: Float, scale: Float, own: Float, roots: Float
    ) -> None:
        self.inverse, self.penalties, self.scale, self.own, self.roots = inverse, penalties, scale, own, roots
        self.training = training
        weights = None if (roots == 1).all() else roots**2
        self.by_item = rooted(training, weights).T.tocsr()
        self._first: dict[bytes, int] | None = None

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Any) -> Dual:
        """Build from stored arrays."""
        m, n = training.shape
        inverse = _checked(tensors, "inverse", (m, m)).T  # symmetric: Fortran order for the kernels
        penalties, scale, own = (_checked(tensors, name, (n,)) for name in ("penalties", "scale", "own"))
        return cls(inverse, training, penalties, scale, own, _checked(tensors, "roots", (m,)))

    @property
    def nbytes(self) -> int:
        return int(self.inverse.nbytes + self.by_item.data.nbytes + self.by_item.indices.nbytes)

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        parts = []
        for start, stop in _batches(histories.shape[0], self.batch):
            rows = histories[start:stop]
            coefficients, own = self._solved(rows, self._known(rows), threads)
            part = _part(eligible, start, stop)
            parts.append(best_by_gathering(self.by_item, self.scale, own, coefficients, rows, part, k, threads=threads))
        if not parts:
            return Best(np.zeros((0, k), np.int64), np.zeros((0, k)), np.zeros(0, np.int64))
        return Best(
            np.concatenate([part.items for part in parts]),
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.counts for part in parts]),
        )

    def score(self, histories: Any, items: Indices, threads: int) -> Float:
        out = np.empty((histories.shape[0], len(items)))
        wanted = self.by_item[items]
        for start, stop in _batches(len(out), 64):
            rows = histories[start:stop]
            coefficients, own = self._solved(rows, np.full(rows.shape[0], -1), threads)
            out[start:stop] = (wanted @ coefficients.T).T * self.scale[items] + 0.0  # 0, not −0
            out[start:stop] += sp.csr_array((own, rows.indices, rows.indptr), shape=rows.shape)[:, items].toarray()
        return out

    def columns(self, items: Indices) -> Float:
        found, converged = exact_columns(self.inverse, self.by_item, self.penalties, items)
        _tell(converged)
        found *= self.scale[items] * self.penalties[items]
        # B has no diagonal: what stands there is δ = own − θ, and θ = −scale·c·ℓ.
        found[items, np.arange(len(items))] += self.own[items]
        return found

    def shares(self, history: Any, item: int) -> Float:
        return np.asarray(self.columns(np.array([item]))[history.indices, 0] * history.data)

    def base(self, items: Indices) -> Float:
        return np.zeros(len(items))

    def tensors(self) -> Tensors:
        return {
            "inverse": self.inverse.T,
            "penalties": self.penalties,
            "scale": self.scale,
            "own": self.own,
            "roots": self.roots,
        }

    def _solved(self, rows: Any, known: Indices, threads: int) -> tuple[Float, Float]:
        """Coefficients y over training users, and what each history item adds to its own score."""
        exact = self.inverse.dtype if (known >= 0).all() else np.float64
        out = np.empty((rows.shape[0], len(self.inverse)), exact)
        at, new = np.flatnonzero(known >= 0), np.flatnonzero(known < 0)
        out[at] = self.inverse.T[known[at]] / self.roots[known[at], None]
        for start, stop in _batches(len(new), 64):
            out[new[start:stop]] = -self._new(rows[new[start:stop]], threads)
        factors = self.own[rows.indices]
        factors = factors + np.repeat(known < 0, np.diff(rows.indptr)) * self.scale[rows.indices]
        return out, factors * rows.data

    def _new(self, rows: Any, threads: int) -> Float:
        """The product (hΛ⁻¹)X̃ᵀK⁻¹, to float64 whatever K⁻¹ is held in."""
        scaled = rows.data / self.penalties[rows.indices]
        spread = sp.csr_array((scaled, rows.indices, rows.indptr), shape=rows.shape) @ self.by_item
        with parallel.limited(threads):
            solved, converged = dual_solve(self.inverse, self.by_item, self.penalties, spread.T)
        _tell(converged)
        return solved.T

    def _known(self, rows: Any) -> Indices:
        """The first training user with each history, or −1."""
        if self._first is None:
            first: dict[bytes, int] = {}
            for user, key in enumerate(_keys(self.training)):
                first.setdefault(key, user)
            self._first = first
        return np.array([self._first.get(key, -1) for key in _keys(rows)], np.int64)


def from_tensors(kind: str, tensors: Tensors, training: Any) -> Weights:
    """Weights of a stored kind."""
    kinds: dict[str, Any] = {"dense": Dense, "fixed": Fixed, "dual": Dual}
    if kind not in kinds:
        raise ModelFileError(f"the file holds weights of kind {kind!r}; expected one of {', '.join(kinds)}")
    weights: Weights = kinds[kind].from_tensors(tensors, training)
    return weights


def _tell(converged: bool) -> None:
    if not converged:
        warnings.warn(
            "float32 is too coarse for this model: its scores of new histories are approximate; "
            "fit with dtype='float64', or with solver='primal'",
            MonogramWarning,
            stacklevel=4,
        )


def _checked(tensors: Tensors, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    found = tensors.get(name)
    if found is None or found.shape != shape or found.dtype.name not in ("float32", "float64"):
        given = "none" if found is None else f"one of {found.dtype} and shape {found.shape}"
        raise ModelFileError(f"the file must hold a float tensor {name!r} of shape {shape}; it has {given}")
    return found


def _batches(size: int, batch: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size, batch):
        yield start, min(start + batch, size)


def _keys(rows: Any) -> Iterator[bytes]:
    items, data = rows.indices.astype(np.int64), rows.data.astype(np.float32)
    for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        yield items[start:stop].tobytes() + data[start:stop].tobytes()


def _part(eligible: Eligible, start: int, stop: int) -> Eligible:
    only = eligible.only_pointers
    return Eligible(
        eligible.mask,
        eligible.out_pointers[start : stop + 1],
        eligible.out,
        only[start : stop + 1] if len(only) else only,
        eligible.only,
    )
