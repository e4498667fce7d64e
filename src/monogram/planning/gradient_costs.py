"""Costs of gradient-trained fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monogram.engine.runtime import parallel
from monogram.planning.calibration import calibrate
from monogram.planning.cost import WORKSPACE, Cost
from monogram.planning.size import Size

TORCH = 300_000_000  # memory of the package torch, its buffers and threads
HEAP = 1.25  # bytes the allocator holds for each byte of the arrays of a batch: freed blocks are not always reused
COPIES = 6  # of the parameters: values, gradients, two moments, the best so far, and the weights of the result
VALIDATION = 64  # bytes for each event of early stopping: the parts of the split, their positions and a cut in progress
PAIRS = 24  # bytes for each event of a training on pairs: users, items, and the keys of the unseen items
LOOKUP_RATE = 2e8  # numbers of parameters looked up and updated a second, by one thread
PRODUCT_RATE = 2e9  # multiply-adds of sparse matrices with vectors a second, by one thread


@dataclass(frozen=True)
class TrainingSize:
    """What a training takes, for `gradient`.

    Attributes
    ----------
    parameters : numbers that are trained
    batch : numbers in the largest arrays of one batch, gradients included
    flops : of one epoch
    lookups : numbers looked up and updated in one epoch
    epochs : most epochs
    fixed : further bytes, such as a sparse graph
    products : multiply-adds of sparse matrices with vectors in one epoch
    """

    parameters: float
    batch: float
    flops: float
    lookups: float
    epochs: int
    fixed: float = 0.0
    products: float = 0.0


def gradient(solver: str, size: Size, needs: TrainingSize, *, dtype: str = "float32", threads: int = 1) -> Cost:
    """The cost of a gradient-trained fit."""
    width, threads = np.dtype(dtype).itemsize, parallel.count(threads)
    rate, _ = calibrate(dtype, threads)
    arrays = width * (COPIES * needs.parameters + HEAP * needs.batch) + needs.fixed + 40 * size.events
    sparse = needs.lookups / LOOKUP_RATE + needs.products / PRODUCT_RATE
    seconds = needs.epochs * (needs.flops / rate + sparse / threads)
    return Cost(
        solver=solver,
        bytes=int(arrays) + TORCH + WORKSPACE,
        flops=needs.epochs * needs.flops,
        seconds=seconds,
        advice="use a lower rank, or a lower batch",
        stages=(("epochs", float(needs.epochs), "epochs"),),
        avoidable=int(arrays),
    )
