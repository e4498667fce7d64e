"""Two-step scoring through the dual inverse: the scores hB of a history are multiplied by B a second time."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from monogram.engine.gram.operators import multiply
from monogram.engine.inverse.dual import dual_solve
from monogram.engine.runtime import memory, parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.runtime.progress import Stage, silent
from monogram.errors import MemoryBudgetError, ModelFileError
from monogram.weights.common import Tensors, batches, warn_not_converged
from monogram.weights.dense import Dense
from monogram.weights.dual import Dual
from monogram.weights.projection import Projection
from monogram.weights.two_step import TwoStepWeights, own_scores

WIDTH = 64  # products are padded to a multiple of it, so that rounding is nearly that of an unbatched history
BATCH = 4 * WIDTH  # histories of one product
ROWS = 1024  # rows of the weights to which the projection is added at once, to bound the memory


class TwoStepDual(TwoStepWeights):
    """W = ((1 − s)·B + s·B² + P)·diag(f) + r·I through the `Dual` of B, without forming B.

    The second step is yB = y − (yC)∘(1/c) for y = hB, one product with K⁻¹: in float64 for scores, in the precision of
    K⁻¹ for ranked lists.

    Parameters
    ----------
    first : the `Dual` of B itself: θ = 1, δ = 0
    share : s
    factors : f, above 0
    low_pass : P, or None
    repeat : r, what an item of the history adds to its own score
    """

    kind = "twice"
    expansion = "whole"
    batch = BATCH

    def __init__(
        self, first: Dual, share: float, factors: Float64, low_pass: Projection | None = None, repeat: float = 0.0
    ) -> None:
        super().__init__(first, share, factors, low_pass, repeat, first.inverse.dtype)

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> TwoStepDual:
        """Build from stored arrays."""
        share, factors, low_pass, repeat = cls.stored(tensors, training.shape[1])
        first = Dual.from_tensors(tensors, training)
        if not ((first.scale < 0).all() and (first.own == 1).all()):
            raise ModelFileError(
                "the file's two-step weights have a first step with θ ≠ 1 or δ ≠ 0; expected θ = 1 and δ = 0"
            )
        return cls(first, share, factors, low_pass, repeat)

    def error(self, histories: Csr, threads: int) -> float:
        """The largest error of the ranking scores on items outside the histories, relative to the largest score."""
        exact = self.score(histories, np.arange(len(self.factors)), threads)
        errors = np.abs(self._ranking_scores(histories, threads) * self.factors - exact)
        seen = np.repeat(np.arange(len(exact)), np.diff(histories.indptr)), histories.indices
        errors[seen] = exact[seen] = 0
        return float(errors.max() / max(np.abs(exact).max(), 1e-30))

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        out, every = np.empty((histories.shape[0], len(items))), np.arange(len(self.factors))
        for start, stop in batches(len(out), WIDTH):
            rows = histories[start:stop]
            first = self.first.score(rows, every, threads)
            mixed = self._mixed(first, self._exact(first.T, threads).T)[:, items]
            out[start:stop] = (mixed + self.low_pass.of_items(rows, items)) * self.factors[items]
            if self.repeat:
                out[start:stop] += own_scores(rows, np.full(len(self.factors), self.repeat))[:, items]
        return out

    def columns(self, items: Indices) -> Float64:
        out, threads, c = np.empty((len(self.factors), len(items))), parallel.count(None), self._c()
        for start, stop in batches(len(items), WIDTH):
            first = self.first.columns(items[start:stop])
            second = first - self._exact(first / c[:, None], threads)
            projected = self.low_pass.columns(items[start:stop])
            out[:, start:stop] = (1 - self.share) * first + self.share * second + projected
        out *= self.factors[items]
        out[items, np.arange(len(items))] += self.repeat
        return out

    def expanded_bytes(self, threads: int) -> int:
        return int(self.first.expanded_bytes(threads) + len(self.factors) ** 2 * self.first.inverse.dtype.itemsize)

    def expand(self, *, budget: int | None = None, threads: int | None = None, stage: Stage = silent) -> Dense:
        budget, threads = memory.parse(budget), parallel.count(threads)
        needed = self.expanded_bytes(threads)
        if needed > budget:
            raise MemoryBudgetError(
                f"B and B² of {len(self.factors):,} items beside the dual inverse need {memory.show(needed)}, but may "
                f"use {memory.show(budget)}; raise the memory, or keep the dual weights"
            )
        first = self.first.expand(budget=budget, threads=threads, stage=stage).matrix
        with parallel.blas_threads(threads):
            return Dense(two_step_product(first, self.share, self.factors, self.low_pass, self.repeat))

    def _c(self) -> Float64:
        """The diagonal of C, from the scale −1/(c·ℓ)."""
        return np.asarray(-1 / (self.first.scale * self.first.penalties))

    def _mixed(self, first: Float64, through: Float64) -> Float64:
        """The scores of both steps, from hB and (hB)C."""
        return np.asarray(first - self.share / self._c() * through)

    def _exact(self, block: Float64, threads: int) -> Float64:
        """The product C·block (n × columns), to float64."""
        dual, spread = self.first, block / self.first.penalties[:, None]
        with parallel.blas_threads(threads):
            right = sp.csc_array(dual.by_item.T @ spread)
            solved, converged = dual_solve(dual.inverse, dual.by_item, dual.penalties, right)
        warn_not_converged(converged)
        return np.asarray(spread - (dual.by_item @ solved) / dual.penalties[:, None])

    def _ranking_scores(self, rows: Csr, threads: int) -> Float:
        """Scores of histories without the item factors, with the second step in the precision of K⁻¹."""
        first, through = two_step_products(self.first, rows, threads)
        # (1 − s)·y + s·yB = y·(1 − s/(c·ℓ)) + (yΛ⁻¹X̃ᵀK⁻¹X̃)·s/(c·ℓ), and the scale is −1/(c·ℓ)
        second = (self.share * self.first.scale)[:, None]
        out = np.ascontiguousarray((first * (1 + second) - second * through).T)
        basis = self.low_pass.basis
        if basis.size:
            common = np.zeros((_padded(len(out)), basis.shape[1]), basis.dtype)
            common[: len(out)] = self.low_pass.coordinates(rows)
            with parallel.blas_threads(threads):
                out += self.low_pass.scores(common)[: len(out)]
        return out


def two_step_products(dual: Dual, rows: Csr, threads: int) -> tuple[Float, Float]:
    """y = hB and yΛ⁻¹X̃ᵀK⁻¹X̃, from which yB follows; one history in each column."""
    size = rows.shape[0]
    coefficients, own = dual._solved(rows, dual._training_users(rows), threads)
    first = multiply(dual.by_item, coefficients.T.astype(np.float64), threads)
    first *= dual.scale[:, None]
    first[rows.indices, np.repeat(np.arange(size), np.diff(rows.indptr))] += own
    block = np.zeros((len(first), _padded(size)), dual.inverse.dtype)
    block[:, :size] = first / dual.penalties[:, None]
    spread = multiply(dual.training, block, threads)
    spread *= dual.roots.astype(spread.dtype)[:, None]
    with parallel.blas_threads(threads):
        solved = dual.inverse @ spread
    return first, multiply(dual.by_item, np.ascontiguousarray(solved[:, :size]), threads)


def two_step_product(
    matrix: Float, share: float, factors: Float64, low_pass: Projection | None, repeat: float = 0.0
) -> Float:
    """The array ((1 − s)·B + s·B² + P)·diag(f) + r·I; the array of B is overwritten."""
    out = matrix @ matrix
    out *= share
    matrix *= 1 - share
    out += matrix
    if low_pass is not None and low_pass.basis.size:
        for start in range(0, len(out), ROWS):
            out[start : start + ROWS] += low_pass.rows(start, start + ROWS)
    out *= factors.astype(out.dtype)
    if repeat:
        out[np.diag_indices(len(out))] += repeat
    return out


def _padded(size: int) -> int:
    return -(-size // WIDTH) * WIDTH
