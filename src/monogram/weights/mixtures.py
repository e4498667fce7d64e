"""Several two-step models that share B and a projection, ranked from one pass of scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.engine.topk.two_steps import two_steps
from monogram.weights.common import batches, joined, part
from monogram.weights.dense import Dense
from monogram.weights.dual import Dual
from monogram.weights.projection import Projection
from monogram.weights.sparse import Sparse
from monogram.weights.two_step import own_scores
from monogram.weights.two_step_dual import BATCH, two_step_products

Key = tuple[int, bytes]  # the rank and the powers of a projection


@dataclass(frozen=True, eq=False)
class Mixture:
    """W = ((1 − share)·B + share·B² + weight·D⁻¹VVᵀD)·diag(θ) + repeat·I, for each row θ of `thetas`.

    V are the first `rank` directions, D = diag(powers); None: D = I.
    """

    share: float
    weight: float
    rank: int
    thetas: Float64
    repeat: float = 0.0
    powers: Float64 | None = None


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

    def _common(self, rows: Csr, mixtures: Sequence[Mixture]) -> dict[Key, Float]:
        """The projections of the histories, by the rank and the powers of the projection."""
        rows = rows.astype(self.basis.dtype)
        coordinates: dict[bytes, Float] = {}
        common: dict[Key, Float] = {}
        for mixture in mixtures:
            key = _key(mixture)
            if mixture.weight and key not in common:
                projection = Projection(self.basis, mixture.powers)
                if key[1] not in coordinates:
                    coordinates[key[1]] = projection.coordinates(rows)
                common[key] = projection.scores(coordinates[key[1]], mixture.rank)
        return common

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


def _key(mixture: Mixture) -> Key:
    return mixture.rank, b"" if mixture.powers is None else mixture.powers.tobytes()


def _mixed(mixture: Mixture, first: Float, second: Float, common: dict[Key, Float]) -> Float:
    out = (1 - mixture.share) * first
    out += mixture.share * second
    if mixture.weight:
        out += mixture.weight * common[_key(mixture)]
    return np.asarray(out)


def _scaled(mixture: Mixture, scores: Float, rows: Csr) -> Iterator[tuple[Float, Float64]]:
    """Scores, and factors to multiply them with: of all heads together, or one by one where they differ in the sum."""
    if not mixture.repeat:
        yield scores, mixture.thetas
        return
    for theta in mixture.thetas:
        yield scores + own_scores(rows, mixture.repeat / theta), theta[None]
