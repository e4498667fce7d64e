"""Several two-step models that share B and a projection, ranked from one pass of scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.engine.topk.two_steps import two_steps
from monogram.weights.common import batches, joined, part
from monogram.weights.dense import Dense
from monogram.weights.dual import Dual
from monogram.weights.sparse import Sparse
from monogram.weights.two_step import own_scores
from monogram.weights.two_step_dual import BATCH, two_step_products


@dataclass(frozen=True, eq=False)
class Mixture:
    """W = ((1 − share)·B + share·B² + weight·VVᵀ)·diag(θ) + repeat·I, V the first `rank` directions, for each row θ."""

    share: float
    weight: float
    rank: int
    thetas: Float64
    repeat: float = 0.0


class Mixtures:
    """Ranks by several mixtures of B, B² and a projection; a history is multiplied by each of the three once.

    Parameters
    ----------
    first : B
    basis : V, items × directions, the leading ones first
    """

    def __init__(self, first: Dense | Dual | Sparse, basis: Float) -> None:
        self.first, self.basis = first, basis

    def heads(
        self, mixtures: Sequence[Mixture], histories: Csr, eligible: Eligible, k: int, threads: int
    ) -> list[Best]:
        """The best items of each history by each row of each mixture, in the order of the mixtures."""
        parts: list[list[Best]] = [[] for mixture in mixtures for _ in mixture.thetas]
        for start, stop in batches(histories.shape[0], BATCH):
            rows, rules = histories[start:stop], part(eligible, start, stop)
            with parallel.blas_threads(threads):
                steps, common = self._steps(rows, threads), self._common(rows, mixtures)
                ranked = [
                    best
                    for mixture in mixtures
                    for scores, thetas in _scaled(mixture, _mixed(mixture, *steps, common), rows)
                    for best in heads_by_scores(scores, thetas, rules, k, threads=threads)
                ]
            for head, best in zip(parts, ranked, strict=True):
                head.append(best)
        return [joined(head, k) for head in parts]

    def _common(self, rows: Csr, mixtures: Sequence[Mixture]) -> dict[int, Float]:
        """The projections of the histories, by rank of the projection."""
        coordinates: Any = rows.astype(self.basis.dtype) @ self.basis
        ranks = {mixture.rank for mixture in mixtures if mixture.weight}
        return {rank: coordinates[:, :rank] @ self.basis[:, :rank].T for rank in ranks}

    def _steps(self, rows: Csr, threads: int) -> tuple[Float, Float]:
        """The scores of histories by B, and by B²."""
        if isinstance(self.first, Sparse):
            return two_steps(self.first.matrix, rows, threads=threads)
        if isinstance(self.first, Dense):
            first = rows.astype(self.first.matrix.dtype) @ self.first.matrix
            return first, first @ self.first.matrix
        first, through = two_step_products(self.first, rows, threads)
        scale = self.first.scale[:, None]
        return np.ascontiguousarray(first.T), np.ascontiguousarray((first * (1 + scale) - scale * through).T)


def _mixed(mixture: Mixture, first: Float, second: Float, common: dict[int, Float]) -> Float:
    out = (1 - mixture.share) * first
    out += mixture.share * second
    if mixture.weight:
        out += mixture.weight * common[mixture.rank]
    return np.asarray(out)


def _scaled(mixture: Mixture, scores: Float, rows: Csr) -> Iterator[tuple[Float, Float64]]:
    """Scores, and factors to multiply them with: of all heads together, or one by one where they differ in the sum."""
    if not mixture.repeat:
        yield scores, mixture.thetas
        return
    for theta in mixture.thetas:
        yield scores + own_scores(rows, mixture.repeat / theta), theta[None]
