"""W through linear solves with the sparse data; neither W nor an inverse is formed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.gram.user_weights import scale_rows
from monogram.engine.inverse import matrix_free
from monogram.engine.inverse.probing import Diagonal, exact_diagonal
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.bounds import Terms, best_by_columns, rescored
from monogram.errors import ModelFileError, MonogramWarning
from monogram.weights.common import Head, Tensors, Weights, batches, checked, joined, part

SURE = 5.0  # c is assumed to lie within this many standard errors
SPARE = 4  # candidates beyond k whose c is solved for; doubled while the list is uncertain
WIDEST = 512  # maximum number of candidates beyond k of one list
SCORED = 1024  # `score` solves for the c of at most this many items


class MatrixFree(Weights):
    """W = B·diag(θ) + diag(δ) by solving (S + Λ)z = h for each batch of histories (see `engine.inverse.matrix_free`).

    The score of item j is (θ_j + δ_j)·h_j − (θ_j/c_j)·z_j. Without a `diagonal` W = I − CΛ, whose scores need no c:
    h_j − ℓ_j·z_j. With one, c_j is known up to its standard error, and the top k is found in rounds: candidates are
    selected by the upper bound of the score within five standard errors, their c_j is solved for, and they are ranked
    again, until no other item can be in the top k. Solved c_j are cached; the cache does not change a list.

    Parameters
    ----------
    training : CSR, the training data X
    penalties : ℓ
    tolerance : of the residual of a history, relative to it
    dtype : the precision of the blocks
    diagonal : c and its standard error (0 where exact) for each item; or None
    weights : of the training users, in S = Xᵀ·diag(w)·X; None where all are 1
    kernel : the time kernel of S on the events of the training data; None where all pairs count the same
    """

    kind = "free"
    solver = matrix_free.NAME
    refit_from_log = True
    linear = True

    def __init__(
        self,
        training: Csr,
        penalties: Float64,
        tolerance: float,
        dtype: str,
        diagonal: Diagonal | None = None,
        weights: Float64 | None = None,
        kernel: TimeKernel | None = None,
        *,
        system: matrix_free.System | None = None,
    ) -> None:
        if system is None:
            system = matrix_free.System(scale_rows(training, weights), penalties, dtype, kernel)
        self.system = system
        self.penalties, self.diagonal, self.weights = penalties, diagonal, weights
        self.counts = np.bincount(training.indices, minlength=training.shape[1]).astype(np.float64)
        self.tolerance = float(np.array(tolerance, dtype))  # as it is stored
        self.head: Head | None = None  # that of B itself until one is bound
        self._refined: dict[int, float] = {}

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> MatrixFree:
        """Build from stored arrays."""
        n = training.shape[1]
        penalties, tolerance = checked(tensors, "penalties", (n,)), checked(tensors, "tolerance", (1,))
        if not 0 < tolerance[0] < 1:
            raise ModelFileError(
                f"the file's weights have a tolerance of {tolerance[0]:g}; expected one between 0 and 1"
            )
        diagonal = None
        if "diagonal" in tensors or "errors" in tensors:
            diagonal = Diagonal(checked(tensors, "diagonal", (n,)), checked(tensors, "errors", (n,)))
            if not ((diagonal.values > 0).all() and (diagonal.errors >= 0).all()):
                raise ModelFileError("the file's weights have a diagonal that is not above 0, or an error below 0")
        weights = checked(tensors, "weights", (training.shape[0],)) if "weights" in tensors else None
        if weights is not None and not (weights > 0).all():
            raise ModelFileError("the file's weights have a weight of a user that is not above 0")
        kernel = _stored_kernel(tensors, training)
        return cls(training, penalties, float(tolerance[0]), tolerance.dtype.name, diagonal, weights, kernel)

    @property
    def nbytes(self) -> int:
        return self.system.nbytes

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        lists: list[Best] = []
        residuals = [np.zeros(0)]
        terms = self._bounded()
        for rows, solved, start in self._solved(histories, self.tolerance, threads):
            rules = part(eligible, start, start + rows.shape[0])
            lists.append(self._best(solved.columns, terms, rows, rules, k, threads))
            residuals.append(solved.residuals)
        return replace(joined(lists, k), residuals=np.concatenate(residuals))

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        """Scores; for more than SCORED items with the estimated c."""
        terms = self._terms(
            self._refined_diagonal(items, threads) if len(items) <= SCORED else self._estimated(), items
        )
        out = np.empty((histories.shape[0], len(items)))
        for rows, solved, start in self._solved(histories, self.tolerance, threads):
            scores = out[start : start + rows.shape[0]]
            scores[...] = 0.0 - terms.scale * solved.columns[items].T + 0.0
            scores += rows[:, items].toarray() * terms.own
        return out

    def columns(self, items: Indices) -> Float64:
        threads, items = parallel.count(None), np.asarray(items)
        c = self._refined_diagonal(items, threads)
        terms, own = self._terms(c, items), np.arange(len(items))
        out = np.empty((len(self.penalties), len(items)))
        for rows, solved, start in self._solved(matrix_free.units(items, len(out)), self.tolerance, threads):
            out[:, start : start + rows.shape[0]] = solved.columns
        if c is not None:
            out[items, own] = c[items]
        out *= -terms.scale
        out[items, own] += terms.own
        return out

    def tensors(self) -> Tensors:
        own = {"penalties": self.penalties, "tolerance": np.array([self.tolerance], self.system.dtype)}
        if (kernel := self.system.kernel) is not None:
            own |= {"positions": kernel.positions, "kernel": np.array([kernel.decay, kernel.floor])}
        if self.weights is not None:
            own["weights"] = self.weights
        if self.diagonal is None:
            return own
        return own | {"diagonal": self.diagonal.values, "errors": self.diagonal.errors}

    def bind_head(self, head: Head) -> None:
        self.head = head

    def serves_head(self, head: Head) -> bool:
        return self.diagonal is not None or not head.needs_diagonal

    def with_head(self, head: Head, d: Float64, counts: Float64) -> Weights:
        other = copy.copy(self)
        other.head, other.diagonal = head, self.diagonal if head.needs_diagonal else None
        return other

    def copy_with_head(self, head: Head, d: Float64, counts: Float64, *, budget: int, threads: int) -> Weights:
        return self.with_head(head, d, counts)

    def _solved(
        self, histories: Csr, tolerance: float, threads: int
    ) -> Iterator[tuple[Csr, matrix_free.CgSolution, int]]:
        """Batches of histories, their solutions, and where each batch starts."""
        for start, stop in batches(histories.shape[0], self.system.width):
            rows = histories[start:stop]
            solved = matrix_free.solve(self.system, rows, tolerance=tolerance, threads=threads)
            _warn_not_converged(solved.converged)
            yield rows, solved, start

    def _best(self, solution: Float64, terms: Terms, rows: Csr, rules: Eligible, k: int, threads: int) -> Best:
        if self.diagonal is None or not self.diagonal.errors.any():
            return best_by_columns(solution, terms, rows, rules, k, threads=threads)
        out = Best(
            np.zeros((rows.shape[0], k), np.int64), np.zeros((rows.shape[0], k)), np.zeros(rows.shape[0], np.int64)
        )
        uncertain, width = np.arange(rows.shape[0]), k + SPARE
        while len(uncertain):
            mine, columns = rows[uncertain], np.ascontiguousarray(solution[:, uncertain])
            candidates = best_by_columns(columns, terms, mine, _only(rules, uncertain), width, threads=threads)
            lists = zip(candidates.items, candidates.counts, strict=True)
            items = np.unique(np.concatenate([row[:count] for row, count in lists]))
            exact = self._terms(self._refined_diagonal(items, threads), None)
            ranked, certain = rescored(candidates, columns, exact, mine, k)
            for name in ("items", "scores", "counts"):
                getattr(out, name)[uncertain] = getattr(ranked, name)
            uncertain = uncertain[~certain]
            if width >= k + WIDEST and len(uncertain):
                _warn_uncertain(len(uncertain))
                break
            width *= 2
        return out

    def _refined_diagonal(self, items: Indices, threads: int) -> Float64 | None:
        """c, with the entries of some items solved for exactly."""
        if self.diagonal is None:
            return None
        values = self.diagonal.values.copy()
        estimated = [int(j) for j in np.unique(items) if self.diagonal.errors[j] > 0]
        new = np.array([j for j in estimated if j not in self._refined], np.int64)
        if len(new):
            exact, converged = exact_diagonal(self.system, new, threads)
            _warn_not_converged(converged)
            self._refined |= dict(zip(new.tolist(), exact.tolist(), strict=True))
        values[estimated] = [self._refined[j] for j in estimated]
        return values

    def _estimated(self) -> Float64 | None:
        return None if self.diagonal is None else self.diagonal.values

    def _factors(self, c: Float64 | None) -> tuple[Float64, Float64]:
        if c is None and self.head is not None:  # θ/c = ℓ and θ + δ do not depend on c
            theta, delta = self.head(1 / self.penalties, self.penalties, self.system.d, self.counts)
            return np.asarray(self.penalties, np.float64), theta + delta
        if c is None:
            return np.asarray(self.penalties, np.float64), np.ones(len(self.penalties))
        if self.head is None:
            return 1 / c, np.ones_like(c)
        theta, delta = self.head(c, self.penalties, self.system.d, self.counts)
        return theta / c, theta + delta

    def _terms(self, c: Float64 | None, items: Indices | None) -> Terms:
        """The factors that convert z to scores for an exact c; all items, or some."""
        scale, own = (factor if items is None else factor[items] for factor in self._factors(c))
        return Terms(scale, own, np.zeros_like(scale), np.zeros_like(own))

    def _bounded(self) -> Terms:
        """The factors for the estimated c, with bounds of their errors."""
        scale, own = self._factors(self._estimated())
        slack = np.zeros((2, len(scale)))
        if self.diagonal is not None and self.diagonal.errors.any():
            for sign in (-SURE, SURE):
                c = self.diagonal.values + sign * self.diagonal.errors
                other = self._factors(np.clip(c, 1 / self.system.diagonal, 1 / self.penalties))
                slack = np.maximum(slack, np.abs(np.array(other) - np.array([scale, own])))
        return Terms(scale, own, *slack)


def _stored_kernel(tensors: Tensors, training: Csr) -> TimeKernel | None:
    """The time kernel of stored arrays; ModelFileError where its table could not be computed from them."""
    if "positions" not in tensors and "kernel" not in tensors:
        return None
    decay, floor = map(float, checked(tensors, "kernel", (2,)))
    positions = tensors.get("positions")
    if positions is None or positions.shape != (training.nnz,) or positions.dtype not in (np.int32, np.float64):
        raise ModelFileError("the file's weights have a time kernel, but not a position for each event")
    last = training.shape[1] if positions.dtype == np.int32 else np.inf  # no history has more events than items
    if not (0 < decay <= 100 and 0 <= floor < 1 and ((positions >= 0) & (positions < last)).all()):
        raise ModelFileError("the file's weights have a time kernel or a position of an event that is out of range")
    return TimeKernel(positions, decay, floor)


def _only(rules: Eligible, users: Indices) -> Eligible:
    """The eligibility rules of some users."""
    if len(users) == len(rules.out_pointers) - 1:
        return rules
    shape = (len(rules.out_pointers) - 1, len(rules.mask))
    out = _chosen(rules.out_pointers, rules.out, shape, users)
    only = _chosen(rules.only_pointers, rules.only, shape, users) if len(rules.only_pointers) else None
    none = rules.only_pointers, rules.only
    return Eligible(rules.mask, *out, *(none if only is None else only))


def _chosen(pointers: Indices, items: Indices, shape: tuple[int, int], users: Indices) -> tuple[Indices, Indices]:
    first = int(pointers[0])
    places = items[first : int(pointers[-1])]
    rows = sp.csr_array((np.ones(len(places), np.int8), places, pointers - first), shape=shape)[users]
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64)


def _warn_not_converged(converged: bool) -> None:
    if not converged:
        warnings.warn(
            "some histories were not solved to the tolerance (see `residuals` of the recommendations): "
            "their scores are approximate; raise l2 or dropout, or fit with dtype='float64'",
            MonogramWarning,
            stacklevel=4,
        )


def _warn_uncertain(lists: int) -> None:
    warnings.warn(
        f"{lists} lists may miss an item: more than {WIDEST} candidates have scores too close for the estimated "
        "diagonal; ask for fewer items, or use DLAE, which needs no diagonal",
        MonogramWarning,
        stacklevel=5,
    )
