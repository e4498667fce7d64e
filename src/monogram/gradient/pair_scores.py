"""Scores of pairs from the whole tables of vectors, as an operation of torch: no array of pairs × rank is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from monogram.engine.gram.pair_products import add_pairs, pair_products


class PairScores(torch.autograd.Function):  # type: ignore[misc]
    """x_a·y_b for each pair; the gradients are products of a sparse matrix, a weight for each pair, with Y and X."""

    @staticmethod
    def forward(ctx: Any, left: Any, right: Any, pairs: Any, threads: int) -> Any:
        """The scores."""
        ctx.save_for_backward(left, right)
        ctx.pairs, ctx.threads = tuple(index.numpy() for index in pairs), threads
        return torch.from_numpy(pair_products(left.detach().numpy(), right.detach().numpy(), ctx.pairs, threads))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """The gradients of both tables."""
        (left, right), weights = (table.detach().numpy() for table in ctx.saved_tensors), gradient.contiguous().numpy()
        sides = ((right, ctx.pairs, len(left)), (left, ctx.pairs[::-1], len(right)))
        gradients = [
            torch.from_numpy(add_pairs(weights, *side, ctx.threads)) if needed else None
            for side, needed in zip(sides, ctx.needs_input_grad, strict=False)
        ]
        return *gradients, None, None


def pair_scores(
    users: torch.Tensor, items: torch.Tensor, pairs: tuple[torch.Tensor, torch.Tensor], threads: int
) -> torch.Tensor:
    """The score of each pair (user, item), from tables of vectors on the CPU."""
    scores: torch.Tensor = PairScores.apply(users, items, pairs, threads)
    return scores


def squared_norms(table: torch.Tensor, index: torch.Tensor, threads: int) -> torch.Tensor:
    """The squared norm of each of some rows; half of it has a gradient, counted twice, as one product is enough."""
    half = pair_scores(table, table.detach(), (index, index), threads)
    return 2 * half - half.detach()


def compile_pairs(dtype: str) -> None:
    """Compile the kernels."""
    one, index = np.ones((1, 1), dtype), np.zeros(1, np.int64)
    add_pairs(pair_products(one, one, (index, index)), one, (index, index), 1)
    wide = np.ones((1, 64), dtype)
    add_pairs(one[0], wide, (index, index), 1)
