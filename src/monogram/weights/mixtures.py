"""Several models of two steps that differ by little, ranked from one pass of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64
from monogram.engine.topk.best import Best, Eligible, heads_by_scores
from monogram.weights.common import batches, joined, part
from monogram.weights.dense import Dense
from monogram.weights.dual import Dual
from monogram.weights.two_step_dual import BATCH, two_step_products


@dataclass(frozen=True, eq=False)
class Mixture:
    """W = ((1 − share)·B + share·B² + weight·VVᵀ)·diag(θ), V the first `rank` directions, for each row θ of thetas."""

    share: float
    weight: float
    rank: int
    thetas: Float64


class Mixtures:
    """Ranks by mixtures of B, B² and a projection, of which a history is multiplied with each once.

    Parameters
    ----------
    first : B
    basis : V, items × directions, the leading ones first
    """

    def __init__(self, first: Dense | Dual, basis: NDArray[Any]) -> None:
        self.first, self.basis = first, basis

    def heads(
        self, mixtures: Sequence[Mixture], histories: Any, eligible: Eligible, k: int, threads: int
    ) -> list[Best]:
        """The best items of each history by each row of each mixture, in their order."""
        parts: list[list[Best]] = [[] for one in mixtures for _ in one.thetas]
        for start, stop in batches(histories.shape[0], BATCH):
            rows, rules = histories[start:stop], part(eligible, start, stop)
            with parallel.blas_threads(threads):
                steps, common = self._steps(rows, threads), self._common(rows, mixtures)
                found = [
                    head
                    for one in mixtures
                    for head in heads_by_scores(_mixed(one, *steps, common), one.thetas, rules, k, threads=threads)
                ]
            for head, best in zip(parts, found, strict=True):
                head.append(best)
        return [joined(head, k) for head in parts]

    def _common(self, rows: Any, mixtures: Sequence[Mixture]) -> dict[int, NDArray[Any]]:
        """The projections of histories, by rank."""
        held: Any = rows.astype(self.basis.dtype) @ self.basis
        ranks = {one.rank for one in mixtures if one.weight}
        return {rank: held[:, :rank] @ self.basis[:, :rank].T for rank in ranks}

    def _steps(self, rows: Any, threads: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The scores of histories by B, and by B²."""
        if isinstance(self.first, Dense):
            one = rows.astype(self.first.matrix.dtype) @ self.first.matrix
            return one, one @ self.first.matrix
        one, through = two_step_products(self.first, rows, threads)
        scale = self.first.scale[:, None]
        return np.ascontiguousarray(one.T), np.ascontiguousarray((one * (1 + scale) - scale * through).T)


def _mixed(one: Mixture, first: NDArray[Any], second: NDArray[Any], common: dict[int, NDArray[Any]]) -> NDArray[Any]:
    out = (1 - one.share) * first
    out += one.share * second
    if one.weight:
        out += one.weight * common[one.rank]
    return np.asarray(out)
