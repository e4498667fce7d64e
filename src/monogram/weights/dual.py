"""W through the dual inverse K⁻¹ over the training users; W is never formed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from monogram.engine.gram.user_weights import scale_rows
from monogram.engine.inverse.dual import DualInverse, dual_solve, exact_columns
from monogram.engine.inverse.expand import block_rows, buffer_bytes, expand_rows
from monogram.engine.inverse.protocols import ReadableInverse
from monogram.engine.runtime import memory, parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.runtime.progress import Stage, silent
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.few import heads_by_gathering
from monogram.errors import MemoryBudgetError
from monogram.weights.common import Head, Tensors, Weights, batches, checked, joined, part, warn_not_converged
from monogram.weights.dense import Dense
from monogram.weights.update_state import UpdateState, rounded_scale


class Dual(Weights):
    """W = B·diag(θ) + diag(δ) through K⁻¹ (see `engine.inverse.dual`), without forming it.

    Any history is scored by hC = hΛ⁻¹ − ((hΛ⁻¹)X̃ᵀ)K⁻¹X̃Λ⁻¹, solved to float64. For ranking, a history equal to that of
    a training user u uses the row of u: hC = K⁻¹_u·X̃Λ⁻¹/√w_u, equal up to the precision of K⁻¹ and much faster. Only
    the history decides, so equal histories always get equal lists.

    Parameters
    ----------
    inverse : ndarray, m × m, symmetric
    training : CSR, the training data X
    penalties : ℓ
    scale : −θ/(c·ℓ), the factor of the sum of each item
    own : θ + δ, what an item of the history adds to its own score
    roots : √w of the training users
    """

    kind = "dual"
    solver = "dual"
    linear = True
    square_axis = "users"
    expansion = "rows"
    batch = 256

    def __init__(
        self,
        inverse: Float,
        training: Csr,
        penalties: Float64,
        scale: Float64,
        own: Float64,
        roots: Float64,
        update_state: UpdateState | None = None,
    ) -> None:
        self.update_state = update_state
        self.inverse, self.penalties, self.scale, self.own, self.roots = inverse, penalties, scale, own, roots
        self.training = training
        weights = None if (roots == 1).all() else roots**2
        self.by_item = scale_rows(training, weights).T.tocsr()
        self._first: dict[bytes, int] | None = None

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> Dual:
        """Build from stored arrays."""
        m, n = training.shape
        inverse = checked(tensors, "inverse", (m, m)).T  # symmetric: Fortran order for the kernels
        penalties, scale, own = (checked(tensors, name, (n,)) for name in ("penalties", "scale", "own"))
        return cls(inverse, training, penalties, scale, own, checked(tensors, "roots", (m,)))

    @property
    def nbytes(self) -> int:
        return int(self.inverse.nbytes + self.by_item.data.nbytes + self.by_item.indices.nbytes)

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        return self._ranked(self.scale[None], True, histories, eligible, k, threads)[0]

    def heads(self, thetas: Float64, histories: Csr, eligible: Eligible, k: int, threads: int) -> list[Best]:
        """The best items by each row of `thetas` times the scores; the items of a history must not be eligible."""
        return self._ranked(thetas * self.scale, False, histories, eligible, k, threads)

    def _ranked(
        self, scales: Float64, seen: bool, histories: Csr, eligible: Eligible, k: int, threads: int
    ) -> list[Best]:
        """One Best for each row of scales; with `seen`, items of the history add to their own scores."""
        parts: list[list[Best]] = [[] for _ in scales]
        for start, stop in batches(histories.shape[0], self.batch):
            rows = histories[start:stop]
            coefficients, own = self._solved(rows, self._training_users(rows), threads)
            own = own if seen else np.zeros_like(own)
            rules = part(eligible, start, stop)
            ranked = heads_by_gathering(self.by_item, scales, own, coefficients, rows, rules, k, threads=threads)
            for head, best in zip(parts, ranked, strict=True):
                head.append(best)
        return [joined(head, k) for head in parts]

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        out = np.empty((histories.shape[0], len(items)))
        wanted = self.by_item[items]
        for start, stop in batches(len(out), 64):
            rows = histories[start:stop]
            coefficients, own = self._solved(rows, np.full(rows.shape[0], -1), threads)
            out[start:stop] = (wanted @ coefficients.T).T * self.scale[items] + 0.0  # 0, not −0
            out[start:stop] += sp.csr_array((own, rows.indices, rows.indptr), shape=rows.shape)[:, items].toarray()
        return out

    def columns(self, items: Indices) -> Float64:
        columns, converged = exact_columns(self.inverse, self.by_item, self.penalties, items)
        warn_not_converged(converged)
        columns *= self.scale[items] * self.penalties[items]
        # B has a zero diagonal; the diagonal of W is δ = own − θ with θ = −scale·c·ℓ.
        columns[items, np.arange(len(items))] += self.own[items]
        return columns

    def tensors(self) -> Tensors:
        return {
            "inverse": self.inverse.T,
            "penalties": self.penalties,
            "scale": self.scale,
            "own": self.own,
            "roots": self.roots,
        }

    def serves_head(self, head: Head) -> bool:
        return self.update_state is not None

    def with_head(self, head: Head, d: Float64, counts: Float64) -> Weights:
        state = self.required_state()
        theta, delta = head(state.c, state.penalties, d, counts)
        other = copy.copy(self)
        other.scale, other.own = -theta / (state.c * state.penalties), theta + delta
        return other

    def copy_with_head(self, head: Head, d: Float64, counts: Float64, *, budget: int, threads: int) -> Weights:
        return self.with_head(head, d, counts)  # K⁻¹ is never written to

    def read_inverse(self, data: Csr) -> ReadableInverse:
        return DualInverse(self.inverse, data.T.tocsr(), self.penalties, 1)

    def expanded_bytes(self, threads: int) -> int:
        n, itemsize = len(self.penalties), self.inverse.dtype.itemsize
        return n * n * itemsize + buffer_bytes(len(self.inverse), itemsize, threads)

    def expand(self, *, budget: int | None = None, threads: int | None = None, stage: Stage = silent) -> Dense:
        budget, threads = memory.parse(budget), parallel.count(threads)
        needed, n = self.expanded_bytes(threads), len(self.penalties)
        if needed > budget:
            raise MemoryBudgetError(
                f"the weights of {n:,} items beside the dual inverse need {memory.show(needed)}, but may use "
                f"{memory.show(budget)}; raise the memory, or write them to a file by blocks: save(path, expand=True)"
            )
        out, expansion = np.empty((n, n), self.inverse.dtype), Expansion(self, threads)
        expansion.fill(out, 0, lambda rows: stage("expand", rows))
        return Dense(out, update_state=expansion.update_state)

    def _solved(self, rows: Csr, users: Indices, threads: int) -> tuple[Float64, Float64]:
        """Coefficients y over the training users, and what each item of a history adds to its own score."""
        exact = self.inverse.dtype if (users >= 0).all() else np.float64
        out = np.empty((rows.shape[0], len(self.inverse)), exact)
        at, new = np.flatnonzero(users >= 0), np.flatnonzero(users < 0)
        out[at] = self.inverse.T[users[at]] / self.roots[users[at], None]
        for start, stop in batches(len(new), 64):
            out[new[start:stop]] = -self._solve_new(rows[new[start:stop]], threads)
        factors = self.own[rows.indices]
        factors = factors + np.repeat(users < 0, np.diff(rows.indptr)) * self.scale[rows.indices]
        return out, factors * rows.data

    def _solve_new(self, rows: Csr, threads: int) -> Float64:
        """The product (hΛ⁻¹)X̃ᵀK⁻¹ to float64, whatever the precision of K⁻¹."""
        scaled = rows.data / self.penalties[rows.indices]
        spread = sp.csr_array((scaled, rows.indices, rows.indptr), shape=rows.shape) @ self.by_item
        with parallel.blas_threads(threads):
            solved, converged = dual_solve(self.inverse, self.by_item, self.penalties, spread.T)
        warn_not_converged(converged)
        return solved.T

    def _training_users(self, rows: Csr) -> Indices:
        """For each history the first training user with an equal one, or −1."""
        if self._first is None:
            first: dict[bytes, int] = {}
            for user, key in enumerate(_keys(self.training)):
                first.setdefault(key, user)
            self._first = first
        return np.array([self._first.get(key, -1) for key in _keys(rows)], np.int64)


class Expansion:
    """The array W of a `Dual`, computed some rows at a time.

    Attributes
    ----------
    shape, dtype : of W
    rows : the number of rows to compute at once where W goes to a file
    update_state : of W; None where the dual weights have none
    """

    def __init__(self, dual: Dual, threads: int) -> None:
        self.dual, self.threads, self.dtype = dual, threads, dual.inverse.dtype
        n = len(dual.penalties)
        self.shape = n, n
        self.rows = block_rows(n, self.dtype.itemsize, threads)
        state = dual.update_state
        c = DualInverse(dual.inverse, dual.by_item, dual.penalties, threads).diagonal if state is None else state.c
        theta = -dual.scale * c * dual.penalties
        self._delta = dual.own - theta
        self._delta[np.abs(self._delta) <= 8 * np.finfo(np.float64).eps * np.abs(dual.own)] = 0.0
        self._scale = rounded_scale(theta, c, self.dtype)
        self.update_state = None if state is None else replace(state, scale=self._scale)

    def fill(self, out: Float, first: int, done: Callable[[int], None] | None = None) -> None:
        """Fill `out` with the rows of W that start at `first`; `done` receives numbers of finished rows."""
        dual = self.dual
        factors = 1 / dual.penalties, -self._scale / dual.penalties
        expand_rows(dual.inverse, dual.by_item, *factors, out, first, self.threads, done)
        at = np.arange(len(out))
        out[at, first + at] = self._delta[first : first + len(out)]


def _keys(rows: Csr) -> Iterator[bytes]:
    items, data = rows.indices.astype(np.int64), rows.data.astype(np.float32)
    for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        yield items[start:stop].tobytes() + data[start:stop].tobytes()
