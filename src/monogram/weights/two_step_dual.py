"""Two steps through the inverse over training users: what a history scores is scored once more."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.engine.gram.operators import multiply
from monogram.engine.inverse.dual import dual_solve
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64, Indices
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights, batches, checked, joined, part, warn_not_converged
from monogram.weights.dual import Dual

WIDTH = 64  # products are padded to a multiple of it, so that their rounding is nearly that of a history alone
BATCH = 4 * WIDTH  # histories of a product


class TwoStepDual(Weights):
    """W = ((1 − s)·B + s·B² + GGᵀ)·diag(f) through the `Dual` of B, without forming any of them.

    The second step is yB = y − (yC)∘(1/c) for y = hB, one product with K⁻¹. Scores take it to float64; lists take it in
    the precision of K⁻¹.

    Parameters
    ----------
    first : of B itself: θ = 1, δ = 0
    share : s
    factors : f, above 0
    basis : G, n × some columns, or None
    """

    kind = "twice"
    linear = True

    def __init__(self, first: Dual, share: float, factors: Float64, basis: NDArray[Any] | None = None) -> None:
        self.first, self.share, self.factors = first, share, factors
        self.basis = np.zeros((len(factors), 0), first.inverse.dtype) if basis is None else basis

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Any) -> TwoStepDual:
        """Build from stored arrays."""
        share, factors = float(checked(tensors, "share", (1,))[0]), checked(tensors, "factors", (training.shape[1],))
        if not 0 <= share <= 1:
            raise ModelFileError(f"the file's weights have a share of {share:g}; expected one between 0 and 1")
        if not (factors > 0).all():
            raise ModelFileError("the file's weights have a factor of an item that is not above 0")
        first = Dual.from_tensors(tensors, training)
        if not ((first.scale < 0).all() and (first.own == 1).all()):
            raise ModelFileError("the file's weights of two steps have a first step that is not a plain one")
        held = tensors.get("basis")
        columns = held.shape[1] if held is not None and held.ndim == 2 else 1
        basis = None if held is None else checked(tensors, "basis", (training.shape[1], columns))
        return cls(first, share, factors, basis)

    @property
    def nbytes(self) -> int:
        return int(self.first.nbytes + self.factors.nbytes + self.basis.nbytes)

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        return self.heads(np.ones((1, len(self.factors))), histories, eligible, k, threads)[0]

    def heads(self, thetas: Float64, histories: Any, eligible: Eligible, k: int, threads: int) -> list[Best]:
        """The best items by each row of `thetas` times the scores."""
        parts: list[list[Best]] = [[] for _ in thetas]
        for start, stop in batches(histories.shape[0], BATCH):
            scores = self._quick(histories[start:stop], threads)
            rules = part(eligible, start, stop)
            for head, one in zip(
                parts, heads_by_scores(scores, thetas * self.factors, rules, k, threads=threads), strict=True
            ):
                head.append(one)
        return [joined(head, k) for head in parts]

    def error(self, histories: Any, threads: int) -> float:
        """Of the scores that lists of these histories are made by, on items outside them, relative to the largest."""
        exact = self.score(histories, np.arange(len(self.factors)), threads)
        off = np.abs(self._quick(histories, threads) * self.factors - exact)
        seen = np.repeat(np.arange(len(exact)), np.diff(histories.indptr)), histories.indices
        off[seen] = exact[seen] = 0
        return float(off.max() / max(np.abs(exact).max(), 1e-30))

    def score(self, histories: Any, items: Indices, threads: int) -> Float64:
        out, every = np.empty((histories.shape[0], len(items))), np.arange(len(self.factors))
        for start, stop in batches(len(out), WIDTH):
            rows = histories[start:stop]
            found = self.first.score(rows, every, threads)
            mixed = self._mixed(found, self._exact(found.T, threads).T)[:, items]
            there = np.unique(rows.indices)
            common = rows[:, there].astype(np.float64) @ self.basis[there].astype(np.float64)
            beside = common @ self.basis[items].T.astype(np.float64)
            out[start:stop] = (mixed + beside) * self.factors[items]
        return out

    def columns(self, items: Indices) -> Float64:
        out, threads, c = np.empty((len(self.factors), len(items))), parallel.count(None), self._c()
        for start, stop in batches(len(items), WIDTH):
            found = self.first.columns(items[start:stop])
            second = found - self._exact(found / c[:, None], threads)
            beside = self.basis @ self.basis[items[start:stop]].T.astype(np.float64)
            out[:, start:stop] = (1 - self.share) * found + self.share * second + beside
        return out * self.factors[items]

    def shares(self, history: Any, item: int) -> Float64:
        return np.asarray(self.columns(np.array([item]))[history.indices, 0] * history.data)

    def base(self, items: Indices) -> Float64:
        return np.zeros(len(items))

    def tensors(self) -> Tensors:
        found = self.first.tensors() | {"share": np.array([self.share]), "factors": self.factors}
        return found | {"basis": self.basis} if self.basis.size else found

    def _c(self) -> Float64:
        """The diagonal of C, out of the scale −1/(c·ℓ)."""
        return np.asarray(-1 / (self.first.scale * self.first.penalties))

    def _mixed(self, found: Float64, through: Float64) -> Float64:
        """Both steps, from hB and (hB)C."""
        return np.asarray(found - self.share / self._c() * through)

    def _exact(self, block: Float64, threads: int) -> Float64:
        """The product C·block (n × columns), to float64."""
        held, spread = self.first, block / self.first.penalties[:, None]
        with parallel.blas_threads(threads):
            right = sp.csc_array(held.by_item.T @ spread)
            solved, converged = dual_solve(held.inverse, held.by_item, held.penalties, right)
        warn_not_converged(converged)
        return np.asarray(spread - (held.by_item @ solved) / held.penalties[:, None])

    def _quick(self, rows: Any, threads: int) -> NDArray[Any]:
        """Scores of histories before the factors of the items, the second step in K⁻¹’s precision."""
        first, through = two_step_products(self.first, rows, threads)
        # (1 − s)·y + s·yB = y·(1 − s/(c·ℓ)) + (yΛ⁻¹X̃ᵀK⁻¹X̃)·s/(c·ℓ), and the scale is −1/(c·ℓ)
        second = (self.share * self.first.scale)[:, None]
        out = np.ascontiguousarray((first * (1 + second) - second * through).T)
        if self.basis.size:
            common = np.zeros((_padded(len(out)), self.basis.shape[1]), self.basis.dtype)
            common[: len(out)] = rows @ self.basis
            with parallel.blas_threads(threads):
                out += (common @ self.basis.T)[: len(out)]
        return out


def two_step_products(held: Dual, rows: Any, threads: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of histories y = hB, and yΛ⁻¹X̃ᵀK⁻¹X̃, of which yB is made; a history a column."""
    size = rows.shape[0]
    coefficients, own = held._solved(rows, held._known(rows), threads)
    first = multiply(held.by_item, coefficients.T.astype(np.float64), threads)
    first *= held.scale[:, None]
    first[rows.indices, np.repeat(np.arange(size), np.diff(rows.indptr))] += own
    block = np.zeros((len(first), _padded(size)), held.inverse.dtype)
    block[:, :size] = first / held.penalties[:, None]
    spread = multiply(held.training, block, threads)
    spread *= held.roots.astype(spread.dtype)[:, None]
    with parallel.blas_threads(threads):
        solved = held.inverse @ spread
    return first, multiply(held.by_item, np.ascontiguousarray(solved[:, :size]), threads)


def _padded(size: int) -> int:
    return -(-size // WIDTH) * WIDTH
